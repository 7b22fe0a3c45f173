r"""The optimum of Psi on a grid: adaptive stochastic quantization by dynamic programming.

With C(i, j) the variance of the interval between points i and j, the best cost of k intervals that end at j is

.. math:: D_k(j) = \min_{i < j} D_{k-1}(i) + C(i, j)

(QUIVER, Ben Basat, Ben-Itzhak, Mitzenmacher and Vargaftik, NeurIPS 2024; there the points are the sorted coordinates or
a histogram of them).  C satisfies the quadrangle inequality, so the minimising i never falls as j rises, and a layer
takes M log M steps.  Differences from the paper: layers are halved recursively (no SMAWK, no two levels at once), since
M is a few thousand here; and levels between points are allowed, since the answer is the start of
``solver_exact.descend``: a grid alone errs by 1e-4 to 5e-4.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from nuq.levels.distribution import Array, Distribution
from nuq.levels.objective import Objective
from nuq.native import levels as kernels

NAME = "dynamic program"
Solve = Callable[[Objective, Array], tuple[Array, Array]]  # edges float64[S, n + 1] to those of minima, and Psi there
MIN_POINTS, POINTS_PER_LEVEL, MAX_POINTS = 2048, 16, 8192
_NEARBY = np.array([0.0, 1 / 16, 1 / 8, 1 / 4, 1 / 2])  # of the gap to the next edge


def optima(solve: Solve, objective: Objective, first: float, intervals: int, starts: Array) -> Array:
    """The edges of the optima from ``first`` to 1: float64[S + 2 or S + 1, intervals + 1].

    The optimum is the best of them.  The ``starts`` (float64[S, intervals + 1], S >= 0) and the best edges of a grid
    are descended by ``solve`` to the minima beside them; a second program on points close around the best of those
    combines what is good in each.
    """
    points = candidates(objective.distribution, first, intervals)
    edges, psi = solve(objective, np.concatenate([starts, _best_edges(objective, points, intervals)[None]]))
    near = np.unique(np.concatenate([_around(edges[row]) for row in {len(starts), int(np.argmin(psi))}]))
    if len(near) <= intervals:  # where the distribution is a few points and edges have met
        return edges
    return np.concatenate([edges, solve(objective, _best_edges(objective, near, intervals)[None])[0]])


def _best_edges(objective: Objective, points: Array, intervals: int) -> Array:
    return points[best_indices(*prefix_sums(objective, points), intervals, centred=objective.symmetric)]


def _around(edges: Array) -> Array:
    gaps = np.diff(edges)[:, None]
    right, left = edges[:-1, None] + gaps * _NEARBY, edges[1:, None] - gaps * _NEARBY[:-1]
    return np.concatenate([right.ravel(), left.ravel()])


def candidates(distribution: Distribution, first: float, intervals: int) -> Array:
    """Points from ``first`` to 1 that levels may take.

    They are the distribution's knots, each gap divided evenly until there are enough.  Where there are more than 8192
    knots, those stay at which ``f^(1/3)``, the density of many good levels, rises evenly.
    """
    wanted = max(MIN_POINTS, POINTS_PER_LEVEL * intervals)
    knots = distribution.knots(wanted + 1)
    knots = np.concatenate([[first], knots[(knots > first) & (knots < 1.0)], [1.0]])
    if len(knots) > MAX_POINTS:
        widths = np.diff(knots)
        densities = distribution.interval_moments(knots)[0].clip(0.0) / widths
        share = np.concatenate([[0.0], np.cumsum(np.cbrt(densities) * widths)])
        kept = np.searchsorted(share, np.linspace(0.0, share[-1], MAX_POINTS // 2))
        spread = np.linspace(0, len(knots) - 1, MAX_POINTS // 2).astype(np.int64)
        knots = knots[np.unique(np.concatenate([kept.clip(0, len(knots) - 1), spread]))]
    parts = -(-wanted // (len(knots) - 1))
    inside = knots[:-1, None] + np.diff(knots)[:, None] * (np.arange(parts) / parts)
    return np.unique(np.append(inside.ravel(), 1.0))


def prefix_sums(objective: Objective, points: Array) -> tuple[Array, Array]:
    """Points about an origin, float64[M], and their prefix sums, float64[3, M].

    The sums are the integrals of ``(r - origin)^k dF``, k = 0, 1, 2, up to each point.  The sums start at the origin (0
    for symmetric levels, else near the median) and are negative before it: they are smallest where the intervals are,
    so that differences keep their digits.
    """
    distribution = objective.distribution
    m0, m1, m2 = distribution.interval_moments(points)
    place = 0 if objective.symmetric else min(int(np.searchsorted(points, distribution.ppf(0.5))), len(points) - 1)
    points = points - points[place]
    left = points[:-1]
    parts = np.stack([m0, m1 + left * m0, m2 + 2 * left * m1 + left**2 * m0])
    sums = np.zeros((3, len(points)))
    sums[:, place + 1 :] = np.cumsum(parts[:, place:], axis=1)
    sums[:, :place] = -np.cumsum(parts[:, :place][:, ::-1], axis=1)[:, ::-1]
    return points, sums


def best_indices(points: Array, sums: Array, intervals: int, *, centred: bool) -> Array:
    """The indices of the edges of least total cost: int64[intervals + 1], rising from 0 to M - 1.  M > intervals >= 1.

    centred: the first interval [0, x] stands for [-x, x].
    """
    indices = kernels.grid_levels(points, sums, intervals, centred=centred)
    if indices is not None:
        return indices
    s0, s1, s2 = sums
    n, last = intervals, len(points) - 1
    above0, above1, above2 = sums - sums[:, :1]
    cost = (
        points**2 * above0 - above2 if centred else (points[0] + points) * above1 - above2 - points[0] * points * above0
    )
    slopes, weights, rest = points * s0 - s1, s1 - points * s0, points * s1 - s2
    before = np.zeros((n + 1, last + 1), dtype=np.int64)
    for k in range(2, n + 1):
        stop = last - (n - k)
        offsets, cost, start = cost + s2 - points * s1, cost.copy(), stop if k == n else k
        ends = np.array([[start, stop, k - 1, stop]])  # ranges of j, and of the i that can serve them
        while len(ends):
            low, high, least, most = ends.T
            j = (low + high) // 2
            i, value = _smallest(offsets, slopes, points, points[j], weights[j], least, np.minimum(most + 1, j))
            cost[j], before[k, j] = value + rest[j], i
            ends = np.concatenate([np.stack([low, j - 1, least, i], axis=1), np.stack([j + 1, high, i, most], axis=1)])
            ends = ends[ends[:, 0] <= ends[:, 1]]
    indices = np.full(n + 1, last)
    for k in range(n, 1, -1):
        indices[k - 1] = before[k, indices[k]]
    indices[0] = 0
    return indices


def _smallest(
    offsets: Array, slopes: Array, points: Array, x: Array, weights: Array, low: Array, high: Array
) -> tuple[Array, Array]:
    """The first i in [low, high), for each row, that minimises a sum, and the minimum.

    The sum is ``offsets_i + x slopes_i + weight points_i``.
    """
    lengths = high - low
    starts = np.cumsum(lengths) - lengths
    row = np.repeat(np.arange(len(low)), lengths)
    i = np.arange(len(row)) - (starts - low)[row]
    value = offsets[i] + x[row] * slopes[i] + weights[row] * points[i]
    least = np.minimum.reduceat(value, starts)
    hits = np.flatnonzero(value == least[row])[::-1]
    found = np.empty(len(low), dtype=np.int64)
    found[row[hits]] = i[hits]  # of several hits in a row the last written is the first
    return found, least
