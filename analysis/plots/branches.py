"""Forks drawn as branches of the runs that they left, and beside them their differences on the same minibatches."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from analysis.forks import Branch, branches
from analysis.groups.aggregate import mean_and_spread, seeds, spread
from analysis.groups.seed_groups import Group
from analysis.logs.load import Logs
from analysis.plots.legends import legend_below
from analysis.plots.panels import RATIO
from analysis.plots.style import WIDTHS, look, new_figure
from analysis.plots.ticks import log_ticks, x_axis

TAG = "Vloss"
_BAND = 0.15


def forks(group: Group, width: float) -> Figure | str:
    """The validation loss of forks as branches (left), and minus that of the runs that they left (right)."""
    del width
    found = branches(group.logs, group.seed_groups, TAG)
    if isinstance(found, str):
        return found
    width = WIDTHS["page"]
    figure = new_figure(width, width / 2 * RATIO)
    _losses(figure.add_subplot(1, 2, 1), group, found)
    _differences(figure.add_subplot(1, 2, 2), found)
    legend_below(figure, width)
    return figure


def _losses(axes: Axes, group: Group, found: list[Branch]) -> None:
    left = {parent for branch in found for parent in branch.parents}
    for seed_group in group.seed_groups:
        if own := [run for run in seed_group.runs if run in left]:
            step, mean = _mean(group.logs, own)
            axes.plot(step, mean, label=seed_group.label, zorder=3, **look(seed_group).line(len(step)))
    for branch in found:
        step, mean = _mean(group.logs, branch.parents)
        before = step == branch.at
        own = np.exp(np.log(branch.ours).mean(axis=1).to_numpy())
        x, y = np.append(step[before], branch.ours.index), np.append(mean[before], own)
        axes.plot(x, y, label=branch.seed_group.label, zorder=3, **look(branch.seed_group).line(len(x)))
        axes.axvline(branch.at, color="#777777", linewidth=0.8, linestyle=":", zorder=1)
    axes.set_yscale("log")
    axes.set_ylabel("validation loss")
    x_axis(axes, "training step", whole=True)
    log_ticks(axes)


def _mean(logs: Logs, runs: tuple[str, ...] | list[str]) -> tuple[np.ndarray, np.ndarray]:
    """The geometric mean of the loss over runs, at the steps that all have."""
    found = seeds(logs, TAG, runs, geometric=True)
    return found.step.astype(float), np.exp(found.values.mean(axis=1))


def _differences(axes: Axes, found: list[Branch]) -> None:
    axes.axhline(0, color="#777777", linewidth=0.8, zorder=1)
    for branch in found:
        differences = (branch.ours - branch.theirs).to_numpy(float)
        mean, low, high = mean_and_spread(differences, geometric=False)
        step = np.append(float(branch.at), branch.ours.index)  # where it left, there is no difference
        mean, low, high = (np.append(0.0, values) for values in (mean, low, high))
        style = look(branch.seed_group)
        axes.plot(step, mean, zorder=3, **style.line(len(step)))
        band = axes.fill_between(step, low, high, color=style.colour, alpha=_BAND, linewidth=0, zorder=2)
        band.set_gid(f"bands: {spread(differences.shape[1])}")
    axes.set_ylabel("validation loss, fork minus parent")
    x_axis(axes, "training step", whole=True)
    axes.yaxis.set_major_locator(MaxNLocator(5))
