"""Learned levels: where they end, and how they move during training."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from analysis import published
from analysis.decay import drops
from analysis.groups.aggregate import mark, marked, mean_and_spread, runs_to_use, spread
from analysis.groups.seed_groups import Group, SeedGroup
from analysis.logs.load import Logs
from analysis.plots.legends import DROP, broken, legend_below
from analysis.plots.style import look, new_figure
from analysis.plots.ticks import x_axis

_TAG = re.compile(r"levels/(\d+)$")
_ROW = 0.23  # inches per method
_LETTERS = 25  # letters of a method's label in one line, in a figure of one column
_MANY = 32  # strokes are thinner from so many levels on
_TITLE = 13  # letters an inch of a panel's title
_LINEAR = 0.6  # length from zero to the first power of ten, in decades
_LOWEST = 1e-6  # levels below are not told apart
_PAPER = {"linestyle": "none", "marker": "D", "markersize": 3.4, "color": "#000000"}
_PAPER |= {"markerfacecolor": "white", "markeredgewidth": 0.8}


def _levels(group: Group) -> Iterator[tuple[SeedGroup, pd.DataFrame]]:
    """The levels of each seed group that logged any: index (run, step), one column per level, ascending."""
    numbers = {tag: int(match[1]) for tag in group.logs.tags if (match := _TAG.match(tag))}
    rows = group.logs.of_tags(*numbers)
    rows = rows[np.isfinite(rows["value"])]
    if not len(rows):
        return
    rows = rows.assign(level=[numbers[str(tag)] for tag in rows["tag"]], run=rows["run"].astype(str))
    for seed_group in group.seed_groups:
        own = rows[rows["run"].isin(runs_to_use(group.logs, seed_group))]
        table = own.pivot(index=["run", "step"], columns="level", values="value")
        table = table.reindex(columns=range(1 + max(table.columns, default=0))).dropna(axis=0)
        if len(table):
            yield seed_group, table


def levels_at(logs: Logs, run: str, step: int) -> np.ndarray:
    """The levels that a run logged last up to ``step``, ascending: float64[L]; empty where it logged none."""
    rows = logs.keep([run]).of_tags(*(tag for tag in logs.tags if _TAG.match(tag)))
    rows = rows[rows["step"] <= step]
    rows = rows[rows["step"] == rows["step"].max()]
    levels = np.sort(np.asarray(rows["value"], float))
    return levels[np.isfinite(levels)]


# --- axes of levels -----------------------------------------------------------------------------------------------


def threshold(levels: np.ndarray) -> float:
    """The power of ten nearest to the smallest level: inside it an axis of levels is linear, outside logarithmic."""
    sizes = np.abs(levels)
    sizes = sizes[sizes > _LOWEST]
    return min(0.1, float(10.0 ** np.round(np.log10(sizes.min())))) if len(sizes) else 0.1


def value_axis(axes: Axes, which: Literal["x", "y"], linear: float, inches: float) -> None:
    """Set an axis of numbers in [-1, 1], linear up to the ``threshold``; with as many ticks as ``inches`` hold."""
    scale = axes.set_xscale if which == "x" else axes.set_yscale
    scale("symlog", linthresh=linear, linscale=_LINEAR)
    axis = axes.xaxis if which == "x" else axes.yaxis
    decades = round(-np.log10(linear))
    inch = inches / 2 / (decades + _LINEAR)  # inches of a decade
    needed = 0.32 if which == "x" else 0.16  # inches of a tick's label
    apart = max(1, int(np.ceil(needed / inch)))
    sizes = [10.0**-k for k in range(0, decades + 1, apart) if (decades - k + _LINEAR) * inch >= needed]
    axis.set_major_locator(FixedLocator(sorted({-size for size in sizes} | {0.0} | set(sizes))))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(_number))


def _number(value: float, _position: int = 0) -> str:
    return f"{value:g}".replace("-", "\N{MINUS SIGN}")


# --- at the end ---------------------------------------------------------------------------------------------------


def final(group: Group, width: float) -> Figure | str:
    """The last levels of each method as positions: a stroke at the mean over seeds, a bar over their spread.

    Diamonds are the paper's, where it shows levels for the same task, method and bits (``published.levels``).
    """
    found = [(seed_group, table.groupby("run").last()) for seed_group, table in _levels(group)]
    if not found:
        return "no run has logged levels"
    labels = [marked(seed_group.label, mark(group.logs, seed_group, len(table))) for seed_group, table in found]
    labels = [broken(label, _LETTERS * (2 if width > 5 else 1)) for label in labels]
    heights = np.array([max(_ROW, 0.05 + 0.125 * len(label.split("\n"))) for label in labels])
    figure = new_figure(width, 0.6 + heights.sum())
    axes = figure.add_subplot()
    shown = [table.to_numpy().ravel() for _, table in found]
    rows = np.cumsum(heights) - heights / 2  # inches
    for row, (seed_group, table) in zip(rows, found, strict=True):
        colour = look(seed_group).colour
        mean, low, high = mean_and_spread(table.to_numpy().T, geometric=False)
        stroke = {"linestyle": "none", "marker": "|", "markersize": 9}
        thick = 1.6 if len(mean) <= _MANY else 0.6
        axes.hlines(row, mean[0], mean[-1], color="#c8c8c8", linewidth=0.8, zorder=1)
        if (kind := spread(len(table))) and (high > low).any():
            bars = axes.hlines(np.full(len(mean), row), low, high, color=colour, linewidth=5, alpha=0.3, zorder=2)
            bars.set_gid(f"bars: {kind}")
        axes.plot(mean, np.full(len(mean), row), color=colour, markeredgewidth=thick, zorder=3, **stroke)
        theirs = published.levels(group.logs.settings.loc[seed_group.runs[0]].to_dict()).get(seed_group.method, ())
        if theirs:
            key = f"paper (bucket {published.LEVELS_BUCKET})"
            axes.plot(theirs, np.full(len(theirs), row), zorder=4, label=key, **_PAPER)
            shown.append(np.array(theirs))
    longest = max(len(line) for label in labels for line in label.split("\n"))
    value_axis(axes, "x", threshold(np.concatenate(shown)), width - 0.062 * longest - 0.2)
    axes.set_yticks(rows, labels)
    axes.set_ylim(heights.sum() + 0.02, -0.02)
    axes.grid(axis="y", visible=False)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.set_xlabel("levels at the end of training")
    legend_below(figure, width)
    return figure


# --- during training ----------------------------------------------------------------------------------------------


def over_steps(group: Group, widths: dict[str, float]) -> Figure | str:
    """Levels against the step, a panel for each method whose levels move; one thin line per seed and level."""
    moving = [(seed_group, table) for seed_group, table in _levels(group) if _moves(table)]
    if not moving:
        return "no levels change during these runs"
    symmetric = all(np.allclose(table, -table.to_numpy()[:, ::-1], atol=1e-5) for _, table in moving)
    columns = next(count for count in (1, 2, 3, 4) if count >= min(len(moving), 4 if len(moving) in (4, 7, 8) else 3))
    rows = -(-len(moving) // columns)
    width = widths["column" if len(moving) == 1 else "page"]
    letters = round(_TITLE * width / columns)
    titles = [
        broken(marked(seed_group.label, mark(group.logs, seed_group, len(table.groupby("run")))), letters)
        for seed_group, table in moving
    ]
    figure = new_figure(width, 0.3 + rows * width / max(columns, 2) * (0.75 if columns < 4 else 0.95))
    first, falls = None, drops(group.logs)
    for index, (seed_group, table) in enumerate(moving):
        axes = figure.add_subplot(rows, columns, index + 1, sharey=first, sharex=first)
        first = first or axes
        last = dict(group.logs.status["step"].items())
        _panel(axes, seed_group, table, symmetric, last)
        end = max(last[run] for run in table.index.unique("run"))
        for step in (step for step in falls if step <= end):
            axes.axvline(step, gid="drop", zorder=1, **DROP)
        axes.set_title(titles[index])
        x_axis(axes, "training step", 3 if columns == 4 else 5, whole=True)
        if index % columns:
            axes.tick_params(labelleft=False)
        else:
            axes.set_ylabel("positive levels" if symmetric else "levels")
    assert first is not None
    everywhere = np.concatenate([table.to_numpy().ravel() for _, table in moving])
    if symmetric:
        first.set_yscale("log")
        first.set_ylim(0.7 * max(_LOWEST, float(everywhere[everywhere > 0].min())), 1.3)
        first.yaxis.set_major_formatter(FuncFormatter(_number))
    else:
        value_axis(first, "y", threshold(everywhere), figure.get_figheight() / rows - 0.7)
    legend_below(figure, width)
    return figure


def _moves(table: pd.DataFrame) -> bool:
    return any(float(np.ptp(of_run.to_numpy(), axis=0).max()) > 1e-6 for _, of_run in table.groupby("run"))


def _panel(axes: Axes, seed_group: SeedGroup, table: pd.DataFrame, symmetric: bool, last: Mapping[Any, float]) -> None:
    """Draw the levels of each run, which stand from an update to the next one or to the run's last step."""
    colour, width = look(seed_group).colour, 0.8 if len(table.columns) <= _MANY else 0.3
    for run, of_run in table.groupby("run"):
        steps = np.append(of_run.index.get_level_values("step"), last[run])
        shown = of_run.loc[:, of_run.iloc[-1] > 0] if symmetric else of_run
        shown = np.vstack([shown, shown.iloc[-1:]])
        axes.plot(steps, shown, drawstyle="steps-post", color=colour, linewidth=width, alpha=0.75)
