r"""The original's solvers: iterations that stop before they converge, as in the code behind the paper's figures.

Facts from learning-to-quantize (``nuq/quantize.py``); nothing of its code is used.  The reasons why its levels differ
from the optimum of the same distribution:

- ALQ: each coordinate takes ten gradient steps of rate 1 with central differences of width interval/1000, left to
  right, for 30 sweeps.  The curvature (l_{i+1} - l_{i-1}) f(l_i) is far from 1 almost everywhere, so outer levels
  hardly move and inner ones move fast.  Symmetric levels are the positive half with a phantom level at 0, under the
  distribution of r (not \|r\|).
- AMQ: 40 steps of rate 0.7 along the derivative of the positive half (centre included), but p is chosen by the cost of
  the positive half *without* the centre.  Its Eq. G.3 (for a normal: M1 = mean M0 + sigma^2 (f(a) - f(b))) is this
  derivative.  Starts of the norm-based AMQ are .1 .2 .3 .4 .5 .8 .9, with no .6, from which it would end elsewhere: at
  sigma = 1/32 and 4 bits at p = .5465 and a variance of 1.107e-4 instead of .5234 and 8.97e-5.  AMQ-N has .6 too at its
  first update.  From the second update on both have the p of the update before in that place.  p may be negative on its
  way (from .9 at 3 bits) and comes back.
- ALQ-G (``alq_pgd``): 30 sweeps of one gradient step per coordinate, left to right, of rate 0.1 and at most half the
  smaller gap.  Outer levels hardly move here either, so the start decides, and which one wins changes: for a normal of
  sigma = 1/32 the quantile start at 2 and 3 bits, the exponential one at 4 and 5.

The published levels (ResNet-32, 3 bits, bucket 16384) come out on a normal of sigma = 1/sqrt(16384) as follows.  ALQ
+-{.005, .018, .13, 1}: free levels (``symmetric=False``, the original without its ``nuq_sym`` flag) from the quantile
start, -1 -.1306 -.0182 -.0049 .0048 .0180 .1252 1.  With ``symmetric=True`` the same start gives +-{.0080, .0202,
.1355, 1}.  AMQ p = .233: p = .2316 from the start .5 (AMQ-N: .2317 from .6).

Differences from the original: a level that leaves its interval is put back just inside (the original stops with an
assertion); p is kept between -1 and 1 - 1e-6 on its way and ends at 1e-7 (or what float32 levels allow) or above;
integrals are exact, not quadrature; the starts run side by side.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from nuq.levels.distribution import Array, Distribution
from nuq.levels.objective import Objective
from nuq.levels.solver_exact import lowest_multiplier, multiplier_edges

NUM_SWEEPS, NUM_STEPS = 30, 10
GRADIENT_RATE = 0.1
AMQ_RATE, AMQ_STEPS = 0.7, 40
AMQ_STARTS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.8, 0.9)
AMQ_N_START = 0.6


def finite_difference_sweeps(distribution: Distribution, edges: Array, num_sweeps: int = NUM_SWEEPS) -> Array:
    r"""ALQ's sweeps as published: ``x <- x - (c(x + eps) - c(x - eps)) / (2 eps)``, ten times per coordinate and sweep.

    c(x) is the variance of the two intervals at x, eps their joint length / 1000.
    edges: float64[S, n + 1], S starts, rising, the first and last column fixed.  Returns the edges after the sweeps.
    """
    return _sweeps(lambda left, x, right: _steps(distribution, left, x, right), edges, num_sweeps)


def projected_sweeps(distribution: Distribution, edges: Array, num_sweeps: int = NUM_SWEEPS) -> Array:
    r"""ALQ-G's sweeps as published: ``x <- x - sign(g) min(|g| / 10, half the smaller gap)``, once per coordinate.

    g is the gradient of Psi at x between its neighbours of the moment.  Edges as in ``finite_difference_sweeps``.
    """

    def step(left: Array, x: Array, right: Array) -> Array:
        m0, m1, _ = distribution.interval_moments(np.stack([left, x, right], axis=-1))
        gradient = m1[..., 0] - ((right - x) * m0[..., 1] - m1[..., 1])
        limit = np.minimum(x - left, right - x) / 2
        return x - np.clip(GRADIENT_RATE * gradient, -limit, limit)

    return _sweeps(step, edges, num_sweeps)


def _sweeps(move: Callable[[Array, Array, Array], Array], edges: Array, num_sweeps: int) -> Array:
    """Move every inner edge to ``move(left, x, right)`` between its neighbours, from left to right, sweep after sweep.

    Coordinate i of sweep k needs only i - 1 of sweep k and i + 1 of sweep k - 1: all (i, k) of one i + 2k are updated
    at once, in n + 2 num_sweeps rounds, with the result of the sequential order.
    """
    edges = edges.copy()
    inner = np.arange(1, edges.shape[1] - 1)
    for time in range(1, len(inner) + 2 * num_sweeps - 1):
        sweep, odd = np.divmod(time - inner, 2)
        now = inner[(odd == 0) & (sweep >= 0) & (sweep < num_sweeps)]
        if len(now):
            edges[:, now] = move(edges[:, now - 1], edges[:, now], edges[:, now + 1])
    return edges


def _steps(distribution: Distribution, left: Array, x: Array, right: Array) -> Array:
    r"""Ten steps of coordinates between fixed neighbours.

    With y = r - left, W = right - left and M1 the first moment of y over the whole, the central difference is exactly
    ``M1 - W (integral over [x - eps, x + eps] of (r - x + eps) dF / (2 eps) + mass above x + eps)``.
    """
    width = right - left
    eps = width / 1000
    for _ in range(NUM_STEPS):
        low, high = x - eps, x + eps
        m0, m1, _ = distribution.interval_moments(np.stack([left, low, high, right], axis=-1))
        whole = (m1 + m0 * np.stack([np.zeros(x.shape), low - left, high - left], axis=-1)).sum(axis=-1)
        slope = whole - width * (m1[..., 1] / (2 * eps) + m0[..., 2])
        x = np.clip(x - slope, left + 2 * eps, right - 2 * eps)
    return x


def multiplier_starts(previous: float | None, *, norm_less: bool) -> Array:
    """The starts of AMQ's descents.  previous: the p of the update before, None at the first; norm_less: of AMQ-N."""
    more = [previous] if previous is not None else [AMQ_N_START] if norm_less else []
    return np.array([*AMQ_STARTS, *more])


