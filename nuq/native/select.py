"""Selection of coordinates in one or two passes in C++ (``src/select.cpp``).

The indices are those that ``nuq.kernels.selection``'s PyTorch finds.

Arrays must be contiguous; ``nuq.kernels.selection`` checks what it passes.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nuq.native import Signature, call

Floats = NDArray[np.float32]
Indices = NDArray[np.int32]
_LONG, _INT, _WORD, _POINTER = ctypes.c_int64, ctypes.c_int, ctypes.c_uint32, ctypes.c_void_p
_SIGNATURES: dict[str, Signature] = {
    "nuq_top_magnitudes": ([_POINTER, _LONG, _LONG, _LONG, _LONG, _POINTER, _INT], _LONG),
    "nuq_top_hashes": ([_LONG, _LONG, _LONG, _LONG, _WORD, _WORD, _POINTER, _INT], None),
    "nuq_at_least": ([_POINTER, _LONG, _WORD, _POINTER, _INT], _LONG),
    "nuq_top_of": ([_POINTER, _POINTER, _LONG, _LONG, _POINTER], None),
    "nuq_half_of_largest": ([_POINTER, _LONG, _LONG, _POINTER, _INT], _LONG),
    "nuq_scatter": ([_POINTER, _POINTER, _LONG, _POINTER, _INT], None),
}


def _call(name: str, *arguments: NDArray[Any] | int) -> Any:
    return call(name, _SIGNATURES[name], *arguments)


def top(x: Floats, bucket: int, k: int, k_last: int, total: int, threads: int) -> Indices | None:
    """The indices of the k largest of every bucket (k_last of the last), ``total`` in all.

    None where a coordinate is not finite.
    """
    indices = np.empty(total, dtype=np.int32)
    return indices if _call("nuq_top_magnitudes", x, x.size, bucket, k, k_last, indices, threads) else None


def chosen(n: int, bucket: int, k: int, k_last: int, total: int, words: tuple[int, int], threads: int) -> Indices:
    """The indices of the k of every bucket with the smallest random numbers."""
    indices = np.empty(total, dtype=np.int32)
    _call("nuq_top_hashes", n, bucket, k, k_last, *words, indices, threads)
    return indices


def at_least(x: Floats, bits: int, threads: int) -> Indices | None:
    """The indices whose |x| has at least these bits; None where a coordinate is not finite."""
    room = np.empty(x.size, dtype=np.int32)  # what is not written costs no memory
    return _kept(room, _call("nuq_at_least", x, x.size, bits, room, threads))


def half_of_largest(x: Floats, bucket: int, threads: int) -> Indices | None:
    """The indices with 2|x| >= the largest |x| of their bucket; None where a coordinate is not finite."""
    room = np.empty(x.size, dtype=np.int32)
    return _kept(room, _call("nuq_half_of_largest", x, x.size, bucket, room, threads))


def _kept(room: Indices, count: int) -> Indices | None:
    """The indices found.

    They are a copy, which gives back the rest of the room, unless they take most of it.
    """
    if count < 0:
        return None
    return room[:count] if 2 * count > room.size else room[:count].copy()


def top_of(x: Floats, indices: Indices, k: int) -> Indices:
    """The k of these indices with the largest values."""
    kept = np.empty(k, dtype=np.int32)
    _call("nuq_top_of", x, indices, indices.size, k, kept)
    return kept


def scatter(indices: Indices, values: Floats, total: Floats, accumulate: bool) -> None:
    """Write or add values at indices: total[indices] += values, or =.

    The indices differ and lie within the total.
    """
    _call("nuq_scatter", indices, values, indices.size, total, accumulate)
