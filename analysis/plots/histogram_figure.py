"""The gradient's normalised coordinates as measured, the distribution fitted to them, and the levels over both."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from analysis.groups.aggregate import runs_to_use
from analysis.groups.seed_groups import Group, SeedGroup
from analysis.logs.histograms import COORDINATES, FIT, Histogram, read
from analysis.plots.legends import broken
from analysis.plots.level_figures import levels_at, threshold, value_axis
from analysis.plots.style import WIDTHS, look, new_figure
from analysis.plots.ticks import log_ticks
from analysis.restyled import chosen

_DEPTH = 1e-6  # the axis ends at this part of the highest density
_FEW = 16  # up to so many levels are drawn through the panel, more only at its foot
_ASPECT = 0.8
_TITLE_SIZE = 7.5  # points
_LETTERS = 15.5  # an inch of a title
_TALLEST = 9.0  # inches, the height of a page


@dataclass(frozen=True)
class _Shown:
    """One measurement of one run."""

    seed_group: SeedGroup
    measured: Histogram
    fitted: Histogram | None
    levels: np.ndarray  # float64[L], ascending; empty where none were logged

    @property
    def density(self) -> np.ndarray:
        return density(self.measured)


def gradient_histogram(group: Group, width: float) -> Figure | str:
    """A figure of each adaptive method's density of the normalised coordinates, weighted by norm^2, as last measured.

    The filled area is measured, the line is the distribution fitted to the same buckets (``train.steps.estimator`` says
    which), and the strokes are the levels in use. The run is that of the lowest seed that logged ``stats/coordinates``.
    In a figure of page width the first measurement stands beside the last.  Methods with fixed levels have a panel only
    where no adaptive one has. ``width`` in inches; a figure that would be taller than a page has its width, and only
    the last measurements.
    """
    found = _measurements(group, early=width > 5)
    if not found:
        return f"no run has logged {COORDINATES}"
    figure = _panels(found, width)
    if figure.get_figheight() > _TALLEST:
        return _panels(_measurements(group, early=False), chosen().width or WIDTHS["page"])
    return figure


def _panels(found: list[_Shown], width: float) -> Figure:
    """A panel for each measurement, and the legend."""
    columns = min(len(found), 4 if width > 5 else 2)
    rows = -(-len(found) // columns)
    inches = width / max(columns, 2)  # width of a panel
    titles = [
        f"{broken(shown.seed_group.label, round(_LETTERS * (inches - 0.2)))}\nstep {shown.measured.step}"
        for shown in found
    ]
    lines = max(title.count("\n") for title in titles)
    figure = new_figure(width, 0.75 + rows * (inches * _ASPECT + 0.13 * (lines - 1)))
    linear = threshold(np.concatenate([shown.levels for shown in found]))
    panels = density_panels(figure, len(found), columns, "normalised coordinate")
    for axes, shown, title in zip(panels, found, titles, strict=True):
        _panel(axes, shown)
        axes.set_title(title, fontsize=_TITLE_SIZE)
    value_axis(panels[0], "x", linear, inches - 0.35)
    panels[0].set_xlim(-1.15, 1.15)
    lowest = min(float(shown.density[shown.density > 0].min()) for shown in found)
    highest = max(float(shown.density.max()) for shown in found)
    density_axis(panels[0], max(lowest / 2, _DEPTH * highest), 4 * highest)
    figure.legend(handles=_keys(found), loc="outside lower center", ncols=3, borderaxespad=0.2)
    return figure


def density_panels(figure: Figure, count: int, columns: int, label: str) -> list[Axes]:
    """So many empty panels of densities that share their axes; ``label``: of the x axis, below the lowest panels."""
    panels: list[Axes] = []
    for index in range(count):
        first = panels[0] if panels else None
        axes = figure.add_subplot(-(-count // columns), columns, index + 1, sharex=first, sharey=first)
        below = index + columns < count
        axes.tick_params(labelleft=index % columns == 0, labelbottom=not below)
        axes.set_ylabel("density" if index % columns == 0 else "")
        axes.set_xlabel("" if below else label)
        panels.append(axes)
    return panels


def density_axis(axes: Axes, low: float, high: float) -> None:
    """Set the y axis of densities, logarithmic with few ticks."""
    axes.set_yscale("log")
    axes.set_ylim(low, high)
    log_ticks(axes)


def _measurements(group: Group, *, early: bool) -> list[_Shown]:
    adaptive = [seed_group for seed_group in group.seed_groups if _adapts(group, seed_group)]
    for seed_groups in (adaptive, [seed_group for seed_group in group.seed_groups if seed_group not in adaptive]):
        found = [shown for seed_group in seed_groups for shown in _of_seed_group(group, seed_group, early=early)]
        if found:
            return found
    return []


def _adapts(group: Group, seed_group: SeedGroup) -> bool:
    own = group.logs.settings.loc[list(seed_group.runs)]
    return "method.update_at" in own and bool(own["method.update_at"].notna().any())


def _of_seed_group(group: Group, seed_group: SeedGroup, *, early: bool) -> list[_Shown]:
    """The last measurement of the first run that has any, and before it the first one (``early``)."""
    runs = runs_to_use(group.logs, seed_group)
    for run in sorted(runs, key=lambda run: seed_of(group, run)):
        folder = group.logs.folder / run
        measured = [histogram for histogram in read(folder, COORDINATES) if sound(histogram)]
        if not measured:
            continue
        fits = {histogram.step: histogram for histogram in read(folder, FIT) if sound(histogram)}
        chosen = [measured[0], measured[-1]] if early and len(measured) > 1 else [measured[-1]]
        return [_Shown(seed_group, item, fits.get(item.step), levels_at(group.logs, run, item.step)) for item in chosen]
    return []


def seed_of(group: Group, run: str) -> float:
    """A run's seed; infinite where it tells none."""
    seed = group.logs.settings.loc[run, "seed"]
    return float(seed) if isinstance(seed, int | float) and np.isfinite(seed) else np.inf


