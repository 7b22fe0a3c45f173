"""The distribution of measured coordinates, from sums over bins."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from nuq.levels.distribution import NUM_KNOTS, Array, Distribution, check_probability
from nuq.native import levels as kernels


class Histogram(Distribution):
    r"""The distribution of measured coordinates, from sums over bins.

    edges: float64[B + 1], increasing, in [-1, 1]; w0, w1, w2: float64[B], per bin the sums of weight, weight * r and
    weight * r^2, of any common scale.  ValueError where shapes, order or signs are wrong, or no weight is left.

    Prefix sums from both ends give partial moments that are exact at bin edges.  Inside a bin the density is the linear
    one with the bin's mass and mean where there is one (mean in the middle third), else the power of the distance from
    an edge, ``k t^(k-1)``, with that mean; the two agree where they meet.  Mass and mean of every bin are thus exact,
    the error inside is of third order in the bin's width for a smooth distribution, and a point mass at an edge (r = 1
    under the max norm) stays there.  The bin's second moment enters where the bin ends; inside it is shared out like
    the mass (levels do not depend on it: Psi contains the second moment of the whole distribution only).
    """

    def __init__(self, edges: ArrayLike, w0: ArrayLike, w1: ArrayLike, w2: ArrayLike) -> None:
        edges, sums = np.array(edges, dtype=np.float64), np.array([w0, w1, w2], dtype=np.float64)
        if edges.ndim != 1 or edges.size < 2 or sums.shape != (3, edges.size - 1):
            raise ValueError(
                f"edges of shape {edges.shape} with sums of shape {sums.shape[1:]}: B bins have B + 1 edges and B sums"
            )
        if not ((np.diff(edges) > 0).all() and edges[0] >= -1 and edges[-1] <= 1):
            raise ValueError("the edges of a histogram must increase strictly from -1 or above to 1 or below")
        if not np.isfinite(sums).all() or (sums[0] < 0).any():
            raise ValueError("the sums of a histogram must be finite, and its weights not negative")
        if not sums[0].any():
            raise ValueError("every weight of the histogram is zero: there is no distribution to fit levels to")
        weight, moment, square = sums / sums[0].sum()
        self.edges, self.begin, self.end = edges, float(edges[0]), float(edges[-1])
        self._width = np.diff(edges)
        mean = np.divide(moment, weight, out=(edges[:-1] + edges[1:]) / 2, where=weight > 0)
        mean = np.clip((mean - edges[:-1]) / self._width, 1e-9, 1 - 1e-9)  # within the bin, from 0 to 1
        self._slope = np.clip(6 * mean - 3, -1.0, 1.0)
        self._power = np.where(mean > 2 / 3, mean / (1 - mean), np.where(mean < 1 / 3, -(1 - mean) / mean, 0.0))
        # moments are summed about the mean: no digits are lost to a distribution far from zero
        self._origin = float(moment.sum())
        self._start = edges[:-1] - self._origin
        first = weight * (self._start + self._width * mean)
        second = square - 2 * self._origin * moment + self._origin**2 * weight
        self._sums = np.stack([weight, first, second])
        self._excess = np.zeros(weight.size)  # what the model of a bin lacks in second moment
        self._excess = second - self._inside(np.arange(weight.size), np.ones(weight.size))[2]
        zero = np.zeros((3, 1))
        self._left = np.concatenate([zero, np.cumsum(self._sums, axis=1)], axis=1)
        self._right = np.concatenate([np.cumsum(self._sums[:, ::-1], axis=1)[:, ::-1], zero], axis=1)
        self._median = float(self.ppf(0.5))

    def _shape(self, bins: Array, t: Array) -> tuple[Array, Array, Array]:
        """The integrals over [0, t] of the bin's density times 1, t, t^2; t is the place in the bin, 0 to 1."""
        s, power = self._slope[bins], self._power[bins]
        g0, g1, g2 = t * (1 - s + s * t), t * t * ((1 - s) / 2 + s * t * (2 / 3)), t**3 * ((1 - s) / 3 + s * t / 2)
        if not power.any():
            return g0, g1, g2
        k, up = np.maximum(np.abs(power), 2.0), power > 0
        v = np.where(up, t, 1 - t)
        p0 = v**k
        p1, p2 = k / (k + 1) * p0 * v, k / (k + 2) * p0 * v * v
        c1, c2 = k / (k + 1), k / (k + 2)
        p0, p1, p2 = (
            np.where(up, p, q)
            for p, q in ((p0, 1 - p0), (p1, 1 - p0 - c1 + p1), (p2, 1 - p0 - 2 * (c1 - p1) + c2 - p2))
        )
        linear = power == 0
        return np.where(linear, g0, p0), np.where(linear, g1, p1), np.where(linear, g2, p2)

    def _inside(self, bins: Array, t: Array) -> Array:
        """The moments about the origin of the part of each bin that lies left of its place t: float64[3, ...]."""
        g0, g1, g2 = self._shape(bins, t)
        w, d, h = self._sums[0, bins], self._start[bins], self._width[bins]
        second = w * (d * d * g0 + 2 * d * h * g1 + h * h * g2) + self._excess[bins] * g0
        return np.stack([w * g0, w * (d * g0 + h * g1), second])

    def _bins(self, x: Array) -> tuple[Array, Array]:
        bins = np.clip(np.searchsorted(self.edges, x, side="right") - 1, 0, self._width.size - 1)
        return bins, np.clip((x - self.edges[bins]) / self._width[bins], 0.0, 1.0)

    def pdf(self, x: ArrayLike) -> Array:
        x = np.asarray(x, dtype=np.float64)
        bins, t = self._bins(x)
        s, k = self._slope[bins], np.maximum(np.abs(self._power[bins]), 2.0)
        steep = k * np.where(self._power[bins] > 0, t, 1 - t) ** (k - 1)
        density = np.where(self._power[bins] == 0, 1 - s + 2 * s * t, steep) * self._sums[0, bins] / self._width[bins]
        return np.where((x >= self.begin) & (x <= self.end), density, 0.0)

    def interval_moments(self, edges: Array) -> Array:
        edges = np.asarray(edges, dtype=np.float64)
        bins, t = self._bins(edges)
        part = self._inside(bins, t)
        left, right = self._left[:, bins] + part, self._right[:, bins + 1] + (self._sums[:, bins] - part)
        a = edges[..., :-1]
        m0, m1, m2 = np.where(a >= self._median, right[..., :-1] - right[..., 1:], left[..., 1:] - left[..., :-1])
        shift = a - self._origin
        return np.stack([m0, m1 - shift * m0, m2 - shift * (2 * m1 - shift * m0)])

    def ppf(self, u: ArrayLike) -> Array:
        u = check_probability(u)
        return np.where(u <= 0.5, self._from_left(u), self._from_right(1 - u))

    def isf(self, u: ArrayLike) -> Array:
        u = check_probability(u)
        return np.where(u <= 0.5, self._from_right(u), self._from_left(1 - u))

    def _from_left(self, u: Array) -> Array:
        bins = np.clip(np.searchsorted(self._left[0], u, side="right") - 1, 0, self._width.size - 1)
        return self._at_share(bins, u - self._left[0, bins])

    def _from_right(self, u: Array) -> Array:
        place = self._width.size - np.searchsorted(self._right[0, ::-1], u, side="right")
        bins = np.clip(place, 0, self._width.size - 1)
        return self._at_share(bins, self._sums[0, bins] - (u - self._right[0, bins + 1]))

    def _at_share(self, bins: Array, mass: Array) -> Array:
        """The point with so much of its bin's mass to the left."""
        w = self._sums[0, bins]
        u = np.clip(np.divide(mass, w, out=np.zeros(mass.shape), where=w > 0), 0.0, 1.0)
        s, power = self._slope[bins], self._power[bins]
        k = np.maximum(np.abs(power), 2.0)
        root = np.where(power > 0, u, 1 - u) ** (1 / k)
        linear = np.divide(2 * u, (1 - s) + np.sqrt((1 - s) ** 2 + 4 * s * u), out=np.zeros(u.shape), where=u > 0)
        t = np.where(power == 0, linear, np.where(power > 0, root, 1 - root))
        return self.edges[bins] + self._width[bins] * t

    def knots(self, num_knots: int = NUM_KNOTS) -> Array:
        return self.edges

    def mirrored(self) -> Histogram:
        w0, w1, w2 = self._raw()
        return Histogram(-self.edges[::-1], w0[::-1], -w1[::-1], w2[::-1])

    def folded(self) -> Histogram:
        """The histogram of |r|: masses and means of bins of -r and of r, added on the edges of both or finer ones."""
        return self._magnitude

    @cached_property
    def _magnitude(self) -> Histogram:
        half = self._width.size // 2
        if self._width.size % 2 == 0 and np.array_equal(self.edges, -self.edges[::-1]):
            sums = self._raw()
            mirrored = np.array([[1.0], [-1.0], [1.0]]) * sums[:, half - 1 :: -1]
            return Histogram(self.edges[half:], *(sums[:, half:] + mirrored))
        edges = np.unique(np.append(np.abs(self.edges), 0.0))
        edges = np.append(edges[:-1][np.diff(edges) > 1e-10 * edges[1:]], edges[-1])  # -x and x may differ by rounding
        parts = max(1, 2048 // len(edges))  # small bins: what is added up is nearly linear inside
        edges = np.append((edges[:-1, None] + np.diff(edges)[:, None] * (np.arange(parts) / parts)).ravel(), edges[-1])
        m0, m1, m2 = self.interval_moments(edges) + self.mirrored().interval_moments(edges)
        left = edges[:-1]
        return Histogram(edges, m0.clip(0.0), m1 + left * m0, m2 + 2 * left * m1 + left**2 * m0)

    def compiled(self) -> kernels.CompiledDistribution:
        names = ("width", "start", "slope", "power", "excess", "sums", "left", "right")
        arrays = {name: getattr(self, f"_{name}") for name in names}
        return kernels.of_bins(self._origin, self._median, edges=self.edges, **arrays)

    def _raw(self) -> Array:
        """The sums of powers about zero."""
        w0, first, second = self._sums
        return np.stack([w0, first + self._origin * w0, second + 2 * self._origin * first + self._origin**2 * w0])
