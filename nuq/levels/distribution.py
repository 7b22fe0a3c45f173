r"""The interface of the distribution of a bucket-normalised coordinate r in [-1, 1], and the distribution of |r|.

``Distribution`` derives every quantity from two formulas, ``pdf`` and ``interval_moments``; a subclass states those and
whatever it knows in closed form.  All methods broadcast over arrays and work in float64.  Tails are mirrored: the mass
above a point is never computed as one minus the mass below, so that masses of 1e-200 keep their digits.
"""

from __future__ import annotations

from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from nuq.native import levels as kernels

Array = np.ndarray
NUM_KNOTS = 513


class Distribution(Protocol):
    """A distribution on [begin, end], a part of [-1, 1]."""

    begin: float
    end: float

    def pdf(self, x: ArrayLike) -> Array:
        """The density at x; 0 outside the support."""
        ...

    def interval_moments(self, edges: Array) -> Array:
        r"""The moments of intervals: ``m[k, ..., i] = integral over [e_i, e_{i+1}] of (r - e_i)^k dF``, k = 0, 1, 2.

        edges: float64[..., n + 1] within the support, rising along the last axis.  Returns float64[3, ..., n].  Moments
        about an edge, not about zero: for a level interval they are as small as its error, and keep their digits.
        """
        ...

    def knots(self, num_knots: int = NUM_KNOTS) -> Array:
        """Increasing points from begin to end, dense where there is detail: inversion and tables start from them."""
        ...

    def mirrored(self) -> Distribution:
        """The distribution of -r."""
        ...

    @cached_property
    def table(self) -> tuple[Array, Array, Array]:
        """The table: knots, cdf at the knots, sf at the knots."""
        points = self.knots()
        return points, self.cdf(points), self.sf(points)

    def partial_moment(self, order: int, a: ArrayLike, b: ArrayLike) -> Array:
        """The partial moment ``integral over [a, b] of r^order dF``, order 0, 1 or 2; a <= b, broadcast together."""
        if order not in (0, 1, 2):
            raise ValueError(f"order={order!r}: partial moments exist for order 0, 1 and 2")
        edges = np.clip(np.stack(np.broadcast_arrays(a, b), axis=-1), self.begin, self.end)
        m0, m1, m2 = self.interval_moments(edges)[..., 0]
        left = edges[..., 0]
        return (m0, m1 + left * m0, m2 + 2 * left * m1 + left**2 * m0)[order]

    def cdf(self, x: ArrayLike) -> Array:
        """The mass at or below x."""
        return self.partial_moment(0, self.begin, np.maximum(x, self.begin))

    def sf(self, x: ArrayLike) -> Array:
        """The mass above x."""
        return self.partial_moment(0, np.minimum(x, self.end), self.end)

    def ppf(self, u: ArrayLike) -> Array:
        """The x with cdf(x) = u; ppf(0) = begin, ppf(1) = end.  ValueError for a u outside [0, 1]."""
        return _nearer_tail(self, check_probability(u), upper=False)

    def isf(self, u: ArrayLike) -> Array:
        """The x with sf(x) = u: precise for a u as small as 1e-300."""
        return _nearer_tail(self, check_probability(u), upper=True)

    def folded(self) -> Distribution:
        """The distribution of |r|, on [0, 1]."""
        return Folded(self)

    def compiled(self) -> kernels.CompiledDistribution | None:
        """The arrays that the C++ solvers take; None for a distribution that they do not know."""
        return None

    def tabulated(self) -> Distribution:
        """An equal distribution at a price per call that does not depend on the number of its components."""
        return self


def check_probability(u: ArrayLike) -> Array:
    """Check a probability: ``u`` as float64; ValueError unless all of it lies in [0, 1]."""
    u = np.asarray(u, dtype=np.float64)
    inside = (u >= 0) & (u <= 1)
    if not inside.all():
        raise ValueError(f"probability {u[~inside].flat[0]}: must lie in [0, 1]")
    return u


def _nearer_tail(distribution: Distribution, u: Array, *, upper: bool) -> Array:
    """The result of ``invert`` by the smaller of the two tails."""
    x = np.empty(u.shape)
    small = u <= 0.5
    if small.any():
        x[small] = invert(distribution, u[small], upper=upper)
    if not small.all():
        x[~small] = invert(distribution, 1 - u[~small], upper=not upper)
    return x


def invert(distribution: Distribution, u: Array, *, upper: bool) -> Array:
    """The x with cdf(x) = u (upper: sf(x) = u), by Newton's method on log u inside a bracket between two knots.

    On the logarithm, tails are close to parabolas, and Newton converges in 3 to 5 steps; a step that leaves the bracket
    is replaced by bisection, so flat stretches and jumps cannot mislead it.
    """
    points, below, above = distribution.table
    function, slope, table = (distribution.cdf, 1.0, below)
    if upper:
        function, slope, points, table = distribution.sf, -1.0, points[::-1], above[::-1]
    place = np.clip(np.searchsorted(table, u, side="right") - 1, 0, len(points) - 2)
    low, high = points[place], points[place + 1]  # function(low) <= u < function(high)
    start, rise = table[place], table[place + 1] - table[place]
    width = np.abs(high - low)
    share = np.divide(u - start, rise, out=np.full(u.shape, 0.5), where=rise > 0)
    x = low + (high - low) * np.clip(share, 0.0, 1.0)
    for _ in range(100):
        value, density = function(x), distribution.pdf(x)
        under = value <= u
        low, high = np.where(under, x, low), np.where(under, high, x)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            newton = x - slope * value * np.log(value / u) / density
        inside = (newton > np.minimum(low, high)) & (newton < np.maximum(low, high))
        moved = np.where(inside, newton, (low + high) / 2)
        moved = np.where(value == u, x, moved)
        change, x = np.abs(moved - x), moved
        if (change <= 1e-13 * np.maximum(np.abs(x), width)).all():
            break
    return np.where(u == 0, distribution.end if upper else distribution.begin, x)


class Folded(Distribution):
    """The distribution of |r|: density f(r) + f(-r) on [0, 1]."""

    begin, end = 0.0, 1.0

    def __init__(self, distribution: Distribution) -> None:
        self.distribution = distribution
        self._other = distribution.mirrored()

    def pdf(self, x: ArrayLike) -> Array:
        return np.where(np.asarray(x) < 0, 0.0, self.distribution.pdf(x) + self._other.pdf(x))

    def sf(self, x: ArrayLike) -> Array:
        x = np.maximum(x, 0.0)
        return self.distribution.sf(x) + self._other.sf(x)

    def interval_moments(self, edges: Array) -> Array:
        return self.distribution.interval_moments(edges) + self._other.interval_moments(edges)

    def knots(self, num_knots: int = NUM_KNOTS) -> Array:
        return np.unique(np.concatenate([[0.0, 1.0], np.abs(self.distribution.knots(num_knots))]))

    def mirrored(self) -> Distribution:
        raise NotImplementedError("the distribution of |r| lives on [0, 1] and has no mirror image there")

    def folded(self) -> Distribution:
        return self

    def compiled(self) -> kernels.CompiledDistribution | None:
        return kernels.side_by_side(self.distribution.compiled(), self._other.compiled())
