"""Coordinates in clusters and cells: the cluster of every value, the mean of every cell, and the means written back.

A coordinate has a number ``id``, uint8: ``first + j`` in cluster j of the positive values, ``first + K + j`` of the
negative ones (K clusters of either sign).  With ``first = 1`` a zero has number 0.  Number ``i`` has ``cells[i]``
cells, one after another in a table; coordinate c is in cell ``(h * cells[i]) >> 32`` of them, h being its 32-bit hash
(``nuq.kernels.operators``, step 6): a receiver who knows the words of the key and the numbers knows all cells.

Sums are of integers, so that they do not depend on an order: a value becomes ``rint(value * scale)``, int64, with a
power of two for every number by which none of its sums can overflow, which keeps 38 binary digits of the cluster's
largest value for 10^7 coordinates.  On the CPU in C++ where it is built (``nuq/native/src/cells.cpp``), else in PyTorch
on any device: the same bits.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nuq.errors import NonFiniteError
from nuq.kernels import reference
from nuq.kernels.cpu import in_cpp
from nuq.kernels.sketches.clusters import Thresholds
from nuq.kernels.spec import Words
from nuq.native import cells as kernels

Ints = NDArray[np.int64]


def largest(x: Tensor) -> float:
    """The largest |x|, or 0 of an empty vector; NonFiniteError where a coordinate is not finite."""
    if not x.numel():
        return 0.0
    low, high = torch.aminmax(x)  # not a number where one is not
    most = max(-float(low), float(high))
    if not (math.isfinite(float(low)) and math.isfinite(most)):
        raise NonFiniteError("the gradient is not finite")
    return most


def numbers(x: Tensor, thresholds: Thresholds, first: int) -> Tensor:
    """The number of every coordinate's cluster, uint8[n], by thresholds float32[2, K - 1] (see ``clusters``)."""
    clusters = thresholds.shape[1] + 1
    assert first + 2 * clusters <= 256
    if in_cpp(x, contiguous=True):
        return torch.from_numpy(kernels.numbers(x.numpy(), thresholds, first, torch.get_num_threads()))
    above, below = (torch.bucketize(x.abs(), torch.from_numpy(side).to(x.device)) for side in thresholds)
    found = torch.where(x < 0, below + clusters, above) + first
    return (torch.where(x == 0, 0, found) if first else found).to(torch.uint8)


def counted(ids: Tensor, num_numbers: int) -> Ints:
    """The number of coordinates with each cluster number: int64[num_numbers]."""
    if in_cpp(ids, contiguous=True):
        return kernels.counted(ids.numpy(), num_numbers, torch.get_num_threads())
    return torch.bincount(ids, minlength=num_numbers).cpu().numpy()


def sum_scales(thresholds: Thresholds, most: float, first: int, num_coordinates: int) -> NDArray[np.float64]:
    """The power of two, for every number, that values are multiplied by to become integers; most: the largest |x|."""
    above = np.concatenate([thresholds, np.full((2, 1), np.inf, dtype=np.float32)], axis=1).ravel()
    tops = np.concatenate([np.zeros(first), np.minimum(above, most)])
    return np.ldexp(1.0, 62 - num_coordinates.bit_length() - np.frexp(tops)[1])


def means(x: Tensor, ids: Tensor, cells: Ints, scales: NDArray[np.float64], words: Words) -> Tensor:
    """The mean of every cell, float32[sum of cells]; 0 of an empty one. A number without cells takes part in none."""
    if in_cpp(x, contiguous=True):
        found = kernels.sums(x.numpy(), ids.numpy(), cells, scales, words, torch.get_num_threads())
        sums, counts = map(torch.from_numpy, found)
    else:
        sums, counts = _sums(x, ids, cells, scales, words)
    per_cell = torch.from_numpy(np.repeat(scales, cells)).to(x.device)
    return (sums.double() / per_cell / counts.clamp(min=1)).to(torch.float32)


def _sums(x: Tensor, ids: Tensor, cells: Ints, scales: NDArray[np.float64], words: Words) -> tuple[Tensor, Tensor]:
    total = int(cells.sum())
    sums = torch.zeros(total, dtype=torch.int64, device=x.device)
    counts = torch.zeros_like(sums)
    inside = (torch.from_numpy(cells > 0).to(x.device)[ids.long()]).nonzero().view(-1)
    indices = _indices(ids, cells, words)[inside]
    scaled = x.double() * torch.from_numpy(scales).to(x.device)[ids.long()]
    sums.index_add_(0, indices, scaled.round_().to(torch.int64)[inside])
    counts.index_add_(0, indices, torch.ones_like(indices))
    return sums, counts


def _indices(ids: Tensor, cells: Ints, words: Words) -> Tensor:
    """The index of every coordinate's cell in the table of all cells: int64[n]."""
    wide, starts = ids.long(), np.cumsum(cells) - cells
    hashes = reference.hash_bits(ids.numel(), words, ids.device).to(torch.int64) & 0xFFFFFFFF
    of_number, start = (torch.from_numpy(values).to(ids.device) for values in (cells, starts))
    return start[wide] + (hashes * of_number[wide] >> 32)


def spread(ids: Tensor, cells: Ints, table: Tensor, words: Words) -> Tensor:
    """The value of every coordinate's cell in the table, or 0 for number 0 where that has none: float32[n].

    ValueError where another number has no cells, or a number is beyond them.
    """
    if in_cpp(ids, contiguous=True):
        written = kernels.spread(ids.numpy(), cells, table.contiguous().numpy(), words, torch.get_num_threads())
        if written is not None:
            return torch.from_numpy(written)
    elif not ids.numel() or int(ids.max()) < cells.size:
        empty = torch.from_numpy(cells == 0).to(ids.device)[ids.long()]
        if not bool((empty & (ids > 0)).any()):
            padded = torch.cat([table, table.new_zeros(1)])
            return torch.where(empty, 0.0, padded[_indices(ids, cells, words)])
    raise ValueError("a cluster without cells: damaged")


def power(values: Tensor) -> float:
    """The normal power of two that brings the largest value below 2^15, so that float16 does not overflow."""
    most = float(values.abs().max()) if values.numel() else 0.0
    return math.ldexp(1.0, max(math.frexp(most)[1] - 15, -126)) if most else 2.0**-126
