"""Floating-point numbers in one pass, in C++ (``src/floats.cpp``).

Those of a message have the bits of ``nuq.compressors.floats``, averages those of ``nuq.compressors.feedback``.
"""

from __future__ import annotations

from nuq.native import FLOAT, INT, LONG, POINTER, calls

_call = calls(
    {
        "nuq_read_floats": ([POINTER, LONG, INT, FLOAT, POINTER, INT, INT], INT),
        "nuq_average_errors": ([POINTER, POINTER, FLOAT, FLOAT, POINTER, LONG, INT], None),
    }
)


def read(
    numbers: int, num_coordinates: int, format: int, factor: float, total: int, accumulate: bool, threads: int
) -> bool:
    """Read into the total float32[n], or add to it; False where a number, times the factor, is not finite.

    numbers, total: addresses of contiguous CPU memory of that size, the numbers' need not be aligned; format: a place
    in ``nuq.compressors.floats.FORMATS``.
    """
    return not _call("nuq_read_floats", numbers, num_coordinates, format, factor, total, accumulate, threads)


def average_errors(
    wanted: int, sent: int, factor: float, weight: float, kept: int, num_coordinates: int, threads: int
) -> None:
    """Move ``kept`` by ``weight`` towards wanted - factor * sent, and write what it was into ``wanted``.

    These are addresses of contiguous float32 numbers in CPU memory.
    """
    _call("nuq_average_errors", wanted, sent, factor, weight, kept, num_coordinates, threads)
