"""Bitmaps and streams of numbers of various widths in NumPy, for where ``nuq.native.bits`` is not built."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nuq.coding.entropy_tables import Bytes, Ints


def set_bits(indices: Ints, num_bits: int) -> Bytes:
    """A bitmap in which these bits are set, the first one lowest: uint8[ceil(num_bits / 8)]."""
    bitmap = np.zeros(num_bits, dtype=bool)
    bitmap[indices] = True
    return np.packbits(bitmap, bitorder="little")


def find_bits(bitmap: Bytes, most: int) -> Ints | None:
    """The bits that are set, ascending; None for more than ``most``."""
    indices = np.flatnonzero(np.unpackbits(bitmap, bitorder="little"))
    return None if indices.size > most else indices


def _starts(widths: Bytes) -> Ints:
    return np.cumsum(widths, dtype=np.int64) - widths


def pack(values: NDArray[np.uint32], widths: Bytes) -> Bytes:
    """Pack value j into widths[j] (0 .. 31) bits, one value after another, the first bits lowest."""
    bits = np.zeros(int(widths.sum(dtype=np.int64)), dtype=np.uint8)
    starts = _starts(widths)
    for bit in range(int(widths.max(initial=0))):
        wide = widths > bit
        bits[starts[wide] + bit] = values[wide] >> np.uint32(bit) & 1
    return np.packbits(bits, bitorder="little")


def unpack(data: Bytes, widths: Bytes) -> NDArray[np.uint32]:
    """The inverse of ``pack``."""
    bits, starts = np.unpackbits(data, bitorder="little"), _starts(widths)
    values = np.zeros(widths.size, dtype=np.uint32)
    for bit in range(int(widths.max(initial=0))):
        wide = widths > bit
        values[wide] |= bits[starts[wide] + bit].astype(np.uint32) << np.uint32(bit)
    return values
