"""Whether the variance of the gradient estimator, or the tails of its error, tell how well training ends."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pandas as pd
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.special import stdtrit

from analysis.aggregate import CONFIDENCE, final, late
from analysis.logs.load import Logs
from analysis.plots.across import Panel, Series, arithmetic, trade_offs
from analysis.plots.comparisons import FULL_PRECISION, excess
from analysis.plots.panels import Counts, draw, limit, line
from analysis.plots.style import RC
from analysis.plots.ticks import x_axis
from analysis.seed_groups import SeedGroup

KURTOSIS, LARGEST = "error_kurtosis", "error_max"
_LABELS = {
    "variance": "variance added to SuperSGD's, relative",
    KURTOSIS: "kurtosis of the error",
    LARGEST: "largest error over the gradient's root mean square",
}
Rows = dict[tuple[int, float], dict[str, float]]  # of seed groups, by the number of their series and place in it
_LEAST = 8  # methods: a line through fewer says nothing


class Regression(NamedTuple):
    """Ordinary least squares: slopes with half-widths of their 95 % intervals (t), the share explained, and rows."""

    slopes: Mapping[str, tuple[float, float]]
    r2: float
    n: int


def regression(loss: np.ndarray, causes: Mapping[str, np.ndarray]) -> Regression | None:
    """The loss float[n] against causes float[n] and a constant; None for fewer than 8 rows, or equal ones.

    The rows with finite values throughout count, and their errors as independent.
    """
    terms = 1 + len(causes)
    x = np.column_stack([np.ones(len(loss)), *causes.values()])
    known = np.isfinite(loss) & np.isfinite(x).all(axis=1)
    x, y = x[known], loss[known]
    n = len(y)
    if n < _LEAST or np.linalg.matrix_rank(x) < terms or not np.ptp(y):
        return None
    found = np.linalg.lstsq(x, y, rcond=None)[0]
    left = y - x @ found
    errors = np.sqrt(np.diag(np.linalg.inv(x.T @ x)) * (left @ left) / (n - terms))
    widths = stdtrit(n - terms, (1 + CONFIDENCE) / 2) * errors
    slopes = dict(zip(causes, zip(found[1:].tolist(), widths[1:].tolist(), strict=True), strict=True))
    return Regression(slopes, float(1 - left @ left / np.square(y - y.mean()).sum()), n)


def of_seed_groups(panel: Panel) -> Rows:
    """The final loss of each seed group that quantizes, and the logarithms of its variance and tails (NaN for none).

    The loss is the mean over seeds, the others are geometric means over seeds of the last quarter's measurements.
    """
    logs = panel.group.logs
    runs = list(logs.status.index[logs.status["complete"].to_numpy(bool)])
    quantities = {"variance": excess(logs, runs), **{tag: late(logs, tag, runs) for tag in (KURTOSIS, LARGEST)}}
    of_runs = {name: values.where(values > 0).map(math.log10) for name, values in quantities.items()}
    of_runs["loss"] = final(logs, "Vloss", runs)
    return {
        (number, place): {name: float(values.reindex(list(own.runs)).mean()) for name, values in of_runs.items()}
        for number, series in enumerate(panel.series)
        for place, own in series.points.items()
        if own.method not in FULL_PRECISION
    }


@rc_context(RC)
def variance_and_loss(logs: Logs, width: float) -> Figure | str:
    """The final validation loss against the added variance, the kurtosis of the error, and its largest value.

    There is one point for each seed group that was trained with the quantized gradient (mean and 95 % interval of the
    loss over seeds), and above each panel what a line through the logarithms explains: of that quantity alone, and
    together with the variance.  ``width`` in inches.
    """
    panels = [panel for panel in trade_offs(logs) if panel.group.trajectory == "method"]
    if not panels:
        return "no run is trained with the quantized gradient"
    if len(panels) > 1:
        return f"runs of {len(panels)} tasks have no common loss: keep one"
    rows = of_seed_groups(panels[0])
    along = [replace(panels[0], setting=name) for name in _LABELS]
    return draw(width, along, lambda axes, panel, counts: _filled(axes, panel, counts, rows, panel.setting))


def _filled(axes: Axes, panel: Panel, counts: Counts, rows: Rows, name: str) -> str | None:
    known = {key: 10 ** row[name] for key, row in rows.items() if math.isfinite(row[name] + row["loss"])}
    if len(known) < _LEAST:
        return f"fewer than {_LEAST} methods have logged Vloss and {'est_var' if name == 'variance' else name}"
    losses = final(panel.group.logs, "Vloss", list(panel.group.logs.settings.index))
    for number, series in enumerate(panel.series):
        points = {place: own for place, own in series.points.items() if (number, place) in known}
        if points:
            _drawn(axes, counts, series, {known[number, place]: own for place, own in points.items()}, losses)
    axes.set_xscale("log")
    x_axis(axes, _LABELS[name])
    limit(axes, log=False)
    axes.set_ylabel("final validation loss")
    axes.set_title(_said(list(rows.values()), name), loc="right", fontsize=7)
    return None


def _drawn(axes: Axes, counts: Counts, series: Series, points: Mapping[float, SeedGroup], losses: pd.Series) -> None:
    """Draw the seed groups of a series at their places on the x axis."""
    of_points = {place: losses.reindex(list(own.runs)).dropna() for place, own in points.items()}
    counts.add(series.seed_group, sum(map(len, of_points.values())), sum(len(own.runs) for own in points.values()))
    table = pd.DataFrame([arithmetic(of_points[place]) for place in sorted(points)], index=sorted(points))
    line(axes, series.seed_group, table)


def _said(rows: Sequence[Mapping[str, float]], name: str) -> str:
    """The words above a panel: what the quantity explains of the loss."""
    of = {each: np.array([row[each] for row in rows]) for each in dict.fromkeys(["loss", "variance", name])}
    alone = regression(of["loss"], {name: of[name]})
    if alone is None:
        return ""
    slope, width = alone.slopes[name]
    words = (
        f"{slope:+.3f} \N{PLUS-MINUS SIGN} {width:.3f} a factor of 10, n {alone.n}\nR\N{SUPERSCRIPT TWO} {alone.r2:.2f}"
    )
    both = regression(of.pop("loss"), of) if name != "variance" else None
    return f"{words}, {both.r2:.2f} with the variance" if both else words
