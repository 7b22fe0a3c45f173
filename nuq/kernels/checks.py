"""What the kernels take for granted of their arguments: a wrong size or type would read or write beside the tensors.

One set of rules and sentences for the C++ and the Triton kernels.  Every tensor has to be on the device of the first.
"""

from __future__ import annotations

import torch
from torch import Tensor

from nuq.kernels import bit_packing
from nuq.kernels.operators import check_bucket_size, check_input, num_buckets, scales_per_bucket


def check_tensor(tensor: Tensor, what: str, device: torch.device, dtype: torch.dtype, size: int | None = None) -> None:
    """ValueError unless the tensor is on that device, of that type and (where given) of that many elements."""
    if tensor.device != device:
        raise ValueError(f"{what} on {tensor.device}: must be on {device}")
    if tensor.dtype != dtype:
        raise ValueError(f"{what} of {tensor.dtype}: must be {dtype}")
    if size is not None and tensor.numel() != size:
        raise ValueError(f"{what} of {tensor.numel()} elements: must have {size}")


def check_encode(
    vector: Tensor, num_levels: int, scales: Tensor, packed: Tensor | None, bucket_size: int, norm: str, packing: int, stochastic: bool
) -> None:
    """ValueError for a size, type, device or packing that does not fit.  packed: None where only the scales are wanted."""
    check_input(vector, bucket_size, norm)
    n, device = vector.numel(), vector.device
    check_tensor(scales, "scales", device, torch.float32, num_buckets(n, bucket_size) * scales_per_bucket(norm))
    if packed is not None:
        bit_packing.code_bits(num_levels)
        bit_packing.check_packing(packing, num_levels if stochastic else num_levels - 1)  # thresholds: one code fewer
        check_tensor(packed, "packed codes", device, torch.uint8, bit_packing.packed_bytes(n, packing))


def check_decode(total: Tensor, packed: Tensor, scales: Tensor, levels: Tensor, bucket_size: int, packing: int) -> None:
    """ValueError for a size, type, device or packing that does not fit."""
    check_bucket_size(bucket_size)
    bit_packing.code_bits(levels.numel())
    bit_packing.check_packing(packing)
    n, device = total.numel(), total.device
    for tensor, what in ((total, "a total"), (levels, "levels"), (scales, "scales")):
        check_tensor(tensor, what, device, torch.float32)
    check_tensor(packed, "packed codes", device, torch.uint8)
    bit_packing.check_size(packed, n, packing)
    buckets = num_buckets(n, bucket_size)
    if scales.numel() not in (buckets, 2 * buckets):
        raise ValueError(f"{scales.numel()} scales: {buckets} buckets have {buckets}, or twice as many under quantile")
