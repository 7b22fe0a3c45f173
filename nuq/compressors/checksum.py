"""CRC-32 of a tensor's bytes, where they are."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from nuq.kernels.cuda import checksum_operators
from nuq.kernels.cuda.launch import device_code
from nuq.kernels.host import numpy_of
from nuq.native import address, checksum


def crc32(data: Tensor, start: int = 0) -> int:
    """The checksum ``zlib.crc32(data, start)`` of uint8[bytes]."""
    device = device_code() if data.is_cuda else None
    if device is not None:
        if data.numel() >= checksum_operators.LEAST_BYTES:
            return checksum_operators.crc32(device, data.contiguous(), start)
        data = data.cpu()
    array = np.ascontiguousarray(numpy_of(data, "checksum"))
    return checksum.crc32(address(array), array.size, start)
