"""Panels: one quantity against the step, time, epoch or bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import rcParams
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.lines import Line2D
from matplotlib.textpath import TextPath
from matplotlib.ticker import EngFormatter, FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator

from analysis.aggregate import UNFINISHED, mark, marked, mean_and_interval, seeds, wide
from analysis.axes import MISSING, positions, unit
from analysis.cells import Cell, Group, title
from analysis.decay import drops
from analysis.style import look

BOTH = ("method", "sgd")
REFERENCES = {"super_var": "supersgd", "sgd_var": "sgd"}  # tag -> the method that it is the variance of
DROP: dict[str, Any] = {"color": "#777777", "linewidth": 0.7, "linestyle": (0, (4, 2.5))}
_STROKE: dict[str, Any] = {"linestyle": "none", "marker": "|", "markersize": 9, "markeredgewidth": 1.1}
_SAME = 0.02  # of the axis: places that are nearer to each other are one


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


PLOTS = (
    Plot("est_var", "Variance of the gradient estimate", ("est_var",), "variance of the gradient", True, BOTH, references=True),
    Plot("relative_var", "Variance relative to SuperSGD", ("est_var / super_var",), "variance relative to SuperSGD", True, BOTH),
    Plot("est_nvar", "Variance over the second moment", ("est_nvar",), "variance / second moment", True, BOTH),
    Plot("est_snr", "Logarithm of signal over noise", ("est_snr",), "log signal-to-noise ratio", False, BOTH),
    Plot("norm_var", "Variance of the normalised coordinates", ("norm_var",), "var. of normalised coordinates", True, BOTH),
    Plot("nb_error", "Expected error of the levels", ("nb_error",), "error of the levels $\\Psi$", True, BOTH),
    Plot("validation_loss", "Validation loss", ("Vloss",), "validation loss", True),
    Plot("training_loss", "Training loss", ("Tloss", "loss"), "training loss", True),
    Plot("accuracy", "Validation accuracy", ("Vacc",), "validation accuracy (%)", False),
)


@dataclass(frozen=True)
class _Curve:
    """A cell's mean over seeds: ``points`` has x, mean, low, high and n by step."""

    cell: Cell
    label: str
    complete: bool  # some of its runs are
    runs: tuple[str, ...]
    points: pd.DataFrame


def curves(axes: Axes, group: Group, plot: Plot, axis: str = "step") -> str | None:
    """Draw a quantity for every cell: mean and 95 % interval over seeds.  A sentence where there is nothing to draw.

    On another axis than the step (``analysis.axes``), the mean of the quantity at a step stands at the mean over the same seeds of
    where they were at that step.  Cells of which some seeds are missing are pale and end in a circle; those of which no
    run is complete show what there is, dotted, and end in a cross; the legend says so.
    """
    tag = next((tag for tag in plot.tags if _logged(group, tag)), None)
    if tag is None:
        return f"no run has logged {' or '.join(plot.tags)}"
    found = [_curve(group, cell, tag, plot.log, axis) for cell in group.cells]
    if not any(len(curve.points) for curve in found):
        return f"{tag} has no finite {'positive ' if plot.log else ''}value"
    found = [replace(curve, points=curve.points.dropna(subset="x")) for curve in found]
    found = [curve for curve in found if len(curve.points)]
    if not found:
        return MISSING[axis]
    size, label = unit(axis, max(curve.points["x"].to_numpy().max() for curve in found))
    found = [replace(curve, points=curve.points.assign(x=curve.points["x"] / size)) for curve in found]
    for curve in found:
        _one(axes, curve)
    _limit(axes, plot.log)
    if plot.references and axis in ("step", "epoch"):  # the time and bytes of other methods are not theirs
        _references(axes, group, axis)
        _limit(axes, plot.log)
    _drops(axes, group, found, axis, size, plot.log)
    axes.set_ylabel(plot.label)
    x_axis(axes, label, whole=axis == "step")
    if plot.log:
        log_ticks(axes)
    return None


