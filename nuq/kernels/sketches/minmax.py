"""Min-max sketches: small numbers of many coordinates in few cells, which never return too large a number.

The sketch has ``rows`` rows of ``columns`` cells for every group of coordinates.  In each row a coordinate is hashed to
one cell, which keeps the least number of all that are hashed there; the answer for a coordinate is the largest of its
cells: at most its own number, and less where it shares all its cells with smaller ones (Jiang et al., SketchML, SIGMOD
2018, Section 3.3).

The cells of a group follow each other row by row; coordinate c is in cell ``(h * columns) >> 32`` of a row, h its hash
(``nuq.kernels.operators``, step 6) under the row's words.  On the CPU in C++ where it is built
(``nuq/native/src/cells.cpp``), else in PyTorch: the same bits.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nuq.kernels import reference
from nuq.kernels.cpu import in_cpp
from nuq.kernels.spec import Key, Words
from nuq.native import cells as kernels


@dataclass(frozen=True)
class Sketches:
    """The min-max sketches of groups. columns: int64[groups], of a row; words: of each row's hash."""

    columns: NDArray[np.int64]
    words: tuple[Words, ...]

    @classmethod
    def of(cls, columns: NDArray[np.int64], rows: int, words: Words) -> Sketches:
        """The sketches whose rows are hashed by words mixed from one pair, which a receiver has."""
        return cls(columns, tuple(Key(words[0], words[1], row, "row").words() for row in range(rows)))

    @property
    def num_cells(self) -> int:
        return int(self.columns.sum()) * len(self.words)

    def insert(
        self, ids: Tensor, group_of: NDArray[np.uint8], within: NDArray[np.uint8], most: int
    ) -> tuple[Tensor, Tensor]:
        """The cells, uint8[num_cells], ``most`` where they are empty, and the coordinates' groups, uint8[n].

        ids: uint8[n].  group_of, within: uint8[256], the group and the number within it, at most ``most``, of every id.
        """
        if in_cpp(ids, contiguous=True):
            words = np.array(self.words, dtype=np.uint32)
            given = (ids.numpy(), group_of, within, self.columns, words, most)
            cells, groups = kernels.insert(*given, torch.get_num_threads())
            return torch.from_numpy(cells), torch.from_numpy(groups)
        groups = torch.from_numpy(group_of).to(ids.device)[ids.long()]
        values = torch.from_numpy(within).to(ids.device)[ids.long()]
        cells = torch.full((self.num_cells,), most, dtype=torch.uint8, device=ids.device)
        for row in range(len(self.words)):
            cells.scatter_reduce_(0, self._indices(groups, row), values, "amin")
        return cells, groups

    def query(self, groups: Tensor, cells: Tensor) -> Tensor:
        """The largest cell of every coordinate: uint8[n]. groups: uint8[n], each with columns of its own."""
        if in_cpp(groups, contiguous=True):
            words = np.array(self.words, dtype=np.uint32)
            given = (groups.numpy(), self.columns, words, cells.contiguous().numpy())
            return torch.from_numpy(kernels.query(*given, torch.get_num_threads()))
        found = torch.zeros_like(groups)
        for row in range(len(self.words)):
            found = torch.maximum(found, cells[self._indices(groups, row)])
        return found

    def _indices(self, groups: Tensor, row: int) -> Tensor:
        """The index of every coordinate's cell in one row of its group: int64[n]."""
        wide = groups.long()
        starts = (np.cumsum(self.columns) - self.columns) * len(self.words) + row * self.columns
        start, columns = (torch.from_numpy(values).to(groups.device)[wide] for values in (starts, self.columns))
        hashes = reference.hash_bits(groups.numel(), self.words[row], groups.device).to(torch.int64) & 0xFFFFFFFF
        return start + (hashes * columns >> 32)
