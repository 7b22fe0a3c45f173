"""Errors of level sets, distributions and update rules."""

from __future__ import annotations

import numpy as np

from nuq.levels import level_sets, lloyd_max, update_rules
from nuq.levels.histogram import Histogram
from nuq.levels.level_sets import Levels
from nuq.levels.truncated_normals import CondTruncNorm, CondTruncNormHist, TruncNorm
from tests.errors.rows import row

NORMAL = TruncNorm(0.0, 0.1)


def levels(*values: float) -> object:
    return Levels(np.array(values))


def histogram(edges: list[float], weights: list[float], moments: list[float]) -> object:
    return Histogram(edges, weights, moments, moments)


ROWS = [
    row("nuq.levels.Levels(values)", "one level", lambda: levels(1.0)),
    row("nuq.levels.Levels(values)", "513 levels", lambda: levels(*np.linspace(-1, 1, 513))),
    row("nuq.levels.Levels(values)", "a matrix", lambda: Levels(np.array([[-1.0, 1.0]]))),
    row("nuq.levels.Levels(values)", "a level below the one before", lambda: levels(-1.0, 0.5, 0.2, 1.0)),
    row("nuq.levels.Levels(values)", "one in float32", lambda: levels(-1.0, 0.5, 0.5 + 1e-9, 1.0)),
    row("nuq.levels.Levels(values)", "nan", lambda: levels(-1.0, np.nan, 1.0)),
    row("nuq.levels.Levels(values)", "ends at 0.5", lambda: levels(-1.0, 0.5)),
    row("nuq.levels.Levels(values)", "a level twice", lambda: levels(-1.0, 0.5, 0.5, 1.0)),
    row("nuq.levels.uniform(bits=)", "0", lambda: level_sets.uniform(0)),
    row("nuq.levels.uniform(bits=)", "2.5", lambda: level_sets.uniform(2.5)),  # pyright: ignore[reportArgumentType]
    row("nuq.levels.uniform(bits=)", "9", lambda: level_sets.uniform(9)),
    row("nuq.levels.lloyd_max.centroids(bits)", "9", lambda: lloyd_max.centroids(9)),
    row("nuq.levels.uniform(bits=)", "True", lambda: level_sets.uniform(True)),
    row("nuq.levels.uniform_magnitude(bits=)", "1", lambda: level_sets.uniform_magnitude(1)),
    row("nuq.levels.equally_spaced(num_levels=)", "1", lambda: level_sets.equally_spaced(1)),
    row("nuq.levels.exponential(p=)", "nan", lambda: level_sets.exponential(3, np.nan)),
    row("nuq.levels.exponential(p=)", "0.1, 8 bits", lambda: level_sets.exponential(8, 0.1)),
    row("nuq.levels.exponential(p=)", "1.0", lambda: level_sets.exponential(3, 1.0)),
    row("nuq.levels.exponential(p=)", "1e-9, 8 bits", lambda: level_sets.exponential(8, 1e-9)),
    row("nuq.levels.from_positive(positive)", "a level of zero", lambda: level_sets.from_positive([0.0, 1.0])),
    *(
        row("nuq.levels.optimal(num_levels=)", repr(number), lambda number=number: update_rules.optimal(NORMAL, number))
        for number in (1, 257, 2.5, True)
    ),
    *(
        row(f"nuq.levels.{rule.__name__}(solver=)", "'exakt'", lambda rule=rule: rule(NORMAL, 3, solver="exakt"))
        for rule in (update_rules.alq, update_rules.alq_gradient, update_rules.amq)
    ),
    *(
        row(f"nuq.levels.{rule.__name__}(bits)", "9", lambda rule=rule: rule(NORMAL, 9))
        for rule in (update_rules.alq, update_rules.alq_gradient, update_rules.amq)
    ),
    row("nuq.levels.check(solver=)", "'newton'", lambda: update_rules.check(3, "newton")),
    row("nuq.levels.Histogram(edges)", "as many edges as bins", lambda: histogram([-1, 1], [1, 1], [0, 0])),
    row("nuq.levels.Histogram(edges)", "beyond 1", lambda: histogram([-1, 2], [1], [0])),
    row("nuq.levels.Histogram(edges)", "in no order", lambda: histogram([0, -1, 1], [1, 1], [0, 0])),
    row("nuq.levels.Histogram(w0)", "nan", lambda: histogram([-1, 1], [np.nan], [0])),
    row("nuq.levels.Histogram(w0)", "-1", lambda: histogram([-1, 1], [-1], [0])),
    row("nuq.levels.Histogram(w0)", "all zero", lambda: histogram([-1, 0, 1], [0, 0], [0, 0])),
    row("nuq.levels.CondTruncNorm(means, sigmas, weights)", "a matrix", lambda: CondTruncNorm([[0.0]], 1.0, 1.0)),
    row("nuq.levels.CondTruncNorm(means)", "1.5", lambda: CondTruncNorm([0.0, 1.5], 1.0, 1.0)),
    row("nuq.levels.TruncNorm(mean)", "nan", lambda: TruncNorm(np.nan, 0.1)),
    row("nuq.levels.TruncNorm(sigma)", "-0.1", lambda: TruncNorm(0.0, -0.1)),
    row("nuq.levels.CondTruncNorm(weights)", "inf", lambda: CondTruncNorm(0.0, 0.1, np.inf)),
    row("nuq.levels.CondTruncNorm(sigmas)", "inf", lambda: CondTruncNorm(0.0, np.inf, 1.0)),
    row("nuq.levels.CondTruncNorm(weights)", "all zero", lambda: CondTruncNorm([0.0, 0.5], 1.0, 0.0)),
    row(
        "nuq.levels.CondTruncNormHist(num_bins=)",
        "3",
        lambda: CondTruncNormHist(CondTruncNorm(0.0, 0.1, 1.0), num_bins=3),
    ),
    row("nuq.levels.Distribution.partial_moment(order=)", "3", lambda: NORMAL.partial_moment(3, 0, 1)),
    row("nuq.levels.Distribution.ppf(u)", "1.5", lambda: NORMAL.ppf([0.5, 1.5])),
    row("nuq.levels.Distribution.isf(u)", "-0.1", lambda: NORMAL.isf([0.5, -0.1])),
    row("nuq.levels.Distribution.folded().mirrored()", "has no mirror image", lambda: NORMAL.folded().mirrored()),
]

INTERNAL = {
    "nuq/levels/lloyd_max.py:_positive": "defence: Newton's steps converge for all legal bits",
}
