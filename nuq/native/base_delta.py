"""Blocks of base and deltas in C++ (``src/base_delta.cpp``): the bits of ``nuq.coding.base_delta``.

Tensors go as addresses of contiguous CPU memory.
"""

from __future__ import annotations

import ctypes
from typing import Any

from nuq.native import functions

_POINTER, _LONG, _INT, _WORD = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int, ctypes.c_uint32
_SIGNATURES: dict[str, tuple[list[Any], Any]] = {
    "nuq_base_delta_room": ([_LONG, _INT], _LONG),
    "nuq_base_delta_encode": ([_POINTER, _LONG, _INT, _INT, _WORD, _WORD, _POINTER, _POINTER, _POINTER, _INT], _LONG),
    "nuq_base_delta_decode": ([_POINTER, _POINTER, _POINTER, _POINTER, _LONG, _INT, _POINTER, _LONG, _INT, _INT], None),
}
_function = functions(_SIGNATURES)


def room_bytes(num_coordinates: int, bits: int) -> int:
    """The number of bytes that ``encode`` needs to write."""
    return _function("nuq_base_delta_room")(num_coordinates, bits)


def encode(
    vector: int,
    num_coordinates: int,
    bits: int,
    words: tuple[int, int] | None,
    kinds: int,
    exponents: int,
    data: int,
    threads: int,
) -> int:
    """Encode float32[n] and return the number of bytes in ``data``.

    The kinds and exponents are uint8[blocks], the blocks' bytes go to ``data`` (``room_bytes``).

    words: of the key; None rounds to the nearest.
    """
    k0, k1 = words or (0, 0)
    return _function("nuq_base_delta_encode")(
        vector, num_coordinates, bits, words is not None, k0, k1, kinds, exponents, data, threads
    )


def decode(
    kinds: int,
    exponents: int,
    starts: int,
    data: int,
    num_bytes: int,
    bits: int,
    total: int,
    num_coordinates: int,
    accumulate: bool,
    threads: int,
) -> None:
    """Decode into the total float32[n], or add to it.

    starts: int64[blocks], where in ``data`` every block begins; the caller has checked kinds and exponents, and that
    all of it is there.
    """
    _function("nuq_base_delta_decode")(
        kinds, exponents, starts, data, num_bytes, bits, total, num_coordinates, accumulate, threads
    )
