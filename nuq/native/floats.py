"""The floating-point numbers of a message in C++ (``src/floats.cpp``): the bits of ``nuq.compressors.floats``."""

from __future__ import annotations

from nuq.native import FLOAT, INT, LONG, POINTER, calls

_call = calls({"nuq_read_floats": ([POINTER, LONG, INT, FLOAT, POINTER, INT, INT], INT)})


def read(
    numbers: int, num_coordinates: int, format: int, factor: float, total: int, accumulate: bool, threads: int
) -> bool:
    """Read into the total float32[n], or add to it; False where a number, times the factor, is not finite.

    numbers, total: addresses of contiguous CPU memory of that size, the numbers' need not be aligned; format: a place
    in ``nuq.compressors.floats.FORMATS``.
    """
    return not _call("nuq_read_floats", numbers, num_coordinates, format, factor, total, accumulate, threads)
