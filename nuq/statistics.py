r"""What an update of the levels needs to know about the gradients, in a fixed-size summary per worker.

For every bucket of a sampled gradient: its L2 (or Linf) norm, and mean and unbiased standard deviation of the
normalised coordinates.  Kept are

- the ``num_components`` buckets of largest norm (the mixture CondTruncNormHist; the original's ``snap_online_mean``),
- the sums behind one normal: mean = sum of coordinates / n, sigma^2 = sum of within-bucket var * (len - 1) / n,
- a histogram of the normalised coordinates, weighted by norm^2 (the weight that the quantization error
  ``norm^2 * Psi`` gives them), in bins that are fine around zero: ``sinh(10 t) / sinh(10)``, t uniform in [-1, 1].

Tail buckets count like the rest; buckets of norm zero say nothing and are left out.  Summaries of several workers are
merged in worker order, never by ``all_reduce``, so that every split of workers over processes gives the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from nuq import ops
from nuq.distributions import CondTruncNorm, CondTruncNormHist, Distribution, Histogram, TruncNorm

NUM_BINS = 2048
SAMPLED_BUCKETS = 64
_STRETCH = 10.0

Array = np.ndarray


def bin_edges() -> Array:
    """float64[NUM_BINS + 1] from -1 to 1, exactly symmetric."""
    half = np.sinh(np.linspace(0.0, _STRETCH, NUM_BINS // 2 + 1)) / np.sinh(_STRETCH)
    half[-1] = 1.0
    return np.concatenate([-half[:0:-1], half])


def _histogram(r: Array, weights: Array) -> Array:
    """float64[3, NUM_BINS]: per bin the sums of weight, weight * r, weight * r^2."""
    place = (np.arcsinh(r * np.sinh(_STRETCH)) / _STRETCH + 1.0) * (NUM_BINS / 2)
    index = np.clip(place.astype(np.int64), 0, NUM_BINS - 1)
    return np.stack([np.bincount(index, weights * r**order, NUM_BINS) for order in range(3)])


@dataclass
class Statistics:
    """components: float64[k, 3] of (norm, mean, sigma), largest norm first; totals: float64[3] of sum of coordinates,
    sum of var * (len - 1), number of coordinates; histogram: float64[3, NUM_BINS]."""

    num_components: int
    components: Array
    totals: Array
    histogram: Array

    @classmethod
    def empty(cls, num_components: int) -> Statistics:
        return cls(num_components, np.zeros((0, 3)), np.zeros(3), np.zeros((3, NUM_BINS)))

    def add(self, vectors: Sequence[Tensor], bucket_size: int, norm: str) -> None:
        """Take in one gradient, as the vectors that are cut into buckets."""
        for vector in vectors:
            if vector.numel():
                self._add_vector(vector, bucket_size, norm)

    def _add_vector(self, vector: Tensor, bucket_size: int, norm: str) -> None:
        buckets = ops.bucketed(vector, bucket_size)
        norms = ops.bucket_norms(buckets, norm)
        lengths = torch.full((len(norms),), buckets.shape[1], dtype=torch.float64, device=norms.device)
        lengths[-1] = vector.numel() - (len(norms) - 1) * buckets.shape[1]
        r = ops.normalized(buckets, norms).to(torch.float64)
        sums, squares = ops.tree_sum(r), ops.tree_sum(r.square())
        means = sums / lengths
        spread = (squares - sums * means).clamp_min(0.0)  # sum of squared deviations = var * (len - 1)
        sigmas = (spread / (lengths - 1).clamp_min(1.0)).sqrt()

        used = norms > 0
        rows = torch.stack([norms.to(torch.float64), means, sigmas], dim=1)[used].cpu().numpy()
        self._keep(rows)
        kept = torch.stack([sums, spread, lengths], dim=1)[used].cpu().numpy()
        self.totals += kept.sum(axis=0) if len(kept) else 0.0

        stride = max(1, len(norms) // SAMPLED_BUCKETS)
        sample = r[::stride].cpu().numpy()
        standing_for = len(norms) / len(sample)  # buckets behind each sampled one: large vectors count in full
        inside = np.arange(sample.shape[1]) < lengths[::stride].cpu().numpy()[:, None]
        energy = standing_for * norms[::stride].to(torch.float64).cpu().numpy() ** 2
        weights = np.repeat(energy[:, None], sample.shape[1], axis=1)
        self.histogram += _histogram(sample[inside], weights[inside])

    def _keep(self, rows: Array) -> None:
        rows = np.concatenate([self.components, rows])
        order = np.argsort(-rows[:, 0], kind="stable")[: self.num_components]
        self.components = rows[order]

    def merge(self, other: Statistics) -> None:
        self._keep(other.components)
        self.totals = self.totals + other.totals
        self.histogram = self.histogram + other.histogram

    # --- as one array of fixed size, to travel and to be saved ---

    def to_array(self) -> Array:
        padded = np.zeros((self.num_components, 3))
        padded[: len(self.components)] = self.components
        return np.concatenate([[len(self.components)], padded.ravel(), self.totals, self.histogram.ravel()])

    @classmethod
    def from_array(cls, array: Array, num_components: int) -> Statistics:
        count, rest = int(array[0]), array[1:]
        components, rest = rest[: 3 * num_components].reshape(-1, 3)[:count], rest[3 * num_components :]
        return cls(num_components, components.copy(), rest[:3].copy(), rest[3:].reshape(3, NUM_BINS).copy())

    # --- as the law of the normalised coordinates ---

    @property
    def mean(self) -> float:
        return float(self.totals[0] / self.totals[2])

    @property
    def sigma(self) -> float:
        return float(np.sqrt(self.totals[1] / self.totals[2]))

    def fit(self, kind: str, weights: str = "norm2") -> Distribution:
        """kind: normal, mixture or histogram (see ``nuq.registry.Adaptive.fit``); weights of the mixture: norm2 or norm.

        ValueError where every sampled bucket had norm zero.
        """
        if self.totals[2] == 0:
            raise ValueError("every sampled bucket has norm zero: there is nothing to fit levels to")
        if kind == "normal":
            return TruncNorm(self.mean, self.sigma)
        if kind == "mixture":
            norms, means, sigmas = self.components.T
            norms = norms / norms.max()
            return CondTruncNormHist(CondTruncNorm(means, sigmas, norms**2 if weights == "norm2" else norms))
        if kind == "histogram":
            return Histogram(bin_edges(), *(self.histogram / self.histogram[0].sum()))
        raise ValueError(f"fit={kind!r}: must be one of normal, mixture, histogram")
