r"""SmaQ's codes: 6 bits near the mean, 8 bits beyond one standard deviation, and the specification of their bits.

Three implementations give the same bytes: plain PyTorch (``nuq.kernels.smaq_reference``: any device), C++
(``nuq/native``: CPU) and Triton (``nuq/kernels/cuda``: GPU).  A vector of n coordinates, widened to float32, is cut
into blocks of 4096.

1. Statistics in float64, of the nonzeros: sums of ``x - pivot`` and of its square, in each block by 16 lanes
   (``i mod 16``) in turn, the lanes and then the blocks (padded with zeros to a power of two) by halving; lowest,
   highest, number of zeros.  The pivot is 0, and once more the float32 mean where the variance is below
   ``mean^2 / 2^20``, which cancellation would spoil.
2. The zeros are masked, if masks are wanted, where they outnumber ``n / bits_inlier``, and where all nonzeros have one
   sign.  Mean, standard deviation, lowest and highest are those of the nonzeros then, else of all; the former two of a
   sample where one is asked for and its coordinates differ; both float32, the deviation at least ``2^-126``.  Where
   lowest = highest nothing but the mask is coded.
3. With ``factor`` = 1/4 where some ``|x|`` reaches ``2^126``, else 1: ``z = (x factor - mean factor) / (std factor)``,
   the division as a product with the float32 inverse.  ``|z| > threshold`` makes an outlier.
   ``q = min(|z| (S - 1) / threshold, S - 1)`` with ``S = 2^(bits_inlier - 2)``, of outliers
   ``q = min((|z| - threshold) (T - 1) / (limit - threshold), T - 1)`` with ``T = 2^(bits_outlier - 2)``.
4. ``k = (int(q 2^24) + (h >> 8)) >> 24``, ``h`` as in ``nuq.kernels.spec``, step 6, of index ``4096 block + j`` for the
   block's j-th coordinate that has a code; to the nearest with ``2^23`` in place of ``h >> 8``.  Of workers that round
   together h is turned round (``2^32 - 1 - h``) where z is negative, and grows as its number falls; behind masks of
   zeros that differ they have no coordinate in common, and round as if by themselves.
5. The block's bytes: the mask (a bit for every coordinate), if there is one; a class bit for every code, 1: outlier;
   the low part of every code, which is the low ``bits_inlier - 2`` bits of k and the sign of z above them; of outliers
   alone the other ``bits_outlier - bits_inlier`` bits of k.  Each of the four is padded with zero bits to whole bytes;
   lowest bits first.
6. Decoded: ``mean +- level std`` in float64, clamped to lowest .. highest, to float32; masked zeros are exactly zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nuq.errors import NonFiniteError
from nuq.kernels import reference, smaq_reference
from nuq.kernels.cpu import in_cpp
from nuq.kernels.cuda import smaq_operators
from nuq.kernels.host import numpy_of
from nuq.kernels.spec import ALONE, DTYPES, Among, Key, Words, num_buckets
from nuq.native import smaq as compiled

BLOCK = smaq_reference.BLOCK
_LARGE, _LEAST_STD = 2.0**126, 2.0**-126


@dataclass(frozen=True)
class Codes:
    """The codes that the settings ask for; threshold and limit are float32."""

    bits_inlier: int
    bits_outlier: int
    threshold: float
    limit: float

    @property
    def low_bits(self) -> int:
        return self.bits_inlier - 1

    @property
    def extra_bits(self) -> int:
        return self.bits_outlier - self.bits_inlier

    @property
    def small_steps(self) -> int:
        return (1 << (self.bits_inlier - 2)) - 1

    @property
    def large_steps(self) -> int:
        return (1 << (self.bits_outlier - 2)) - 1


@dataclass(frozen=True)
class TensorStatistics:
    """The units of a tensor's numbers: all float32, as Python floats."""

    mean: float
    std: float
    lowest: float
    highest: float

    @property
    def constant(self) -> bool:
        return self.lowest == self.highest


