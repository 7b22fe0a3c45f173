"""Selection of coordinates in one or two passes in C++ (``src/select.cpp``): the indices that PyTorch finds, too.

``nuq.kernels.selection`` checks what it passes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nuq.native import INT, LONG, POINTER, WORD, calls

Floats = NDArray[np.float32]
Indices = NDArray[np.int32]
_call = calls(
    {
        "nuq_top_magnitudes": ([POINTER, LONG, LONG, LONG, LONG, POINTER, INT], LONG),
        "nuq_top_hashes": ([LONG, LONG, LONG, LONG, WORD, WORD, POINTER, INT], None),
        "nuq_at_least": ([POINTER, LONG, WORD, POINTER, INT], LONG),
        "nuq_top_of": ([POINTER, POINTER, LONG, LONG, POINTER], None),
        "nuq_half_of_largest": ([POINTER, LONG, LONG, POINTER, INT], LONG),
        "nuq_scatter": ([POINTER, POINTER, LONG, POINTER, INT], None),
    }
)


def top(x: Floats, bucket: int, k: int, k_last: int, total: int, threads: int) -> Indices | None:
    """The ``total`` indices of the k largest of every bucket (k_last of the last); None for one not finite."""
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
    """The indices found: a copy, which gives back the rest of the room, unless they take most of it."""
    if count < 0:
        return None
    return room[:count] if 2 * count > room.size else room[:count].copy()


def top_of(x: Floats, indices: Indices, k: int) -> Indices:
    """The k of these indices with the largest values."""
    kept = np.empty(k, dtype=np.int32)
    _call("nuq_top_of", x, indices, indices.size, k, kept)
    return kept


def scatter(indices: Indices, values: Floats, total: Floats, accumulate: bool) -> None:
    """Write or add values: total[indices] += values, or =; the indices differ and lie within the total."""
    _call("nuq_scatter", indices, values, indices.size, total, accumulate)
