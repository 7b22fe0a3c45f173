"""Blocks of base and deltas in C++ (``src/base_delta.cpp``): the bits of ``nuq.coding.base_delta``."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nuq.native import INT, LONG, POINTER, WORD, calls

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]
Noise = tuple[int, int, int, int]
_call = calls(
    {
        "nuq_base_delta_room": ([LONG, INT], LONG),
        "nuq_base_delta_encode": ([POINTER, LONG, INT, INT, *[WORD] * 4, POINTER, POINTER, POINTER, INT], LONG),
        "nuq_base_delta_decode": ([POINTER, POINTER, POINTER, POINTER, LONG, INT, POINTER, LONG, INT, INT], None),
    }
)


def encode(vector: Floats, bits: int, noise: Noise | None, threads: int) -> tuple[Bytes, Bytes, Bytes]:
    """The kinds and exponents uint8[blocks], and the blocks' bytes.

    noise: k0, k1, place, workers; None rounds to the nearest.
    """
    kinds, exponents = np.empty((2, -(-vector.size // 64)), dtype=np.uint8)
    data = np.empty(_call("nuq_base_delta_room", vector.size, bits), dtype=np.uint8)
    given = (vector, vector.size, bits, noise is not None, *(noise or (0, 0, 0, 1)))
    return kinds, exponents, data[: _call("nuq_base_delta_encode", *given, kinds, exponents, data, threads)]


def decode(
    kinds: Bytes,
    exponents: Bytes,
    starts: NDArray[np.int64],
    data: Bytes,
    bits: int,
    total: Floats,
    accumulate: bool,
    threads: int,
) -> None:
    """Decode into float32[n], or add; starts: where blocks begin in ``data``, whose checks are the caller's."""
    given = (kinds, exponents, starts, data, data.size, bits)
    _call("nuq_base_delta_decode", *given, total, total.size, accumulate, threads)
