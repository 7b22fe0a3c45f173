"""A matrix times few vectors, and back, in C++ (``src/low_rank.cpp``): the bits of ``nuq.kernels.low_rank``.

Arguments are addresses of contiguous CPU memory, whose sizes the caller vouches for.
"""

from __future__ import annotations

from nuq.native import INT, LONG, POINTER, calls

_ARGUMENTS = {
    "nuq_low_rank_left": [POINTER, LONG, LONG, POINTER, LONG, POINTER, INT],
    "nuq_low_rank_right": [POINTER, LONG, LONG, POINTER, LONG, POINTER, INT],
    "nuq_low_rank_outer": [POINTER, POINTER, LONG, LONG, LONG, POINTER, INT, INT],
}
_call = calls({name: (arguments, None) for name, arguments in _ARGUMENTS.items()})


def left_product(matrix: int, size: int, columns: int, right: int, rank: int, left: int, threads: int) -> None:
    """The product M Q: float32[size], float32[rank, columns] -> float32[rank, rows]."""
    _call("nuq_low_rank_left", matrix, size, columns, right, rank, left, threads)


def right_product(matrix: int, size: int, columns: int, left: int, rank: int, right: int, threads: int) -> None:
    """The product M^T P: float32[size], float32[rank, rows] -> float32[rank, columns]."""
    _call("nuq_low_rank_right", matrix, size, columns, left, rank, right, threads)


def outer_product(
    left: int, right: int, size: int, columns: int, rank: int, total: int, accumulate: bool, threads: int
) -> None:
    """Write P Q^T or add it: float32[rank, rows], float32[rank, columns] -> float32[size]."""
    _call("nuq_low_rank_outer", left, right, size, columns, rank, total, accumulate, threads)
