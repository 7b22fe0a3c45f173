"""The two passes of ATOMO over all coordinates in C++ (``src/atoms.cpp``): the bits of ``nuq.kernels.atoms``.

Arrays must be contiguous; ``nuq.kernels.atoms`` checks what it passes.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nuq.native import Signature, call

Floats = NDArray[np.float32]
_LONG, _INT, _WORD, _POINTER, _DOUBLE = ctypes.c_int64, ctypes.c_int, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_double
_SIGNATURES: dict[str, Signature] = {
    "nuq_product_sum": ([_POINTER, _POINTER, _LONG, _LONG, _LONG, _POINTER, _INT], None),
    "nuq_tossed": ([_POINTER, _LONG, _DOUBLE, _WORD, _WORD, _POINTER, _INT], _LONG),
}


def _call(name: str, *arguments: NDArray[Any] | float) -> Any:
    return call(name, _SIGNATURES[name], *arguments)


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
