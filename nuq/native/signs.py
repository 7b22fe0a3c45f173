"""One bit per coordinate in C++ (``src/signs.cpp``): the bits of ``nuq.kernels.signs``.

Arguments are addresses of contiguous CPU memory, whose sizes the caller vouches for.
"""

from __future__ import annotations

import ctypes
from typing import Any

from nuq.native import functions

_POINTER, _LONG, _INT = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int
_SIGNATURES: dict[str, list[Any]] = {
    "nuq_pack_sides": [_POINTER, _LONG, _POINTER, _INT],
    "nuq_sum_sides": [_POINTER, _LONG, _LONG, _POINTER, _POINTER, _INT],
    "nuq_write_sides": [_POINTER, _POINTER, _LONG, _LONG, _POINTER, _INT, _INT],
}
_function = functions({name: (arguments, None) for name, arguments in _SIGNATURES.items()})


def pack_sides(vector: int, num_coordinates: int, bits: int, threads: int) -> None:
    """Pack the sides of coordinates: float32[n] -> uint8[ceil(n / 8)]."""
    _function("nuq_pack_sides")(vector, num_coordinates, bits, threads)


def sum_sides(vector: int, num_coordinates: int, bucket_size: int, sums: int, counts: int, threads: int) -> None:
    """Sum each side of every bucket: float32[n] -> float64[buckets, 2] and int64[buckets].

    The bucket size is at most n.
    """
    _function("nuq_sum_sides")(vector, num_coordinates, bucket_size, sums, counts, threads)


def write_sides(
    bits: int, values: int, num_coordinates: int, bucket_size: int, total: int, accumulate: bool, threads: int
) -> None:
    """Write the values of sides: uint8[ceil(n / 8)] and float32[buckets, 2] -> float32[n]."""
    _function("nuq_write_sides")(bits, values, num_coordinates, bucket_size, total, accumulate, threads)