def _logged(group: Group, tag: str) -> bool:
    there = set(group.logs.scalars["tag"].cat.categories)
    return all(part in there for part in tag.split(" / "))


def _curve(group: Group, cell: Cell, tag: str, log: bool, axis: str) -> _Curve:
    table = seeds(group.logs, tag, cell, geometric=log)
    runs = tuple(map(str, table.columns))
    points = mean_and_interval(table, geometric=log)
    points["x"] = positions(group.logs, axis, runs, table.index).mean(axis=1, skipna=False) if runs else np.nan
    addition = mark(group.logs, cell, len(runs))
    return _Curve(cell, marked(cell.label, addition), addition != UNFINISHED, runs, points)


def _one(axes: Axes, curve: _Curve) -> None:
    style, points = look(curve.cell), curve.points
    keywords: dict[str, Any] = style.line(len(points))
    if curve.label != curve.cell.label:
        keywords |= {"alpha": 0.6} if curve.complete else {"alpha": 0.75, "linestyle": ":"}
        end = {"marker": "o", "markersize": 7} if curve.complete else {"marker": "x", "markersize": 6}
        last = points.iloc[-1:]
        axes.plot(last["x"], last["mean"], linestyle="none", color=style.colour, markerfacecolor="none", gid="end", zorder=4, **end)
    axes.plot(points["x"], points["mean"], label=curve.label, zorder=3, **keywords)
    band = points.dropna()
    if len(band):
        axes.fill_between(band["x"], band["low"], band["high"], color=style.colour, alpha=0.11, linewidth=0, zorder=2)


def _references(axes: Axes, group: Group, axis: str) -> None:
    """Full-precision variances, from the same minibatches, where those methods have no run of their own here."""
    own = {cell.method for cell in group.cells}
    runs = list(group.logs.settings.index)
    for (tag, method), dash in zip(REFERENCES.items(), ("--", ":"), strict=True):
        table = wide(group.logs, tag, runs) if method not in own else pd.DataFrame()
        table = np.log(table.where(table > 0)).mean(axis=1).dropna()
        if len(table):
            x = positions(group.logs, axis, runs, table.index).mean(axis=1)
            axes.plot(x, np.exp(table), color="#555555", linestyle=dash, label=f"{title(method)} (reference)", zorder=2)


def _drops(axes: Axes, group: Group, found: Sequence[_Curve], axis: str, size: float, log: bool) -> None:
    """Dashed lines where the learning rate drops; where the curves reach that step at different places, a stroke on each."""
    right = max(curve.points["x"].to_numpy().max() for curve in found)
    for step in drops(group.logs):
        reached = [curve for curve in found if 0 < step <= float(curve.points.index[-1])]
        places = [float(positions(group.logs, axis, curve.runs, [step]).mean(axis=1).iloc[0]) / size for curve in reached]
        known = [(curve, place) for curve, place in zip(reached, places, strict=True) if np.isfinite(place)]
        if not known:
            continue
        where = [place for _, place in known]
        if max(where) - min(where) <= _SAME * right:
            axes.axvline(float(np.mean(where)), gid="drop", zorder=1, **DROP)
            continue
        for curve, place in known:
            values = np.log(curve.points["mean"]) if log else curve.points["mean"]
            value = np.interp(place, curve.points["x"], values)
            axes.plot([place], [np.exp(value) if log else value], gid="drops", zorder=4, color=look(curve.cell).colour, **_STROKE)


def _limit(axes: Axes, log: bool) -> None:
    """Fit the y axis to the curves; an accuracy's only from a third of each curve on.

    Bands may reach beyond it: an interval over two seeds is often wider than all that there is to see; and the steep first
    steps of an accuracy stay below the axis, so that the rest can be told apart.
    """
    points = [np.asarray(line.get_xydata(), float) for line in axes.lines]
    values = np.concatenate([found[found[:, 0] >= (-np.inf if log else found[-1, 0] / 3), 1] for found in points])
    values = np.log10(values) if log else values
    margin = 0.07 * (values.max() - values.min()) or (0.1 if log else 1.0)
    low, high = values.min() - margin, values.max() + margin
    axes.set_yscale("log" if log else "linear")
    axes.set_ylim(*((10**low, 10**high) if log else (low, high)))


