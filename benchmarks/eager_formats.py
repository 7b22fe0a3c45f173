"""The formats that tensors are trained in, as a user would write them in eager PyTorch (see ``benchmarks.eager``)."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from benchmarks.eager_parts import Eager, packed, rows_of


def bf16(settings: Any, compressor: Any) -> Eager:
    del settings, compressor
    return lambda x: x.to(torch.bfloat16)


def fp16(settings: Any, compressor: Any) -> Eager:
    del settings, compressor

    def encode(x: Tensor) -> object:
        scale = 2.0 ** (15 - math.frexp(float(x.abs().max()))[1])
        return scale, (x * scale).to(torch.float16)

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


def s2fp8(settings: Any, compressor: Any) -> Eager:
    del settings, compressor

    def encode(x: Tensor) -> object:
        sizes = x.abs().log2()
        nonzero = sizes[x != 0]
        alpha = 15 / (nonzero.max() - nonzero.mean())
        beta = -alpha * nonzero.mean()
        return alpha, beta, (x.sign() * (alpha * sizes + beta).exp2()).to(torch.float8_e5m2)

    return encode


def nnw_bdi(settings: Any, compressor: Any) -> Eager:
    """The encoder of NNW-BDI: deltas from zero or from the first word, whichever are narrower.

    A bit per word, and a base within the block, are left out.
    """
    del compressor

    def encode(x: Tensor) -> object:
        rows = rows_of(x, 64)
        exponents = torch.frexp(rows.abs().amax(1))[1]
        words = (rows * 2.0 ** (settings.bits - 1 - exponents)[:, None]).round().to(torch.int16)
        sent: list[object] = [exponents.to(torch.uint8), words[:, 0]]
        deltas = torch.where(
            ((words - words[:, :1]).abs().amax(1) < words.abs().amax(1))[:, None], words - words[:, :1], words
        )
        width = deltas.abs().amax(1).float().log2().floor().clamp_min(-2) + 2
        for bits in range(1, settings.bits + 1):
            sent.append(packed(deltas[width == bits].to(torch.int64) & ((1 << bits) - 1), 1 << bits))
        return [*sent, width.to(torch.uint8)]

    return encode
