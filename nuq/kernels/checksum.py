"""CRC-32 of a tensor's bytes, where they are."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from nuq.kernels.cuda.launch import device_code, on, signed
from nuq.kernels.cuda.tiles import OPTIONS
from nuq.kernels.host import numpy_of
from nuq.native import checksum


def crc32(data: Tensor, start: int = 0) -> int:
    """The checksum ``zlib.crc32(data, start)`` of uint8[bytes]."""
    device = device_code() if data.is_cuda else None
    if device is not None:
        if data.numel() >= device.checksum.LEAST_BYTES:
            return by_kernel(device.checksum, data.contiguous(), start, device.checksum.PROGRAMS)
        data = data.cpu()
    array = np.ascontiguousarray(numpy_of(data, "checksum"))
    return checksum.crc32(array.ctypes.data, array.size, start)


def by_kernel(code: Any, data: Tensor, start: int, programs: int) -> int:
    """The same by the device code ``nuq.kernels.cuda.checksum``, for at least LEAST_BYTES contiguous bytes.

    programs: a power of two; the value is the same.
    """
    constants = code.constants(data.device, programs * code.SIZE)
    out = torch.empty(programs, dtype=torch.int32, device=data.device)
    rounds = -(-data.numel() // (4 * programs * code.SIZE))
    settings = {"SIZE": code.SIZE, "num_warps": 8, **OPTIONS}
    with on(data):
        code.crc_kernel[(programs,)](
            data, *constants, out, data.numel(), rounds, signed(start ^ 0xFFFFFFFF), **settings
        )
    return int(np.bitwise_xor.reduce(out.cpu().numpy().view(np.uint32))) ^ 0xFFFFFFFF
