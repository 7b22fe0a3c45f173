"""Final accuracy against the bits that really travelled, over all settings that trade one for the other."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from analysis.groups.aggregate import final, geometric_mean
from analysis.groups.seed_groups import groups
from analysis.logs.load import Logs
from analysis.plots.across import Mean, Panel, Series, arithmetic, varies_within_a_method, without
from analysis.plots.comparisons import FULL_PRECISION
from analysis.plots.panels import Counts, draw, limit, line, reference
from settings.conditions import shown

# The settings by which one method sends more or fewer bits.
_NAMES = ("bits", "ratio", "svd_rank", "rank", "clusters", "cells_ratio", "num_levels")
KNOBS = tuple(f"method.{name}" for name in _NAMES)


def accuracy_per_bit(logs: Logs, width: float) -> Figure | str:
    """The final accuracy of every method against its measured bits per coordinate, for sweeps over ``KNOBS``.

    Each method has one line along them for its remaining settings.  Points are the mean and 95 % interval over the
    complete runs; full precision is drawn as horizontal lines; the axis of bits is a logarithm to base 2 where they
    span more than a factor of 10.  ``width`` in inches.
    """
    knobs = [name for name in KNOBS if name in logs.settings]
    if not any(varies_within_a_method(logs.settings, name) for name in knobs):
        return f"no method has several values of {', '.join(_NAMES)}"
    panels = [
        Panel(group, tuple(Series(seed_group, {0.0: seed_group}) for seed_group in group.seed_groups))
        for group in groups(without(logs, knobs))
        if group.trajectory == "method"
    ]
    if not panels:
        return "no run is trained with the quantized gradient"
    of_runs = logs.settings.filter(items=knobs)
    return draw(width, panels, lambda axes, panel, counts: _filled(axes, panel, counts, of_runs))


def _filled(axes: Axes, panel: Panel, counts: Counts, knobs: pd.DataFrame) -> str | None:
    logs = panel.group.logs
    accuracy, bits = (final(logs, tag, logs.complete) for tag in ("Vacc", "comm/bits_per_coordinate"))
    lines = []
    for series in panel.series:
        rows, used = [], 0
        own = knobs.loc[list(series.seed_group.runs)]
        for _, of_value in own.groupby([own[name].map(shown) for name in own], sort=False):
            values = accuracy.reindex(of_value.index).dropna()
            place = geometric_mean(bits.reindex(of_value.index))
            if len(values) and np.isfinite(place):
                rows.append((place, *arithmetic(values)))
                used += len(values)
        if not rows:
            continue
        counts.add(series.seed_group, used, len(series.seed_group.runs))
        table = pd.DataFrame(rows, columns=["bits", *Mean._fields]).set_index("bits").sort_index()
        if series.seed_group.method in FULL_PRECISION:
            reference(axes, series.seed_group, arithmetic(accuracy.reindex(list(series.seed_group.runs)).dropna()))
        else:
            lines.append((series.seed_group, table))
    if not lines:
        return "no complete run has logged Vacc and comm/bits_per_coordinate"
    places = np.concatenate([table.index for _, table in lines])
    if places.max() / places.min() > 10:
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.3g}"))
    for seed_group, table in lines:
        line(axes, seed_group, table)
    limit(axes, log=False)
    axes.set_xlabel("bits per coordinate (measured)")
    axes.set_ylabel("final validation accuracy (%)")
    return None
