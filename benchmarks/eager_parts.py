"""The shared parts of ``benchmarks.eager``: packing, buckets and norms in eager PyTorch."""

from __future__ import annotations

import zlib
from collections.abc import Callable

import torch
from torch import Tensor

Eager = Callable[[Tensor], object]
FIVE_TERNARY = torch.tensor([1, 3, 9, 27, 81])


def packed(codes: Tensor, num_levels: int) -> Tensor:
    """The codes in as few whole bits as they need (ternary ones five to a byte): uint8."""
    codes = codes.reshape(-1)
    if num_levels == 3:
        rows = torch.nn.functional.pad(codes, (0, -codes.numel() % 5)).view(-1, 5)
        return (rows * FIVE_TERNARY.to(rows.device)).sum(1).to(torch.uint8)
    bits = max(num_levels - 1, 1).bit_length()
    if bits == 8:
        return codes.to(torch.uint8)
    rows = torch.nn.functional.pad(codes, (0, -codes.numel() % 8)).view(-1, 8).to(torch.int64)
    words = (rows << (bits * torch.arange(8, device=rows.device))).sum(1)
    return ((words[:, None] >> (8 * torch.arange(bits, device=rows.device))) & 255).to(torch.uint8)


def coded(codes: Tensor, num_levels: int, coding: str) -> object:
    """The codes, packed or compressed by ``zlib``."""
    if coding == "packed":
        return packed(codes, num_levels)
    return zlib.compress(
        codes.reshape(-1).to(torch.uint8 if num_levels <= 256 else torch.int16).cpu().numpy().tobytes(), 1
    )


def rows_of(x: Tensor, bucket_size: int) -> Tensor:
    """The buckets of a vector: float32[buckets, bucket_size].

    The last one is padded with zeros; there is one bucket where the size is 0.
    """
    x = x.reshape(-1)
    size = min(bucket_size or x.numel(), x.numel()) or 1
    return torch.nn.functional.pad(x, (0, -x.numel() % size)).view(-1, size)


def scale_of(rows: Tensor, norm: str, multiple: float) -> Tensor:
    """The scale of every bucket: float32[buckets, 1]."""
    if norm == "l2":
        return rows.norm(dim=1, keepdim=True)
    most = rows.abs().amax(dim=1, keepdim=True)
    if norm == "rms":
        return torch.maximum(most, multiple * rows.square().mean(dim=1, keepdim=True).sqrt())
    return 64 * rows.abs().quantile(0.95, dim=1, keepdim=True) if norm == "quantile" else most
