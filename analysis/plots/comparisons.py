"""Figures across settings: accuracy or variance against bits or bucket size, error against the bits that travelled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from analysis.groups.aggregate import RELATIVE_VARIANCE, final, geometric_mean, late, wide
from analysis.groups.seed_groups import SeedGroup
from analysis.logs.load import Logs
from analysis.plots.across import Mean, Panel, along, arithmetic, geometric, trade_offs
from analysis.plots.bits_figure import BITS_LABEL
from analysis.plots.panels import Counts, columns_of, draw, limit, line, reference

FULL_PRECISION = ("sgd", "supersgd")  # methods that quantize nothing
_APART = 0.015  # share of the bits between points that stand side by side
_LABELS = {
    "bits": "bits per code",
    "bucket_size": "bucket size (coordinates)",
    "ratio": "share of the coordinates that travel",
}


@dataclass(frozen=True)
class _Quantity:
    """A number of each run, with the way it is averaged over seeds and drawn."""

    label: str
    read: Callable[[Logs, list[str]], pd.Series]
    log: bool
    missing: str  # why there may be none

    def of(self, of_complete: pd.Series, seed_group: SeedGroup) -> tuple[Mean, int]:
        """The mean, low end and high end over the complete runs of a seed group, and the number of those runs."""
        values = of_complete.reindex(list(seed_group.runs)).dropna()
        return (geometric if self.log else arithmetic)(values), len(values)


_ACCURACY = _Quantity(
    "final validation accuracy (%)",
    lambda logs, runs: final(logs, "Vacc", runs),
    False,
    "no complete run has logged Vacc",
)
_VARIANCE = _Quantity(
    "variance relative to SuperSGD",
    lambda logs, runs: late(logs, RELATIVE_VARIANCE, runs),
    True,
    "no complete run has logged est_var and super_var",
)


def against_setting(logs: Logs, width: float, setting: str) -> Figure | str:
    """The final accuracy against a numeric setting such as ``method.bits``, as in Fig. 7 of the paper.

    Runs on the SGD trajectory show the late variance of the gradient instead, relative to SuperSGD's on the same
    minibatches (geometric mean of the last quarter of the measurements).  There is one line for each method and its
    remaining settings: mean and 95 % interval over the complete runs, whose number is in the legend where some are
    missing. Methods without the setting are horizontal lines.  The axis is logarithmic where the values span a factor
    of 16. ``width`` in inches.
    """
    panels = along(logs, setting)
    if isinstance(panels, str):
        return panels
    inches = width / columns_of(width, len(panels)) - 0.7  # between the labels of the y axis and the right edge
    return draw(width, panels, lambda axes, panel, counts: _against(axes, panel, setting, counts, inches))


def _against(axes: Axes, panel: Panel, setting: str, counts: Counts, inches: float) -> str | None:
    quantity = _VARIANCE if panel.group.trajectory == "sgd" else _ACCURACY
    values, drawn = quantity.read(panel.group.logs, panel.group.logs.complete), set[float]()
    log = _spans_decades(panel.values)
    beside = [series.seed_group for series in panel.series if series.points]
    for series in panel.series:
        found = {
            value: quantity.of(values, seed_group)
            for value, seed_group in (series.points or {np.nan: series.seed_group}).items()
        }
        found = {value: item for value, item in found.items() if np.isfinite(item[0].mean)}
        if not found:
            continue
        counts.add(series.seed_group, sum(n for _, n in found.values()), len(series.seed_group.runs))
        table = pd.DataFrame([item for item, _ in found.values()], index=list(found), columns=Mean._fields)
        if series.points:
            by = (beside.index(series.seed_group) - (len(beside) - 1) / 2) / len(beside)
            line(axes, series.seed_group, table.set_axis(_moved(list(found), by, panel.values, log)))
            drawn |= set(found)
        else:
            reference(axes, series.seed_group, next(iter(found.values()))[0])
    if len(drawn) < 2:
        return quantity.missing if not drawn else f"only the runs with {setting}={min(drawn):g} are complete"
    axes.set_ylabel(quantity.label)
    limit(axes, quantity.log)
    name = setting.rpartition(".")[2]
    axes.set_xlabel(_LABELS.get(name, name.replace("_", " ")))
    _value_axis(axes, sorted(drawn), inches)
    return None


def _spans_decades(values: Sequence[float]) -> bool:
    return values[0] > 0 and values[-1] / values[0] >= 16


def _moved(values: Sequence[float], by: float, every: Sequence[float], log: bool) -> list[float]:
    """Places beside the values, so that the intervals of all methods can be seen.

    by: in [-0.5, 0.5], of a third of the way between two neighbours in ``every``, and at most of a 24th of the axis.
    """
    all_places = np.log2(every) if log else np.asarray(every)
    step = min(float(np.diff(all_places).min()) / 3, float(np.ptp(all_places)) / 24)
    return [float(value * 2.0 ** (by * step) if log else value + by * step) for value in values]


def _value_axis(axes: Axes, values: Sequence[float], inches: float) -> None:
    """Put ticks at the values themselves, as many of them as have room in so many inches."""
    log = _spans_decades(values)
    if log:
        axes.set_xscale("log", base=2)
    places = np.log2(values) if log else np.asarray(values)
    needed = [0.07 * len(_number(value)) + 0.09 for value in values]
    shown = [0]
    for index in range(1, len(values)):
        room = (places[index] - places[shown[-1]]) / (places[-1] - places[0]) * inches
        if room >= (needed[index] + needed[shown[-1]]) / 2:
            shown.append(index)
    axes.xaxis.set_major_locator(FixedLocator([values[index] for index in shown]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(_number))


def _number(value: float, _position: int = 0) -> str:
    return f"{value:.0f}" if float(value).is_integer() and value < 1e8 else f"{value:.6g}"


# --- error against bits -------------------------------------------------------------------------------------------


def excess(logs: Logs, runs: list[str]) -> pd.Series:
    """The mean of est_var / super_var - 1 over each run's last quarter of measurements; NaN where a run has none.

    est_var is the variance of the mean of all workers' quantized gradients, super_var that of the mean of the gradients
    themselves, both from the same minibatches: what is left is the variance that quantization adds, in units of the
    other.
    """
    table = wide(logs, RELATIVE_VARIANCE, runs)
    of_runs = {run: table[run].dropna() for run in runs}
    last = {run: rows.iloc[-max(1, len(rows) // 4) :] for run, rows in of_runs.items()}
    return pd.Series({run: rows.mean() - 1 for run, rows in last.items()}, dtype=float)


_EXCESS = _Quantity(
    "relative excess variance",
    excess,
    True,
    "no complete run has logged est_var above super_var and comm/bits_per_coordinate",
)


def error_per_bit(logs: Logs, width: float) -> Figure | str:
    """The variance that quantization adds, relative to the minibatches' own, against the measured bits per coordinate.

    The axes are those of rate and distortion: linear bits (a logarithm to base 2 where they span more than a factor of
    10, as with sparsifiers), logarithmic error; a good quantizer falls by a factor of about 4 for each bit, which a
    dotted line shows.  There is one point for each seed group with its 95 % interval over seeds (of the logarithm);
    lines join the seed groups of a method that differ in bits, or in bucket size where the bits are all the same.  The
    runs are those on the SGD trajectory, which all measure on the same weights, where there are any; otherwise each run
    is on its own.  Methods that send 32 bits add nothing by quantization: SuperSGD has no point, SGD is a line at what
    one worker's minibatch adds. ``width`` in inches.
    """
    panels = trade_offs(logs)
    common = [panel for panel in panels if panel.group.trajectory == "sgd"]
    return draw(width, common or panels, _error)


def _error(axes: Axes, panel: Panel, counts: Counts) -> str | None:
    drawn: list[tuple[SeedGroup, pd.DataFrame]] = []
    logs = panel.group.logs
    errors = _EXCESS.read(logs, logs.complete)
    all_bits = final(logs, "comm/bits_per_coordinate", list(logs.settings.index))
    for series in panel.series:
        rows = []
        for seed_group in series.points.values():
            error, n = _EXCESS.of(errors, seed_group)
            bits = geometric_mean(all_bits.reindex(list(seed_group.runs)))
            if np.isfinite(error.mean) and np.isfinite(bits) and seed_group.method not in FULL_PRECISION:
                rows.append((bits, *error))
                counts.add(series.seed_group, n, 0)
            elif np.isfinite(error.mean) and seed_group.method == "sgd":
                counts.add(series.seed_group, n, len(seed_group.runs))
                reference(axes, series.seed_group, error)
        if rows:
            counts.add(series.seed_group, 0, len(series.seed_group.runs))
            table = pd.DataFrame(rows, columns=["bits", *Mean._fields]).set_index("bits").sort_index()
            drawn.append((series.seed_group, table))
    if not drawn:
        return _EXCESS.missing
    bits = np.concatenate([table.index for _, table in drawn])
    if bits.max() / bits.min() > 10:
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    places = iter(_side_by_side(axes, [float(table.index[0]) for _, table in drawn if len(table) == 1]))
    for seed_group, table in drawn:
        line(axes, seed_group, table if len(table) > 1 else table.set_axis([next(places)]))
    limit(axes, log=True)
    if panel.setting == "method.bits":
        _guide(axes, [table for _, table in drawn if len(table) > 1])
    axes.set_xlabel(BITS_LABEL if any(len(table) == 1 for _, table in drawn) else "bits per coordinate (measured)")
    axes.set_ylabel(_EXCESS.label)
    return None


def _side_by_side(axes: Axes, bits: list[float]) -> list[float]:
    """Places of single points; those within a tenth of a bit stand apart, on a shade that says which bits they have."""
    near = [round(10 * value) for value in bits]
    places = [
        value * (1 + _APART * (near[:k].count(near[k]) - (near.count(near[k]) - 1) / 2)) for k, value in enumerate(bits)
    ]
    for own in sorted(set(near)):
        of_own = [k for k, other in enumerate(near) if other == own]
        if len(of_own) > 1:
            left, right = min(places[k] for k in of_own) * (1 - _APART), max(places[k] for k in of_own) * (1 + _APART)
            axes.axvspan(left, right, color="#f2f2f2", linewidth=0, zorder=-1)
            mean = float(np.mean([bits[k] for k in of_own]))
            text = {"ha": "center", "va": "bottom", "fontsize": 7, "xycoords": axes.get_xaxis_transform()}
            axes.annotate(f"all {mean:.3g}", ((left + right) / 2, 1.01), **text)
    return places


def _guide(axes: Axes, tables: list[pd.DataFrame]) -> None:
    """Draw the slope of a factor of 4 for each bit, through the best point of the lines."""
    if tables:
        places = np.concatenate([table.index.to_numpy(float) for table in tables])
        scaled = np.concatenate([table["mean"].to_numpy(float) for table in tables]) * 4.0**places
        bits = np.linspace(places.min(), places.max(), 100)
        label = "a factor of 4 for each bit"
        axes.plot(bits, scaled.min() * 4.0**-bits, color="#555555", linestyle=":", linewidth=0.9, label=label, zorder=1)
