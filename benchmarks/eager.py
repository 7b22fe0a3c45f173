"""Encoding as a user would write it in eager PyTorch, one method of each family: baselines of ``benchmarks.methods``.

There is one function per family, each from a tensor to the tensors that would travel. They draw from PyTorch's own
generator, keep no state, and stop at plain packed integers: no keys, no headers, no checks, no coded indices; the codes
of a method with an entropy coder go through ``zlib``, the coder that every Python has.  So they do less than ``nuq``
does, and their time is not an excuse.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from nuq.levels import code_tables, lloyd_max

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


def rotated(x: Tensor, block: int) -> Tensor:
    """The vector after random signs and a Hadamard transform in blocks."""
    rows = torch.nn.functional.pad(x.reshape(-1), (0, -x.numel() % block)).view(-1, block)
    rows = rows * (2.0 * torch.randint(0, 2, rows.shape, device=rows.device) - 1.0)
    distance = 1
    while distance < block:
        pairs = rows.view(-1, block // (2 * distance), 2, distance)
        a, b = pairs[:, :, 0], pairs[:, :, 1]
        rows = torch.stack([a + b, a - b], dim=2).view(-1, block)
        distance *= 2
    return (rows * block**-0.5).reshape(-1)


def quantizer(settings: Any, compressor: Any) -> Eager:
    """The quantizer of the QSGD .. ALQ family and of the lattice.

    It takes a norm, normalised coordinates, two neighbouring levels and a random number.
    """
    levels, count = torch.tensor(compressor.levels.values, dtype=torch.float32), compressor.levels.num_levels

    def encode(x: Tensor) -> object:
        x = rotated(x, compressor.block) if compressor.block > 1 else x
        rows, table = rows_of(x, compressor.bucket_size), levels.to(x.device)
        scale = scale_of(rows, compressor.norm, compressor.multiple)
        r = (rows / scale.clamp_min(1e-38)).clamp(-1, 1)
        if compressor.uniform:
            codes = ((r + 1) * (0.5 * (count - 1)) + torch.rand_like(r)).floor().clamp_max(count - 1).to(torch.int32)
        else:
            below = torch.bucketize(r, table[1:-1], right=True)
            share = (r - table[below]) / (table[below + 1] - table[below])
            codes = below + (torch.rand_like(r) < share)
        return scale, coded(codes, count, settings.coding)

    return encode


def eden(settings: Any, compressor: Any) -> Eager:
    """The encoder of EDEN: rotate, take the nearest centroid, and the scale that makes it unbiased."""
    size, bits = compressor.bucket_size, compressor.bits
    centroids = torch.tensor(lloyd_max.centroids(bits), dtype=torch.float32) * size**-0.5
    borders = torch.tensor(lloyd_max.thresholds(bits), dtype=torch.float32) * size**-0.5

    def encode(x: Tensor) -> object:
        for _ in range(compressor.rotations):
            x = rotated(x, size)
        rows = rows_of(x, size)
        norm = rows.norm(dim=1, keepdim=True)
        codes = torch.bucketize(rows / norm.clamp_min(1e-38), borders.to(x.device))
        q = centroids.to(x.device)[codes]
        return norm.square() / (rows * q).sum(1, keepdim=True), coded(codes, 1 << bits, settings.coding)

    return encode


def sign(settings: Any, compressor: Any) -> Eager:
    del compressor
    return lambda x: (rows_of(x, settings.bucket_size).abs().mean(1), packed(x >= 0, 2))


def blockwise(settings: Any, compressor: Any) -> Eager:
    values = torch.tensor(code_tables.values(compressor.table), dtype=torch.float32)

    def encode(x: Tensor) -> object:
        rows, table = rows_of(x, settings.bucket_size), values.to(x.device)
        scale = scale_of(rows, "linf", 0.0)
        r = rows / scale.clamp_min(1e-38)
        if settings.rounding == "nearest":
            return scale, torch.bucketize(r, (table[1:] + table[:-1]) / 2).to(torch.uint8)
        below = torch.bucketize(r, table[1:-1], right=True)
        codes = below + (torch.rand_like(r) < (r - table[below]) / (table[below + 1] - table[below]))
        return scale, codes.to(torch.uint8)

    return encode


def smaq(settings: Any, compressor: Any) -> Eager:
    """The encoder of SmaQ: a class, a sign and a magnitude.

    Masks and the clamp to the tensor's range are left out.
    """
    codes = compressor.codes

    def encode(x: Tensor) -> object:
        x = x.reshape(-1)
        mean, std = x.mean(), x.std()
        z = (x - mean) / std
        size = z.abs()
        outside = size > codes.threshold
        large = (size - codes.threshold) * (codes.large_steps / (codes.limit - codes.threshold))
        q = torch.where(outside, large.clamp_max(codes.large_steps), size * (codes.small_steps / codes.threshold))
        k = (q + torch.rand_like(q)).floor().clamp_max(codes.large_steps).to(torch.int64)
        short = (k & codes.small_steps) << 1 | (z < 0)
        extra = (k >> codes.low_bits - 1)[outside]
        return (
            mean,
            std,
            packed(outside.to(torch.int64), 2),
            packed(short, 1 << codes.low_bits),
            packed(extra, 1 << codes.extra_bits),
        )

    del settings
    return encode


def topk(settings: Any, compressor: Any) -> Eager:
    del compressor

    def encode(x: Tensor) -> object:
        rows = rows_of(x, settings.bucket_size)
        indices = rows.abs().topk(max(1, math.ceil(settings.ratio * rows.shape[1])), dim=1, sorted=False).indices
        indices = (indices + rows.shape[1] * torch.arange(len(rows), device=x.device)[:, None]).reshape(-1)
        values = x.reshape(-1)[indices].to(torch.float16 if settings.values == "fp16" else torch.float32)
        return values, indices.to(torch.int32)

    return encode


def matrix(x: Tensor) -> Tensor:
    """The tensor in two dimensions: the first one, and all others."""
    return x.reshape(x.shape[0], -1)


def powersgd(settings: Any, compressor: Any) -> Eager:
    """The encoder of PowerSGD: one power iteration per matrix; vectors are sent whole."""
    del compressor

    def encode(x: Tensor) -> object:
        if x.dim() < 2:
            return x.clone()
        m = matrix(x)
        q = torch.randn(m.shape[1], min(settings.rank, *m.shape), device=x.device)
        p = torch.linalg.qr(m @ q).Q
        return p, m.T @ p

    return encode


def sides(x: Tensor) -> tuple[tuple[Tensor, Tensor], ...]:
    """The indices and magnitudes of the values above and below zero."""
    return tuple((side.nonzero().view(-1), x[side].abs()) for side in (x > 0, x < 0))


def sketchml(settings: Any, compressor: Any) -> Eager:
    """The encoder of SketchML: quantiles of either sign, and the group whose sketch has a value's least quantile."""
    del compressor

    def encode(x: Tensor) -> object:
        x, sent = x.reshape(-1), []
        for indices, size in sides(x):
            if not indices.numel():
                continue
            sample = size[torch.randint(0, size.numel(), (settings.sample_size,), device=x.device)].sort().values
            borders = sample[torch.linspace(0, len(sample) - 1, settings.buckets + 1, device=x.device).long()]
            bucket = torch.bucketize(size, borders[1:-1])
            group, within = (
                bucket * settings.groups // settings.buckets,
                bucket % max(1, settings.buckets // settings.groups),
            )
            columns = max(1, math.ceil(settings.columns_ratio * size.numel()))
            for row in range(settings.rows):
                cell = (indices * (2654435761 + 2 * row) >> 7) % columns
                sketch = torch.full((columns,), 255, device=x.device).scatter_reduce_(0, cell, within, "amin")
                sent.append(zlib.compress(sketch.to(torch.uint8).cpu().numpy().tobytes(), 1))
            sent += [borders, zlib.compress(group.to(torch.uint8).cpu().numpy().tobytes(), 1)]
        return sent

    return encode


EAGER: dict[str, Callable[[Any, Any], Eager]] = {
    **dict.fromkeys(
        ("qsgd", "qsgdinf", "nuqsgd", "trn", "alq", "alq_n", "alq_g", "alq_gn", "amq", "amq_n", "optimal", "ecdq"),
        quantizer,
    ),
    **dict.fromkeys(("eden", "drive"), eden),
    **dict.fromkeys(("block8", "fp8"), blockwise),
    "sign": sign,
    "smaq": smaq,
    "topk": topk,
    "powersgd": powersgd,
    "sketchml": sketchml,
}


def of(name: str, settings: Any, compressor: Any) -> Eager | None:
    """The baseline of one method; None for a method that has none here."""
    make = EAGER.get(name)
    return make(settings, compressor) if make else None
