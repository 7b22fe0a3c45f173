"""Final accuracy against the bits that really travelled, and against the compression ratio of all tensors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from analysis.groups.aggregate import estimate, final, geometric_mean, mark, marked, runs_to_use
from analysis.groups.seed_groups import Group, SeedGroup
from analysis.groups.tensor_formats import all_or_none
from analysis.plots.panels import limit
from analysis.plots.style import look
from analysis.plots.ticks import plain
from analysis.results import compression_ratio

BITS_LABEL = "measured bits per coordinate\n(in a grey band: nearly equal bits, side by side)"
RATIO_LABEL = "measured compression ratio\n(in a grey band: nearly equal ratios, side by side)"
LEFT_OUT = "(left out: some kinds of tensors in a format, some not)"
_NEAR = 0.1  # octaves; what differs by more stands in the order and at about the distance of its values
_MARKER = 0.07  # inches from one marker to the next in a band, at most
_MOST_ROWS = 3  # rows of numbers above the axes: the table has those without room
_Points = list[tuple[SeedGroup, float, pd.Series]]  # each with its place on the x axis and the scores of its runs


def _points(group: Group, places: pd.Series, tag: str) -> _Points:
    """Each seed group that has both: the mean of its runs' places, and their final values of the tag."""
    found, scores = [], final(group.logs, tag, list(places.index))
    for seed_group in group.seed_groups:
        runs = runs_to_use(group.logs, seed_group)
        place, score = geometric_mean(places.reindex(runs)), scores.reindex(runs).dropna()
        if np.isfinite(place) and len(score):
            found.append((seed_group, place, score))
    return found


def _side_by_side(values: Sequence[float] | np.ndarray, width: float) -> tuple[np.ndarray, list[np.ndarray], float]:
    """Positions on a logarithmic axis of so many inches where no point hides another, each near its value.

    The function also returns which points stand side by side, in order of their values, around their geometric mean
    (the others stand each at its value), and how far apart, in octaves.  It is less than a marker where points that
    differ by a tenth of an octave would else be taken together.
    """
    octaves = np.log2(np.asarray(values, float))
    order = np.argsort(octaves, kind="stable")
    apart = max(float(np.ptp(octaves)), 1.0) * _MARKER / width
    blocks = _blocks(octaves, order, apart)
    while max(np.ptp(octaves[block]) for block in blocks) > _NEAR:
        apart *= 0.8
        blocks = _blocks(octaves, order, apart)
    for block in blocks:
        octaves[block] = octaves[block].mean() + apart * (np.arange(len(block)) - (len(block) - 1) / 2)
    return 2.0**octaves, blocks, apart


def _blocks(octaves: np.ndarray, order: np.ndarray, apart: float) -> list[np.ndarray]:
    """Blocks of neighbours that have no room of ``apart`` each; two blocks are at least twice that apart."""
    blocks: list[np.ndarray] = []
    for point in order:
        blocks.append(np.array([point]))
        while len(blocks) > 1:
            left, right = blocks[-2:]
            needed = apart * ((len(left) + len(right)) / 2 - 1 + (2 if len(left) + len(right) > 2 else 1))
            if octaves[right].mean() - octaves[left].mean() >= needed:
                break
            blocks[-2:] = [np.concatenate([left, right])]
    return blocks


def _name_blocks(
    axes: Axes, values: np.ndarray, places: np.ndarray, blocks: Sequence[np.ndarray], apart: float
) -> None:
    """Write the values above the points, and draw a shade behind those that stand side by side."""
    wide = 0.022 * max(float(np.ptp(np.log2(values))), 1.0)  # octaves that a letter takes of the axis
    rows: list[float] = []  # the rows of numbers, from below: where the last one of each ends
    for block in blocks:
        low, high = float(places[block[0]]), float(places[block[-1]])
        if len(block) > 1:
            axes.axvspan(low / 2 ** (0.6 * apart), high * 2 ** (0.6 * apart), color="#f2f2f2", linewidth=0, zorder=0)
        text = "\N{EN DASH}".join(dict.fromkeys(f"{value:.3g}" for value in (values[block[0]], values[block[-1]])))
        middle = float(np.log2(low * high)) / 2
        # numbers do not touch
        row = next((row for row, last in enumerate(rows) if middle - wide * len(text) / 2 >= last), len(rows))
        if row == _MOST_ROWS:
            continue
        rows[row : row + 1] = [middle + wide * (len(text) / 2 + 1)]
        height = 1.01 + 0.06 * row
        axes.annotate(
            text, (2.0**middle, height), xycoords=axes.get_xaxis_transform(), ha="center", va="bottom", fontsize=7
        )


def bits_against_accuracy(axes: Axes, group: Group) -> str | None:
    """Draw the final accuracy against the bits that really travelled, where the methods differ enough in them."""
    bits = final(group.logs, "comm/bits_per_coordinate", list(group.logs.settings.index))
    points = _points(group, bits, "Vacc")
    if not points:
        return "no run has logged both comm/bits_per_coordinate and Vacc"
    if len(_side_by_side([place for _, place, _ in points], _width(axes))[1]) < 3:
        return "the methods send (nearly) the same number of bits per coordinate"
    _draw(axes, group, points)
    axes.set_xlabel(BITS_LABEL)
    return None


def ratio_against_accuracy(axes: Axes, group: Group) -> str | None:
    """Draw the final accuracy against the measured compression ratio, full precision at 1.

    Runs that keep tensors of some kinds in a format and others in float32 are left out: the others are not part of
    their ratio.
    """
    tag = "Vacc" if "Vacc" in group.logs.tags else "Vpearson"
    every = _points(group, compression_ratio(group.logs), tag)
    points = [point for point in every if all_or_none(group.logs.settings.loc[point[0].runs[0]].to_dict())]
    left_out = len(points) < len(every)
    if len(points) < 2:
        wanted = " and tensors of all kinds in a format or of none" if left_out else ""
        return f"fewer than two settings have both a compression_ratio and a Vacc or Vpearson{wanted}"
    _draw(axes, group, points)
    axes.set_xlabel(f"{RATIO_LABEL}\n{LEFT_OUT}" if left_out else RATIO_LABEL)
    if tag == "Vpearson":
        axes.set_ylabel("final correlation")
    return None


def _draw(axes: Axes, group: Group, points: _Points) -> None:
    """Draw the mean and spread of each seed group's scores at its place, nearly equal places side by side."""
    values = np.array([place for _, place, _ in points])
    places, blocks, apart = _side_by_side(values, _width(axes))
    estimates = [estimate(accuracy) for _, _, accuracy in points]
    for (seed_group, _, accuracy), found, place in zip(points, estimates, places, strict=True):
        style = look(seed_group, lines=False)
        label = marked(seed_group.label, mark(group.logs, seed_group, len(accuracy)))
        if np.isfinite(found.low):
            bar = {"fmt": "none", "ecolor": style.colour, "elinewidth": 0.8, "capsize": 2, "zorder": 2}
            reach = [[found.mean - found.low], [found.high - found.mean]]
            axes.errorbar(place, found.mean, yerr=reach, **bar)[2][0].set_gid(f"bars: {found.spread}")
        axes.plot([place], [found.mean], label=label, gid="mean", linestyle="none", zorder=3, **style.point())
    _name_blocks(axes, values, places, blocks, apart)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(FuncFormatter(plain))
    axes.set_ylabel("final accuracy (%)")
    limit(axes, log=False)


def _width(axes: Axes) -> float:
    """The width of the figure, in inches."""
    figure = axes.get_figure(root=True)
    assert figure is not None
    return figure.get_figwidth()