def _portable(vector: Tensor) -> ModuleType:
    """The module that runs where C++ does not."""
    return smaq_operators if vector.is_cuda else smaq_reference


def _measure(vector: Tensor, pivot: float) -> tuple[float, float, int, float, float]:
    """Measure a vector by step 1: sum, squares, zeros, lowest, highest."""
    if not in_cpp(vector):
        return _portable(vector).measure(vector, pivot)
    return compiled.measure(_job(vector), pivot, torch.get_num_threads())


def _job(vector: Tensor, **fields: Any) -> compiled.Job:
    assert vector.is_contiguous()
    return compiled.Job(vector=vector.data_ptr(), size=vector.numel(), dtype=DTYPES.index(vector.dtype), **fields)


def _float32(value: float) -> float:
    return float(np.float32(value))


def measured(
    vector: Tensor, bits_inlier: int, samples: int, words: Words, *, masks: bool = True
) -> tuple[TensorStatistics, bool]:
    """The units of steps 1 and 2 of a nonempty vector, and whether zeros are masked; NonFiniteError."""
    n = vector.numel()
    total, squares, zeros, lowest, highest = _measure(vector, 0.0)
    if not math.isfinite(squares):
        raise NonFiniteError("the tensor is not finite")
    if zeros == n:
        return TensorStatistics(0.0, 0.0, 0.0, 0.0), False
    masked = masks and zeros > 0 and (zeros * bits_inlier > n or lowest > 0 or highest < 0)
    if zeros and not masked:
        lowest, highest = min(lowest, 0.0), max(highest, 0.0)
    if lowest == highest:
        return TensorStatistics(lowest, 0.0, lowest, highest), masked
    count = n - zeros if masked else n
    mean, variance = _moments(total, squares, count, 0.0, 0)
    if variance < mean * mean * 2.0**-20:
        pivot = _float32(mean)
        total, squares, *_ = _measure(vector, pivot)
        mean, variance = _moments(total, squares, count, pivot, 0 if masked else zeros)
    if samples:
        mean, variance = _sampled(vector, samples, masked, words) or (mean, variance)
    return TensorStatistics(_float32(mean), max(_float32(math.sqrt(variance)), _LEAST_STD), lowest, highest), masked


def _moments(total: float, squares: float, count: int, pivot: float, zeros: int) -> tuple[float, float]:
    """The mean and variance from the sums of x - pivot and its square, to which so many zeros are still to be added."""
    total, squares = total - zeros * pivot, squares + zeros * pivot * pivot
    mean = total / count
    return pivot + mean, max(squares / count - mean * mean, 0.0)


def _sampled(vector: Tensor, samples: int, masked: bool, words: Words) -> tuple[float, float] | None:
    """The mean and variance of coordinates at random indices, without masked zeros; None where all are alike."""
    hashes = reference.hash_bits(samples, Key(*words, 0, "samples")).to(torch.int64) & 0xFFFFFFFF
    taken = numpy_of(vector[((hashes * vector.numel()) >> 32).to(vector.device)].to(torch.float64), "sample").tolist()
    taken = [value for value in taken if value or not masked]
    if len(set(taken)) < 2:
        return None
    mean = math.fsum(taken) / len(taken)
    return mean, math.fsum((value - mean) ** 2 for value in taken) / len(taken)


def _kind(codes: Codes, statistics: TensorStatistics, masked: bool) -> dict[str, Any]:
    bits = {"low_bits": codes.low_bits, "extra_bits": codes.extra_bits}
    return {"masked": masked, "constant": statistics.constant, **bits}


