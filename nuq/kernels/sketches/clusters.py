"""The thresholds that cut values into clusters: on the magnitudes of either sign, found from a sample.

Thresholds are float32[2, clusters - 1], rising, for coordinates above and below zero; cluster ``j`` of a sign holds the
magnitudes in ``(t[j - 1], t[j]]``, the last one all above.  A sign without a value in the sample has thresholds of
infinity: one cluster.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nuq.kernels import reference
from nuq.kernels.host import numpy_of
from nuq.kernels.spec import Words

MAX_SWEEPS = 30
Thresholds = NDArray[np.float32]
_Values = NDArray[np.float64]


def sample(x: Tensor, size: int, words: Words) -> NDArray[np.float32]:
    """A sample of one coordinate from each of ``size`` equal parts of x, at an index drawn from words; or all of x."""
    n = x.numel()
    if n > size:
        drawn = reference.uniforms(size, words).double()
        place = torch.arange(size, dtype=torch.float64, device="cpu") + drawn
        indices = (place * (n / size)).long().clamp_(max=n - 1)
        x = x.index_select(0, indices.to(x.device))
    return numpy_of(x, "sample")


def trained(values: NDArray[np.float32], clusters: int, percentile: float) -> Thresholds:
    """The thresholds by k-means on the magnitudes of either sign, what lies above the percentile apart.

    Lloyd's sweeps from quantiles, until nothing moves.

    values: finite.  percentile: in (0, 100]; the outliers beyond it are the last of the ``clusters``; with 100 all are
    k-means'.
    """
    return np.stack([_trained(np.sort(side), clusters, percentile) for side in _sides(values)])


def quantiles(values: NDArray[np.float32], buckets: int) -> Thresholds:
    """The thresholds that part the sample's magnitudes of either sign into ``buckets`` of equally many values."""
    return np.stack([_quantiles(np.sort(side), buckets) for side in _sides(values)])


def _sides(values: NDArray[np.float32]) -> tuple[_Values, _Values]:
    """The magnitudes above and below zero."""
    wide = values.astype(np.float64)
    return wide[wide > 0], -wide[wide < 0]


def _quantiles(rising: _Values, buckets: int) -> Thresholds:
    if not rising.size:
        return np.full(buckets - 1, np.inf, dtype=np.float32)
    return rising[(np.arange(1, buckets) * rising.size - 1) // buckets].astype(np.float32)


def _trained(rising: _Values, clusters: int, percentile: float) -> Thresholds:
    if not rising.size:
        return np.full(clusters - 1, np.inf, dtype=np.float32)
    if percentile >= 100:
        return _k_means(rising, clusters).astype(np.float32)
    kept = max(1, int(rising.size * percentile / 100))
    return np.append(_k_means(rising[:kept], clusters - 1), rising[kept - 1]).astype(np.float32)


def _k_means(rising: _Values, count: int) -> _Values:
    """The midpoints float64[count - 1] between means of the values nearest to each; one without values stays."""
    size = rising.size
    unit = rising[-1]  # sums of squares of nothing: but sums, of values up to 1e38, in units of the largest
    sums = np.concatenate([[0.0], np.cumsum(rising / unit)])
    ends = np.arange(count + 1) * size // count
    means = rising[np.minimum((ends[:-1] + ends[1:]) // 2, size - 1)] / unit
    for _ in range(MAX_SWEEPS + 1):
        middles = (means[:-1] + means[1:]) / 2
        now = np.concatenate([[0], np.searchsorted(rising, middles * unit, side="right"), [size]])
        counts = np.diff(now)
        moved = np.where(counts > 0, (sums[now[1:]] - sums[now[:-1]]) / np.maximum(counts, 1), means)
        moved.sort()  # rounding, and a mean that stays, might put them out of order
        if np.array_equal(moved, means):
            break
        means = moved
    return (means[:-1] + means[1:]) / 2 * unit
