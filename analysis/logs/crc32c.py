"""CRC-32C of many records at once.

A CRC is linear over GF(2): the checksum of a record is the exclusive or of what each byte contributes at its distance
from the end.  With one table per distance, n records of one length cost one table look-up per byte, vectorised over n.
"""

from __future__ import annotations

import functools

import numpy as np

_POLYNOMIAL = 0x82F63B78  # Castagnoli, bits reversed (RFC 3720, appendix B.4)
_BLOCK = 512  # bytes folded with one set of tables


@functools.cache
def _tables() -> np.ndarray:
    """A table [j, b] of what byte b contributes when j bytes follow it; uint32, (_BLOCK, 256)."""
    tables = np.zeros((_BLOCK, 256), np.uint32)
    first = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        first = (first >> 1) ^ np.where(first & 1, np.uint32(_POLYNOMIAL), np.uint32(0))
    tables[0] = first
    for j in range(1, _BLOCK):
        tables[j] = (tables[j - 1] >> 8) ^ first[tables[j - 1] & 0xFF]
    return tables


def crc32c(columns: np.ndarray) -> np.ndarray:
    """The checksums of n records of one length.

    ``columns`` is uint8 (length, n), so that one byte of all records is contiguous.
    """
    length, num = columns.shape
    tables = _tables()
    state = np.full(num, 0xFFFFFFFF, np.uint32)
    for begin in range(0, length, _BLOCK):
        block = columns[begin : begin + _BLOCK]
        size = len(block)
        folded = state >> np.uint32(8 * size) if size < 4 else np.zeros(num, np.uint32)
        for k in range(size):
            byte = block[k] if k >= 4 else block[k] ^ (state >> np.uint32(8 * k)).astype(np.uint8)
            folded ^= np.take(tables[size - 1 - k], byte)
        state = folded
    return state ^ np.uint32(0xFFFFFFFF)


def masked(checksums: np.ndarray) -> np.ndarray:
    """The form in which TFRecord files store a checksum: rotated right by 15 bits, plus a constant, modulo 2^32."""
    return ((checksums >> np.uint32(15)) | (checksums << np.uint32(17))) + np.uint32(0xA282EAD8)
