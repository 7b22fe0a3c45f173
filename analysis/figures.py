"""The paper's figures of a sweep, as PNG and PDF."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.gridspec import GridSpec

from analysis import level_figures
from analysis.cells import Group, groups
from analysis.curves import PLOTS, bits_against_accuracy, curves, legend_below
from analysis.load import Logs
from analysis.style import FORMATS, RC, WIDTHS

_RATIO = 0.72  # height of a panel over its width
_TALLEST = 3.2  # inches


@dataclass(frozen=True)
class Drawn:
    """What came of a sweep: the files, and a sentence for each figure that could not be drawn."""

    paths: tuple[Path, ...]
    notes: tuple[str, ...]


def draw(logs: Logs, folder: Path, *, width: str = "column") -> Drawn:
    """Draw every figure of the sweep into ``folder``; ``width`` is that of the single figures, the overview takes the page."""
    paths: list[Path] = []
    notes: list[str] = []
    with rc_context(RC):
        for group in groups(logs):
            for name, make in _figures(group, WIDTHS[width]):
                drawn = make()
                if isinstance(drawn, str):
                    notes.append(f"{_file_name(name, group)}: not drawn, {drawn}")
                else:
                    paths += save(drawn, folder, _file_name(name, group))
    return Drawn(tuple(paths), tuple(notes))


def _figures(group: Group, width: float) -> Iterator[tuple[str, Callable[[], Figure | str]]]:
    """Name and maker of each figure of a group; a maker returns a sentence where there is nothing to draw."""
    for plot in PLOTS:
        if group.trajectory in plot.trajectories:
            yield plot.name, lambda plot=plot: _single(width, lambda axes: curves(axes, group, plot))
    if group.trajectory == "method":
        yield "bits_accuracy", lambda: _single(width, lambda axes: bits_against_accuracy(axes, group))
    yield "levels", lambda: level_figures.final(group, width)
    yield "levels_steps", lambda: level_figures.over_steps(group, WIDTHS)
    yield "overview", lambda: _overview(group)


def _single(width: float, fill: Callable) -> Figure | str:
    figure = new_figure(width, min(width * _RATIO, _TALLEST))
    problem = fill(figure.add_subplot())
    if problem:
        return problem
    legend_below(figure, width)
    return figure


def _overview(group: Group) -> Figure | str:
    """All curves that have data, under one legend; what a panel shows is its title."""
    width = WIDTHS["page"]
    figure = new_figure(width, width)
    panels: list[Axes] = []
    for plot in PLOTS:
        if group.trajectory not in plot.trajectories:
            continue
        axes = figure.add_subplot(label=plot.name)
        if curves(axes, group, plot):
            axes.remove()
        else:
            panels.append(axes)
    if len(panels) < 2:
        return "fewer than two panels have data"
    columns = min(3, len(panels))
    rows = -(-len(panels) // columns)
    places = GridSpec(rows, columns, figure=figure)
    for index, axes in enumerate(panels):
        axes.set_subplotspec(places[index // columns, index % columns])
        axes.set_title(f"({chr(ord('a') + index)}) {axes.get_ylabel()}", loc="left")
        axes.set_ylabel("")
    figure.set_figheight(rows * width / columns * (_RATIO + 0.05))
    legend_below(figure, width)
    return figure


def new_figure(width: float, height: float) -> Figure:
    """An empty figure of so many inches, outside pyplot's global state."""
    figure = Figure(figsize=(width, height))
    FigureCanvasAgg(figure)
    return figure


def _file_name(name: str, group: Group) -> str:
    return re.sub(r"[^\w.=-]+", "_", "-".join(part for part in (name, group.name) if part))


def save(figure: Figure, folder: Path, name: str) -> list[Path]:
    """Write the figure in every format, aside first; without dates, so that equal data give equal files."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for extension in FORMATS:
        path = folder / f"{name}.{extension}"
        aside = folder / f".{name}.{extension}.tmp"
        figure.savefig(aside, format=extension, metadata={"CreationDate": None} if extension == "pdf" else None)
        os.replace(aside, path)
        paths.append(path)
        figure.set_layout_engine("none")  # laid out by the first format; the others keep its places
    return paths
