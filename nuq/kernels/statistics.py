r"""Statistics of the gradients for an update of the levels, in a summary of fixed size per worker.

- A histogram of the normalised coordinates, weighted by norm^2 (the weight that the quantization error ``norm^2 * Psi``
  gives them), in 64 bins an octave: what ``fit=histogram`` takes.  A sample of some 2^14 coordinates a vector, of some
  64 buckets, is enough.
- Where moments are asked for (``fit=normal|mixture``), for every bucket its norm, and mean and unbiased standard
  deviation of the normalised coordinates.  Kept are the ``num_components`` buckets of largest norm (the mixture
  CondTruncNormHist; the original's ``snap_online_mean``) and the sums behind one normal: mean = sum of coordinates / n,
  sigma^2 = sum of within-bucket var * (len - 1) / n.

Tail buckets count like the rest; buckets of norm zero say nothing and are left out.  Summaries of several workers are
merged in worker order, never by ``all_reduce``, so that every split of workers over processes gives the same bits.

For levels for the mean (``nuq.levels.mean_levels``) they also tell how far workers' scales agree: sampled buckets'
scales are added with random signs, the same ones for all workers, to 256 numbers, whose products between two workers
are in expectation the products of the scales in the same bucket (AMS sketch: Alon, Matias and Szegedy, STOC 1996).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from nuq.kernels import operators, reference, spec
from nuq.kernels.cpu import in_cpp
from nuq.kernels.host import numpy_of, square_root
from nuq.kernels.spec import Words
from nuq.levels.truncated_normals import CondTruncNorm, CondTruncNormHist, Distribution, Histogram, TruncNorm
from nuq.native import statistics as cpu_statistics

SAMPLED_BUCKETS = 64
SAMPLED_COORDINATES = 1 << 14
_OCTAVES, _LOG_BINS = 20, 6  # 2^6 bins in each octave from 2^-20 to 1, and one bin below
_SIDE = (_OCTAVES << _LOG_BINS) + 1
_LOWEST = (127 - _OCTAVES) << _LOG_BINS  # the leading bits of 2^-20 as a float32
NUM_BINS = 2 * _SIDE
_SKETCHED = 256

Array = np.ndarray


def bin_edges() -> Array:
    """float64[NUM_BINS + 1] from -1 to 1, exactly symmetric: 0, then 2^e (1 + i/64) for e = -20 .. -1, then 1."""
    octaves = 2.0 ** np.arange(-_OCTAVES, 0)[:, None] * (1 + np.arange(1 << _LOG_BINS) / (1 << _LOG_BINS))
    half = np.concatenate([[0.0], octaves.ravel(), [1.0]])
    return np.concatenate([-half[:0:-1], half])


def _histogram(r: Array, weights: Array) -> Array:
    """The sums per bin of weight, weight * r, weight * r^2: float64[3, NUM_BINS].

    r: float32[n] in [-1, 1].

    The bits of a float32 are its logarithm, so a bin is found by a shift: exactly, and alike on every machine.
    """
    place = (np.abs(r).view(np.int32) >> (23 - _LOG_BINS)) - _LOWEST + 1
    place = np.clip(place, 0, _SIDE - 1)
    index = np.where(r < 0, _SIDE - 1 - place, _SIDE + place)
    wide = r.astype(np.float64)
    moment = weights * wide
    return np.stack([np.bincount(index, terms, NUM_BINS) for terms in (weights, moment, moment * wide)])


def _in_order(terms: Array) -> float:
    """The sum of the terms, added one after another (NumPy's own adds in pairs)."""
    return float(np.bincount(np.zeros(len(terms), dtype=np.int64), terms, 1)[0])


@dataclass
class Statistics:
    """The summary of the gradients seen so far by one worker.

    components: float64[k, 3] of (norm, mean, sigma), largest norm first; totals: float64[3] of sum of coordinates, sum
    of var * (len - 1), number of coordinates; histogram: float64[3, NUM_BINS]; tops: float64[2], the weight of the
    histogram and the sum of weight * top / scale (``nuq.kernels.operators``, step 2; 1 but under quantile).

    sketch: float64[256] of the scales, or empty where nobody asks for their agreement.  workers, squares: how many
    workers' summaries were merged, and the sum of their sketches' squared lengths; they do not travel.
    """

    num_components: int
    components: Array
    totals: Array
    histogram: Array
    tops: Array
    sketch: Array
    workers: int = 0
    squares: float = 0.0

    @classmethod
    def empty(cls, num_components: int, *, sketched: bool = False) -> Statistics:
        sketch = np.zeros(_SKETCHED * sketched)
        return cls(num_components, np.zeros((0, 3)), np.zeros(3), np.zeros((3, NUM_BINS)), np.zeros(2), sketch)

    def add(
        self, vectors: Sequence[Tensor], bucket_size: int, norm: str, *, moments: bool = True, signs: Words = (0, 0)
    ) -> None:
        """Add one gradient to the statistics, as the vectors that are cut into buckets.

        moments: also what normal and mixture need.  signs: the words behind the sketch's random signs, the same for all
        workers and others for each vector and step.
        """
        for vector in vectors:
            if vector.numel():
                self._add_sample(vector, bucket_size, norm, signs)
                if moments:
                    self._add_moments(vector, bucket_size, norm)

    def _add_sample(self, vector: Tensor, bucket_size: int, norm: str, signs: Words) -> None:
        """Sample every so many buckets, and of them every so many coordinates: an odd number, unlike layers' shapes."""
        n, count = vector.numel(), spec.num_buckets(vector.numel(), bucket_size)
        stride = max(1, count // SAMPLED_BUCKETS)
        taken = range(0, count, stride)
        if stride > 1:  # whole buckets side by side, so that one call gives their scales
            vector = torch.cat([vector[bucket * bucket_size : min((bucket + 1) * bucket_size, n)] for bucket in taken])
        pairs = operators.bucket_scales(vector, bucket_size, norm).view(-1, spec.scales_per_bucket(norm))
        scales, tops = pairs[:, 0], pairs[:, -1]
        if self.sketch.size:
            drawn = np.random.default_rng(signs).integers(2 * _SKETCHED, size=len(scales))
            terms = numpy_of(scales, "statistics") * (drawn % 2 - 0.5) * math.sqrt(n / len(scales))
            self.sketch += np.bincount(drawn // 2, terms, _SKETCHED)
        every = vector.numel() // SAMPLED_COORDINATES | 1
        weight_each = n / -(-vector.numel() // every)  # a coordinate stands for those that were passed over, too
        if in_cpp(vector):
            vector = vector.to(torch.float32).contiguous()
            given = (vector.data_ptr(), vector.numel(), bucket_size, every, pairs.contiguous().numpy(), weight_each)
            sums, tops = cpu_statistics.histogram(*given, log_bins=_LOG_BINS, lowest=_LOWEST, side=_SIDE)
        else:
            bucket = torch.arange(0, vector.numel(), every, dtype=torch.int64, device=vector.device) // bucket_size
            used = scales[bucket] > 0
            scale = scales[bucket][used]
            r = numpy_of((vector[::every][used].to(torch.float32) / scale).clamp(-1.0, 1.0), "statistics")
            weights = numpy_of(scale, "statistics").astype(np.float64) ** 2 * weight_each
            top = numpy_of(tops[bucket][used] / scale, "statistics").astype(np.float64)
            sums, tops = _histogram(r, weights), np.array([_in_order(weights), _in_order(weights * top)])
        self.histogram += sums
        self.tops += tops

    def _add_moments(self, vector: Tensor, bucket_size: int, norm: str) -> None:
        scales = operators.bucket_scales(vector, bucket_size, norm)
        r, _ = reference.normalized(vector, scales, bucket_size)
        buckets = reference.bucketed(r, bucket_size).to(torch.float64)
        lengths = reference.bucket_lengths(vector.numel(), bucket_size, vector.device)
        sums, squares = reference.tree_sum(buckets), reference.tree_sum(buckets.square())
        means = sums / lengths
        spread = (squares - sums * means).clamp_min(0.0)  # sum of squared deviations = var * (len - 1)
        sigmas = square_root(spread / (lengths - 1).clamp_min(1.0))

        norms = scales[:: spec.scales_per_bucket(norm)]
        used = norms > 0
        rows = torch.stack([norms.to(torch.float64), means.clamp(-1.0, 1.0), sigmas], dim=1)[used]
        self._keep(numpy_of(rows, "statistics"))
        kept = numpy_of(torch.stack([sums, spread, lengths], dim=1)[used], "statistics")
        self.totals += kept.sum(axis=0) if len(kept) else 0.0

    def _keep(self, rows: Array) -> None:
        rows = np.concatenate([self.components, rows])
        order = np.argsort(-rows[:, 0], kind="stable")[: self.num_components]
        self.components = rows[order]

    def merge(self, other: Statistics) -> None:
        self._keep(other.components)
        self.totals = self.totals + other.totals
        self.histogram = self.histogram + other.histogram
        self.tops = self.tops + other.tops
        self.sketch = self.sketch + other.sketch
        self.squares += float(other.sketch @ other.sketch)
        self.workers += 1

    # --- as one array of fixed size, to travel and to be saved ---

    def to_array(self) -> Array:
        padded = np.zeros((self.num_components, 3))
        padded[: len(self.components)] = self.components
        sums = [self.totals, self.tops, self.histogram.ravel(), self.sketch]
        return np.concatenate([[len(self.components)], padded.ravel(), *sums])

    @classmethod
    def from_array(cls, array: Array, num_components: int) -> Statistics:
        count, rest = int(array[0]), array[1:]
        components, rest = rest[: 3 * num_components].reshape(-1, 3)[:count], rest[3 * num_components :]
        totals, tops, bins, sketch = (part.copy() for part in np.split(rest, [3, 5, 5 + 3 * NUM_BINS]))
        return cls(num_components, components.copy(), totals, bins.reshape(3, NUM_BINS), tops, sketch)

    def empty_of(self, kind: str) -> bool:
        """Whether there is nothing to fit a distribution of this kind to: every bucket so far had norm zero."""
        return not self.histogram[0].any() if kind == "histogram" else self.totals[2] == 0

    # --- as the distribution of the normalised coordinates ---

    @property
    def mean(self) -> float:
        return float(self.totals[0] / self.totals[2])

    @property
    def sigma(self) -> float:
        return float(np.sqrt(self.totals[1] / self.totals[2]))

    @property
    def reach(self) -> float:
        """The mean of top / scale, weighted like the histogram, moved up to a bin's edge; 1 but under quantile."""
        if not self.tops[0]:
            return 1.0
        mean, edges = self.tops[1] / self.tops[0], bin_edges()[_SIDE:]
        return float(edges[min(np.searchsorted(edges, mean * (1 - 1e-9)), _SIDE)])

    @property
    def agreement(self) -> float:
        """The mean of s s' over that of s^2, for the scales s, s' of two workers in the same bucket; 0 for one worker.

        It is estimated to about .1 for two workers that do not agree; those that do are found out exactly.
        """
        if self.workers < 2 or not self.squares:
            return 0.0
        products = float(self.sketch @ self.sketch) - self.squares
        return min(max(products / ((self.workers - 1) * self.squares), 0.0), 1.0)

    def fit(self, kind: str, weights: str = "norm2", *, reach: float = 1.0) -> Distribution:
        """Fit the distribution of r / reach, clamped to [-1, 1].

        kind: normal, mixture or histogram (``Adaptive.fit`` in nuq.settings).  weights: norm2 or norm, of the mixture.
        reach: an edge of the histogram.  ValueError where every sampled bucket had norm zero.
        """
        if self.empty_of(kind):
            raise ValueError("every sampled bucket has norm zero: there is nothing to fit levels to")
        if kind == "normal":
            return TruncNorm(np.clip(self.mean / reach, -1.0, 1.0), self.sigma / reach)
        if kind == "mixture":
            norms, means, sigmas = self.components.T
            norms = norms / norms.max()
            each = norms**2 if weights == "norm2" else norms
            return CondTruncNormHist(CondTruncNorm(np.clip(means / reach, -1.0, 1.0), sigmas / reach, each))
        if kind == "histogram":
            return _clamped(self.histogram / self.histogram[0].sum(), reach)
        raise ValueError(f"fit={kind!r}: must be one of normal, mixture, histogram")


def _clamped(sums: Array, reach: float) -> Histogram:
    """The histogram of r / reach; what lies beyond 1 is put there."""
    edges = bin_edges() / reach
    inside = slice(np.searchsorted(edges, -1.0), np.searchsorted(edges, 1.0))
    scaled = sums / np.array([[1.0], [reach], [reach**2]])
    kept = scaled[:, inside].copy()
    for end, beyond in ((0, sums[0, : inside.start].sum()), (-1, sums[0, inside.stop :].sum())):
        kept[:, end] += beyond * np.array([1.0, 1.0 if end else -1.0, 1.0])
    return Histogram(edges[inside.start : inside.stop + 1], *kept)
