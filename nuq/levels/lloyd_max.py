r"""The quantizer of N(0, 1) with the smallest mean squared error, for 1 to 8 bits (Lloyd, 1957; Max, 1960).

Every value goes to the nearest of ``2^b`` centroids, and every centroid is the mean of its cell.  By symmetry the
positive half is enough: with ``t_0 = 0``, ``t_i = (c_i + c_{i+1}) / 2`` and ``t_m = infinity`` the centroids solve

    g_i = c_i (Phi(t_i) - Phi(t_{i-1})) - (phi(t_{i-1}) - phi(t_i)) = 0,    i = 1 .. m = 2^(b-1).

Lloyd's own steps (every ``c_i`` to the mean of its cell) come first, since Newton's would jump while the outermost
cells are far off; then Newton's method on this tridiagonal system reaches float64 accuracy in a few steps, where
Lloyd's takes ten thousands.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from scipy.linalg import solve_banded
from scipy.special import ndtr, ndtri

from nuq.levels.level_sets import check_bits

Array = np.ndarray
_TOLERANCE = 1e-13
_LLOYD_STEPS = 300
_MOST_NEWTON_STEPS = 20


def _density(t: Array) -> Array:
    return np.exp(-0.5 * np.square(t)) / np.sqrt(2.0 * np.pi)


def _cells(c: Array) -> tuple[Array, Array, Array]:
    """The probability and the residual g of every cell, [m], and the density at the edges between them, [m - 1]."""
    t = np.concatenate([[0.0], 0.5 * (c[1:] + c[:-1]), [np.inf]])
    above, density = ndtr(-t), _density(t)
    mass = above[:-1] - above[1:]
    return mass, c * mass - (density[:-1] - density[1:]), density[1:-1]


@cache
def _positive(bits: int) -> Array:
    """The centroids above zero, smallest first: float64[2^(bits-1)], read-only."""
    count = 1 << (bits - 1)
    # With many levels the best density of centroids is the cube root of the distribution's (Panter and Dite, 1951):
    # that of N(0, 3).
    c = np.sqrt(3.0) * ndtri(0.5 + (np.arange(count) + 0.5) / (2 * count))
    for _ in range(_LLOYD_STEPS):
        mass, residual, _ = _cells(c)
        c = c - residual / mass
    for _ in range(_MOST_NEWTON_STEPS):
        mass, residual, density = _cells(c)
        t = 0.5 * (c[1:] + c[:-1])
        inner = 0.5 * (t - c[:-1]) * density  # half a centroid's move reaches each of its two edges; t_0 and t_m stay
        outer = 0.5 * (c[1:] - t) * density
        bands = np.zeros((3, count))
        bands[0, 1:], bands[1], bands[2, :-1] = -inner, mass, -outer
        bands[1, :-1] -= inner
        bands[1, 1:] -= outer
        step = solve_banded((1, 1), bands, residual)
        c = c - step
        if np.abs(step).max() <= _TOLERANCE * c[-1]:
            break
    else:
        raise AssertionError(f"no Lloyd-Max quantizer of {bits} bits after {_MOST_NEWTON_STEPS} steps")
    c.setflags(write=False)
    return c


def centroids(bits: int) -> Array:
    """The centroids, smallest first: float64[2^bits], accurate to 1e-12.  ValueError unless bits is 1 to 8.

    >>> centroids(1).round(6).tolist()
    [-0.797885, 0.797885]
    """
    positive = _positive(check_bits(bits))
    return np.concatenate([-positive[::-1], positive])


def thresholds(bits: int) -> Array:
    """The borders between neighbouring cells, smallest first: float64[2^bits - 1].

    >>> thresholds(2).round(6).tolist()
    [-0.981599, 0.0, 0.981599]
    """
    c = centroids(bits)
    middles = 0.5 * (c[1:] + c[:-1])
    middles[middles.size // 2] = 0.0
    return middles
