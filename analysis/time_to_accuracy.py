"""The time that training takes to a given accuracy, in seconds and in bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from analysis import axes as on_axis
from analysis.groups.aggregate import estimate, final, runs_to_use, wide
from analysis.groups.seed_groups import Group, SeedGroup, groups, title
from analysis.logs.load import Logs
from analysis.plots.legends import broken, legend_below
from analysis.plots.style import WIDTHS, look, new_figure

TAG, LOSS = "Vacc", "Vloss"
BELOW = 1.0  # percentage points: the default target lies so far below the final mean of the baseline
_BASELINE = "supersgd"
_ROW = 0.2  # inches per method
_TALLEST = 8.0  # inches: of a figure that has more panels below each other than beside, and of all rows of a panel
_LEAST_ROW = 0.115  # inches: a line of a label
_LABEL_WIDTH = 22  # letters, in a figure of one column; twice as many on a page
_LOG_FROM = 5.0  # ratio of the longest to the shortest from which the axis is logarithmic


@dataclass(frozen=True)
class Target:
    """A target accuracy in percent, with its origin in words (empty for one that was asked for)."""

    percent: float
    rule: str = ""


def first_at(logs: Logs, runs: Sequence[str], target: float, axis: str = "time", tag: str = TAG) -> pd.Series:
    """The position of each run on one of ``axes.AXES`` at its first evaluation of at least ``target`` % accuracy.

    tag: what is to reach the target, in place of the accuracy; a loss (LOSS) by falling to it.

    There is no interpolation between evaluations: a model is known only where it was evaluated, so the answer is never
    too early and at most one evaluation interval too late.  It is NaN where the run never gets there, or has no
    position on that axis.
    """
    values = wide(logs, tag, list(runs))
    there = values.to_numpy() <= target if tag == LOSS else values.to_numpy() >= target
    ever = np.asarray(there.any(axis=0))
    found = np.full(len(runs), np.nan)
    if ever.any():
        rows, row_of_run = np.unique(there[:, ever].argmax(axis=0), return_inverse=True)
        where = on_axis.positions(logs, axis, list(values.columns[ever]), values.index[rows]).to_numpy()
        found[ever] = where[row_of_run, np.arange(len(row_of_run))]
    return pd.Series(found, index=pd.Index(runs, name="run"))


def default_target(group: Group) -> Target | None:
    """A target one point below SuperSGD's final accuracy (mean over seeds), or else the best's; None without any."""
    finals = [(each.method, final(group.logs, TAG, runs_to_use(group.logs, each))) for each in group.seed_groups]
    means = [(method, mean) for method, values in finals if np.isfinite(mean := estimate(values).mean)]
    if not means:
        return None
    baseline = [mean for method, mean in means if method == _BASELINE]
    mean = max(baseline or [mean for _, mean in means])
    name = f"{title(_BASELINE)}'s" if baseline else "the best"
    return Target(mean - BELOW, f"{BELOW:g} point below {name} final mean")


def time_to_accuracy(logs: Logs, width: float, target: float | None = None) -> Figure | str:
    """A figure of the training time and sent bytes until the validation accuracy first reaches ``target`` percent.

    Each method has a row with a dot for each run (``first_at``). The row shows mean and spread over seeds only
    where all its runs get there, as a mean over the fast ones would flatter; otherwise it shows how many of them do.
    Runs that have not finished count as not there until they are.  By default the target is ``default_target``'s.  Only
    trained runs are shown, bytes are those of one worker. ``width`` in inches; where its panels, below each other,
    would be taller than a page, they stand side by side on the width of the page.
    """
    trained = [group for group in groups(logs) if group.trajectory == "method"]
    if not trained:
        return "there are no trained runs"
    if len(trained) > 1:
        return (
            f"the runs fall into {len(trained)} groups that have no accuracy in common "
            f"({', '.join(trained[0].differs)}): keep one"
        )
    (group,) = trained
    seed_groups = [seed_group for seed_group in group.seed_groups if len(wide(logs, TAG, list(seed_group.runs)))]
    goal = Target(target) if target is not None else default_target(group)
    if not seed_groups or goal is None:
        return f"no run has logged {TAG}"
    runs = [run for seed_group in seed_groups for run in seed_group.runs]
    steps = first_at(logs, runs, goal.percent, "step")
    found = {axis: first_at(logs, runs, goal.percent, axis) for axis in ("time", "bytes")}
    found = {axis: places for axis, places in found.items() if places.notna().any()}
    if found:
        return _draw(seed_groups, goal, found, steps, width)
    if len(steps.dropna()):
        return "no run has logged times or comm/bytes"
    return f"no run reaches {goal.percent:.2f} % validation accuracy"


def _draw(
    seed_groups: list[SeedGroup], goal: Target, found: Mapping[str, pd.Series], steps: pd.Series, width: float
) -> Figure | str:
    beside = width > 5
    rows, columns = (1, len(found)) if beside else (len(found), 1)
    labels = [broken(seed_group.label, _LABEL_WIDTH * (2 if beside else 1)) for seed_group in seed_groups]
    lines = np.array([len(label.split("\n")) for label in labels])
    high = np.maximum(_ROW, 0.05 + 0.125 * lines)  # inches of each row
    if beside:
        high *= min(1.0, _TALLEST / high.sum())
    height = 0.4 + rows * (0.45 + high.sum())
    if not beside and height > _TALLEST:
        return _draw(seed_groups, goal, found, steps, WIDTHS["page"])
    if (high / lines).min() < _LEAST_ROW:
        return f"{len(seed_groups)} rows are too many for one figure: choose fewer runs"
    figure = new_figure(width, height)
    middles = np.cumsum(high) - high / 2
    for index, (axis, places) in enumerate(found.items()):
        axes = figure.add_subplot(rows, columns, index + 1)
        _rows(axes, axis, seed_groups, places, middles)
        axes.set_ylim(high.sum() + 0.02, -0.02)
        labelled = not beside or index == 0
        axes.set_yticks(middles, labels if labelled else [""] * len(seed_groups))
        if not beside or index == len(found) - 1:
            _counts(axes, seed_groups, steps, middles)
    rule = f"{' ' if beside else chr(10)}({goal.rule})" if goal.rule else ""
    figure.suptitle(f"to {goal.percent:.2f} % validation accuracy{rule}", fontsize=8.5)
    legend_below(figure, width)
    return figure


def _rows(axes: Axes, axis: str, seed_groups: list[SeedGroup], found: pd.Series, middles: np.ndarray) -> None:
    size, label = on_axis.unit(axis, float(found.max()))
    dots = {"linestyle": "none", "marker": "o", "markersize": 2.6, "alpha": 0.55, "zorder": 2}
    for row, seed_group in zip(middles, seed_groups, strict=True):
        style = look(seed_group)
        places = found.loc[list(seed_group.runs)] / size
        axes.plot(places, np.full(len(places), row), color=style.colour, **dots)
        if len(places) and places.notna().all():
            mean = estimate(places)
            if np.isfinite(mean.low):
                bar = {"fmt": "none", "ecolor": style.colour, "elinewidth": 1.0, "capsize": 2.5}
                reach = [[mean.mean - mean.low], [mean.high - mean.mean]]
                bars = axes.errorbar(mean.mean, row, xerr=reach, zorder=3, **bar)[2]
                bars[0].set_gid(f"bars: {mean.spread}")
            axes.plot([mean.mean], [row], linestyle="none", zorder=4, **style.point())
    _scale(axes, found.min() / size, found.max() / size)
    axes.set_xlabel(label)
    axes.tick_params(axis="y", length=0)


def _scale(axes: Axes, low: float, high: float) -> None:
    """Set the scale of an axis: from zero, or logarithmic where rows (not their intervals) span a factor of five."""
    if low > 0 and high / low >= _LOG_FROM:
        axes.set_xscale("log")
        axes.set_xlim(low / 1.25, high * 1.25)
        decades = np.log10(high / low)
        axes.xaxis.set_major_locator(
            LogLocator(subs=(1, 2, 5) if decades < 1.5 else (1, 3) if decades < 2.5 else (1,), numticks=9)
        )
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    else:
        axes.set_xlim(0, 1.08 * high or 1.0)
        axes.xaxis.set_major_locator(MaxNLocator(5))


def _counts(axes: Axes, seed_groups: list[SeedGroup], steps: pd.Series, middles: np.ndarray) -> None:
    """Write at the right edge how many runs of a row get there, where it is not all."""
    for row, seed_group in zip(middles, seed_groups, strict=True):
        count = int(np.isfinite(steps.reindex(list(seed_group.runs))).sum())
        if count < len(seed_group.runs):
            text = f"{count} of {len(seed_group.runs)}" if count else "never"
            style = {"va": "center", "ha": "left", "fontsize": 7, "annotation_clip": False}
            axes.annotate(text, (1.02, row), xycoords=axes.get_yaxis_transform(), **style)