# --- axes and legends ---------------------------------------------------------------------------------------------


def step_axis(axes: Axes, num_ticks: int = 5) -> None:
    """Label the x axis as training steps, with whole numbers, in thousands where they are large."""
    x_axis(axes, "training step", num_ticks, whole=True)


def x_axis(axes: Axes, label: str, num_ticks: int = 5, *, whole: bool = False) -> None:
    """Label a linear x axis; numbers from 10,000 on in thousands."""
    axes.set_xlabel(label)
    axes.xaxis.set_major_locator(MaxNLocator(num_ticks, integer=whole))
    if axes.get_xlim()[1] >= 10000:
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))


def plain(value: float, _position: int = 0) -> str:
    return f"{value:g}" if value == 0 or 1e-3 <= abs(value) < 1e5 else _scientific(value)


def _scientific(value: float, _position: int = 0) -> str:
    mantissa, exponent = f"{value:.0e}".split("e")
    return f"$10^{{{int(exponent)}}}$" if mantissa == "1" else f"${mantissa}{{\\times}}10^{{{int(exponent)}}}$"


def log_ticks(axes: Axes) -> None:
    """Ticks at 1, 2, 5 where the axis spans less than two decades, at powers of ten otherwise."""
    low, high = axes.get_ylim()
    decades = np.log10(high / low) if low > 0 else 10
    if decades < 0.35:
        axes.yaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10]))
        axes.yaxis.set_minor_locator(NullLocator())
    else:
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if decades < 2 else (1,), numticks=8))
    everyday = low >= 1e-3 and high <= 1e5
    axes.yaxis.set_major_formatter(FuncFormatter(plain if everyday or decades < 0.35 else _scientific))
    axes.yaxis.set_minor_formatter(NullFormatter())


def legend_rows(figure: Figure, width: float) -> int:
    """How many rows a legend of all panels takes in ``width`` inches."""
    handles = _legend_handles(figure)
    return -(-len(handles) // _legend_columns(list(handles), width - 0.1)) if handles else 0


def legend_below(figure: Figure, width: float) -> None:
    """One legend for all panels, outside of them, in as many columns as fit."""
    handles = _legend_handles(figure)
    if not handles:
        return
    columns = _legend_columns(list(handles), width - 0.1)
    rows = -(-len(handles) // columns)
    figure.set_figheight(figure.get_figheight() + 0.16 * rows)
    figure.legend(list(handles.values()), list(handles), loc="outside lower center", ncols=columns, borderaxespad=0.2)


def _legend_handles(figure: Figure) -> dict[str, Artist]:
    """One handle for each label of the panels, and one for the drops of the learning rate."""
    handles: dict[str, Artist] = {}
    for axes in figure.axes:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    gids = {line.get_gid() for axes in figure.axes for line in axes.lines}
    if gids & {"drop", "drops"}:
        style = DROP if "drop" in gids else _STROKE
        handles["rate drop"] = Line2D([], [], color="#777777", **{name: value for name, value in style.items() if name != "color"})
    return handles


def _legend_columns(labels: list[str], width: float) -> int:
    """The largest number of columns that fits into ``width`` inches, as even as that many rows allow."""
    size = rcParams["legend.fontsize"]
    key = size * (rcParams["legend.handlelength"] + rcParams["legend.handletextpad"] + rcParams["legend.columnspacing"])
    font = FontProperties(family=rcParams["font.family"], size=size)
    widths = [(key + TextPath((0, 0), label, prop=font).get_extents().width) / 72 for label in labels]
    for columns in range(len(labels), 1, -1):
        rows = -(-len(labels) // columns)
        if sum(max(widths[begin : begin + rows]) for begin in range(0, len(widths), rows)) <= width:
            return -(-len(labels) // rows)
    return 1
