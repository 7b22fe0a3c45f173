"""Panels: one quantity against the step, and accuracy against measured bits."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

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
    log: bool  # logarithmic axis; then the mean over seeds is the geometric one, and the interval that of the logarithm
    trajectories: tuple[str, ...] = ("method",)
    references: bool = False


PLOTS = (
    Plot("est_var", ("est_var",), "variance of the gradient", True, BOTH, references=True),
    Plot("relative_var", ("est_var / super_var",), "variance relative to SuperSGD", True, BOTH),
    Plot("nb_error", ("nb_error",), "error of the levels $\\Psi$", True, BOTH),
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
        points = curve(group.logs, tag, cell, geometric=plot.log)
        if len(points):
            drawn[cell.label] = points
            _one(axes, cell, points)
    if not drawn:
        return f"{tag} has no finite {'positive ' if plot.log else ''}value that all seeds of a method share"
    if plot.references:
        _references(axes, group)
    last = max(float(points.index[-1]) for points in drawn.values())
    _drops(axes, group, last)
    axes.set_ylabel(plot.label)
    step_axis(axes)
    if plot.log:
        axes.set_yscale("log")
    _limit(axes, [line for line in axes.lines if line.get_gid() != "drop"], plot.log, 0.0 if plot.log else last / 3)
    if plot.log:
        log_ticks(axes)
    return None


def _logged(group: Group, tag: str) -> bool:
    there = set(group.logs.scalars["tag"].cat.categories)
    return all(part in there for part in tag.split(" / "))


def _one(axes: Axes, cell: Cell, points: pd.DataFrame) -> None:
    style = look(cell)
    axes.plot(points.index, points["mean"], label=cell.label, zorder=3, **style.line(len(points)))
    band = points.dropna()
    if len(band):
        axes.fill_between(band.index, band["low"], band["high"], color=style.colour, alpha=0.11, linewidth=0, zorder=2)


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


def _limit(axes: Axes, lines: list[Line2D], log: bool, begin: float) -> None:
    """Fit the axis to the curves from step ``begin`` on.

    Bands may reach beyond it: an interval over two seeds is often wider than all that there is to see; and the steep first
    steps of an accuracy stay below the axis, so that the rest can be told apart.
    """
    points = [np.asarray(line.get_xydata(), float) for line in lines]
    values = np.concatenate([found[found[:, 0] >= min(begin, found[-1, 0]), 1] for found in points])
    values = np.log10(values) if log else values
    margin = 0.07 * (values.max() - values.min()) or (0.1 if log else 1.0)
    low, high = values.min() - margin, values.max() + margin
    axes.set_ylim(*((10**low, 10**high) if log else (low, high)))


# --- axes and legends ---------------------------------------------------------------------------------------------


def step_axis(axes: Axes, num_ticks: int = 5) -> None:
    """Label the x axis as training steps, with whole numbers, in thousands where they are large."""
    axes.set_xlabel("training step")
    axes.xaxis.set_major_locator(MaxNLocator(num_ticks, integer=True))
    if axes.get_xlim()[1] >= 10000:
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))


def _plain(value: float, _position: int = 0) -> str:
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
    plain = low >= 1e-3 and high <= 1e5
    axes.yaxis.set_major_formatter(FuncFormatter(_plain if plain or decades < 0.35 else _scientific))
    axes.yaxis.set_minor_formatter(NullFormatter())


def legend_below(figure: Figure, width: float) -> None:
    """One legend for all panels, outside of them, in as many columns as fit."""
    handles: dict[str, Artist] = {}
    for axes in figure.axes:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    if any(line.get_gid() == "drop" for axes in figure.axes for line in axes.lines):
        handles["rate drop"] = Line2D([], [], color="#777777", linewidth=0.7, linestyle=(0, (4, 2.5)))
    if not handles:
        return
    columns = _legend_columns(list(handles), width - 0.1)
    rows = -(-len(handles) // columns)
    figure.set_figheight(figure.get_figheight() + 0.16 * rows)
    figure.legend(list(handles.values()), list(handles), loc="outside lower center", ncols=columns, borderaxespad=0.2)


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


# --- accuracy against bits ----------------------------------------------------------------------------------------


def _bits(group: Group) -> Iterator[tuple[Cell, float, pd.Series]]:
    for cell in group.cells:
        runs = runs_to_use(group.logs, cell)
        bits = geometric_mean(final(group.logs, "comm/bits_per_coordinate", runs))
        accuracy = final(group.logs, "Vacc", runs).dropna()
        if np.isfinite(bits) and len(accuracy):
            yield cell, bits, accuracy


_NEAR = 0.15  # octaves


def _near(bits: float) -> int:
    """Bits that differ by less than about a tenth count as equal."""
    return round(float(np.log2(bits)) / _NEAR)


def _side_by_side(bits: list[float]) -> list[float]:
    """Positions on the axis: points with nearly equal bits are moved apart, so that none hides another."""
    near = [_near(value) for value in bits]
    clusters = sorted(set(near))
    gaps = [(b - a) * _NEAR * 2 / (near.count(a) + near.count(b)) for a, b in itertools.pairwise(clusters)]
    apart = min([0.14, *gaps])  # octaves
    places = []
    for index, value in enumerate(bits):
        rank, size = near[:index].count(near[index]), near.count(near[index])
        places.append(value * 2.0 ** (apart * (rank - (size - 1) / 2)))
    return places


def _name_clusters(axes: Axes, bits: list[float], places: list[float]) -> None:
    """A shade behind the points that stand side by side, and the bits they all have above it."""
    near = np.array([_near(value) for value in bits])
    height, last = 1.01, -np.inf
    for number in np.unique(near):
        own = np.flatnonzero(near == number)
        low, high = min(places[k] for k in own) / 2**0.06, max(places[k] for k in own) * 2**0.06
        height = 1.07 if (number - last) * _NEAR < 0.7 and height < 1.05 else 1.01  # neighbours' numbers do not touch
        last = number
        axes.axvspan(low, high, color="#f2f2f2", linewidth=0, zorder=0)
        text = f"{np.exp(np.mean(np.log([bits[k] for k in own]))):.3g}"
        axes.annotate(text, ((low * high) ** 0.5, height), xycoords=axes.get_xaxis_transform(), ha="center", va="bottom", fontsize=7)


def bits_against_accuracy(axes: Axes, group: Group) -> str | None:
    """Final accuracy against the bits that really travelled, where the methods differ enough in bits to show it."""
    points = list(_bits(group))
    if not points:
        return "no run has logged both comm/bits_per_coordinate and Vacc"
    if len({_near(bits) for _, bits, _ in points}) < 3:
        return "the methods send (nearly) the same number of bits per coordinate"
    beside = _side_by_side([bits for _, bits, _ in points])
    for (cell, _, accuracy), bits in zip(points, beside, strict=True):
        found = estimate(accuracy)
        style = look(cell)
        if np.isfinite(found.half_width):
            axes.errorbar(bits, found.mean, yerr=found.half_width, fmt="none", ecolor=style.colour, elinewidth=0.8, capsize=2, zorder=2)
        axes.plot([bits], [found.mean], label=cell.label, linestyle="none", zorder=3, **style.point())
    _name_clusters(axes, [bits for _, bits, _ in points], beside)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(FuncFormatter(_plain))
    axes.set_xlabel("bits per coordinate (measured)")
    axes.set_ylabel("final accuracy (%)")
    return None
