"""The map of the fastest methods: bandwidth against the number of workers, or H, with a colour for each method.

SGD, whose one worker exchanges nothing, is not among them.  A ``*`` marks a cell whose method has no runs with its H
and number of workers, so that the steps to the target may be others.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.patches import Rectangle

from analysis.groups.seed_groups import title
from analysis.plots import style
from analysis.plots.legends import legend_below
from analysis.prediction.figure import saved
from analysis.prediction.runs import ELSEWHERE, RunQuestion, Setup, Setups
from nuq.prediction.units import shown_bandwidth

MOST_PANELS, COLUMNS = 6, 2
ROW_HEIGHT, EDGES, TITLE = 0.26, 0.55, 0.3  # inches: of a row of cells, of a panel's title and axis, of the figure's
NARROWEST = 0.4  # inches of a cell, for its number


def draw(asked: RunQuestion, setups: Setups, path: Path) -> list[Path]:
    """Draw the map as a PNG and a PDF: the rows are numbers of workers, or H where there is one number of workers.

    Several of both are a panel for each H.  ValueError for another ending than .png, and where there are too few cells
    or too many.
    """
    if path.suffix != ".png":
        raise ValueError(f"--figure {str(path)!r}: must end in .png; a PDF is written beside it")
    by_workers = len(setups.workers) > 1
    rows = setups.workers if by_workers else setups.every
    panels = setups.every if by_workers else setups.workers
    if len(rows) < 2 or len(setups.bandwidths) < 2:
        raise ValueError("--figure: needs several bandwidths, and several --workers or --every, such as --every 1..16")
    if len(panels) > MOST_PANELS:
        raise ValueError(f"--figure: has a panel for each H, at most {MOST_PANELS}, and --every names {len(panels)}")
    columns = min(len(panels), COLUMNS)
    width = style.WIDTHS["column" if columns == 1 else "page"]
    if width / columns / len(setups.bandwidths) < NARROWEST:
        columns, width = 1, style.WIDTHS["page"]
    with rc_context(style.rc()):
        below = math.ceil(len(panels) / columns)
        figure = style.new_figure(width, TITLE + below * (EDGES + ROW_HEIGHT * len(rows)))
        every = figure.subplots(below, columns, sharex=True, sharey=True, squeeze=False).ravel()
        for number, (axes, panel) in enumerate(zip(every, panels, strict=False)):
            lines = [
                [Setup(row, panel, at) if by_workers else Setup(panel, row, at) for at in setups.bandwidths]
                for row in rows
            ]
            _panel(axes, asked, lines)
            axes.set_title(f"H = {panel}" if by_workers else f"{panel} workers")
            axes.set_xticks(range(len(setups.bandwidths)), [shown_bandwidth(at) for at in setups.bandwidths])
            axes.set_yticks(range(len(rows)), [str(row) for row in rows])
            axes.set_xlabel("bandwidth, bit/s" if number + columns >= len(panels) else "")
            axes.set_ylabel(("workers" if by_workers else "H") if number % columns == 0 else "")
        for axes in every[len(panels) :]:
            axes.axis("off")
        over = f"\nspeed-up over {title(asked.baseline)}" if asked.baseline else ""
        if any(text.get_text().endswith(ELSEWHERE) for axes in every for text in axes.texts):
            over += f"\n{ELSEWHERE}: steps of runs with another H or number of workers"
        figure.suptitle(f"fastest to {asked.goal}{over}", fontsize=8.5)
        legend_below(figure, width)
        return saved(figure, path)


def _panel(axes: Axes, asked: RunQuestion, lines: Sequence[Sequence[Setup]]) -> None:
    """The cells of one panel; each has its fastest method's colour and that one's speed-up over the baseline."""
    for row, line in enumerate(lines):
        for column, setup in enumerate(line):
            found, base = asked.answers(setup)
            ends = [
                number
                for number, (one, way) in enumerate(zip(found, asked.ways, strict=True))
                if math.isfinite(one.seconds) and asked.exchanges(way)
            ]
            if not ends:
                continue
            best = min(ends, key=lambda number: found[number].seconds)
            seed_group, faster = asked.ways[best].seed_group, base / found[best].seconds
            colour = style.look(seed_group).colour
            cell = {"facecolor": colour, "edgecolor": "white", "linewidth": 0.6, "label": seed_group.label}
            axes.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, **cell))
            told = f"{faster:.{2 if faster < 10 else 0}f}x" if math.isfinite(faster) else ""
            told += "" if found[best].of == (setup.every, setup.workers) else ELSEWHERE
            axes.text(column, row, told, color=_ink(colour), fontsize=6.5, ha="center", va="center")
    axes.set_xlim(-0.5, len(lines[0]) - 0.5)
    axes.set_ylim(-0.5, len(lines) - 0.5)
    axes.grid(visible=False)
    axes.tick_params(length=0)


def _ink(colour: str) -> str:
    """Black on a light colour, white on a dark one."""
    red, green, blue = to_rgb(colour)
    return "black" if 0.299 * red + 0.587 * green + 0.114 * blue > 0.55 else "white"
