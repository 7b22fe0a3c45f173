"""One bit per coordinate in C++ (``src/signs.cpp``): the bits of ``nuq.kernels.signs``.

Arguments are addresses of contiguous CPU memory, whose sizes the caller vouches for.
"""

from __future__ import annotations

from nuq.native import INT, LONG, POINTER, calls

_ARGUMENTS = {
    "nuq_pack_sides": [POINTER, LONG, POINTER, INT],
    "nuq_sum_sides": [POINTER, LONG, LONG, POINTER, POINTER, INT],
    "nuq_write_sides": [POINTER, POINTER, LONG, LONG, POINTER, INT, INT],
}
_call = calls({name: (arguments, None) for name, arguments in _ARGUMENTS.items()})


def pack_sides(vector: int, num_coordinates: int, bits: int, threads: int) -> None:
    """Pack the sides of coordinates: float32[n] -> uint8[ceil(n / 8)]."""
    _call("nuq_pack_sides", vector, num_coordinates, bits, threads)


def sum_sides(vector: int, num_coordinates: int, bucket_size: int, sums: int, counts: int, threads: int) -> None:
    """Sum each side of every bucket of at most n: float32[n] -> float64[buckets, 2] and int64[buckets]."""
    _call("nuq_sum_sides", vector, num_coordinates, bucket_size, sums, counts, threads)


def write_sides(
    bits: int, values: int, num_coordinates: int, bucket_size: int, total: int, accumulate: bool, threads: int
) -> None:
    """Write the values of sides: uint8[ceil(n / 8)] and float32[buckets, 2] -> float32[n]."""
    _call("nuq_write_sides", bits, values, num_coordinates, bucket_size, total, accumulate, threads)
