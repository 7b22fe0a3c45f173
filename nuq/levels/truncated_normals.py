"""Distributions that the adaptive levels are fitted to: truncated normals, their mixtures, and tabulated mixtures.

Source: Faghri et al. (NeurIPS 2020, Section 3) and their code, whose names these are.  ``Distribution``
(``nuq.levels.distribution``) and ``Histogram`` (``nuq.levels.histogram``) are at home here too, for those who use them.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from nuq.levels.distribution import NUM_KNOTS, Array, Distribution, check_probability
from nuq.levels.histogram import Histogram
from nuq.native import levels as kernels

__all__ = ["CondTruncNorm", "CondTruncNormHist", "Distribution", "Histogram", "TruncNorm"]

MIN_SIGMA = 1e-6  # a narrower bucket is a point mass to float32 levels; also what stands in for sigma = 0
_BLOCK = 1 << 15  # numbers in one temporary array: what stays in cache
_REACH = 14.0  # standard deviations from a mean within which a table is dense
_NUM_OFFSETS = 65
_GOLDEN = (np.sqrt(5) - 1) / 2
_ROOT_2_PI = np.sqrt(2 * np.pi)


class CondTruncNorm(Distribution):
    r"""A mixture of normals truncated to [-1, 1]: ``F = sum_k w_k N(mean_k, sigma_k^2 | -1 <= r <= 1)``.

    One component per bucket.  means: float64[K] in [-1, 1]; sigmas: float64[K] >= 0; weights: float64[K] >= 0, of any
    scale: norm^2 of the buckets follows from E[norm^2 Psi]; the original code takes the norm.

    Components of weight zero (buckets of norm zero) are dropped; a sigma below 1e-6 (constant buckets) becomes 1e-6.
    ValueError where nothing is left, and for means outside [-1, 1] or anything not finite.  K is vectorised over, in
    blocks of bounded memory.
    """

    begin, end = -1.0, 1.0

    def __init__(self, means: ArrayLike, sigmas: ArrayLike, weights: ArrayLike) -> None:
        given = (np.atleast_1d(np.asarray(a, dtype=np.float64)) for a in (means, sigmas, weights))
        means, sigmas, weights = np.broadcast_arrays(*given)
        if means.ndim != 1:
            raise ValueError(f"means, sigmas and weights of shape {means.shape}: must be lists of one length")
        ranges = (("mean", means, -1.0, 1.0), ("sigma", sigmas, 0.0, np.inf), ("weight", weights, 0.0, np.inf))
        for name, values, low, high in ranges:
            bad = ~((values >= low) & (values <= high) & np.isfinite(values))
            if bad.any():
                raise ValueError(f"{name}={values[bad][0]}: must be finite and in [{low:g}, {high:g}]")
        used = weights > 0
        if not used.any():
            raise ValueError("every bucket has weight (norm) zero: there is no distribution to fit levels to")
        self.means, self.sigmas = means[used], np.maximum(sigmas[used], MIN_SIGMA)
        self.weights = weights[used] / weights[used].max()
        self.weights = self.weights / self.weights.sum()
        self._alpha, self._beta = (-1 - self.means) / self.sigmas, (1 - self.means) / self.sigmas
        self._scale = self.weights / (1 - special.ndtr(self._alpha) - special.ndtr(-self._beta))  # weight / mass kept

    def _blocks(self, num_points: int) -> list[slice]:
        size = max(1, _BLOCK // max(num_points, 1))
        return [slice(start, start + size) for start in range(0, len(self.means), size)]

    def _standard(self, x: Array, block: slice) -> Array:
        return (x[..., None] - self.means[block]) / self.sigmas[block]

    def pdf(self, x: ArrayLike) -> Array:
        x = np.asarray(x, dtype=np.float64)
        density = np.zeros(x.shape)
        for block in self._blocks(x.size):
            density += _bell(self._standard(x, block)) @ (self._scale[block] / self.sigmas[block])
        return np.where(np.abs(x) <= 1, density, 0.0)

    def cdf(self, x: ArrayLike) -> Array:
        return self._masses(x, lambda z, block: (self._alpha[block], z))

    def sf(self, x: ArrayLike) -> Array:
        return self._masses(x, lambda z, block: (z, self._beta[block]))

    def _masses(self, x: ArrayLike, interval: Callable[[Array, slice], tuple[Array, Array]]) -> Array:
        """The mass of an interval, whose ends follow from x in the units of each component, over all components."""
        x = np.clip(np.asarray(x, dtype=np.float64), -1.0, 1.0)
        mass = np.zeros(x.shape)
        for block in self._blocks(x.size):
            a, b = interval(self._standard(x, block), block)
            mass += _mass(a, b, special.ndtr(-np.abs(a)), special.ndtr(-np.abs(b))) @ self._scale[block]
        return np.minimum(mass, 1.0)

    def interval_moments(self, edges: Array) -> Array:
        r"""The moments of every interval [a, b], per component.

        With z = (r - mean)/sigma, phi the normal density and Phi its integral: ``integral of phi = Phi(b) - Phi(a)``,
        ``of z phi = phi(a) - phi(b)``, ``of z^2 phi = Phi(b) - Phi(a) + a phi(a) - b phi(b)``, combined to powers of z
        - a.
        """
        edges = np.asarray(edges, dtype=np.float64)
        if edges.ndim == 1:
            compiled = kernels.mixture_moments(self._arrays(), edges)
            if compiled is not None:
                return compiled
        moments = np.zeros((3, *edges.shape[:-1], edges.shape[-1] - 1))
        for block in self._blocks(edges.size):
            z = self._standard(edges, block)
            bell, tail = _bell(z), special.ndtr(-np.abs(z))
            a, b = z[..., :-1, :], z[..., 1:, :]
            mass = _mass(a, b, tail[..., :-1, :], tail[..., 1:, :])
            first = bell[..., :-1, :] - bell[..., 1:, :]
            second = mass + a * bell[..., :-1, :] - b * bell[..., 1:, :]
            scale, sigma = self._scale[block], self.sigmas[block]
            moments[0] += mass @ scale
            moments[1] += (first - a * mass) @ (scale * sigma)
            moments[2] += (second - a * (2 * first - a * mass)) @ (scale * sigma**2)
        return moments

    def knots(self, num_knots: int = NUM_KNOTS) -> Array:
        r"""An odd number of points, symmetric about 0 (so that a table folds onto itself).

        Their density is that of ``sum_k v_k asinh(z_k / 1.5)``, z_k the distance from +-mean_k in units of sigma_k, out
        to 14 (what lies beyond weighs 1e-44), plus a twentieth spread evenly; v_k is half the component's weight, half
        an equal share, so that none is overlooked.  The sum is read off 65 points of every component, sorted; they are
        staggered, or equal components would make steps.
        """
        count = len(self.means)
        share = (self.weights + 1 / count) / 2
        stagger = np.arange(count) * _GOLDEN % 1.0 if count > 1 else np.full(1, 0.5)
        steps = (np.arange(_NUM_OFFSETS) + stagger[:, None]) * (2 / _NUM_OFFSETS) - 1
        offsets = 1.5 * self.sigmas[:, None] * np.sinh(np.arcsinh(_REACH / 1.5) * steps)
        cloud = (np.abs(self.means)[:, None] + offsets).ravel()
        order = np.argsort(cloud)
        rank = np.cumsum(np.repeat(share, _NUM_OFFSETS)[order])
        middle = len(order) // 1024 // 2 + 1
        kept = np.arange(middle - 1, len(order), max(1, len(order) // 1024))
        cloud, rank = cloud[order][kept], rank[kept]
        inside = (cloud > 0) & (cloud < 1)
        ends = np.interp([0.0, 1.0], cloud, rank)
        positions = np.concatenate([[0.0], cloud[inside], [1.0]])
        rank = np.concatenate([ends[:1], rank[inside], ends[1:]])
        span = rank[-1] - rank[0]
        rank = (rank - rank[0]) / span * 0.95 + 0.05 * positions if span > 0 else positions  # a sigma of 1e300 is flat
        half = np.interp(np.linspace(0.0, 1.0, num_knots // 2 + 1), rank, positions)
        half = half[np.concatenate([[True], np.diff(half) > 1e-14])]
        half[0], half[-1] = 0.0, 1.0
        return np.concatenate([-half[:0:-1], half])

    def mirrored(self) -> CondTruncNorm:
        return CondTruncNorm(-self.means, self.sigmas, self.weights)

    def _arrays(self) -> kernels.CompiledDistribution:
        return kernels.of_normals(self.means, self.sigmas, self._scale, self.begin)

    def compiled(self) -> kernels.CompiledDistribution | None:
        return self._arrays() if len(self.means) <= kernels.MOST_NORMALS else None

    def tabulated(self) -> Distribution:
        return self if len(self.means) == 1 else CondTruncNormHist(self)


class TruncNorm(CondTruncNorm):
    """One normal, truncated to [-1, 1]: mean in [-1, 1], sigma >= 0 (below 1e-6 it counts as 1e-6)."""

    def __init__(self, mean: float, sigma: float) -> None:
        super().__init__([mean], [sigma], [1.0])
        self.mean, self.sigma = float(self.means[0]), float(self.sigmas[0])
        self._lower, self._upper = special.ndtr(self._alpha[0]), special.ndtr(-self._beta[0])  # masses cut off
        self._kept = 1 / self._scale[0]  # the one weight is 1

    def ppf(self, u: ArrayLike) -> Array:
        u = check_probability(u)
        return self._place(self._lower + u * self._kept, self._upper + (1 - u) * self._kept)

    def isf(self, u: ArrayLike) -> Array:
        u = check_probability(u)
        return self._place(self._lower + (1 - u) * self._kept, self._upper + u * self._kept)

    def _place(self, below: Array, above: Array) -> Array:
        """The point with these masses of the whole normal below and above it: from the smaller of the two."""
        z = np.where(below <= above, special.ndtri(np.minimum(below, 0.5)), -special.ndtri(np.minimum(above, 0.5)))
        x = np.clip(self.mean + self.sigma * z, -1.0, 1.0)
        # rounding aside, the ends are the ends
        return np.where(below <= self._lower, -1.0, np.where(above <= self._upper, 1.0, x))

    def mirrored(self) -> TruncNorm:
        return TruncNorm(-self.mean, self.sigma)


class CondTruncNormHist(Histogram):
    """A mixture tabulated once, so that levels are found by look-ups, at a cost that no number of components raises.

    num_bins: even.  The bins lie where the mixture has detail (``CondTruncNorm.knots``) and hold its exact mass and
    moments.  The original uses 50,000 equal bins (100,000 in its last version), each with the mass of its normals and
    flat inside: bins of 4e-5, which is 0.4 sigma at sigma = 1e-4.  Here 2560 bins are 0.002 to 0.04 sigma wide over +-8
    sigma and the error inside one is of third order, not second; a test holds the largest error of the cdf against that
    of the uniform table.
    """

    def __init__(self, mixture: CondTruncNorm, num_bins: int = 2560) -> None:
        if num_bins < 2 or num_bins % 2:
            raise ValueError(f"num_bins={num_bins}: must be an even number, at least 2")
        self.mixture = mixture
        edges = mixture.knots(num_bins + 1)
        m0, m1, m2 = mixture.interval_moments(edges)
        m0, left = np.maximum(m0, 0.0), edges[:-1]
        super().__init__(edges, m0, m1 + left * m0, m2 + 2 * left * m1 + left**2 * m0)


def _bell(z: Array) -> Array:
    return np.exp(-0.5 * z * z) / _ROOT_2_PI


def _mass(a: Array, b: Array, tail_a: Array, tail_b: Array) -> Array:
    """The mass Phi(b) - Phi(a) from the tails Phi(-|a|), Phi(-|b|), without cancellation on one side of zero."""
    return np.where(a >= 0, tail_a - tail_b, np.where(b <= 0, tail_b - tail_a, 1 - tail_a - tail_b))
