"""Learned levels: where they end, and how they move during training."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from analysis.aggregate import runs_to_use
from analysis.cells import Cell, Group
from analysis.curves import step_axis
from analysis.style import look

_TAG = re.compile(r"levels/(\d+)$")
_ROW = 0.23  # inches per method


def _levels(group: Group) -> Iterator[tuple[Cell, pd.DataFrame]]:
    """For each cell that logged levels: index (run, step), one column per level, ascending."""
    scalars = group.logs.scalars
    numbers = {tag: int(match[1]) for tag in scalars["tag"].cat.categories if (match := _TAG.match(tag))}
    rows = scalars[scalars["tag"].isin(list(numbers)) & np.isfinite(scalars["value"])]
    if not len(rows):
        return
    rows = rows.assign(level=[numbers[str(tag)] for tag in rows["tag"]], run=rows["run"].astype(str))
    for cell in group.cells:
        own = rows[rows["run"].isin(runs_to_use(group.logs, cell))]
        if len(own):
            yield cell, own.pivot(index=["run", "step"], columns="level", values="value").sort_index(axis=1).dropna(axis=0)


def _threshold(tables: list[pd.DataFrame]) -> float:
    """The power of ten nearest to the smallest level: inside it the axis is linear, outside logarithmic."""
    sizes = np.abs(np.concatenate([table.to_numpy().ravel() for table in tables]))
    sizes = sizes[sizes > 1e-6]
    return min(0.1, 10.0 ** np.round(np.log10(sizes.min()))) if len(sizes) else 0.1


def _ticks(threshold: float, *, signed: bool) -> list[float]:
    sizes = [10.0**k for k in range(round(np.log10(threshold)), 1)]
    sizes = sizes[:: -max(1, (len(sizes) + 2) // 3)][::-1] if signed else sizes
    return sorted([-size for size in sizes] + [0.0] + sizes) if signed else sizes


def _number(value: float, _position: int = 0) -> str:
    return f"{value:g}".replace("-", "\N{MINUS SIGN}")


def final(group: Group, width: float) -> Figure | str:
    """The last levels of each method as positions: a stroke at the mean over seeds, a bar over their range."""
    found = [(cell, table.groupby("run").last()) for cell, table in _levels(group)]
    if not found:
        return "no run has logged levels"
    figure = Figure(figsize=(width, 0.6 + _ROW * len(found)))
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    threshold = _threshold([table for _, table in found])
    for row, (cell, table) in enumerate(found):
        colour = look(cell).colour
        mean = table.mean()
        axes.hlines(row, mean.iloc[0], mean.iloc[-1], color="#c8c8c8", linewidth=0.8, zorder=1)
        axes.hlines(np.full(len(mean), row), table.min(), table.max(), color=colour, linewidth=5, alpha=0.3, zorder=2)
        axes.plot(mean, np.full(len(mean), row), linestyle="none", marker="|", markersize=9, markeredgewidth=1.6, color=colour, zorder=3)
    axes.set_xscale("symlog", linthresh=threshold, linscale=0.6)
    axes.xaxis.set_major_locator(FixedLocator(_ticks(threshold, signed=True)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(_number))
    axes.set_yticks(range(len(found)), [cell.label for cell, _ in found])
    axes.set_ylim(len(found) - 0.4, -0.6)
    axes.grid(axis="y", visible=False)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.set_xlabel("levels at the end of training")
    return figure


def over_steps(group: Group, widths: dict[str, float]) -> Figure | str:
    """Levels against the step, a panel for each method whose levels move; one thin line per seed and level."""
    moving = [(cell, table) for cell, table in _levels(group) if _moves(table)]
    if not moving:
        return "no levels change during these runs"
    symmetric = all(np.allclose(table, -table.to_numpy()[:, ::-1], atol=1e-5) for _, table in moving)
    columns = next(count for count in (1, 2, 3, 4) if count >= min(len(moving), 4 if len(moving) in (4, 7, 8) else 3))
    rows = -(-len(moving) // columns)
    width = widths["column"] if len(moving) == 1 else widths["page"]
    figure = Figure(figsize=(width, 0.3 + rows * width / max(columns, 2) * (0.75 if columns < 4 else 0.95)))
    FigureCanvasAgg(figure)
    threshold = _threshold([table for _, table in moving])
    first = None
    for index, (cell, table) in enumerate(moving):
        axes = figure.add_subplot(rows, columns, index + 1, sharey=first, sharex=first)
        first = first or axes
        _panel(axes, cell, table, symmetric)
        axes.set_title(cell.label)
        step_axis(axes, 3 if columns == 4 else 5)
        if index % columns:
            axes.tick_params(labelleft=False)
        else:
            axes.set_ylabel("positive levels" if symmetric else "levels")
    if first is not None and symmetric:
        first.set_yscale("log")
        smallest = min(float(table.where(table > 0).min().min()) for _, table in moving)
        first.set_ylim(0.7 * smallest, 1.3)
        first.yaxis.set_major_formatter(FuncFormatter(_number))
    elif first is not None:
        first.set_yscale("symlog", linthresh=threshold, linscale=0.6)
        first.yaxis.set_major_locator(FixedLocator(_ticks(threshold, signed=True)))
        first.yaxis.set_minor_locator(NullLocator())
        first.yaxis.set_major_formatter(FuncFormatter(_number))
    return figure


def _moves(table: pd.DataFrame) -> bool:
    return any(float(np.ptp(of_run.to_numpy(), axis=0).max()) > 1e-6 for _, of_run in table.groupby("run"))


def _panel(axes: Axes, cell: Cell, table: pd.DataFrame, symmetric: bool) -> None:
    colour = look(cell).colour
    for _, of_run in table.groupby("run"):
        steps = of_run.index.get_level_values("step")
        shown = of_run.loc[:, of_run.iloc[-1] > 0] if symmetric else of_run
        axes.plot(steps, shown, drawstyle="steps-post", color=colour, linewidth=0.8, alpha=0.75)
