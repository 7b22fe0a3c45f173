"""The paper's figures of a sweep, as PNG and PDF."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.gridspec import GridSpec

from analysis.axes import TITLES, checked
from analysis.groups.seed_groups import Group, begun, groups
from analysis.logs.load import Logs
from analysis.plots import level_figures
from analysis.plots.accuracy_per_bit import accuracy_per_bit
from analysis.plots.bits_figure import bits_against_accuracy, ratio_against_accuracy
from analysis.plots.branches import forks
from analysis.plots.comparisons import against_setting, error_per_bit
from analysis.plots.curves import PLOTS, Means, Plot, curves, on_axis
from analysis.plots.finished import save, styled
from analysis.plots.forked import each
from analysis.plots.histogram_figure import gradient_histogram
from analysis.plots.legends import legend_below, legend_rows
from analysis.plots.over_links import loss_over_links
from analysis.plots.panels import RATIO, TALLEST
from analysis.plots.style import WIDTHS, new_figure, rc
from analysis.plots.tensor_histograms import tensor_histograms
from analysis.plots.ticks import x_axis
from analysis.plots.variance_and_loss import variance_and_loss
from analysis.restyled import chosen, labelled
from analysis.time_to_accuracy import time_to_accuracy
from nuq.settings import unknown
from settings.conditions import short_name, shown

_MOST_ROWS = 24  # rows of a legend: four inches
_PAGE = 9.0  # inches, the height of a page
_LOWEST = 1.6  # inches: the height of a panel whose title takes two lines


# Panels of a group that was trained with the quantized gradient: name, title, function of (axes, group).
OF_TRAINED: tuple[tuple[str, str, Callable[[Axes, Group], str | None]], ...] = (
    ("bits_accuracy", "Final accuracy against the bits that really travelled.", bits_against_accuracy),
    (
        "ratio_accuracy",
        "Final accuracy against the measured compression ratio, where all kinds of tensors are kept in a format or "
        "none is.",
        ratio_against_accuracy,
    ),
)
# Figures of one group of runs that share a plot: name, title, function of (group, width in inches).
OF_GROUP: tuple[tuple[str, str, Callable[[Group, float], Figure | str]], ...] = (
    ("levels", "Quantization levels at the end of training: mean and spread over seeds.", level_figures.final),
    (
        "levels_steps",
        "Adapted levels during training, one line for each seed and level.",
        lambda group, _: level_figures.over_steps(group, WIDTHS),
    ),
    (
        "gradient_histogram",
        "Normalised coordinates as measured, the distribution fitted to them, and the levels over both.",
        gradient_histogram,
    ),
    (
        "tensor_histograms",
        "Weights, gradients, activations, their gradients and moments, in standard deviations from the mean.",
        tensor_histograms,
    ),
    (
        "loss_over_links",
        "Final validation loss against the time of all steps over links of 10 Mbit/s to 1 Gbit/s, by H.",
        loss_over_links,
    ),
    (
        "forks",
        "Forks as branches of the runs that they left, and their differences on the same minibatches.",
        forks,
    ),
)
# Figures of a whole sweep: name, title, function of (logs, width in inches).
OF_SWEEP: tuple[tuple[str, str, Callable[[Logs, float], Figure | str]], ...] = (
    (
        "against_bits",
        "Final accuracy, or the variance, against bits.",
        lambda logs, w: against_setting(logs, w, "method.bits"),
    ),
    (
        "against_bucket",
        "Final accuracy, or the variance, against bucket size.",
        lambda logs, w: against_setting(logs, w, "method.bucket_size"),
    ),
    (
        "against_ratio",
        "Final accuracy, or the variance, against the share of coordinates that travel: entire model solid, "
        "layer-wise dashed.",
        lambda logs, w: against_setting(logs, w, "method.ratio"),
    ),
    (
        "accuracy_per_bit",
        "Final accuracy against the bits that really travelled, each method over all its settings.",
        accuracy_per_bit,
    ),
    (
        "error_per_bit",
        "Variance that quantization adds, relative to SuperSGD's, against the measured bits.",
        error_per_bit,
    ),
    (
        "variance_and_loss",
        "Final loss against the variance that quantization adds and against the tails of its error.",
        variance_and_loss,
    ),
)
ACROSS = "across settings"  # the section of the latter
# The kinds of figures that one looks at first, and how many are drawn where nobody says which.
FIRST = ("overview", "accuracy-bytes", "levels", "relative_var", "accuracy_per_bit")
MOST = 8


@dataclass(frozen=True)
class Named:
    """A figure that can be drawn.

    ``name``: of its files, without extension; ``title``: a short sentence; ``section``: the group of runs that it
    shows; ``make``: draws it, or says in a sentence why there is nothing to draw. Whatever renders it, ``save`` or
    other, must do so under ``rc_context(laid_out())``: matplotlib sizes the ticks that it adds while rendering by the
    settings of that moment.
    """

    name: str
    title: str
    section: str
    make: Callable[[], Figure | str]
    kind: str  # the name without the group's: ``est_var-time``
    missing: Callable[[], str]  # why there is nothing to draw, empty where there is something: quicker than ``make``
    num_runs: int = 0  # that it may show


@dataclass(frozen=True)
class Drawn:
    """The result of drawing a sweep.

    The files, a sentence for each figure that could not be drawn, and the words that labels of a style could replace.
    """

    paths: tuple[Path, ...]
    notes: tuple[str, ...]
    words: frozenset[str]


def means_of(logs: Logs) -> list[Means]:
    """The means of every group of runs that share a plot; each is computed when it is first drawn."""
    return [Means(group) for group in groups(logs)]


def first(figures: Sequence[Named], axes: Sequence[str] | None = None) -> list[Named]:
    """The figures that one looks at first, at most ``MOST``: those of the group with most runs, then the others'.

    ``axes``: curves against these come before.
    """
    ends = ["" if axis == "step" else f"-{axis}" for axis in axes or ()]
    kinds = [*(f"{name}{end}" for end in ends for name in ("overview", "accuracy")), *FIRST]
    places = {kind: place for place, kind in enumerate(dict.fromkeys(kinds))}
    own = [figure for figure in figures if figure.kind in places]
    of_groups = [figure for figure in own if figure.section != ACROSS]
    main = max(of_groups, key=lambda figure: figure.num_runs).section if of_groups else ACROSS
    own.sort(key=lambda figure: (figure.section not in (main, ACROSS), places[figure.kind]))
    return own[:MOST]


def only(figures: Sequence[Named], patterns: Sequence[str]) -> list[Named]:
    """The figures whose name or kind fits one of the patterns (``overview``, ``accuracy*``), in the patterns' order.

    ValueError for a pattern that none fits, with the kinds that there are: a name's other part is that of its group of
    runs, and groups follow the choice of runs.
    """
    found: dict[str, Named] = {}
    for pattern in patterns:
        own = [figure for figure in figures if fnmatchcase(figure.kind, pattern) or fnmatchcase(figure.name, pattern)]
        if not own:
            kinds = list(dict.fromkeys(figure.kind for figure in figures))
            of_other_runs = sorted((kind for kind in kinds if pattern.startswith(f"{kind}-")), key=len)[-1:]
            wrong = unknown("figure of the chosen runs", pattern, kinds, of_other_runs)
            raise ValueError(
                f"{wrong}; --where and --methods choose the runs, and with the same, --list names the figures"
            )
        found |= {figure.name: figure for figure in own}
    return list(found.values())


def draw(
    figures: Sequence[Named],
    folder: Path,
    *,
    processes: int | None = None,
) -> Drawn:
    """Draw figures into ``folder``; ``processes``: how many at the same time, by default one for each core."""
    found = each(functools.partial(_drawn, folder), figures, processes)
    paths: list[Path] = []
    notes = []
    for figure, (drawn, _) in zip(figures, found, strict=True):
        if isinstance(drawn, str):
            notes.append(f"{figure.name}: not drawn, {drawn}")
        else:
            paths += drawn
    return Drawn(tuple(paths), tuple(notes), frozenset().union(*(words for _, words in found)))


def _drawn(folder: Path, figure: Named) -> tuple[list[Path] | str, frozenset[str]]:
    drawn = figure.make()
    return drawn if isinstance(drawn, str) else save(drawn, folder, figure.name), labelled()


def named(
    logs: Logs,
    width: float,
    *,
    axes: Sequence[str] | None = None,
    target: float | None = None,
    means: Sequence[Means] | None = None,
) -> Iterator[Named]:
    """Every figure of a sweep; ``width`` in inches is that of single ones, the overview takes the page.

    ``axes``: only curves against these x axes (``analysis.axes.AXES``), ValueError for one that does not exist; all by
    default.  ``target``: the accuracy in percent of ``time_to_accuracy``, by default one for each group
    (``analysis.time_to_accuracy.default_target``).  ``means``: those of every group (``means_of``), where somebody has
    them already.

    The order is: for each group of runs that share a plot the curves against the step, the figures that are not against
    an axis, then the curves against the other axes (``est_var-time``); last the figures across settings.
    """
    wanted = checked(axes)
    for name in chosen().panels:
        if name not in (names := [plot.name for plot in PLOTS]):
            raise ValueError(f"panels: {unknown('panel', name, names)}")
    logs = begun(logs)
    for of_group in means_of(logs) if means is None else means:
        group = of_group.group
        section = _section(group)
        for name, title, function, missing in _of_group(of_group, wanted, target):
            file_name = re.sub(r"[^\w.=-]+", "_", f"{name}-{group.name}" if group.name else name)
            make, num_runs = functools.partial(styled, function, group, width), len(group.logs.settings)
            missing = missing or functools.partial(_undrawn, function, group, width)
            yield Named(file_name, title, section, make, name, missing, num_runs)
    for name, title, function in OF_SWEEP:
        make = functools.partial(styled, functools.partial(_with_room, function), logs, width)
        yield Named(name, title, ACROSS, make, name, functools.partial(_undrawn, function, logs, width))


def _with_room(function: Callable[[Any, float], Figure | str], of: Any, width: float) -> Figure | str:
    """The figure that a function draws, as wide as the page where its legend is too long for ``width``."""
    figure = function(of, width)
    if isinstance(figure, str) or chosen().width or legend_rows(figure, width) <= _MOST_ROWS:
        return figure
    return function(of, WIDTHS["page"])


def _undrawn(function: Callable[[Any, float], Figure | str], of: Any, width: float) -> str:
    """Why a function draws nothing; empty where it does draw."""
    with rc_context(rc()):
        found = function(of, chosen().width or width)
    return found if isinstance(found, str) else ""


# a figure's name, title, function of (group, width), and what it lacks, where that is quicker to tell
_Figure = tuple[str, str, Callable[[Group, float], Figure | str], Callable[[], str] | None]


def _of_group(means: Means, axes: Sequence[str], target: float | None) -> Iterator[_Figure]:
    group = means.group
    if "step" in axes:
        yield from _against(means, "step")
    if group.trajectory == "method":
        for name, title, fill in OF_TRAINED:
            yield name, title, lambda group, width, fill=fill: _single(width, lambda axes: fill(axes, group)), None
    yield from ((*figure, None) for figure in OF_GROUP)
    title = "Time and bytes until the validation accuracy first reaches a target."
    yield "time_to_accuracy", title, lambda group, width: time_to_accuracy(group.logs, width, target), None
    for axis in axes:
        # nothing compressed is sent on the SGD trajectory
        if axis != "step" and (axis != "bytes" or group.trajectory == "method"):
            yield from _against(means, axis)


def _against(means: Means, axis: str) -> Iterator[_Figure]:
    """The curves against one axis: all in one figure, then one by one."""
    end = "" if axis == "step" else f"-{axis}"

    def missing(plot: Plot) -> str:
        found = on_axis(means, plot, axis)
        return found if isinstance(found, str) else ""

    def too_few() -> str:
        return _FEW_PANELS if sum(not missing(plot) for plot in _panels(means)) < _least_panels() else ""

    yield f"overview{end}", f"All quantities {TITLES[axis]}.", lambda *_: _overview(means, axis), too_few
    for plot in PLOTS:
        if means.group.trajectory in plot.trajectories:
            fill = functools.partial(curves, means=means, plot=plot, axis=axis)
            title, lacks = f"{plot.title} {TITLES[axis]}.", functools.partial(missing, plot)
            yield f"{plot.name}{end}", title, lambda _, width, fill=fill: _single(width, fill), lacks


def _section(group: Group) -> str:
    where = "on the SGD trajectory" if group.trajectory == "sgd" else "trained with the quantized gradient"
    return ", ".join([where, *(f"{short_name(key)}={shown(value)}" for key, value in group.differs.items())])


def _single(width: float, fill: Callable[[Axes], str | None]) -> Figure | str:
    """A figure of one panel; it is as wide as the page where its legend is too long for ``width``."""
    figure = new_figure(width, min(width * RATIO, TALLEST))
    problem = fill(figure.add_subplot())
    if problem:
        return problem
    if legend_rows(figure, width) > _MOST_ROWS:
        if width < WIDTHS["page"]:
            return _single(WIDTHS["page"], fill)
        return _too_many(figure)
    legend_below(figure, width)
    return figure


def _too_many(figure: Figure) -> str:
    most = max(len(axes.get_legend_handles_labels()[1]) for axes in figure.axes)
    return f"{most} curves are too many for one figure: choose fewer runs"


_FEW_PANELS = "fewer than two panels have data"


def _panels(means: Means) -> list[Plot]:
    """The quantities of an overview, in the order of the style in force."""
    plots = {plot.name: plot for plot in PLOTS}
    wanted = [plots[name] for name in chosen().panels or plots]
    return [plot for plot in wanted if means.group.trajectory in plot.trajectories]


def _least_panels() -> int:
    return min(2, len(chosen().panels) or 2)


def _overview(means: Means, axis: str) -> Figure | str:
    """All curves that have data, under one legend; the title of a panel says what it shows."""
    width = chosen().width or WIDTHS["page"]
    figure = new_figure(width, width)
    panels: list[Axes] = []
    for plot in _panels(means):
        axes = figure.add_subplot(label=plot.name)
        if curves(axes, means, plot, axis):
            axes.remove()
        else:
            panels.append(axes)
    if len(panels) < _least_panels():
        return _FEW_PANELS
    if legend_rows(figure, width) > _MOST_ROWS:
        return _too_many(figure)
    columns = min(len(panels), 2 if len(panels) in (2, 4) else 3, max(1, round(width / WIDTHS["page"] * 3)))
    if -(-len(panels) // columns) * width / columns * (RATIO + 0.05) > _PAGE:
        columns += 1
    rows = -(-len(panels) // columns)
    places = GridSpec(rows, columns, figure=figure)
    for index, axes in enumerate(panels):
        axes.set_subplotspec(places[index // columns, index % columns])
        letter = f"({chr(ord('a') + index)}) " if len(panels) > 1 else ""
        axes.set_title(letter + axes.get_ylabel(), loc="left")
        axes.set_ylabel("")
    _one_x_axis(panels, axis, 5 if width / columns > 2 else 3)
    figure.set_figheight(rows * max(width / columns * (RATIO + 0.05), _LOWEST))
    legend_below(figure, width)
    return figure


def _one_x_axis(panels: Sequence[Axes], axis: str, num_ticks: int) -> None:
    """Give all panels the same x axis, so that a step stands at one place in each."""
    for scale in {axes.get_xscale() for axes in panels}:
        alike = [axes for axes in panels if axes.get_xscale() == scale]
        low, high = zip(*(axes.get_xlim() for axes in alike), strict=True)
        for axes in alike:
            axes.set_xlim(min(low), max(high))
            x_axis(axes, axes.get_xlabel(), num_ticks, whole=axis == "step")
