"""Numbers of 16 bits as planes of bytes, of which that of the exponents takes few bits by entropy coding.

Of a bfloat16 the exponent is bits 7 to 14; of a float16 that byte is the exponent and three bits of the mantissa.  The
sizes of gradients differ much between layers and little between neighbours, so that a block of 128 numbers (the last
one: what is left) has its largest such byte as its ``top``, and each number its ``gap`` below it: 255 where its own
byte is 0, as that of a zero.  Its ``rest`` is bits 0 to 6, and the sign as bit 7: nearly uniform.  The planes hold all
bits of the numbers.

Plain PyTorch on any device, C++ where it is built (``nuq/native/src/planes.cpp``): the same bits.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from nuq.kernels.cpu import in_cpp
from nuq.native import planes as compiled
from nuq.native.planes import BLOCK

ZERO_GAP = 255


class Planes(NamedTuple):
    """tops: uint8[ceil(n / 128)], one for each block; gaps, rests: uint8[n]."""

    tops: Tensor
    gaps: Tensor
    rests: Tensor


def num_blocks(num_numbers: int) -> int:
    """The number of blocks, each of which has a top."""
    return -(-num_numbers // BLOCK)


def split(numbers: Tensor) -> tuple[Planes, int]:
    """The planes of int16[n], the numbers' bits, and how many have 0 as their exponent's byte."""
    assert numbers.dtype == torch.int16 and numbers.is_contiguous()
    n = numbers.numel()
    if not in_cpp(numbers):
        exponents = ((numbers >> 7) & 0xFF).to(torch.uint8)
        rests = ((numbers & 0x7F) | ((numbers >> 8) & 0x80)).to(torch.uint8)
        filled = torch.nn.functional.pad(exponents, (0, -n % BLOCK)).view(-1, BLOCK)
        tops = filled.amax(1)
        zeros = exponents == 0
        gaps = (_over_blocks(tops, n) - exponents).masked_fill_(zeros, ZERO_GAP)
        return Planes(tops, gaps, rests), int(zeros.sum())
    planes, num_zeros = compiled.split(numbers.numpy(), torch.get_num_threads())
    return Planes(*map(torch.from_numpy, planes)), num_zeros


def join(planes: Planes) -> Tensor:
    """The numbers of the planes: int16[n]; an exponent's byte is ``top - gap``, modulo 256, or 0."""
    tops, gaps, rests = (plane.contiguous() for plane in planes)
    n = gaps.numel()
    assert tops.numel() == num_blocks(n) and rests.numel() == n
    if not in_cpp(gaps):
        exponents = (_over_blocks(tops, n) - gaps).masked_fill_(gaps == ZERO_GAP, 0).to(torch.int16)
        low = rests.to(torch.int16)
        return (exponents << 7) | (low & 0x7F) | ((low & 0x80) << 8)
    return torch.from_numpy(compiled.join(tops.numpy(), gaps.numpy(), rests.numpy(), torch.get_num_threads()))


def _over_blocks(tops: Tensor, num_numbers: int) -> Tensor:
    return tops.repeat_interleave(BLOCK)[:num_numbers]
