"""Panels of a figure across settings: a line or a reference for each seed group; the legend counts their runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.groups.aggregate import marked
from analysis.groups.seed_groups import SeedGroup
from analysis.plots.across import Mean, Panel
from analysis.plots.legends import legend_below
from analysis.plots.style import look, new_figure
from analysis.plots.ticks import log_ticks

RATIO = 0.72  # height of a panel over its width
TALLEST = 3.2  # inches
_MOST = 12


def columns_of(width: float, panels: int) -> int:
    """The number of panels that stand side by side in so many inches."""
    return min(panels, 1 if width <= 5 else 3 if panels == 3 else 2)


class Counts:
    """The number of runs behind each entry of the legend, over all panels."""

    def __init__(self) -> None:
        self._used: dict[str, list[int]] = {}

    def add(self, seed_group: SeedGroup, used: int, runs: int) -> None:
        counts = self._used.setdefault(seed_group.label, [0, 0])
        counts[0] += used
        counts[1] += runs

    def label(self, plain: str) -> str:
        used, runs = self._used.get(plain, (0, 0))
        return marked(plain, f"{used} of {runs} runs" if used < runs else "")


def limit(axes: Axes, log: bool) -> None:
    """Fit the y axis to the means and the near part of their bars, which may be very wide."""
    scale = np.log10 if log else np.asarray
    means = np.concatenate([np.asarray(line.get_ydata(), float) for line in axes.lines if line.get_gid() == "mean"])
    bars = [each for each in axes.collections if str(each.get_gid()).startswith("bars")]
    ends = [scale(np.asarray(path.vertices)[:, 1]) for each in bars for path in each.get_paths()]
    means, widths = scale(means), [np.ptp(each) for each in ends]
    widths += [0.0] * (len(means) - len(ends))
    beyond = max(0.35 * float(np.ptp(means)), float(np.median(widths)) / 2)
    values = np.concatenate([means, *ends])
    low, high = max(values.min(), means.min() - beyond), min(values.max(), means.max() + beyond)
    margin = 0.05 * (high - low) or (0.1 if log else 1.0)
    low, high = low - margin, high + margin
    if log:
        axes.set_yscale("log")
        axes.set_ylim(10**low, 10**high)
        log_ticks(axes)
    else:
        axes.set_ylim(low, high)


def line(axes: Axes, seed_group: SeedGroup, table: pd.DataFrame) -> None:
    """Draw a marker with its spread at every value, and a line through them.

    The spread is a bar, not a band: a dozen bands over each other cannot be told apart, least of all in grey. table:
    the fields of ``Mean``, by ascending place on the x axis.
    """
    style = look(seed_group)
    axes.plot(
        table.index, table["mean"], label=seed_group.label, gid="mean", zorder=3, linestyle=style.dash, **style.point()
    )
    for spread, known in table.dropna().groupby("spread"):
        reach = np.abs(known[["low", "high"]].sub(known["mean"], axis=0).to_numpy().T)
        bars = {"fmt": "none", "ecolor": style.colour, "elinewidth": 0.7, "capsize": 1.6, "capthick": 0.7, "zorder": 2}
        axes.errorbar(known.index, known["mean"], yerr=reach, **bars)[2][0].set_gid(f"bars: {spread}")


def reference(axes: Axes, seed_group: SeedGroup, value: Mean) -> None:
    """Draw a horizontal line, for a method without a place on the x axis, with a marker at its end to tell it by."""
    style = look(seed_group)
    marker = {**style.point(), "markevery": [1], "clip_on": False}
    axes.axhline(
        value.mean, label=seed_group.label, gid="mean", linestyle=style.dash, linewidth=1.0, zorder=2, **marker
    )
    if np.isfinite(value.low):
        shade = axes.axhspan(value.low, value.high, color=style.colour, alpha=0.08, linewidth=0, zorder=0)
        shade.set_gid(f"stripes: {value.spread}")


def draw(width: float, panels: Sequence[Panel], fill: Callable[[Axes, Panel, Counts], str | None]) -> Figure | str:
    """A figure of panels, side by side where there is room, over one legend; the reasons where none can be drawn."""
    figure = new_figure(width, width)
    counts = Counts()
    if len(panels) > _MOST:
        return (
            f"{len(panels)} panels (by {', '.join(panels[0].group.differs)}) are too many for one figure: keep fewer "
            "of the runs"
        )
    problems = []
    kept: list[tuple[Axes, Panel]] = []
    for panel in panels:
        axes = figure.add_subplot(label=str(len(kept)))
        problem = fill(axes, panel, counts)
        if problem:
            axes.remove()
            problems.append(problem)
        else:
            kept.append((axes, panel))
    if not kept:
        return "; ".join(dict.fromkeys(problems)) or "no run names its method"
    columns = columns_of(width, len(kept))
    rows = -(-len(kept) // columns)
    places = figure.add_gridspec(rows, columns)
    alike = len({axes.get_ylabel() for axes, _ in kept}) == 1
    for index, (axes, panel) in enumerate(kept):
        axes.set_subplotspec(places[index // columns, index % columns])
        if len(kept) > 1:
            axes.set_title(f"({chr(ord('a') + index)}) {panel.title}".rstrip(), loc="left")
        if alike and index % columns:
            axes.set_ylabel("")
        for line in axes.lines:
            line.set_label(counts.label(str(line.get_label())))
    figure.set_figheight(rows * min(width / columns * (RATIO if columns < 3 else 1.0), TALLEST))
    legend_below(figure, width)
    return figure
