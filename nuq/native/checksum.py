"""CRC-32 with zlib's polynomial and zlib's values, at about the speed of memory."""

from __future__ import annotations

import ctypes
import zlib
from collections.abc import Callable
from functools import cache

from nuq.native import library


@cache
def _compiled() -> Callable[[int, int, int], int] | None:
    loaded = library()
    if loaded is None:
        return None
    function = loaded.nuq_crc32
    function.argtypes, function.restype = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint32], ctypes.c_uint32
    return function


def crc32(address: int, num_bytes: int, start: int = 0) -> int:
    """The checksum ``zlib.crc32(data, start)`` of ``num_bytes`` bytes at ``address`` (a CPU tensor's ``data_ptr()``).

    The caller keeps the memory alive and says its true length.  Without the library, zlib does it.
    """
    if num_bytes < 0:
        raise ValueError(f"num_bytes={num_bytes}: must not be negative")
    if num_bytes == 0:  # an empty tensor has no address
        return start
    compiled = _compiled()
    if compiled is None:
        return zlib.crc32((ctypes.c_ubyte * num_bytes).from_address(address), start)
    return compiled(address, num_bytes, start)
