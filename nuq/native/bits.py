"""Bitmaps and streams of numbers of various widths in C++ (``src/bits.cpp``).

The bytes are those of ``nuq.coding.index_coding_reference``.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nuq.native import library

Bytes = NDArray[np.uint8]
_SPARE = 8  # bytes that are read and written in vain


def _call(name: str, result: Any, *arguments: NDArray[Any] | int) -> Any:
    loaded = library()
    assert loaded is not None
    function = getattr(loaded, name)
    function.restype = result
    passed: list[Any] = []
    for argument in arguments:
        if isinstance(argument, np.ndarray):
            assert argument.flags.c_contiguous
            passed.append(ctypes.c_void_p(argument.ctypes.data))
        else:
            passed.append(ctypes.c_int64(argument))
    return function(*passed)


def set_bits(indices: NDArray[np.int64], num_bits: int) -> Bytes:
    """A bitmap in which these bits are set, the first one lowest: uint8[ceil(num_bits / 8)]."""
    bitmap = np.zeros(-(-num_bits // 8), dtype=np.uint8)
    _call("nuq_set_bits", None, indices, indices.size, bitmap)
    return bitmap


def find_bits(bitmap: Bytes, most: int) -> NDArray[np.int64] | None:
    """The bits that are set, ascending; None for more than ``most``."""
    indices = np.empty(most, dtype=np.int64)
    found = _call("nuq_find_bits", ctypes.c_int64, bitmap, bitmap.size, most, indices)
    return None if found < 0 else indices[:found]


def pack(values: NDArray[np.uint32], widths: Bytes) -> Bytes:
    """Pack value j into widths[j] (0 .. 31) bits, one value after another, the first bits lowest."""
    size = -(-int(widths.sum(dtype=np.int64)) // 8)
    data = np.empty(size + _SPARE, dtype=np.uint8)
    _call("nuq_pack_widths", None, values, widths, values.size, data)
    return data[:size]


def unpack(data: Bytes, widths: Bytes) -> NDArray[np.uint32]:
    """The inverse of ``pack``."""
    values = np.empty(widths.size, dtype=np.uint32)
    padded = np.concatenate([data, np.zeros(_SPARE, dtype=np.uint8)])
    _call("nuq_unpack_widths", None, padded, widths, widths.size, values)
    return values
