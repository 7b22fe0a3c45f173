r"""The rate of a lattice on normal coordinates, and the step that a rate affords.

Stochastic rounding to a lattice of step D takes ``y = x / D`` to ``floor(y + u)``, u uniform in [0, 1): the code is k with probability
``E max(0, 1 - |y - k|)``.  Its entropy is the rate; the error after subtractive dither is ``D^2 / 12``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import optimize, special

_ROOT_2_PI = np.sqrt(2 * np.pi)


def code_probabilities(step: float) -> np.ndarray:
    """P(code = k), k = -K .. K, for one standard normal coordinate; step in units of its standard deviation."""
    k = np.arange(-int(10 / step) - 2, int(10 / step) + 3)
    edges = np.arange(k[0] - 1, k[-1] + 2) * step
    # with A(y) = integral of the normal cdf, the triangle around k has mass (A(k+1) - 2 A(k) + A(k-1)) / step
    antiderivative = edges * special.ndtr(edges) + np.exp(-0.5 * edges**2) / _ROOT_2_PI
    return np.diff(antiderivative, 2).clip(0.0) / step


def rate_of_step(step: float) -> float:
    """Bits per coordinate after ideal entropy coding.

    >>> round(rate_of_step(1.0), 2)
    2.16
    """
    p = code_probabilities(step)
    p = p[p > 0]
    return float(-(p * np.log2(p)).sum())


def step_of_rate(bits: float) -> float:
    """The step, in standard deviations, at which normal coordinates take ``bits`` bits each."""
    log_step: Any = optimize.brentq(lambda log: rate_of_step(np.exp(log)) - bits, np.log(1e-3), np.log(50.0), xtol=1e-12)
    return float(np.exp(log_step))
