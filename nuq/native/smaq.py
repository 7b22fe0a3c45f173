"""SmaQ in C++ (``src/smaq.cpp``): the bits of ``nuq.kernels.smaq``.

Tensors go as addresses of contiguous CPU memory.
"""

from __future__ import annotations

import ctypes

from nuq.native import DOUBLE, FLOAT, INT, LONG, POINTER, WORD, calls

_call = calls(
    {
        "nuq_smaq_measure": ([POINTER, DOUBLE, POINTER, POINTER, INT], LONG),
        "nuq_smaq_room": ([LONG], LONG),
        "nuq_smaq_encode": ([POINTER, POINTER, POINTER, POINTER, POINTER, INT], LONG),
        "nuq_smaq_join": ([LONG, POINTER, POINTER, POINTER, INT], None),
        "nuq_smaq_decode": ([POINTER, POINTER, POINTER, POINTER, LONG, INT], INT),
    }
)


class Job(ctypes.Structure):
    """The record of ``src/smaq.h``; dtype: the place in ``spec.DTYPES``, the others as in ``nuq.kernels.smaq``."""

    _fields_ = [
        *((name, POINTER) for name in ("vector", "total", "table")),
        ("size", LONG),
        *(
            (name, INT)
            for name in ["dtype", "masked", "constant", "low_bits", "extra_bits", "stochastic", "accumulate"]
        ),
        *((name, FLOAT) for name in ["factor", "mean", "inverse", "threshold"]),
        *((name, FLOAT) for name in ["small_slope", "large_slope", "small_most", "large_most"]),
        *((name, WORD) for name in ("k0", "k1", "own", "workers")),
    ]


def measure(job: Job, pivot: float, threads: int) -> tuple[float, float, int, float, float]:
    """Measure a vector by step 1: sum, squares, zeros, lowest, highest."""
    sums, bounds = (DOUBLE * 2)(), (FLOAT * 2)()
    zeros = _call("nuq_smaq_measure", ctypes.byref(job), pivot, sums, bounds, threads)
    return sums[0], sums[1], zeros, bounds[0], bounds[1]


def room_bytes(num_coordinates: int) -> int:
    """The number of bytes that ``encode`` needs to write."""
    return _call("nuq_smaq_room", num_coordinates)


def encode(job: Job, codes: int, outliers: int, room: int, sizes: int, threads: int) -> int:
    """Encode by steps 3 to 5 into ``room`` (``room_bytes``), with gaps; returns the bytes without them.

    codes, outliers: uint16[blocks], what every block has of them; sizes: int64[blocks], for ``join``.
    """
    return _call("nuq_smaq_encode", ctypes.byref(job), codes, outliers, room, sizes, threads)


def join(num_coordinates: int, room: int, sizes: int, to: int, threads: int) -> None:
    """The bytes that ``encode`` left in ``room``, without its gaps."""
    _call("nuq_smaq_join", num_coordinates, room, sizes, to, threads)


def decode(job: Job, codes: int, outliers: int, data: int, num_bytes: int, threads: int) -> bool:
    """Decode by step 6; False where the bytes are damaged, the total being as it was."""
    return not _call("nuq_smaq_decode", ctypes.byref(job), codes, outliers, data, num_bytes, threads)
