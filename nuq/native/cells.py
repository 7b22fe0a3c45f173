"""Clusters, cells and min-max sketches in C++ (``src/cells.cpp``): the bits of ``nuq.kernels.sketches``.

The callers check what they pass.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nuq.native import INT, LONG, POINTER, WORD, calls

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]
Ints = NDArray[np.int64]
_call = calls(
    {
        "nuq_cell_numbers": ([POINTER, LONG, POINTER, INT, INT, INT, POINTER, INT], None),
        "nuq_cell_counted": ([POINTER, LONG, POINTER, INT], None),
        "nuq_cell_sums": ([POINTER, POINTER, LONG, POINTER, POINTER, LONG, WORD, WORD, POINTER, INT], None),
        "nuq_cell_spread": ([POINTER, LONG, POINTER, POINTER, WORD, WORD, POINTER, INT], INT),
        "nuq_minmax_insert": (
            [POINTER, LONG, POINTER, POINTER, POINTER, POINTER, INT, LONG, INT, POINTER, POINTER, INT],
            None,
        ),
        "nuq_minmax_query": ([POINTER, LONG, POINTER, POINTER, INT, POINTER, POINTER, INT], None),
    }
)


def numbers(x: Floats, thresholds: Floats, first: int, threads: int) -> Bytes:
    """The number of every coordinate's cluster: a binary search in thresholds padded to a power of two."""
    clusters = thresholds.shape[1] + 1
    room = 1 << (clusters - 1).bit_length()
    table = np.full((2, room), np.inf, dtype=np.float32)
    table[:, : clusters - 1] = thresholds
    ids = np.empty(x.size, dtype=np.uint8)
    _call("nuq_cell_numbers", x, x.size, table, room, clusters, first, ids, threads)
    return ids


def counted(ids: Bytes, num_numbers: int, threads: int) -> Ints:
    """The number of coordinates with each cluster number: int64[num_numbers]."""
    counts = np.zeros(256, dtype=np.int64)
    _call("nuq_cell_counted", ids, ids.size, counts, threads)
    return counts[:num_numbers]


def sums(
    x: Floats, ids: Bytes, cells: Ints, scales: NDArray[np.float64], words: tuple[int, int], threads: int
) -> tuple[Ints, Ints]:
    """The integer sums and counts of all cells."""
    total = int(cells.sum())
    found = np.zeros((total, 2), dtype=np.int64)
    _call("nuq_cell_sums", x, ids, x.size, _padded(cells), _padded(scales), total, *words, found, threads)
    return found[:, 0], found[:, 1]


def spread(ids: Bytes, cells: Ints, table: Floats, words: tuple[int, int], threads: int) -> Floats | None:
    """The value of every coordinate's cell; None where a number other than 0 has no cells."""
    out = np.empty(ids.size, dtype=np.float32)
    bad = _call("nuq_cell_spread", ids, ids.size, _padded(cells), table, *words, out, threads)
    return None if bad else out


def insert(
    ids: Bytes, group_of: Bytes, within: Bytes, columns: Ints, words: NDArray[np.uint32], most: int, threads: int
) -> tuple[Bytes, Bytes]:
    """The cells of all groups, each the least number hashed there, or ``most``, and the coordinates' groups."""
    rows = words.size // 2
    cells, groups = np.full(int(columns.sum()) * rows, most, dtype=np.uint8), np.empty(ids.size, dtype=np.uint8)
    given = (ids, ids.size, group_of, within, _padded(columns), words, rows, cells.size, most)
    _call("nuq_minmax_insert", *given, groups, cells, threads)
    return cells, groups


def query(groups: Bytes, columns: Ints, words: NDArray[np.uint32], cells: Bytes, threads: int) -> Bytes:
    """The largest of every coordinate's cells: uint8[n]."""
    found = np.empty(groups.size, dtype=np.uint8)
    _call("nuq_minmax_query", groups, groups.size, _padded(columns), words, words.size // 2, cells, found, threads)
    return found


def _padded(values: NDArray[Any]) -> NDArray[Any]:
    """The values padded to 256, so that no number reads beyond them."""
    return np.concatenate([values, np.zeros(256 - values.size, dtype=values.dtype)])
