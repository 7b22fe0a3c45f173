"""Final accuracy against the bits that really travelled, over all settings that trade one for the other."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from analysis.aggregate import final, geometric_mean
from analysis.logs.load import Logs
from analysis.plots.across import Panel, Series, arithmetic, without
from analysis.plots.comparisons import FULL_PRECISION
from analysis.plots.panels import Counts, draw, limit, line, reference
from analysis.plots.style import RC
from analysis.seed_groups import groups, shown

# The settings by which one method sends more or fewer bits.
KNOBS = (
    "method.bits",
    "method.ratio",
    "method.svd_rank",
    "method.rank",
    "method.clusters",
    "method.cells_ratio",
    "method.num_levels",
)


@rc_context(RC)
def accuracy_per_bit(logs: Logs, width: float) -> Figure | str:
    """The final accuracy of every method against its measured bits per coordinate.

    Each method has one line along ``KNOBS`` for its remaining settings.

    Points are the mean and 95 % interval over the complete runs; full precision is drawn as horizontal lines; the axis
    of bits is a logarithm to base 2 where they span more than a factor of 10. The figure is for sweeps in which a
    method has several values of ``KNOBS``.  ``width`` in inches.
    """
    knobs = [name for name in KNOBS if name in logs.settings]
    if not _several(logs.settings, knobs):
        return f"no method has several values of {', '.join(name.rpartition('.')[2] for name in KNOBS)}"
    panels = []
    for group in groups(without(logs, knobs)):
        if group.trajectory == "method":
            panels.append(
                Panel(group, tuple(Series(seed_group, {0.0: seed_group}) for seed_group in group.seed_groups))
            )
    if not panels:
        return "no run is trained with the quantized gradient"
    of_runs = logs.settings.filter(items=knobs)
    return draw(width, panels, lambda axes, panel, counts: _filled(axes, panel, counts, of_runs))


def _several(settings: pd.DataFrame, knobs: list[str]) -> bool:
    return any(
        len({shown(value) for value in rows[name].dropna()}) > 1
        for _, rows in settings.groupby("method.name")
        for name in knobs
    )


def _filled(axes: Axes, panel: Panel, counts: Counts, knobs: pd.DataFrame) -> str | None:
    logs = panel.group.logs
    accuracy, bits = (final(logs, tag, logs.complete) for tag in ("Vacc", "comm/bits_per_coordinate"))
    lines = []
    for series in panel.series:
        rows, used = [], 0
        for runs in _by_value(knobs.loc[list(series.seed_group.runs)]):
            values = accuracy.reindex(runs).dropna()
            place = geometric_mean(bits.reindex(runs))
            if len(values) and np.isfinite(place):
                rows.append((place, *arithmetic(values)))
                used += len(values)
        if not rows:
            continue
        counts.add(series.seed_group, used, len(series.seed_group.runs))
        table = pd.DataFrame(rows, columns=["bits", "mean", "low", "high"]).set_index("bits").sort_index()
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


def _by_value(knobs: pd.DataFrame) -> list[list[str]]:
    """The runs of each combination of values."""
    found: dict[tuple[str, ...], list[str]] = {}
    for run, row in zip(knobs.index, knobs.itertuples(index=False), strict=True):
        found.setdefault(tuple(shown(value) for value in row), []).append(str(run))
    return list(found.values())
