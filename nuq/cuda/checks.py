"""What the Triton kernels take for granted of their arguments: a wrong size or type would read or write beside the tensors.

The rules and sentences of ``nuq.cpu.kernels``, and two of its own: all tensors on one device, and none with gaps.
"""

from __future__ import annotations

import torch
from torch import Tensor

from nuq import coding
from nuq.ops import check_input, num_buckets, scales_per_bucket


def check_tensor(tensor: Tensor, what: str, device: torch.device, dtype: torch.dtype, size: int | None = None) -> None:
    """ValueError unless the tensor is contiguous, on that device, of that type and (where given) of that many elements."""
    if tensor.device != device:
        raise ValueError(f"{what} on {tensor.device}: must be on {device}")
    if tensor.dtype != dtype:
        raise ValueError(f"{what} of {tensor.dtype}: must be {dtype}")
    if size is not None and tensor.numel() != size:
        raise ValueError(f"{what} of {tensor.numel()} elements: must have {size}")
    if not tensor.is_contiguous():
        raise ValueError(f"{what} with strides {tensor.stride()}: the GPU kernels take contiguous tensors")


def _check_packing(packing: int, num_codes: int = 0) -> None:
    if not 0 <= packing <= 16:
        raise ValueError(f"packing={packing}: must be between 0 and 16")
    if num_codes > (3 if packing == coding.TERNARY else 1 << packing):
        raise ValueError(f"packing={packing}: does not hold {num_codes} levels")


def check_encode(
    vector: Tensor, num_levels: int, scales: Tensor, packed: Tensor, bucket_size: int, norm: str, packing: int, stochastic: bool
) -> None:
    """ValueError for a size, type, device or packing that does not fit."""
    check_input(vector, bucket_size, norm)
    coding.code_bits(num_levels)
    _check_packing(packing, num_levels if stochastic else num_levels - 1)  # thresholds: one code fewer
    n, device = vector.numel(), vector.device
    check_tensor(vector, "a vector", device, vector.dtype)
    check_tensor(scales, "scales", device, torch.float32, num_buckets(n, bucket_size) * scales_per_bucket(norm))
    check_tensor(packed, "packed codes", device, torch.uint8, coding.packed_bytes(n, packing))


def check_decode(packed: Tensor, scales: Tensor, levels: Tensor, total: Tensor, bucket_size: int, packing: int) -> None:
    """ValueError for a size, type, device or packing that does not fit."""
    if bucket_size < 1:
        raise ValueError(f"bucket_size={bucket_size}: must be at least 1")
    coding.code_bits(levels.numel())
    _check_packing(packing)
    n, device = total.numel(), total.device
    for tensor, what in ((total, "a total"), (levels, "levels"), (scales, "scales")):
        check_tensor(tensor, what, device, torch.float32)
    check_tensor(packed, "packed codes", device, torch.uint8)
    size, buckets = coding.packed_bytes(n, packing), num_buckets(n, bucket_size)
    if packed.numel() != size:
        raise ValueError(f"{packed.numel()} packed bytes: {n} codes take {size}")
    if scales.numel() not in (buckets, 2 * buckets):
        raise ValueError(f"{scales.numel()} scales: {buckets} buckets have {buckets}, or twice as many under quantile")
