"""The speed-up over bf16 against bandwidth: a panel per number of workers, a line per method with its break-even."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter, NullLocator

from analysis.groups.seed_groups import SeedGroup
from analysis.plots import style
from analysis.plots.legends import legend_below
from analysis.prediction.question import Question
from analysis.restyled import FORMATS
from nuq.prediction.units import shown_bandwidth
from nuq.registry import METHODS

MOST_PANELS, COLUMNS, PANEL_HEIGHT = 6, 3, 1.9
_POINTS_PER_DECADE = 12
_LEAST = 0.05  # speed-ups below are cut off
_RATIOS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50)


def draw(question: Question, workers: Sequence[int], bandwidths: Sequence[float], path: Path) -> list[Path]:
    """Draw the figure as a PNG and a PDF; of many numbers of workers, some that lie evenly apart."""
    if path.suffix != ".png":
        raise ValueError(f"--figure {str(path)!r}: must end in .png; a PDF is written beside it")
    if not bandwidths[0] < bandwidths[-1]:
        raise ValueError("--figure: needs a range of bandwidths, such as --bandwidth 100M..400G")
    picked = np.unique(np.linspace(0, len(workers) - 1, min(len(workers), MOST_PANELS)).round().astype(int))
    shown = [workers[number] for number in picked]
    decades = math.log10(bandwidths[-1] / bandwidths[0])
    grid = np.geomspace(bandwidths[0], bandwidths[-1], round(_POINTS_PER_DECADE * decades) + 2)
    with rc_context(style.OWN_TEXT):
        columns = min(len(shown), COLUMNS)
        rows = math.ceil(len(shown) / columns)
        width = style.WIDTHS["column"] if columns == 1 else style.WIDTHS["page"]
        figure = style.new_figure(width, PANEL_HEIGHT * rows)
        panels = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).ravel()
        for number, (axes, count) in enumerate(zip(panels, shown, strict=False)):
            _panel(axes, question, count, grid)
            below = number + columns >= len(shown)
            axes.tick_params(labelbottom=below)
            axes.set_xlabel("bandwidth, bit/s" if below else "")
            axes.set_ylabel("speed-up over bf16" if number % columns == 0 else "")
        for axes in panels[len(shown) :]:
            axes.axis("off")
        panels[0].set_ylim(max(panels[0].get_ylim()[0], _LEAST), None)  # all panels share this axis
        legend_below(figure, width)
        return saved(figure, path)


def saved(figure: Figure, path: Path) -> list[Path]:
    """Write a figure in every format beside this path; returns the files."""
    path.parent.mkdir(parents=True, exist_ok=True)
    paths = [path.with_suffix(f".{form}") for form in FORMATS]
    for out in paths:
        figure.savefig(out)
    return paths


def _panel(axes: Axes, question: Question, workers: int, grid: np.ndarray) -> None:
    baseline = [question.step(question.rows[1], workers, float(speed)).step_s for speed in grid]
    axes.axhline(1, color="#777777", linewidth=0.8, zorder=1)
    for row in question.rows[2:]:
        ratios = np.array(baseline) / [question.step(row, workers, float(speed)).step_s for speed in grid]
        method = row.label.split()[0]  # its colour stands for all that cost the same
        alike = len(row.methods) - 1
        label = METHODS[method].title + (f" and {alike} alike" if alike else "")
        look = style.look(SeedGroup(method, 0, row.label, (), {}))
        axes.plot(grid, ratios, label=label, **look.line(len(grid)))
        circle = {"marker": "o", "markersize": 7, "markerfacecolor": "none", "markeredgewidth": 1.2}
        for even in question.gains(row, workers):
            if grid[0] < even < grid[-1]:
                axes.plot(even, 1, markeredgecolor=look.colour, zorder=5, **circle)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(grid[0], grid[-1])
    axes.xaxis.set_major_locator(LogLocator(numticks=8))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: shown_bandwidth(value)))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_major_locator(FixedLocator(_RATIOS))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_title(f"{workers:,} workers")
