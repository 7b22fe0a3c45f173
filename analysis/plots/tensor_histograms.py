"""The distribution of each kind of tensor of training, in standard deviations from its mean, beside the normal one."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from analysis.groups.aggregate import runs_to_use
from analysis.groups.seed_groups import Group, SeedGroup
from analysis.groups.tensor_formats import KINDS
from analysis.logs.histograms import Histogram, read
from analysis.plots.histogram_figure import density, density_axis, density_panels, seed_of, sound
from analysis.plots.style import COLOURS, new_figure
from analysis.results import compression_ratio

TAG = "tensors/"
_FAR = 5.9  # standard deviations shown: the outermost bins, of which those at 6 are the last, hold all that lies beyond
_DEPTH = 1e-6  # the axis ends at this density, and at the highest that the first of these allows
_HIGH = 10.0
_ASPECT = 0.8
_COLOUR, _NORMAL = COLOURS[3], COLOURS[6]


def tensor_histograms(group: Group, width: float) -> Figure | str:
    """A figure of the density of z = (x - mean) / std over all tensors of a kind, last measured, beside a normal one.

    The histograms are of one run: the lowest seed of the setting that logged the most kinds, and of those the one whose
    format is the finest, as it leaves the tensors most as they would be (SmaQ's weights end where it clamps).  Kinds
    that were not logged have no panel.  ``width`` in inches.
    """
    found = [(seed_group, _of_seed_group(group, seed_group)) for seed_group in group.seed_groups]
    ratios = compression_ratio(group.logs)
    seed_group, kinds = max(
        found, key=lambda item: (len(item[1]), -round(ratios.reindex(item[0].runs).fillna(np.inf).min(), 1))
    )
    if not kinds:
        return f"no run has logged {TAG}{KINDS[0]} or another kind of tensor"
    columns = min(len(kinds), 5 if width > 5 else 2)
    rows = -(-len(kinds) // columns)
    inches = width / max(columns, 2)
    figure = new_figure(width, 0.75 + rows * max(inches * _ASPECT, 1.1))
    label = "(x - mean) / std" if width > 5 else "z = (x - mean) / std"
    panels = density_panels(figure, len(kinds), columns, label)
    for axes, (kind, histogram) in zip(panels, kinds.items(), strict=True):
        _panel(axes, histogram)
        axes.set_title(kind.replace("_", " "))
    panels[0].set_xlim(-_FAR, _FAR)
    highest = max(float(density(histogram).max()) for histogram in kinds.values())
    density_axis(panels[0], _DEPTH, max(1.0, min(_HIGH, 2 * highest)))
    step = max(histogram.step for histogram in kinds.values())
    keys: list[Patch | Line2D] = [
        Patch(color=_COLOUR, alpha=0.35, linewidth=0, label=f"{seed_group.label}, step {step}"),
        Line2D([], [], color=_NORMAL, linewidth=1.1, label="standard normal"),
    ]
    figure.legend(handles=keys, loc="outside lower center", ncols=2, borderaxespad=0.2)
    return figure


def _of_seed_group(group: Group, seed_group: SeedGroup) -> dict[str, Histogram]:
    """The last histogram of each kind of tensor that the first run, by seed, with any has logged."""
    for run in sorted(runs_to_use(group.logs, seed_group), key=lambda run: seed_of(group, run)):
        logged = {kind: [item for item in read(group.logs.folder / run, TAG + kind) if sound(item)] for kind in KINDS}
        if kinds := {kind: items[-1] for kind, items in logged.items() if items}:
            return kinds
    return {}


def _panel(axes: Axes, histogram: Histogram) -> None:
    axes.stairs(density(histogram), histogram.edges, fill=True, color=_COLOUR, alpha=0.35, linewidth=0, baseline=1e-300)
    z = np.linspace(-_FAR, _FAR, 241)
    axes.plot(z, np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi), color=_NORMAL, linewidth=1.1)
