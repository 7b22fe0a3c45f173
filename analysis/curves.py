"""Panels: one quantity against the step, and accuracy against measured bits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import EngFormatter, FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator

from analysis.aggregate import curve, estimate, final, geometric_mean, runs_to_use, wide
from analysis.cells import Cell, Group, title
from analysis.style import look

BOTH = ("method", "sgd")
REFERENCES = {"super_var": "supersgd", "sgd_var": "sgd"}  # tag -> the method that it is the variance of


@dataclass(frozen=True)
class Plot:
    """One quantity against the step."""

    name: str
    tags: tuple[str, ...]  # the first that was logged is drawn
    label: str
    log: bool
    geometric: bool = False  # average the logarithm
    trajectories: tuple[str, ...] = ("method",)
    references: bool = False
    in_overview: bool = True


PLOTS = (
    Plot("est_var", ("est_var",), "variance of the gradient estimate", True, True, BOTH, references=True),
    Plot("relative_var", ("est_var / super_var",), "variance relative to SuperSGD", True, True, BOTH),
    Plot("nb_error", ("nb_error",), "error of the levels $\\Psi$", True, True, BOTH),
    Plot("validation_loss", ("Vloss",), "validation loss", True),
    Plot("training_loss", ("Tloss", "loss"), "training loss", True),
    Plot("accuracy", ("Vacc",), "validation accuracy (%)", False),
)


def curves(axes: Axes, group: Group, plot: Plot) -> str | None:
    """Draw a quantity for every cell: mean and 95 % interval over seeds.  A sentence where there is nothing to draw."""
    tag = next((tag for tag in plot.tags if _logged(group, tag)), None)
    if tag is None:
        return f"no run has logged {' or '.join(plot.tags)}"
    drawn: dict[str, pd.DataFrame] = {}
    for cell in group.cells:
        points = curve(group.logs, tag, cell, geometric=plot.geometric)
        points = points[points["mean"] > 0] if plot.log else points
        if len(points):
            drawn[cell.label] = points
            _one(axes, cell, points, plot.log)
    if not drawn:
        return f"{tag} has no finite {'positive ' if plot.log else ''}value that all seeds of a method share"
    if plot.references:
        _references(axes, group)
    last = max(points.index.max() for points in drawn.values())
    _drops(axes, group, float(last))
    axes.set_ylabel(plot.label)
    step_axis(axes)
    if plot.log:
        axes.set_yscale("log")
        log_ticks(axes)
    else:
        _lift_floor(axes, list(drawn.values()), float(last))
    return None


def _logged(group: Group, tag: str) -> bool:
    there = set(group.logs.scalars["tag"].cat.categories)
    return all(part in there for part in tag.split(" / "))


def _one(axes: Axes, cell: Cell, points: pd.DataFrame, log: bool) -> None:
    style = look(cell)
    axes.plot(points.index, points["mean"], label=cell.label, zorder=3, **style.line(len(points)))
    band = points.dropna()
    if len(band):
        low = np.maximum(band["low"], band["mean"] * 1e-2) if log else band["low"]
        axes.fill_between(band.index, low, band["high"], color=style.colour, alpha=0.15, linewidth=0, zorder=2)


def _references(axes: Axes, group: Group) -> None:
    """Full-precision variances, from the same minibatches, where those methods have no run of their own here."""
    own = {cell.method for cell in group.cells}
    runs = list(group.logs.settings.index)
    for (tag, method), dash in zip(REFERENCES.items(), ("--", ":"), strict=True):
        table = wide(group.logs, tag, runs) if method not in own else pd.DataFrame()
        table = np.log(table.where(table > 0)).mean(axis=1).dropna()
        if len(table):
            axes.plot(table.index, np.exp(table), color="#555555", linestyle=dash, label=f"{title(method)} (reference)", zorder=2)


def _drops(axes: Axes, group: Group, last: float) -> None:
    """Dashed lines where the learning rate drops."""
    if "schedule.at" not in group.logs.settings:
        return
    lists = group.logs.settings["schedule.at"].dropna()
    for step in sorted({step for steps in lists if isinstance(steps, tuple) for step in steps if 0 < step <= last}):
        axes.axvline(step, color="#777777", linewidth=0.7, linestyle=(0, (4, 2.5)), zorder=1, gid="drop")


def _lift_floor(axes: Axes, drawn: list[pd.DataFrame], last: float) -> None:
    """Leave the steep first tenth of training below the axis, so that the rest can be told apart."""
    settled = [points[points.index >= 0.1 * last]["mean"].min() for points in drawn]
    low, high = np.nanmin(settled), max(points["mean"].max() for points in drawn)
    if high > low:
        axes.set_ylim(low - 0.06 * (high - low), high + 0.06 * (high - low))


# --- axes and legends ---------------------------------------------------------------------------------------------


def step_axis(axes: Axes) -> None:
    axes.set_xlabel("training step")
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    if axes.get_xlim()[1] >= 10000:
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))


def _plain(value: float, _position: int = 0) -> str:
    if value == 0 or 1e-3 <= abs(value) < 1e5:
        return f"{value:g}"
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
    axes.yaxis.set_major_formatter(FuncFormatter(_plain))
    axes.yaxis.set_minor_formatter(NullFormatter())


def legend_below(figure: Figure, width: float) -> None:
    """One legend for all panels, outside of them, in as many columns as fit."""
    handles: dict[str, Line2D] = {}
    for axes in figure.axes:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    if any(line.get_gid() == "drop" for axes in figure.axes for line in axes.lines):
        handles["learning-rate drop"] = Line2D([], [], color="#777777", linewidth=0.7, linestyle=(0, (4, 2.5)))
    if not handles:
        return
    entry = 0.42 + 0.068 * max(len(label) for label in handles)  # inches of a key and its text at 7.5 points
    columns = max(1, min(len(handles), int((width - 0.1) / entry)))
    rows = -(-len(handles) // columns)
    columns = -(-len(handles) // rows)  # as even as possible
    figure.set_figheight(figure.get_figheight() + 0.17 * rows)
    figure.legend(list(handles.values()), list(handles), loc="outside lower center", ncols=columns, borderaxespad=0.2)


# --- accuracy against bits ----------------------------------------------------------------------------------------


def _bits(group: Group) -> Iterator[tuple[Cell, float, pd.Series]]:
    for cell in group.cells:
        runs = runs_to_use(group.logs, cell)
        bits = geometric_mean(final(group.logs, "comm/bits_per_coordinate", runs))
        accuracy = final(group.logs, "Vacc", runs).dropna()
        if np.isfinite(bits) and len(accuracy):
            yield cell, bits, accuracy


def bits_against_accuracy(axes: Axes, group: Group) -> str | None:
    """Final accuracy against the bits that really travelled, where the methods differ enough in bits to show it."""
    points = list(_bits(group))
    if not points:
        return "no run has logged both comm/bits_per_coordinate and Vacc"
    distinct = {round(float(np.log2(bits)) / 0.15) for _, bits, _ in points}
    if len(distinct) < 3:
        return "the methods send (nearly) the same number of bits per coordinate"
    for cell, bits, accuracy in points:
        found = estimate(accuracy)
        style = look(cell)
        error = found.half_width if np.isfinite(found.half_width) else None
        axes.errorbar(bits, found.mean, yerr=error, label=cell.label, linestyle="none", elinewidth=0.8, capsize=2, zorder=3, **style.point())
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(FuncFormatter(_plain))
    axes.set_xlabel("bits per coordinate (measured)")
    axes.set_ylabel("final accuracy (%)")
    return None