def multipliers(distribution: Distribution, bits: int, starts: Array) -> tuple[Array, Array]:
    """The p that each start of AMQ as published ends at, and its cost (positive half, without the centre)."""
    p = starts
    for _ in range(AMQ_STEPS):
        p = np.clip(p - AMQ_RATE * _slope(distribution, p, bits), -1.0, 1 - 1e-6)
    p = np.maximum(p, lowest_multiplier(bits))
    return p, Objective(distribution, symmetric=False).value(multiplier_edges(p, bits)[:, 1:])


def _slope(distribution: Distribution, p: Array, bits: int) -> Array:
    r"""The derivative in p of the positive half's Psi, centre included (Eq. G.3), also where p < 0 disorders the p^j.

    With m_k(x) the integral of ``r^k dF`` from 0 to x, ``2 s p^(2s-1) m_0(p^s) +
    sum_{j<s} (j p^(j-1) + (j+1) p^j) (m_1(p^j) - m_1(p^(j+1))) - (2j+1) p^(2j) (m_0(p^j) - m_0(p^(j+1)))``.
    """
    s, p = 2 ** (bits - 1) - 1, p[:, None]
    x, j = p ** np.arange(s + 1), np.arange(s)
    low, high = np.minimum(x, 0.0), np.maximum(x, 0.0)
    m0, m1 = (np.sign(x) * distribution.partial_moment(order, low, high) for order in (0, 1))
    weights = j * p ** np.maximum(j - 1, 0) + (j + 1) * x[:, :-1]
    parts = (2 * j + 1) * x[:, :-1] ** 2 * np.diff(m0) - weights * np.diff(m1)
    return 2 * s * p[:, 0] ** (2 * s - 1) * m0[:, -1] + parts.sum(axis=1)
