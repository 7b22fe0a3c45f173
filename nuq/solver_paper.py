r"""The original's solvers: iterations that stop before they converge, as in the code behind the paper's figures.

Facts from learning-to-quantize (``nuq/quantize.py``); nothing of its code is used.  What makes its levels differ from the optimum
of the same law:

- ALQ: each coordinate takes ten gradient steps of rate 1 with central differences of width interval/1000, left to right, for 30
  sweeps.  The curvature (l_{i+1} - l_{i-1}) f(l_i) is far from 1 almost everywhere, so outer levels hardly move and inner ones
  move fast.  Symmetric levels are the positive half with a phantom level at 0, under the law of r (not \|r\|).
- AMQ: 40 steps of rate 0.7 along the derivative of the positive half (centre included), but p is chosen by the cost of the
  positive half *without* the centre.  Its Eq. G.3 (for a normal: M1 = mean M0 + sigma^2 (f(a) - f(b))) is this derivative.

The published levels (ResNet-32, 3 bits, bucket 16384) come out on a normal of sigma = 1/sqrt(16384) as follows.
ALQ +-{.005, .018, .13, 1}: free levels (``symmetric=False``, the original without its ``nuq_sym`` flag) from the quantile start,
-1 -.1306 -.0182 -.0049 .0048 .0180 .1252 1.  With ``symmetric=True`` the same start gives +-{.0080, .0202, .1355, 1}.
AMQ p = .233: p = .2317 from the start .6 (the original gets .2322 from .9, by way of a negative p).

Differences from the original: a level that leaves its interval is put back just inside (the original stops with an assertion);
p is kept between 1e-7 (or what float32 levels allow) and 1 - 1e-6; integrals are exact, not quadrature; the three starts run side by side.
ALQ-G has no solver in the public code: here 300 simultaneous steps of rate 1, each at most half the smaller gap, which are as
many gradients as the 30 sweeps take.
"""

from __future__ import annotations

import numpy as np

from nuq.law import Array, Distribution
from nuq.objective import Objective
from nuq.solver_exact import lowest_multiplier, multiplier_derivatives, multiplier_edges

NUM_SWEEPS, NUM_STEPS = 30, 10
AMQ_RATE, AMQ_STEPS = 0.7, 40
AMQ_STARTS = np.array([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 0.9])


def finite_difference_sweeps(law: Distribution, edges: Array, num_sweeps: int = NUM_SWEEPS) -> Array:
    r"""ALQ as published: ``x <- x - (c(x + eps) - c(x - eps)) / (2 eps)``, ten times per coordinate and sweep.

    c(x) is the variance of the two intervals at x, eps their joint length / 1000.
    edges: float64[S, n + 1], S starts, rising, the first and last column fixed.  Returns the edges after the sweeps.

    Coordinate i of sweep k needs only i - 1 of sweep k and i + 1 of sweep k - 1: all (i, k) of one i + 2k are updated at once, in
    n + 2 num_sweeps rounds, with the result of the sequential order.
    """
    edges = edges.copy()
    inner = np.arange(1, edges.shape[1] - 1)
    for time in range(1, len(inner) + 2 * num_sweeps - 1):
        sweep, odd = np.divmod(time - inner, 2)
        now = inner[(odd == 0) & (sweep >= 0) & (sweep < num_sweeps)]
        if len(now):
            edges[:, now] = _steps(law, edges[:, now - 1], edges[:, now], edges[:, now + 1])
    return edges


def _steps(law: Distribution, left: Array, x: Array, right: Array) -> Array:
    r"""Ten steps of coordinates between fixed neighbours.

    With y = r - left, W = right - left and M1 the first moment of y over the whole, the central difference is exactly
    ``M1 - W (integral over [x - eps, x + eps] of (r - x + eps) dF / (2 eps) + mass above x + eps)``.
    """
    width = right - left
    eps = width / 1000
    for _ in range(NUM_STEPS):
        low, high = x - eps, x + eps
        m0, m1, _ = law.interval_moments(np.stack([left, low, high, right], axis=-1))
        whole = (m1 + m0 * np.stack([np.zeros(x.shape), low - left, high - left], axis=-1)).sum(axis=-1)
        slope = whole - width * (m1[..., 1] / (2 * eps) + m0[..., 2])
        x = np.clip(x - slope, left + 2 * eps, right - 2 * eps)
    return x


def projected_steps(law: Distribution, edges: Array, num_steps: int = NUM_SWEEPS * NUM_STEPS) -> Array:
    r"""ALQ-G: ``l_i <- l_i - sign(g_i) min(|g_i|, half the smaller gap)``, g the gradient of Psi, all levels at once.

    edges: float64[S, n + 1], the first and last column fixed.
    """
    edges = edges.copy()
    for _ in range(num_steps):
        m0, m1, _ = law.interval_moments(edges)
        gaps = np.diff(edges, axis=-1)
        gradient = m1[:, :-1] - (gaps * m0 - m1)[:, 1:]
        limit = np.minimum(gaps[:, :-1], gaps[:, 1:]) / 2
        edges[:, 1:-1] -= np.clip(gradient, -limit, limit) * (1 - 1e-9)
    return edges


def multipliers(law: Distribution, bits: int) -> tuple[Array, Array]:
    """AMQ as published: the p that each start ends at, and its cost (positive half, without the centre)."""
    half = Objective(law, symmetric=True)  # of r, not |r|: Psi of the positive half, centre included
    p, lowest = AMQ_STARTS.copy(), lowest_multiplier(bits)
    for _ in range(AMQ_STEPS):
        _, slope, _ = multiplier_derivatives(half, p, bits)
        p = np.clip(p - AMQ_RATE * slope, lowest, 1 - 1e-6)
    return p, Objective(law, symmetric=False).value(multiplier_edges(p, bits)[:, 1:])
