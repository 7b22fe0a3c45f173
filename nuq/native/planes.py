"""Planes of numbers of 16 bits in C++ (``src/planes.cpp``): the bits of ``nuq.coding.planes``."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nuq.native import INT, LONG, POINTER, calls

Bytes = NDArray[np.uint8]
BLOCK = 128  # numbers that share a top
_call = calls(
    {
        "nuq_split_planes": ([POINTER, LONG, POINTER, POINTER, POINTER, INT], LONG),
        "nuq_join_planes": ([POINTER, POINTER, POINTER, LONG, POINTER, INT], None),
    }
)


def split(numbers: NDArray[np.int16], threads: int) -> tuple[tuple[Bytes, Bytes, Bytes], int]:
    """The planes of the numbers: tops uint8[blocks], gaps and rests uint8[n]; and how many exponents are 0."""
    n = numbers.size
    tops, gaps, rests = (np.empty(size, dtype=np.uint8) for size in (-(-n // BLOCK), n, n))
    num_zeros = _call("nuq_split_planes", numbers, n, tops, gaps, rests, threads)
    return (tops, gaps, rests), num_zeros


def join(tops: Bytes, gaps: Bytes, rests: Bytes, threads: int) -> NDArray[np.int16]:
    """The numbers of these planes, whose sizes are the caller's to check."""
    numbers = np.empty(gaps.size, dtype=np.int16)
    _call("nuq_join_planes", tops, gaps, rests, gaps.size, numbers, threads)
    return numbers