def sound(histogram: Histogram) -> bool:
    """Whether a histogram holds something, and nothing that is no count."""
    finite = np.isfinite(histogram.counts).all() and np.isfinite(histogram.edges).all()
    return bool(finite and histogram.counts.min() >= 0 and histogram.counts.sum() > 0)


def density(histogram: Histogram) -> np.ndarray:
    """The density of each bucket: the area below is 1."""
    return histogram.counts / histogram.counts.sum() / np.diff(histogram.edges)


def _panel(axes: Axes, shown: _Shown) -> None:
    colour = look(shown.seed_group).colour
    axes.stairs(shown.density, shown.measured.edges, fill=True, color=colour, alpha=0.3, linewidth=0, baseline=1e-300)
    if shown.fitted is not None:
        middles = (shown.fitted.edges[:-1] + shown.fitted.edges[1:]) / 2
        axes.plot(middles, density(shown.fitted), color=colour, linewidth=1.1)
    if len(shown.levels) <= _FEW:
        for level in shown.levels:
            axes.axvline(level, color="#555555", linewidth=0.5, linestyle=(0, (1, 1.5)), zorder=1)
    if len(shown.levels):  # marks that are not clipped must have a place, or the layout fails
        foot = np.zeros(len(shown.levels))
        axes.plot(shown.levels, foot, transform=axes.get_xaxis_transform(), clip_on=False, **_STROKE)


_STROKE = {"linestyle": "none", "marker": "|", "markersize": 6, "markeredgewidth": 1.0, "color": "#000000", "zorder": 4}


def _keys(found: list[_Shown]) -> list[Patch | Line2D]:
    keys: list[Patch | Line2D] = [Patch(color="#555555", alpha=0.3, linewidth=0, label="measured")]
    if any(shown.fitted is not None for shown in found):
        keys.append(Line2D([], [], color="#555555", linewidth=1.1, label="fitted"))
    if any(len(shown.levels) for shown in found):
        keys.append(Line2D([], [], label="levels", **_STROKE))
    return keys
