"""Panels that show one quantity against the step, time, epoch or bytes."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from analysis.axes import LINKS, MISSING, positions, unit
from analysis.decay import drops
from analysis.groups.aggregate import (
    RELATIVE_VARIANCE,
    UNFINISHED,
    UNMEASURED,
    any_complete,
    fewer,
    marked,
    mean_and_spread,
    runs_to_use,
    seeds,
    spread,
    wide,
    with_own_error,
)
from analysis.groups.seed_groups import Group, SeedGroup, title
from analysis.plots.legends import DROP, DROP_OF_CURVE
from analysis.plots.style import look
from analysis.plots.ticks import log_ticks, x_axis

BOTH = ("method", "sgd")  # the trajectories of what a run measures beside its training
REFERENCES = {"super_var": "supersgd", "sgd_var": "sgd"}  # tag -> the method that it is the variance of
_UNEVEN = 4.0  # largest over smallest
_CROWD = 6  # bands; more are drawn only where each leaves the others to be seen
_WIDEST = 0.25  # share of the axis that a band of a crowd may take
_SAME = 0.02  # share of the axis: places that are nearer to each other are one


@dataclass(frozen=True)
class Plot:
    """One quantity against an x axis."""

    name: str
    title: str
    tags: tuple[str, ...]  # the first that was logged is drawn
    label: str
    log: bool  # logarithmic axis; then the mean over seeds is the geometric one, and the interval that of the logarithm
    trajectories: tuple[str, ...] = ("method",)
    references: bool = False
    steep: bool = False  # at the beginning, which would squeeze the rest


PLOTS = (
    Plot(
        "est_var",
        "Variance of the gradient estimate",
        ("est_var",),
        "variance of the gradient",
        True,
        BOTH,
        references=True,
    ),
    Plot(
        "relative_var",
        "Variance relative to SuperSGD",
        (RELATIVE_VARIANCE,),
        "variance relative to SuperSGD",
        True,
        BOTH,
    ),
    Plot("est_nvar", "Variance over the second moment", ("est_nvar",), "variance / second moment", True, BOTH),
    Plot("est_snr", "Logarithm of signal over noise", ("est_snr",), "log signal-to-noise ratio", False, BOTH),
    Plot(
        "norm_var",
        "Variance of the normalised coordinates",
        ("norm_var",),
        "var. of normalised coordinates",
        True,
        BOTH,
    ),
    Plot(
        "nb_error",
        "Expected error of the levels",
        ("nb_error",),
        "error of the levels \N{GREEK CAPITAL LETTER PSI}",
        True,
        BOTH,
    ),
    Plot("validation_loss", "Validation loss", ("Vloss",), "validation loss", True),
    Plot("training_loss", "Training loss", ("Tloss", "loss"), "training loss", True),
    Plot("accuracy", "Validation accuracy", ("Vacc",), "validation accuracy (%)", False, steep=True),
    Plot(
        "correlation",
        "Correlation of predictions and labels",
        ("Vpearson", "Vmatthews"),
        "validation correlation",
        False,
        steep=True,
    ),
)


@dataclass(frozen=True)
class _Curve:
    """A seed group's mean over seeds: step, x (position on the axis), and mean, low and high of the quantity there.

    band: what lies between low and high, a key of ``analysis.plots.legends.SPREADS``.
    """

    seed_group: SeedGroup
    label: str
    complete: bool  # some of its runs are
    runs: tuple[str, ...]
    step: np.ndarray
    x: np.ndarray
    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray
    band: str

    def at(self, axis_positions: np.ndarray, size: float) -> _Curve | None:
        """The part of the curve where the position is known, in units of ``size``; None for less than two points."""
        known = np.isfinite(axis_positions)
        parts = {name: getattr(self, name)[known] for name in ("step", "mean", "low", "high")}
        return replace(self, x=axis_positions[known] / size, **parts) if known.sum() > 1 else None


class Means:
    """The means over seeds of one group of runs, each computed when it is first asked for, for all axes."""

    def __init__(self, group: Group) -> None:
        self.group = group
        self._of_plot: dict[str, list[_Curve] | str] = {}

    def of(self, plot: Plot) -> list[_Curve] | str:
        """A curve against the step for every seed group that has one; a sentence where none has."""
        if plot.name not in self._of_plot:
            self._of_plot[plot.name] = self._computed(plot)
        return self._of_plot[plot.name]

    def _computed(self, plot: Plot) -> list[_Curve] | str:
        there = set(self.group.logs.tags)
        tag = next((tag for tag in plot.tags if there.issuperset(tag.split(" / "))), None)
        if tag is None:
            return f"no run has logged {' or '.join(plot.tags)}{f' {UNMEASURED}' if plot.trajectories == BOTH else ''}"
        found = [_curve(self.group, *used, tag, plot.log) for used in self._used]
        drawable = [curve for curve in found if len(curve.step) > 1]
        if not drawable and any(len(curve.step) for curve in found):
            return f"{tag} has one value a run, and a curve takes two"
        return drawable or f"{tag} has no finite {'positive ' if plot.log else ''}value"

    @functools.cached_property
    def _used(self) -> list[tuple[SeedGroup, list[str], bool]]:
        """Each seed group, the runs from which its curves are made, and whether any of its runs is complete."""
        logs = self.group.logs
        return [(each, runs_to_use(logs, each), any_complete(logs, each)) for each in self.group.seed_groups]

    @functools.cached_property
    def drops(self) -> list[float]:
        return drops(self.group.logs)

    @functools.cached_property
    def uneven(self) -> bool:
        """Whether the methods differ so much in bytes that a linear axis would show one of them alone."""
        sent = self.group.logs.of_tag("comm/bytes").max()
        sent = sent[sent > 0]
        return len(sent) > 1 and float(sent.max()) > _UNEVEN * float(sent.min())


def _curve(group: Group, seed_group: SeedGroup, runs: Sequence[str], complete: bool, tag: str, log: bool) -> _Curve:
    found = seeds(group.logs, tag, runs, geometric=log)
    label = marked(seed_group.label, fewer(seed_group, len(found.runs)) if complete else UNFINISHED)
    step = found.step.astype(float)
    mean, low, high = mean_and_spread(found.values, geometric=log)
    band = spread(len(found.runs))
    # no seeds tell its interval
    if tag == RELATIVE_VARIANCE and len(found.runs) == 1 and "relative_var_se" in group.logs.tags:
        error = wide(group.logs, "relative_var_se", found.runs)[found.runs[0]].reindex(found.step)
        band, (low, high) = "error", with_own_error(mean, error.to_numpy(float))
    return _Curve(seed_group, label, complete, found.runs, step, step, mean, low, high, band)


# --- one panel ----------------------------------------------------------------------------------------------------


def curves(axes: Axes, means: Means, plot: Plot, axis: str = "step") -> str | None:
    """Draw a quantity for every seed group: its mean over seeds, and a band; a sentence where there is none.

    The band is the range of the seeds, from four seeds on the 95 % interval of their mean.  All bands are drawn or
    none: where there are more than six, and some so wide that they would hide the others.

    On another axis than the step (``analysis.axes``), the mean of the quantity at a step stands at the mean over the
    same seeds of where they were at that step.  Seed groups of which some seeds are missing are pale and end in a
    circle; those of which no run is complete show what there is, dotted, and end in a cross; the legend says so.  Bytes
    that differ much between methods take a logarithmic axis, on which step 0 has no place.
    """
    found = on_axis(means, plot, axis)
    if isinstance(found, str):
        return found
    shown, size, label, uneven = found
    for curve in shown:
        _line(axes, curve)
    if plot.references and axis in ("step", "epoch"):  # the time and bytes of other methods are not theirs
        _references(axes, means.group, axis)
    if uneven:
        axes.set_xscale("log")
    _limit(axes, plot)
    _bands(axes, shown, plot.log)
    _drops(axes, means, shown, axis, size, plot.log)
    axes.set_ylabel(plot.label)
    x_axis(axes, label, whole=axis == "step")
    if plot.log:
        log_ticks(axes)
    else:
        axes.yaxis.set_major_locator(MaxNLocator(5))
    return None


def on_axis(means: Means, plot: Plot, axis: str) -> tuple[list[_Curve], float, str, bool] | str:
    """The curves of a quantity on an axis, or a sentence where there is none.

    With them: the size of the axis' unit, its label, and whether it is logarithmic.
    """
    found = means.of(plot)
    if isinstance(found, str):
        return found
    uneven = axis in ("bytes", *LINKS) and means.uneven
    places = [positions(means.group.logs, axis, curve.runs, curve.step).to_numpy().mean(axis=1) for curve in found]
    places = [np.where(place > 0, place, np.nan) if uneven else place for place in places]
    if not any(np.isfinite(place).any() for place in places):
        return MISSING[axis]
    size, label = unit(axis, max(float(np.nanmax(place)) for place in places if np.isfinite(place).any()))
    placed = [curve.at(place, size) for curve, place in zip(found, places, strict=True)]
    shown = [curve for curve in placed if curve is not None]
    return (shown, size, label, uneven) if shown else "no run has two values on this axis, and a curve takes two"


def _line(axes: Axes, curve: _Curve) -> None:
    style = look(curve.seed_group)
    keywords: dict[str, Any] = style.line(len(curve.x))
    if curve.label != curve.seed_group.label:
        keywords |= {"alpha": 0.6} if curve.complete else {"alpha": 0.75, "linestyle": ":"}
        end = {"marker": "o", "markersize": 7} if curve.complete else {"marker": "x", "markersize": 6}
        last = (curve.x[-1:], curve.mean[-1:])
        axes.plot(*last, linestyle="none", color=style.colour, markerfacecolor="none", gid="end", zorder=4, **end)
    axes.plot(curve.x, curve.mean, label=curve.label, zorder=3, **keywords)


def _bands(axes: Axes, shown: Sequence[_Curve], log: bool) -> None:
    """Draw the bands, fainter the more there are, or none of a crowd of wide ones; the axis limits must stand."""
    there = [curve for curve in shown if np.isfinite(curve.low).any()]
    scale = np.log10 if log else np.asarray
    height = float(np.ptp(scale(axes.get_ylim())))
    wide = any(np.nanmedian(scale(curve.high) - scale(curve.low)) > _WIDEST * height for curve in there)
    if wide and len(there) > _CROWD:
        axes.plot([], [], linestyle="none", gid="no bands")
        return
    for curve in there:
        alpha = float(np.clip(0.7 / len(there), 0.03, 0.15))
        axes.fill_between(
            curve.x, curve.low, curve.high, color=look(curve.seed_group).colour, alpha=alpha, linewidth=0, zorder=2
        )
        axes.plot([], [], linestyle="none", gid=f"bands: {curve.band}")


def _references(axes: Axes, group: Group, axis: str) -> None:
    """Draw full-precision variances, from the same minibatches, where those methods have no run of their own here."""
    own = {seed_group.method for seed_group in group.seed_groups}
    runs = list(group.logs.settings.index)
    for (tag, method), dash in zip(REFERENCES.items(), ("--", ":"), strict=True):
        table = wide(group.logs, tag, runs) if method not in own else pd.DataFrame()
        table = np.log(table.where(table > 0)).mean(axis=1).dropna()
        if len(table):
            x = positions(group.logs, axis, runs, table.index).mean(axis=1)
            axes.plot(x, np.exp(table), color="#555555", linestyle=dash, label=f"{title(method)} (reference)", zorder=2)


def _drops(axes: Axes, means: Means, shown: Sequence[_Curve], axis: str, size: float, log: bool) -> None:
    """Draw dashed lines where the learning rate drops, or a stroke on each curve where they reach that step apart."""
    for step in means.drops:
        known: list[tuple[_Curve, float]] = []
        for curve in shown:
            if 0 < step <= curve.step[-1]:
                place = float(positions(means.group.logs, axis, curve.runs, [step]).to_numpy().mean()) / size
                known += [(curve, place)] if np.isfinite(place) else []
        where = [place for _, place in known]
        if known and max(where) - min(where) <= _SAME * max(curve.x[-1] for curve in shown):
            axes.axvline(float(np.mean(where)), gid="drop", zorder=1, **DROP)
            continue
        for curve, place in known:
            value = np.interp(place, curve.x, np.log(curve.mean) if log else curve.mean)
            colour = look(curve.seed_group).colour
            axes.plot([place], [np.exp(value) if log else value], gid="drops", zorder=4, color=colour, **DROP_OF_CURVE)


# --- axes and legends ---------------------------------------------------------------------------------------------


def _limit(axes: Axes, plot: Plot) -> None:
    """Fit the y axis to the curves, or to the last two thirds of each where the beginning is too steep.

    Bands may reach beyond it: an interval over two seeds is often wider than all that there is to see; and the steep
    first steps of an accuracy stay below the axis, so that the rest can be told apart.
    """
    points = [np.asarray(line.get_xydata(), float) for line in axes.lines]
    values = np.concatenate(
        [found[found[:, 0] >= (found[-1, 0] / 3 if plot.steep else -np.inf), 1] for found in points]
    )
    values = np.log10(values) if plot.log else values
    margin = 0.07 * (values.max() - values.min()) or (0.1 if plot.log else max(1.0, 0.05 * float(np.abs(values).max())))
    low, high = values.min() - margin, values.max() + margin
    axes.set_yscale("log" if plot.log else "linear")
    axes.set_ylim(*((10**low, 10**high) if plot.log else (low, high)))
