"""Random rounding to shorter floating-point codes in C++ (``src/casts.cpp``): the bits of ``nuq.kernels.casts``."""

from __future__ import annotations

from nuq.native import FLOAT, INT, LONG, POINTER, WORD, calls

FORMATS = ("bf16", "fp16", "natural", "fp8")
_call = calls({"nuq_cast": ([POINTER, LONG, INT, POINTER, FLOAT, *[WORD] * 6, INT], None)})


def cast(
    vector: int,
    num_coordinates: int,
    format: str,
    codes: int,
    noise: tuple[int, int, int, int],
    threads: int,
    *,
    scale: float = 1.0,
    most: int = 0,
    least: int = 1,
) -> None:
    """Cast float32[n] to n codes: bytes for natural and fp8, else uint16.

    vector, codes: addresses of contiguous CPU memory of that size; noise: k0, k1, own, workers; scale, most, least: see
    ``src/casts.h``.
    """
    _call("nuq_cast", vector, num_coordinates, FORMATS.index(format), codes, scale, most, least, *noise, threads)
