"""The two passes of ATOMO over all coordinates in C++ (``src/atoms.cpp``): the bits of ``nuq.kernels.atoms``.

``nuq.kernels.atoms`` checks what it passes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nuq.native import DOUBLE, INT, LONG, POINTER, WORD, calls

Floats = NDArray[np.float32]
_call = calls(
    {
        "nuq_product_sum": ([POINTER, POINTER, LONG, LONG, LONG, POINTER, INT], None),
        "nuq_tossed": ([POINTER, LONG, DOUBLE, WORD, WORD, POINTER, INT], LONG),
    }
)


def product_sum(left: Floats, right: Floats, threads: int) -> Floats:
    """The sum of products: float32[k, m] and float32[k, n] -> float32[m, n]."""
    (k, m), n = left.shape, right.shape[1]
    total = np.empty((m, n), dtype=np.float32)
    _call("nuq_product_sum", left, right, k, m, n, total, threads)
    return total


def tossed(x: Floats, unit: float, words: tuple[int, int], threads: int) -> NDArray[np.int32]:
    """The indices with ``h * unit < |x|``."""
    room = np.empty(x.size, dtype=np.int32)  # what is not written costs no memory
    return room[: _call("nuq_tossed", x, x.size, unit, *words, room, threads)].copy()
