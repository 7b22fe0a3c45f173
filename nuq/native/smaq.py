"""SmaQ in C++ (``src/smaq.cpp``): the bits of ``nuq.kernels.smaq``.

Tensors go as addresses of contiguous CPU memory.
"""

from __future__ import annotations

import ctypes
from typing import Any

from nuq.native import functions

_POINTER, _LONG, _INT, _WORD = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32, ctypes.c_uint32
_FLOAT, _DOUBLE = ctypes.c_float, ctypes.c_double
_SIGNATURES: dict[str, tuple[list[Any], Any]] = {
    "nuq_smaq_measure": ([_POINTER, _DOUBLE, _POINTER, _POINTER, _INT], _LONG),
    "nuq_smaq_room": ([_LONG], _LONG),
    "nuq_smaq_encode": ([_POINTER, _POINTER, _POINTER, _POINTER, _POINTER, _INT], _LONG),
    "nuq_smaq_join": ([_LONG, _POINTER, _POINTER, _POINTER, _INT], None),
    "nuq_smaq_decode": ([_POINTER, _POINTER, _POINTER, _POINTER, _LONG, _INT], _INT),
}
_function = functions(_SIGNATURES)


class Job(ctypes.Structure):
    """The record of ``src/smaq.h``.

    dtype: the place in ``nuq.kernels.spec.DTYPES``; the others as ``nuq.kernels.smaq`` names them.
    """

    _fields_ = [
        *((name, _POINTER) for name in ("vector", "total", "table")),
        ("size", _LONG),
        *(
            (name, _INT)
            for name in ("dtype", "masked", "constant", "low_bits", "extra_bits", "stochastic", "accumulate")
        ),
        *(
            (name, _FLOAT)
            for name in (
                "factor",
                "mean",
                "inverse",
                "threshold",
                "small_slope",
                "large_slope",
                "small_most",
                "large_most",
            )
        ),
        *((name, _WORD) for name in ("k0", "k1")),
    ]


def measure(job: Job, pivot: float, threads: int) -> tuple[float, float, int, float, float]:
    """Measure a vector by step 1: sum, squares, zeros, lowest, highest."""
    sums, bounds = (_DOUBLE * 2)(), (_FLOAT * 2)()
    zeros = _function("nuq_smaq_measure")(ctypes.byref(job), pivot, sums, bounds, threads)
    return sums[0], sums[1], zeros, bounds[0], bounds[1]


def room_bytes(num_coordinates: int) -> int:
    """The number of bytes that ``encode`` needs to write."""
    return _function("nuq_smaq_room")(num_coordinates)


def encode(job: Job, codes: int, outliers: int, room: int, sizes: int, threads: int) -> int:
    """Encode by steps 3 to 5 into ``room`` (``room_bytes``), with gaps; returns the bytes without them.

    codes, outliers: uint16[blocks], what every block has of them; sizes: int64[blocks], for ``join``.
    """
    return _function("nuq_smaq_encode")(ctypes.byref(job), codes, outliers, room, sizes, threads)


def join(num_coordinates: int, room: int, sizes: int, to: int, threads: int) -> None:
    """The bytes that ``encode`` left in ``room``, without its gaps."""
    _function("nuq_smaq_join")(num_coordinates, room, sizes, to, threads)


def decode(job: Job, codes: int, outliers: int, data: int, num_bytes: int, threads: int) -> bool:
    """Decode by step 6; False where the bytes are damaged, the total being as it was."""
    return not _function("nuq_smaq_decode")(ctypes.byref(job), codes, outliers, data, num_bytes, threads)
