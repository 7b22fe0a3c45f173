"""The floating-point numbers of a message in C++ (``src/floats.cpp``): the bits of ``nuq.compressors.floats``."""

from __future__ import annotations

import ctypes

from nuq.native import functions

_POINTER, _LONG, _INT, _FLOAT = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int, ctypes.c_float
_function = functions({"nuq_read_floats": ([_POINTER, _LONG, _INT, _FLOAT, _POINTER, _INT, _INT], _INT)})


def read(
    numbers: int, num_coordinates: int, format: int, factor: float, total: int, accumulate: bool, threads: int
) -> bool:
    """Read into the total float32[n], or add to it; False where a number, times the factor, is not finite.

    numbers, total: addresses of contiguous CPU memory of that size, the numbers' need not be aligned; format: a place
    in ``nuq.compressors.floats.FORMATS``.
    """
    return not _function("nuq_read_floats")(numbers, num_coordinates, format, factor, total, accumulate, threads)