def encode(
    vector: Tensor, codes: Codes, statistics: TensorStatistics, masked: bool, words: Words | None, among: Among = ALONE
) -> tuple[Tensor, int, Callable[[Tensor], None]]:
    """Encode by steps 3 to 5.

    words: of the key; None rounds to the nearest.  among: the place among those that round together.

    Returns the numbers of codes and of outliers of every block as int16[2, blocks] on the vector's device, the number
    of bytes of all blocks, and a function that writes them to uint8 memory of that size.
    """
    factor = 0.25 if max(-statistics.lowest, statistics.highest) >= _LARGE else 1.0
    k0, k1 = words or (0, 0)
    fields = {
        **_kind(codes, statistics, masked),
        "stochastic": words is not None,
        "factor": factor,
        "mean": statistics.mean * factor,
        "inverse": float(np.float32(1) / np.float32((statistics.std or 1.0) * factor)),
        "threshold": codes.threshold,
        "small_slope": _float32(codes.small_steps / codes.threshold),
        "large_slope": _float32(codes.large_steps / (codes.limit - codes.threshold)),
        "small_most": float(codes.small_steps),
        "large_most": float(codes.large_steps),
        "k0": k0,
        "k1": k1,
        "own": among[0],
        "workers": among[1],
    }
    counts = torch.empty(2, num_buckets(vector.numel(), BLOCK), dtype=torch.int16, device=vector.device)
    size, write = (_encode if in_cpp(vector) else _portable(vector).encode)(vector, counts[0], counts[1], **fields)
    return counts, size, write


def _encode(vector: Tensor, codes: Tensor, outliers: Tensor, **fields: Any) -> tuple[int, Callable[[Tensor], None]]:
    n, threads = vector.numel(), torch.get_num_threads()
    room = torch.empty(compiled.room_bytes(n), dtype=torch.uint8, device="cpu")
    sizes = torch.empty(len(codes), dtype=torch.int64, device="cpu")
    given = (codes.data_ptr(), outliers.data_ptr(), room.data_ptr(), sizes.data_ptr(), threads)
    size = compiled.encode(_job(vector, **fields), *given)

    def write(to: Tensor) -> None:
        assert to.is_contiguous() and to.numel() == size
        compiled.join(n, room.data_ptr(), sizes.data_ptr(), to.data_ptr(), threads)

    return size, write


def decode(
    data: Tensor,
    counts: Tensor,
    codes: Codes,
    statistics: TensorStatistics,
    masked: bool,
    total: Tensor,
    *,
    accumulate: bool,
) -> bool:
    """Decode by step 6 into the total float32[n], or add to it.

    Returns False where the bytes are damaged, the total being as it was.

    data: the blocks' bytes; counts: int16[2, blocks], or [1, blocks] where no zeros are masked.
    """
    table = values(codes, statistics).to(total.device)
    fields = _kind(codes, statistics, masked)
    run = _decode if in_cpp(total) else _portable(total).decode
    return run(data, counts[0], counts[-1], table, total, accumulate=accumulate, **fields)


def _decode(data: Tensor, codes: Tensor, outliers: Tensor, table: Tensor, total: Tensor, **fields: Any) -> bool:
    assert all(tensor.is_contiguous() for tensor in (data, codes, outliers)) and total.dtype == torch.float32
    given = (codes.data_ptr(), outliers.data_ptr(), data.data_ptr(), data.numel(), torch.get_num_threads())
    return compiled.decode(_job(total, total=total.data_ptr(), table=table.data_ptr(), **fields), *given)


@cache
def _levels(codes: Codes) -> np.ndarray:
    """The signed level of every byte of low part, other bits and class (the top bit): float64[256]."""
    code = np.arange(256)
    size_bits = codes.low_bits - 1
    high = (code >> codes.low_bits) & ((1 << codes.extra_bits) - 1)
    k = (code & ((1 << size_bits) - 1)) | high << size_bits
    inside = k * (codes.threshold / codes.small_steps)
    outside = codes.threshold + k * ((codes.limit - codes.threshold) / codes.large_steps)
    return np.where(code >> 7, outside, inside) * (1 - 2 * (code >> size_bits & 1))


def values(codes: Codes, statistics: TensorStatistics) -> Tensor:
    """The float32[256] of step 6 by code: low part, other bits, class."""
    table = np.clip(statistics.mean + _levels(codes) * statistics.std, statistics.lowest, statistics.highest)
    return torch.from_numpy(table.astype(np.float32))
