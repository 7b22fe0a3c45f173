r"""The solvers of ALQ, ALQ-G and AMQ, which converge to levels at which Psi has a minimum; the default ones.

``descend`` is ALQ: sweeps of the closed form (Faghri et al., NeurIPS 2020, Section 3; Eq. 8 in the original's code),
then Newton's method, since sweeps alone need some n^2 rounds for n levels.  ``projected_descent`` is ALQ-G,
``multiplier`` AMQ.  Starts are the rows of one array and are carried side by side.
"""

from __future__ import annotations

import numpy as np
from scipy import linalg

from nuq.levels.distribution import Array, Distribution
from nuq.levels.level_sets import SMALLEST
from nuq.levels.objective import Derivatives, Objective
from nuq.native import levels as kernels

TOLERANCE = 1e-13  # of Psi, relative
NOTHING = 1e-24  # a variance below this is zero to any float32 coordinate
EMPTY = 1e-11  # an interval with less mass says nothing about where its levels belong
NUM_SWEEPS = 6
MAX_NEWTON = 60
MAX_GRADIENT = 3000


def occupied(distribution: Distribution, edges: Array) -> Array:
    """Edges pulled inward where they leave intervals of less than 1e-11 of the mass.

    In u = F(edge), neighbours are kept 1e-11 apart; edges that need not move stay as they are.  Uniform and exponential
    starts have levels at 60 sigma and at 1e-38, where no formula could move them.
    """
    rank = EMPTY * np.arange(1, edges.shape[-1] - 1)
    u = distribution.cdf(edges[..., 1:-1])
    apart = np.maximum.accumulate(u - rank, axis=-1).clip(0.0) + rank
    apart = 1 - (np.maximum.accumulate((1 - apart)[..., ::-1] - rank, axis=-1).clip(0.0) + rank)[..., ::-1]
    moved = edges.copy()
    moved[..., 1:-1] = np.where(np.abs(apart - u) > EMPTY / 2, distribution.ppf(apart.clip(0.0, 1.0)), edges[..., 1:-1])
    return np.sort(moved, axis=-1)


def coordinate_sweep(objective: Objective, edges: Array) -> Array:
    r"""Move every inner edge once to the exact minimiser between its neighbours: first the odd, then the even ones.

    ``F(l_i) = F(l_{i+1}) - integral over [l_{i-1}, l_{i+1}] of (r - l_{i-1}) / (l_{i+1} - l_{i-1}) dF``; the innermost
    symmetric level is a root instead (``_innermost``).  Edges of one parity do not see each other, so Psi never rises.
    edges: float64[S, n + 1].
    """
    edges = edges.copy()
    for parity in (1, 2):
        now = np.arange(parity, edges.shape[-1] - 1, 2)
        rooted = objective.symmetric and parity == 1 and len(now) > 0
        if rooted:
            edges[:, 1] = _innermost(objective.distribution, edges[:, 1], edges[:, 2])
            now = now[1:]
        if len(now):
            edges[:, now] = _between(objective.distribution, edges[:, now - 1], edges[:, now + 1])
    return edges


def _between(distribution: Distribution, left: Array, right: Array) -> Array:
    """The minimiser between fixed neighbours; where no mass lies there, a quarter of the way from the median's side."""
    width = right - left
    m0, m1, _ = distribution.interval_moments(np.stack([left, right], axis=-1))[..., 0]
    full = width * m0 > 0
    share = np.divide(m1, width * m0, out=np.full(m0.shape, 0.5), where=full).clip(0.0, 1.0)
    below, above = distribution.cdf(left) + m0 * (1 - share), distribution.sf(right) + m0 * share
    lower = below <= above
    x = np.empty(left.shape)
    x[lower], x[~lower] = distribution.ppf(below[lower].clip(0.0, 1.0)), distribution.isf(above[~lower].clip(0.0, 1.0))
    median = distribution.ppf(0.5)
    inward = np.where(median <= left, left + width / 4, np.where(median >= right, right - width / 4, left + width / 2))
    return np.clip(np.where(full, x, inward), left + 1e-9 * width, right - 1e-9 * width)


def _innermost(distribution: Distribution, x: Array, right: Array) -> Array:
    """The root of ``2 x G(x) = integral over [x, right] of (right - r) dG``, rising in x: Newton inside a bracket."""
    low, high = np.zeros(x.shape), right
    for _ in range(100):
        m0, m1, _ = distribution.interval_moments(np.stack([np.zeros(x.shape), x, right], axis=-1))
        value = 2 * x * m0[..., 0] - ((right - x) * m0[..., 1] - m1[..., 1])
        low, high = np.where(value < 0, x, low), np.where(value < 0, high, x)
        rise = 2 * m0[..., 0] + (x + right) * distribution.pdf(x)
        newton = x - np.divide(value, rise, out=np.full(x.shape, np.inf), where=rise > 0)
        moved = np.where((newton > low) & (newton < high), newton, (low + high) / 2)
        change, x = np.abs(moved - x), moved
        if (change <= 1e-11 * x).all():
            break
    return x


