"""The selection of the coordinates that a sparse method sends: indices, ascending, int32[k].

On the CPU in C++ where it is built (``nuq/native/src/select.cpp``), else in PyTorch on any device: the same indices.
Ties go to the lowest indices.  Every function raises NonFiniteError where a coordinate is not finite.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import torch
from torch import Tensor

from nuq import native
from nuq.errors import NonFiniteError
from nuq.kernels import reference
from nuq.kernels.cpu import in_cpp
from nuq.kernels.spec import Words
from nuq.native import select as kernels

SMALLEST = 2.0**-149  # float32 that is not zero
SAMPLE_SHARE = 100  # one coordinate in so many is sampled, or more where that would catch fewer than two that are sent
LOWERED_BY, LOWERED_AT_MOST = 0.8, 10  # DGC's adaptation of a sampled threshold
_NOT_FINITE = 0x7F800000  # the bits of infinity


def num_kept(num_coordinates: int, ratio: float) -> int:
    """The number kept: max(1, ceil(ratio * n)), 0 of none; exact for the decimal form of ``ratio``."""
    return min(num_coordinates, max(1, math.ceil(Fraction(repr(float(ratio))) * num_coordinates)))


@dataclass(frozen=True)
class Share:
    """The share of every bucket's coordinates that travels."""

    num_coordinates: int
    bucket_size: int
    k: int  # of a whole bucket
    k_last: int  # of the last bucket, which may be shorter

    @classmethod
    def of(cls, num_coordinates: int, bucket_size: int, ratio: float) -> Share:
        """The share of a vector's buckets. bucket_size: 0 for one bucket of all."""
        size = min(bucket_size or num_coordinates, num_coordinates) or 1
        last = num_coordinates - (-(-num_coordinates // size) - 1) * size if num_coordinates else 0
        return cls(num_coordinates, size, num_kept(size, ratio), num_kept(last, ratio))

    @property
    def num_buckets(self) -> int:
        return -(-self.num_coordinates // self.bucket_size)

    @property
    def total(self) -> int:
        return (self.num_buckets - 1) * self.k + self.k_last if self.num_coordinates else 0


def top(x: Tensor, share: Share) -> Tensor:
    """The coordinates with the largest |x| of every bucket. x: float32[n], contiguous."""
    if share.total == x.numel():
        check_finite(x)
        return torch.arange(x.numel(), dtype=torch.int32, device=x.device)
    if in_cpp(x, contiguous=True):
        indices = kernels.top(x.numpy(), share.bucket_size, share.k, share.k_last, share.total, torch.get_num_threads())
        return _finite(indices)
    check_finite(x)
    return _largest_keys(_magnitudes(x), share)


def chosen(share: Share, words: Words, device: torch.device) -> Tensor:
    """The coordinates of every bucket with the smallest random numbers (step 6): every set of k is as likely."""
    n = share.num_coordinates
    if share.total == n:
        return torch.arange(n, dtype=torch.int32, device=device)
    if device.type == "cpu" and native.library() is not None:
        size, k, k_last, total = share.bucket_size, share.k, share.k_last, share.total
        return torch.from_numpy(kernels.chosen(n, size, k, k_last, total, words, torch.get_num_threads()))
    return _largest_keys(~reference.hash_bits(n, words, device).to(torch.int64) & 0xFFFFFFFF, share)


def at_least(x: Tensor, threshold: float) -> Tensor:
    """The coordinates with |x| >= threshold, which is a number of 64 bits, not negative."""
    nearest = torch.tensor(threshold, dtype=torch.float32, device="cpu")
    if float(nearest) < threshold:
        nearest = torch.nextafter(nearest, torch.full_like(nearest, math.inf))
    return _at_least_bits(x, int(nearest.view(torch.int32)))


def half_of_largest(x: Tensor, bucket_size: int) -> Tensor:
    """The coordinates with 2|x| >= the largest |x| of their bucket (size 0: one of all); none of a bucket of zeros."""
    if not x.numel():
        return torch.empty(0, dtype=torch.int32, device=x.device)
    size = min(bucket_size or x.numel(), x.numel())
    if in_cpp(x, contiguous=True):
        return _finite(kernels.half_of_largest(x.numpy(), size, torch.get_num_threads()))
    check_finite(x)
    rows = reference.bucketed(x, size).abs().double()
    most = rows.amax(dim=1, keepdim=True)
    return ((2 * rows >= most) & (most > 0)).reshape(-1)[: x.numel()].nonzero().view(-1).to(torch.int32)


def sampled(x: Tensor, ratio: float) -> Tensor:
    """About the k = max(1, ceil(ratio n)) largest |x|, at most k, by the threshold of a strided sample.

    The threshold is that of DGC, Section 3.  The sample takes one coordinate in 100 or more; the threshold is its own
    top-k's smallest.  Where fewer than .8 k coordinates reach it, it is lowered by .8, at most ten times; where more
    than k do, the largest k of them are sent. At least one is: the largest.

    Differences from DGC's code: the sample begins at a fixed place, not at a random one, so that the message depends on
    the gradient alone; the threshold is never raised, since the exact selection among the survivors costs less than
    another pass; and among survivors up to 1.3 k it takes the largest, not the first, k.
    """
    n, k = x.numel(), num_kept(x.numel(), ratio)
    stride = n // max(-(-n // SAMPLE_SHARE), math.ceil(2 / ratio), 1)
    if stride < 2:
        return top(x, Share.of(n, 0, ratio))
    stride -= 1 - stride % 2  # odd: rows of a power of two are sampled at all their indices
    sample = x[stride // 2 :: stride].contiguous()
    threshold = sample[top(sample, Share.of(sample.numel(), 0, ratio)).long()].abs().min()
    for _ in range(LOWERED_AT_MOST + 1):
        indices = _at_least_bits(x, int(threshold.view(torch.int32)))
        if len(indices) >= LOWERED_BY * k:
            break
        threshold = threshold * LOWERED_BY
    if len(indices) <= k:
        return indices
    if in_cpp(x, contiguous=True):
        return torch.from_numpy(kernels.top_of(x.numpy(), indices.numpy(), k))
    return indices[_largest_keys(_magnitudes(x[indices.long()]), Share(len(indices), len(indices), k, k)).long()]


def scatter(indices: Tensor, values: Tensor, total: Tensor, *, accumulate: bool) -> None:
    """Write or add values at indices: total[indices] += values, or =.

    indices: int32[k], all different, within the total; float32[k], float32[n].
    """
    if in_cpp(total, contiguous=True):
        kernels.scatter(indices.numpy(), values.contiguous().numpy(), total.numpy(), accumulate)
    elif accumulate:
        total[indices.long()] += values
    else:
        total[indices.long()] = values


def check_finite(x: Tensor) -> None:
    """Check a vector: NonFiniteError where a coordinate is not finite."""
    if math.isfinite(float(x.sum())):  # proves it; the sum of finite ones may still overflow
        return
    if in_cpp(x, contiguous=True):
        _finite(kernels.at_least(x.numpy(), _NOT_FINITE, torch.get_num_threads()))
    elif not bool(torch.isfinite(x).all()):
        raise NonFiniteError("the gradient is not finite")


def _finite(indices: kernels.Indices | None) -> Tensor:
    if indices is None:
        raise NonFiniteError("the gradient is not finite")
    return torch.from_numpy(indices)


def _magnitudes(x: Tensor) -> Tensor:
    """Integer keys int64 that rise with |x|: the bits of the float32."""
    return x.view(torch.int32).to(torch.int64) & 0x7FFFFFFF


def _at_least_bits(x: Tensor, bits: int) -> Tensor:
    if in_cpp(x, contiguous=True):
        return _finite(kernels.at_least(x.numpy(), bits, torch.get_num_threads()))
    check_finite(x)
    return (_magnitudes(x) >= bits).nonzero().view(-1).to(torch.int32)


def _largest_keys(keys: Tensor, share: Share) -> Tensor:
    """The indices of the largest keys int64[n] of every bucket."""
    if not share.num_coordinates:
        return torch.empty(0, dtype=torch.int32, device=keys.device)
    padding = share.num_buckets * share.bucket_size - share.num_coordinates
    rows = torch.nn.functional.pad(keys, (0, padding), value=-1).view(share.num_buckets, share.bucket_size)
    order = torch.argsort(rows, dim=1, descending=True, stable=True)
    order += torch.arange(share.num_buckets, dtype=torch.int64, device=keys.device)[:, None] * share.bucket_size
    return torch.cat([order[:-1, : share.k].reshape(-1), order[-1, : share.k_last]]).sort().values.to(torch.int32)
