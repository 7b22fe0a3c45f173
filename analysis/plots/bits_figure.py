"""Final accuracy against the bits that really travelled."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from analysis.aggregate import estimate, final, geometric_mean, mark, marked, runs_to_use
from analysis.cells import Cell, Group
from analysis.plots.curves import plain
from analysis.plots.style import look


def _bits(group: Group) -> Iterator[tuple[Cell, float, pd.Series]]:
    """Each cell that logged both, its bits, and the final accuracies of its runs."""
    for cell in group.cells:
        runs = runs_to_use(group.logs, cell)
        bits = geometric_mean(final(group.logs, "comm/bits_per_coordinate", runs))
        accuracy = final(group.logs, "Vacc", runs).dropna()
        if np.isfinite(bits) and len(accuracy):
            yield cell, bits, accuracy


BITS_LABEL = "measured bits per coordinate\n(in a grey band: equal bits, side by side)"
_NEAR = 0.15  # octaves
_MOST_ROWS = 3  # of numbers above the axes: what finds no room is left to the table


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
    wide = 0.13 * max((near.max() - near.min()) * _NEAR, 1.0)  # octaves that a number takes of the axis
    rows: list[float] = []  # of numbers, from below: where the last one of each stands
    for number in np.unique(near):
        own = np.flatnonzero(near == number)
        low, high = min(places[k] for k in own) / 2**0.06, max(places[k] for k in own) * 2**0.06
        axes.axvspan(low, high, color="#f2f2f2", linewidth=0, zorder=0)
        middle = float(np.log2(low * high)) / 2
        row = next((row for row, last in enumerate(rows) if middle - last >= wide), len(rows))  # neighbours' numbers do not touch
        if row == _MOST_ROWS:
            continue
        rows[row : row + 1] = [middle]
        text = f"{np.exp(np.mean(np.log([bits[k] for k in own]))):.3g}"
        height = 1.01 + 0.06 * row
        axes.annotate(text, (2.0**middle, height), xycoords=axes.get_xaxis_transform(), ha="center", va="bottom", fontsize=7)


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
        style, label = look(cell, lines=False), marked(cell.label, mark(group.logs, cell, len(accuracy)))
        if np.isfinite(found.half_width):
            axes.errorbar(bits, found.mean, yerr=found.half_width, fmt="none", ecolor=style.colour, elinewidth=0.8, capsize=2, zorder=2)
        axes.plot([bits], [found.mean], label=label, linestyle="none", zorder=3, **style.point())
    _name_clusters(axes, [bits for _, bits, _ in points], beside)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(FuncFormatter(plain))
    axes.set_xlabel(BITS_LABEL)
    axes.set_ylabel("final accuracy (%)")
    return None
