"""The host side of index coding on a GPU; of all this only ``find_bits`` waits for the GPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from nuq.kernels.cuda.launch import Modules, on

SIZE = 1024  # places or bytes that a program of a bitmap takes


class Rice(NamedTuple):
    """What Rice's codes need, by block."""

    parameters: Tensor  # uint8[blocks]
    low_bits: Tensor  # int64[blocks]
    unary_bits: Tensor  # int64[blocks]


class Classes(NamedTuple):
    """The symbols and contexts that rANS codes, and the low bits beside them."""

    classes: Tensor  # uint8[gaps]
    contexts: Tensor  # uint8[gaps]
    low_bits: Tensor  # int64[blocks]


def _begins(sizes: Tensor) -> Tensor:
    return sizes.cumsum(0) - sizes


def _words(num_bits: int, near: Tensor) -> Tensor:
    return torch.zeros(num_bits // 32 + 1, dtype=torch.int32, device=near.device)


def _bytes(words: Tensor, num_bits: int) -> Tensor:
    return words.view(torch.uint8)[: -(-num_bits // 8)]


@dataclass(frozen=True)
class IndexKernels:
    """The kernels of index coding.  Indices are ascending, int32[k]; blocks are of ``block`` gaps, the last is shorter.

    mantissa: bits of a class after the leading one; contexts are 0 to num_contexts - 1.
    """

    device: Modules
    block: int
    mantissa: int
    num_contexts: int

    def rice(self, indices: Tensor) -> Rice:
        """The parameters of Rice's codes, and their bits."""
        k, blocks = indices.numel(), self._blocks(indices)
        parameters = torch.empty(blocks, dtype=torch.uint8, device=indices.device)
        low_bits, unary_bits = torch.empty(2, blocks, dtype=torch.int64, device=indices.device)
        with on(indices):
            self.device.indices.rice_kernel[(blocks,)](indices, parameters, low_bits, unary_bits, k, BLOCK=self.block)
        return Rice(parameters, low_bits, unary_bits)

    def classes(self, indices: Tensor, parameters: Tensor, smallest: int, every: int = 0) -> Classes:
        """Classes and contexts of all gaps, or of one whole block of ``every``.  smallest: of the parameters."""
        k, blocks = indices.numel(), self._blocks(indices)
        if every:
            blocks = -(-(k // self.block) // every)
        found, contexts = torch.empty(2, min(k, blocks * self.block), dtype=torch.uint8, device=indices.device)
        low_bits = torch.empty(blocks, dtype=torch.int64, device=indices.device)
        numbers = smallest, k, max(every, 1)
        with on(indices):
            self.device.indices.classes_kernel[(blocks,)](
                indices, parameters, found, contexts, low_bits, *numbers, **self._cut, CONTEXTS=self.num_contexts
            )
        return Classes(found, contexts, low_bits)

    def low_bits_of(self, classes: Tensor) -> Tensor:
        """How many low bits blocks of gaps of these classes (uint8[k]) have: int64[blocks]."""
        low_bits = torch.empty(self._blocks(classes), dtype=torch.int64, device=classes.device)
        with on(classes):
            self.device.indices.low_bits_kernel[(low_bits.numel(),)](classes, low_bits, classes.numel(), **self._cut)
        return low_bits

    def write_rice(self, indices: Tensor, codes: Rice, low_bits: int, unary_bits: int) -> tuple[Tensor, Tensor]:
        """The low bits of all gaps, and their quotients in unary: uint8[bytes].  The numbers: of all blocks."""
        low, unary = _words(low_bits, indices), _words(unary_bits, indices)
        self._write(indices, codes.parameters, codes.low_bits, codes.unary_bits, low, unary)
        return _bytes(low, low_bits), _bytes(unary, unary_bits)

    def write_low(self, indices: Tensor, by_block: Tensor, low_bits: int) -> Tensor:
        """The low bits of all gaps beside classes: uint8[bytes].  by_block: their number; low_bits: the sum of that."""
        low = _words(low_bits, indices)
        self._write(indices, None, by_block, by_block, low, low)  # without parameters unary is not written
        return _bytes(low, low_bits)

    def _write(
        self,
        indices: Tensor,
        parameters: Tensor | None,
        low_bits: Tensor,
        unary_bits: Tensor,
        low: Tensor,
        unary: Tensor,
    ) -> None:
        given = low_bits if parameters is None else parameters
        begins, rice = (_begins(low_bits), _begins(unary_bits)), parameters is not None
        with on(indices):
            self.device.indices.write_kernel[(self._blocks(indices),)](
                indices, given, *begins, low, unary, indices.numel(), **self._cut, RICE=rice
            )

    def read(self, heads: Tensor, parameters: Tensor | None, by_block: Tensor, low: Tensor, n: int) -> Tensor:
        """The indices int64[k], from n on beyond it once a gap is.

        heads: the places of the ones in unary, int32[k], for Rice's parameters; or classes, uint8[k].  by_block: how
        many low bits a block has; low: those, uint8[bytes].
        """
        steps = torch.empty(heads.numel(), dtype=torch.int64, device=heads.device)
        given, numbers = by_block if parameters is None else parameters, (low.numel(), n + 1, heads.numel())
        with on(heads):
            self.device.indices.read_kernel[(self._blocks(heads),)](
                heads, given, _begins(by_block), low, steps, *numbers, **self._cut, RICE=parameters is not None
            )
        return steps.cumsum(0) - 1

    def set_bits(self, places: Tensor, n: int) -> Tensor:
        """A bitmap of n bits, of which those at the places (int32[k]) are set: uint8[ceil(n / 8)]."""
        words, k = _words(n, places), places.numel()
        with on(places):
            self.device.indices.set_kernel[(-(-k // SIZE),)](places, words, k, SIZE=SIZE)
        return _bytes(words, n)

    def find_bits(self, bitmap: Tensor, k: int) -> Tensor | None:
        """The places of the bits that are set, ascending, int32[k]; None for another number of them, or 2^31 bits."""
        size, programs = bitmap.numel(), -(-bitmap.numel() // SIZE)
        counts = torch.empty(programs, dtype=torch.int32, device=bitmap.device)
        with on(bitmap):
            self.device.indices.count_kernel[(programs,)](bitmap, counts, size, SIZE=SIZE)
            if 8 * size >= 1 << 31 or int(counts.sum()) != k:
                return None
            places = torch.empty(k, dtype=torch.int32, device=bitmap.device)
            self.device.indices.find_kernel[(programs,)](bitmap, _begins(counts), places, size, SIZE=SIZE)
        return places

    def _blocks(self, gaps: Tensor) -> int:
        return -(-gaps.numel() // self.block)

    @property
    def _cut(self) -> dict[str, Any]:
        return {"BLOCK": self.block, "MANTISSA": self.mantissa}