def descend(objective: Objective, edges: Array) -> tuple[Array, Array]:
    """The minima that ALQ descends to: edges float64[S, n + 1] and Psi float64[S], one for each start.

    Newton's steps solve with the tridiagonal Hessian.  One that would make edges meet or Psi rise is replaced by a
    sweep, and the Hessian's diagonal is raised for the next (Levenberg).  Ends where a step promises a relative change
    below 1e-13.
    """
    compiled = objective.distribution.compiled()
    solved = kernels.descend(compiled, edges, symmetric=objective.symmetric, projected=False)
    if solved is not None:
        return solved
    if edges.shape[1] == 2:  # one interval: nothing moves
        return edges, objective.value(edges)
    edges = occupied(objective.distribution, edges)
    for _ in range(NUM_SWEEPS):
        edges = coordinate_sweep(objective, edges)
    at = objective.derivatives(edges)
    damping = np.zeros(len(edges))
    open_ = np.full(len(edges), True)
    for _ in range(MAX_NEWTON):
        step = _newton_step(at, damping)
        room = _room(edges, step)
        trial = edges.copy()
        trial[:, 1:-1] += step * np.minimum(room, 1.0)[:, None]
        after = objective.derivatives(trial)
        taken = open_ & (after.value <= at.value) & (room > 0.5)
        open_ &= (np.abs((at.gradient * step).sum(axis=1)) > TOLERANCE * at.value + NOTHING) & (damping < 1e9)
        damping = np.where(taken, np.where(damping < 1e-7, 0.0, damping / 10), np.maximum(10 * damping, 1e-4))
        swept = open_ & ~taken
        if swept.any():
            trial[swept] = coordinate_sweep(objective, edges[swept])
            after = objective.derivatives(trial)
        moved = taken | swept
        edges, at = np.where(moved[:, None], trial, edges), _choose(moved, after, at)
        if not open_.any():
            break
    return edges, at.value


def _newton_step(at: Derivatives, damping: Array) -> Array:
    """The Newton step -H^-1 g, with ``damping`` times (diagonal + neighbouring masses) added to the diagonal of H."""
    scale = _scale(at)
    bands = np.zeros((3, *at.diagonal.shape))
    bands[0, :, 1:] = bands[2, :, :-1] = -at.masses[:, 1:-1]
    bands[1] = at.diagonal + (damping[:, None] + 1e-14) * scale
    rows = range(len(damping))
    return np.array([-linalg.solve_banded((1, 1), bands[:, i], at.gradient[i], check_finite=False) for i in rows])


def _scale(at: Derivatives) -> Array:
    """The size of the Hessian's diagonal plus the masses beside it; 1 where that is zero."""
    scale = np.abs(at.diagonal) + at.masses[:, :-1] + at.masses[:, 1:]
    return np.where(scale > 0, scale, 1.0)


def _room(edges: Array, step: Array) -> Array:
    """The part of ``step`` that leaves each gap a tenth of its width."""
    gaps = np.diff(edges, axis=1)
    closing = -np.diff(step, axis=1, prepend=0.0, append=0.0)
    part = np.divide(0.9 * gaps, closing, out=np.full(gaps.shape, 2.0), where=closing > 0.45 * gaps)
    return part.min(axis=1)


