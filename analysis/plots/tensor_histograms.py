"""The distribution of the numbers of training: each kind of tensor in standard deviations from its mean.

The normal distribution is drawn beside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import LogLocator, NullFormatter, NullLocator

from analysis.aggregate import runs_to_use
from analysis.logs.histograms import Histogram, read
from analysis.plots.histogram_figure import density, seed_of, sound
from analysis.plots.style import COLOURS, RC, new_figure
from analysis.results import compression_ratio
from analysis.seed_groups import Group, SeedGroup
from analysis.tensor_formats import KINDS

TAG = "tensors/"
_FAR = 5.9  # standard deviations shown: the outermost bins, of which those at 6 are the last, hold all that lies beyond
_DEPTH = 1e-6  # the axis ends at this density, and at the highest that the first of these allows
_HIGH = 10.0
_ASPECT = 0.8
_COLOUR, _NORMAL = COLOURS[3], COLOURS[6]


@dataclass(frozen=True)
class _Shown:
    """The last histogram of each kind of tensor that one run logged."""

    seed_group: SeedGroup
    kinds: Mapping[str, Histogram]


@rc_context(RC)
def tensor_histograms(group: Group, width: float) -> Figure | str:
    """A figure of the density of z = (x - mean) / std over all tensors of each kind, as last measured.

    The standard normal density is drawn beside it.

    The histograms are of one run: the lowest seed of the setting that logged the most kinds, and of those the one whose
    format is the finest, as it leaves the tensors most as they would be (SmaQ's weights end where it clamps).  Kinds
    that were not logged have no panel.  ``width`` in inches.
    """
    found = [shown for shown in (_of_seed_group(group, seed_group) for seed_group in group.seed_groups) if shown]
    if not found:
        return f"no run has logged {TAG}{KINDS[0]} or another kind of tensor"
    ratios = compression_ratio(group.logs)
    shown = max(
        found, key=lambda item: (len(item.kinds), -round(ratios.reindex(item.seed_group.runs).fillna(np.inf).min(), 1))
    )
    columns = min(len(shown.kinds), 5 if width > 5 else 2)
    rows = -(-len(shown.kinds) // columns)
    inches = width / max(columns, 2)
    figure = new_figure(width, 0.75 + rows * max(inches * _ASPECT, 1.1))
    first = None
    for index, (kind, histogram) in enumerate(shown.kinds.items()):
        axes = figure.add_subplot(rows, columns, index + 1, sharex=first, sharey=first)
        first = first or axes
        _panel(axes, histogram)
        axes.set_title(kind.replace("_", " "))
        below = index + columns < len(shown.kinds)
        axes.tick_params(labelleft=index % columns == 0, labelbottom=not below)
        axes.set_ylabel("density" if index % columns == 0 else "")
        axes.set_xlabel("" if below else "(x - mean) / std" if width > 5 else "z = (x - mean) / std")
    assert first is not None
    first.set_xlim(-_FAR, _FAR)
    first.set_yscale("log")
    first.set_ylim(
        _DEPTH, max(1.0, min(_HIGH, 2 * max(float(density(histogram).max()) for histogram in shown.kinds.values())))
    )
    first.yaxis.set_major_locator(LogLocator(numticks=5))
    first.yaxis.set_minor_locator(NullLocator())
    first.yaxis.set_minor_formatter(NullFormatter())
    step = max(histogram.step for histogram in shown.kinds.values())
    keys: list[Patch | Line2D] = [
        Patch(color=_COLOUR, alpha=0.35, linewidth=0, label=f"{shown.seed_group.label}, step {step}")
    ]
    keys.append(Line2D([], [], color=_NORMAL, linewidth=1.1, label="standard normal"))
    figure.legend(handles=keys, loc="outside lower center", ncols=2, borderaxespad=0.2)
    return figure


def _of_seed_group(group: Group, seed_group: SeedGroup) -> _Shown | None:
    """The histograms of the first run, by seed, that logged any."""
    for run in sorted(runs_to_use(group.logs, seed_group), key=lambda run: seed_of(group, run)):
        logged = {kind: [item for item in read(group.logs.folder / run, TAG + kind) if sound(item)] for kind in KINDS}
        if kinds := {kind: items[-1] for kind, items in logged.items() if items}:
            return _Shown(seed_group, kinds)
    return None


def _panel(axes: Axes, histogram: Histogram) -> None:
    axes.stairs(density(histogram), histogram.edges, fill=True, color=_COLOUR, alpha=0.35, linewidth=0, baseline=1e-300)
    z = np.linspace(-_FAR, _FAR, 241)
    axes.plot(z, np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi), color=_NORMAL, linewidth=1.1)
