"""Whether the variance of the gradient estimator, or the tails of its error, tell how well training ends."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.special import stdtrit

from analysis.groups.aggregate import CONFIDENCE, final, late
from analysis.logs.load import Logs
from analysis.plots.across import Panel, arithmetic, trade_offs
from analysis.plots.comparisons import FULL_PRECISION, excess
from analysis.plots.panels import Counts, draw, limit, line
from analysis.plots.ticks import x_axis

KURTOSIS, LARGEST = "error_kurtosis", "error_max"
_LABELS = {
    "variance": "variance added to SuperSGD's, relative",
    KURTOSIS: "kurtosis of the error",
    LARGEST: "largest error over the gradient's root mean square",
}
Rows = dict[tuple[int, float], dict[str, float]]  # of seed groups, by the number of their series and place in it
_LEAST = 8  # settings of methods: a line through fewer says nothing


class Regression(NamedTuple):
    """Ordinary least squares: slopes with half-widths of their 95 % intervals (t), the share explained, and rows."""

    slopes: Mapping[str, tuple[float, float]]
    r2: float
    n: int


def regression(loss: np.ndarray, causes: Mapping[str, np.ndarray]) -> Regression | None:
    """The loss float[n] against causes float[n] and a constant; None for fewer than 8 rows, or equal ones.

    Only rows with finite values throughout count; their errors are taken as independent.
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

    They are means over the complete runs, of the variance and the tails in the last quarter of their measurements.
    """
    logs, complete = panel.group.logs, panel.group.logs.complete
    quantities = {
        "variance": excess(logs, complete),
        **{tag: late(logs, tag, complete) for tag in (KURTOSIS, LARGEST)},
        "loss": final(logs, "Vloss", complete),
    }
    found: Rows = {}
    for number, series in enumerate(panel.series):
        for place, own in series.points.items():
            if own.method not in FULL_PRECISION:
                means = {name: float(each.reindex(list(own.runs)).mean()) for name, each in quantities.items()}
                loss = means.pop("loss")
                logarithms = {name: math.log10(mean) if mean > 0 else math.nan for name, mean in means.items()}
                found[number, place] = {**logarithms, "loss": loss}
    return found


def variance_and_loss(logs: Logs, width: float) -> Figure | str:
    """The final validation loss against the added variance, the kurtosis of the error, and its largest value.

    There is one point for each seed group that was trained with the quantized gradient (mean and 95 % interval of the
    loss over seeds).  Above each panel stands the slope of a line through them, alone and beside the variance, and what
    it explains; several bits of one method are not independent, so its interval is rather too small.  ``width`` in
    inches.
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
        tag = "est_var" if name == "variance" else name
        return f"fewer than {_LEAST} settings of methods have logged Vloss and {tag}"
    losses = final(panel.group.logs, "Vloss", panel.group.logs.complete)
    for number, series in enumerate(panel.series):
        points = sorted((known[number, at], own.runs) for at, own in series.points.items() if (number, at) in known)
        values = [losses.reindex(list(runs)).dropna() for _, runs in points]
        if axes.figure.axes[0] is axes:  # the others show the same runs
            counts.add(series.seed_group, sum(map(len, values)), sum(len(runs) for _, runs in points))
        if points:
            line(axes, series.seed_group, pd.DataFrame(map(arithmetic, values), index=[place for place, _ in points]))
    axes.set_xscale("log")
    x_axis(axes, _LABELS[name])
    limit(axes, log=False)
    axes.set_ylabel("final validation loss")
    axes.set_title(_said(list(rows.values()), name), loc="right", fontsize=7)
    return None


def _said(rows: Sequence[Mapping[str, float]], name: str) -> str:
    """The words above a panel: what the quantity explains of the loss."""
    of = {each: np.array([row[each] for row in rows]) for each in dict.fromkeys(["loss", "variance", name])}
    alone = regression(of["loss"], {name: of[name]})
    if alone is None:
        return ""
    both = regression(of.pop("loss"), of) if name != "variance" else None
    beside = f"\n{_slope(both, name)} given the variance" if both else ""
    return f"{_slope(alone, name)} per factor of 10{beside}\nR\N{SUPERSCRIPT TWO} {alone.r2:.2f}, n {alone.n}"


def _slope(found: Regression, name: str) -> str:
    slope, width = found.slopes[name]
    return f"{round(slope, 3) + 0.0:+.3f} \N{PLUS-MINUS SIGN} {width:.3f}".replace("-", "\N{MINUS SIGN}")
