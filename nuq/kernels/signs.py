"""The sides of coordinates: one bit each, for the side of zero.

Plain PyTorch on any device, C++ where it is built: the same bits.

Bit i (``nuq.kernels.bit_packing``) is 1 where ``x_i >= 0``: a bit cannot hold a zero, which goes with the positive
coordinates.  The sums of both sides of a bucket are float64 trees (``nuq.kernels.operators``, step 2) over
``max(x, 0)`` and ``max(-x, 0)``.
"""

from __future__ import annotations

import torch
from torch import Tensor

from nuq.errors import NonFiniteError
from nuq.kernels import bit_packing, reference
from nuq.kernels.cpu import in_cpp
from nuq.kernels.spec import num_buckets
from nuq.native import signs as compiled


def pack_(vector: Tensor, bits: Tensor) -> None:
    """Pack one bit per coordinate. vector: float32[n], contiguous; bits: uint8[ceil(n / 8)], overwritten."""
    assert vector.is_contiguous() and vector.dtype == torch.float32 and bits.is_contiguous()
    bit_packing.check_size(bits, vector.numel(), 1)
    if in_cpp(vector):
        compiled.pack_sides(vector.data_ptr(), vector.numel(), bits.data_ptr(), torch.get_num_threads())
    else:
        bits.copy_(bit_packing.pack_codes((vector >= 0).to(torch.int32), 1))


def side_sums(vector: Tensor, bucket_size: int) -> tuple[Tensor, Tensor]:
    """The sums of ``|x|`` above zero and below it per bucket, and the number of coordinates not below it.

    vector: float32[n], contiguous -> float64[buckets, 2], int64[buckets].  NonFiniteError for a coordinate that is not
    finite.
    """
    assert vector.is_contiguous() and vector.dtype == torch.float32
    n, device = vector.numel(), vector.device
    buckets = num_buckets(n, bucket_size)
    sums = torch.zeros(buckets, 2, dtype=torch.float64, device=device)
    counts = torch.zeros(buckets, dtype=torch.int64, device=device)
    size = min(bucket_size, max(n, 1))
    if in_cpp(vector):
        compiled.sum_sides(vector.data_ptr(), n, size, sums.data_ptr(), counts.data_ptr(), torch.get_num_threads())
    elif n:
        rows = reference.bucketed(vector, bucket_size)
        zeros = torch.zeros_like(rows)
        sums[:, 0] = reference.tree_sum(torch.where(rows > 0, rows, zeros).to(torch.float64))
        sums[:, 1] = reference.tree_sum(torch.where(rows > 0, zeros, 0.0 - rows).to(torch.float64))
        counts = (rows >= 0).sum(dim=1)
        counts[-1] -= rows.numel() - n  # the padding of the last one
    if not bool(torch.isfinite(sums).all()):
        bad = int((~torch.isfinite(sums)).any(dim=1).nonzero()[0])
        raise NonFiniteError(f"a coordinate of bucket {bad} is not finite")
    return sums, counts


def write_(bits: Tensor, values: Tensor, total: Tensor, *, bucket_size: int, accumulate: bool) -> None:
    """Write every coordinate's value into ``total``, or add it.

    bits: uint8[ceil(n / 8)]; values: float32[buckets, 2], of coordinates below zero and of the others; total:
    float32[n].
    """
    n = total.numel()
    size = min(bucket_size, max(n, 1))
    bit_packing.check_size(bits, n, 1)
    assert total.dtype == values.dtype == torch.float32 and values.numel() == 2 * num_buckets(n, bucket_size)
    if in_cpp(total) and total.is_contiguous():
        bits, values = bits.contiguous(), values.contiguous()
        compiled.write_sides(
            bits.data_ptr(), values.data_ptr(), n, size, total.data_ptr(), accumulate, torch.get_num_threads()
        )
        return
    codes = bit_packing.unpack_codes(bits, n, 2, 1).to(torch.int64)
    indices = 2 * (torch.arange(n, dtype=torch.int64, device=total.device) // size) + codes
    decoded = values.reshape(-1)[indices]
    reference.put(decoded, total, accumulate=accumulate)
