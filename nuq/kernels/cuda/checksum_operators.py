"""The host side of the checksum on a GPU."""

from __future__ import annotations

from functools import reduce
from operator import xor

import torch
from torch import Tensor

from nuq.kernels.cuda.launch import Modules, on
from nuq.kernels.cuda.tiles import OPTIONS
from nuq.kernels.spec import signed

SIZE, PROGRAMS = 256, 256  # lanes of a program, and programs: powers of two
LEAST_BYTES = 4  # the first four take up the value to go on from
_ALL = 0xFFFFFFFF


def crc32(device: Modules, data: Tensor, start: int, programs: int = PROGRAMS) -> int:
    """The checksum ``zlib.crc32(data, start)`` of at least LEAST_BYTES contiguous bytes; any ``programs`` give it."""
    constants = device.checksum.constants(data.device, programs * SIZE)
    out = torch.empty(programs, dtype=torch.int32, device=data.device)
    rounds = -(-data.numel() // (4 * programs * SIZE))
    begin = signed((start ^ _ALL) & _ALL)
    with on(data):
        device.checksum.crc_kernel[(programs,)](
            data, *constants, out, data.numel(), rounds, begin, SIZE=SIZE, num_warps=8, **OPTIONS
        )
    return (reduce(xor, out.tolist()) ^ _ALL) & _ALL
