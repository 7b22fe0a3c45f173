"""CRC-32 with zlib's polynomial and zlib's values, at about the speed of memory."""

from __future__ import annotations

import ctypes
import zlib

from nuq.native import functions, library

_function = functions({"nuq_crc32": ([ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint32], ctypes.c_uint32)})


def crc32(address: int, num_bytes: int, start: int = 0) -> int:
    """The checksum ``zlib.crc32(data, start)`` of ``num_bytes`` bytes at ``address`` (a CPU tensor's ``data_ptr()``).

    The caller keeps the memory alive and says its true length.  Without the library, zlib does it.
    """
    if num_bytes < 0:
        raise ValueError(f"num_bytes={num_bytes}: must not be negative")
    if num_bytes == 0:  # an empty tensor has no address
        return start
    if library() is None:
        return zlib.crc32((ctypes.c_ubyte * num_bytes).from_address(address), start)
    return _function("nuq_crc32")(address, num_bytes, start)