def projected_descent(objective: Objective, edges: Array) -> tuple[Array, Array]:
    r"""The minima of ALQ-G, which moves all levels at once, to convergence.

    A step is ``l_i <- l_i - sign(g_i) min(rate |g_i| / h_i, half the smaller gap)``.  g is the gradient of Psi, h_i the
    Hessian's diagonal plus the masses beside it (without it, steps of one rate for levels in the centre and in the
    tails take 1e5 rounds).  The rate is Barzilai and Borwein's, halved until Psi is no larger than the largest of
    the last ten (forcing it to fall every time makes this rate slow).
    """
    compiled = objective.distribution.compiled()
    solved = kernels.descend(compiled, edges, symmetric=objective.symmetric, projected=True)
    if solved is not None:
        return solved
    edges = occupied(objective.distribution, edges)
    at = objective.derivatives(edges)
    recent = np.repeat(at.value[None], 10, axis=0)
    rate, open_ = np.ones(len(edges)), np.full(len(edges), True)
    for turn in range(MAX_GRADIENT):
        scale, gaps = _scale(at), np.diff(edges, axis=1)
        limit = np.minimum(gaps[:, :-1], gaps[:, 1:]) * (0.5 - 1e-9)
        step = np.clip(-rate[:, None] * at.gradient / scale, -limit, limit)
        trial = edges.copy()
        trial[:, 1:-1] += step
        after = objective.derivatives(trial)
        taken = open_ & (after.value <= recent.max(axis=0))
        bend, length = (step * (after.gradient - at.gradient)).sum(axis=1), (scale * step**2).sum(axis=1)
        spectral = np.divide(length, bend, out=np.full(len(bend), 10.0), where=bend > 1e-5 * length)
        open_ &= ((at.gradient**2 / scale).sum(axis=1) > TOLERANCE * at.value + NOTHING) & (rate > 1e-12)
        rate = np.where(taken, spectral, rate / 2)
        edges, at = np.where(taken[:, None], trial, edges), _choose(taken, after, at)
        recent[turn % len(recent)] = at.value
        if not open_.any():
            break
    return edges, at.value


def _choose(rows: Array, new: Derivatives, old: Derivatives) -> Derivatives:
    """The result of ``new`` in these rows, and of ``old`` in the others."""
    return Derivatives(*(np.where(rows.reshape(-1, *[1] * (a.ndim - 1)), a, b) for a, b in zip(new, old, strict=True)))


def lowest_multiplier(bits: int) -> float:
    """The smallest p we look at: 1e-7, or what keeps the smallest level p^(2^(bits-1) - 1) a normal float32."""
    return max(SMALLEST ** (1 / (2 ** (bits - 1) - 1)), 1e-7)


def multiplier_edges(p: Array, bits: int) -> Array:
    """The edges 0 and p^j, j = 2^(bits-1) - 1 .. 0, for each p: float64[S, 2^(bits-1) + 1]."""
    return np.concatenate([np.zeros((len(p), 1)), p[:, None] ** np.arange(2 ** (bits - 1))[::-1]], axis=1)


def multiplier_derivatives(objective: Objective, p: Array, bits: int) -> tuple[Array, Array, Array]:
    """Psi and its first and second derivative in p, for each p, by the chain rule through the levels p^j."""
    j = np.arange(2 ** (bits - 1))[:0:-1]
    at = objective.derivatives(multiplier_edges(p, bits))
    first = j * p[:, None] ** (j - 1)
    second = j * (j - 1) * p[:, None] ** (j - 2.0)
    curvature = at.diagonal * first**2 + at.gradient * second
    mixed = -2 * at.masses[:, 1:-1] * first[:, :-1] * first[:, 1:]
    return at.value, (at.gradient * first).sum(axis=1), curvature.sum(axis=1) + mixed.sum(axis=1)


def multiplier(objective: Objective, bits: int) -> tuple[float, float]:
    """The p in (0, 1) that minimises Psi of AMQ's levels +-p^j, and the start it came from.

    Psi in p has several minima: it is taken at 64 starts, evenly spaced in log(p / (1 - p)), and every local minimum
    among them is refined by Newton's method on dPsi/dp inside its bracket.  ``objective`` holds the distribution of
    |r|, so any mean is right (the paper's Eq. G.3 counts the positive half alone), and the interval around zero counts.
    """
    lowest = lowest_multiplier(bits)
    solved = kernels.multiplier(objective.distribution.compiled(), bits, lowest)
    if solved is not None:
        return solved
    starts = 1 / (1 + np.exp(-np.linspace(np.log(lowest / (1 - lowest)), 7.0, 64)))
    psi = objective.value(multiplier_edges(starts, bits))
    padded = np.concatenate([[np.inf], psi, [np.inf]])
    best = np.flatnonzero((psi <= padded[:-2]) & (psi <= padded[2:]))
    p, low, high = starts[best], starts[np.maximum(best - 1, 0)], starts[np.minimum(best + 1, 63)]
    for _ in range(100):
        _, slope, curvature = multiplier_derivatives(objective, p, bits)
        low, high = np.where(slope < 0, p, low), np.where(slope < 0, high, p)
        newton = p - np.divide(slope, curvature, out=np.full(p.shape, np.inf), where=curvature > 0)
        moved = np.where((newton > low) & (newton < high), newton, (low + high) / 2)
        change, p = np.abs(moved - p), moved
        if (change <= 1e-14 * p).all():
            break
    refined = objective.value(multiplier_edges(p, bits))
    place = int(np.argmin(refined))
    return float(p[place]), float(starts[best[place]])
