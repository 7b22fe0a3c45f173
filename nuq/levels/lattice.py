r"""The rate of a lattice on normal coordinates, and the step that a rate affords.

Stochastic rounding to a lattice of step D takes ``y = x / D`` to ``k = floor(y + u)``, u uniform in [0, 1).  The
entropy of k is the rate, less where the coder knows the leading bits of u (all of them: h(x + D u) - log2 D, Zamir and
Feder, IEEE Trans. IT 1992); the error after subtractive dither is ``D^2 / 12``.

Rounding to the nearest multiple takes u = 1/2 for all: less entropy than a random u without dither, as much as with it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from scipy import optimize, special

MOST_POINTS = 511  # an odd number that the entropy coder takes
_REACH = 8.0  # standard deviations: fewer than one normal coordinate in 10^14 lies beyond
_ROOT_2_PI = np.sqrt(2 * np.pi)


def code_probabilities(step: float, known_bits: int = 0) -> np.ndarray:
    """The probabilities P(code = k | the leading bits of u), k = -K .. K: float64[2^known_bits, 2 K + 1].

    step: in standard deviations of one normal coordinate.  known_bits: 0 to 8.
    """
    bins = 1 << known_bits
    k = np.arange(-int(10 / step) - 2, int(10 / step) + 3)
    edges = (np.arange(bins * (k[0] - 1), bins * (k[-1] + 1) + 1) / bins) * step  # k + 1 - u, at the bins' ends
    antiderivative = edges * special.ndtr(edges) + np.exp(-0.5 * edges**2) / _ROOT_2_PI  # of the normal cdf
    below = np.diff(antiderivative).reshape(-1, bins) * (bins / step)  # E cdf((k - u) step), u in bin bins - 1 .. 0
    return np.diff(below, axis=0).T[::-1].clip(0.0)


def rate_of_step(step: float, known_bits: int = 0) -> float:
    """The bits per normal coordinate after ideal entropy coding.

    >>> round(rate_of_step(1.0), 3), round(rate_of_step(1.0, known_bits=8), 3)
    (2.158, 2.105)
    """
    p = code_probabilities(step, known_bits)
    p = p[p > 0] / len(p)
    return float(-(p * np.log2(p)).sum()) - known_bits


def step_of_rate(bits: float, known_bits: int = 0) -> float:
    """The step, in standard deviations, at which normal coordinates take ``bits`` bits each."""
    return _solved(lambda step: rate_of_step(step, known_bits) - bits, 1e-3)


def _solved(excess: Callable[[float], float], lowest: float) -> float:
    """The step from ``lowest`` to 50 at which the excess of the rate is zero."""
    log_step: Any = optimize.brentq(lambda log: excess(np.exp(log)), np.log(lowest), np.log(50.0), xtol=1e-12)
    return float(np.exp(log_step))


def nearest_points(step: float) -> int:
    """The number of multiples of the step, zero in their middle, within eight deviations; at most ``MOST_POINTS``."""
    return min(2 * int(np.ceil(_REACH / step)) + 1, MOST_POINTS)


def rate_of_nearest(step: float) -> float:
    """The bits per normal coordinate, rounded to the nearest of ``nearest_points(step)``, after ideal entropy coding.

    >>> round(rate_of_nearest(0.5224), 3)
    3.0
    """
    borders = (np.arange(nearest_points(step) // 2) + 0.5) * step  # those above zero
    above = special.ndtr(-borders)
    p = np.append(-np.diff(above), above[-1])  # of the points above zero; the last one takes all that is left
    p = np.concatenate([[1 - 2 * above[0]], p, p])
    return float(-special.xlogy(p, p).sum() / np.log(2))


@cache
def step_of_nearest(bits: float) -> float:
    """The step, in standard deviations, at which ``rate_of_nearest`` is ``bits``, 1 to 8."""
    return _solved(lambda step: rate_of_nearest(step) - bits, 0.01)
