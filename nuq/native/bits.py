"""The bitmaps and streams of numbers of ``nuq.coding.index_coding_reference`` in C++ (``src/bits.cpp``)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nuq.native import LONG, POINTER, calls

Bytes = NDArray[np.uint8]
_SPARE = 8  # bytes that are read and written in vain
_call = calls(
    {
        "nuq_set_bits": ([POINTER, LONG, POINTER], None),
        "nuq_find_bits": ([POINTER, LONG, LONG, POINTER], LONG),
        "nuq_pack_widths": ([POINTER, POINTER, LONG, POINTER], None),
        "nuq_unpack_widths": ([POINTER, POINTER, LONG, POINTER], None),
    }
)


def set_bits(indices: NDArray[np.int64], num_bits: int) -> Bytes:
    """A bitmap in which these bits are set, the first one lowest: uint8[ceil(num_bits / 8)]."""
    bitmap = np.zeros(-(-num_bits // 8), dtype=np.uint8)
    _call("nuq_set_bits", indices, indices.size, bitmap)
    return bitmap


def find_bits(bitmap: Bytes, most: int) -> NDArray[np.int64] | None:
    """The bits that are set, ascending; None for more than ``most``."""
    indices = np.empty(most, dtype=np.int64)
    found = _call("nuq_find_bits", bitmap, bitmap.size, most, indices)
    return None if found < 0 else indices[:found]


def pack(values: NDArray[np.uint32], widths: Bytes) -> Bytes:
    """Pack value j into widths[j] (0 .. 31) bits, one value after another, the first bits lowest."""
    size = -(-int(widths.sum(dtype=np.int64)) // 8)
    data = np.empty(size + _SPARE, dtype=np.uint8)
    _call("nuq_pack_widths", values, widths, values.size, data)
    return data[:size]


def unpack(data: Bytes, widths: Bytes) -> NDArray[np.uint32]:
    """The inverse of ``pack``."""
    values = np.empty(widths.size, dtype=np.uint32)
    padded = np.concatenate([data, np.zeros(_SPARE, dtype=np.uint8)])
    _call("nuq_unpack_widths", padded, widths, widths.size, values)
    return values
