"""What messages of compressed FSDP2 left out, by parameter.

FSDP gives a reduce-scatter one vector of those parameters of a module that have gradients in this step.  Where they
take turns (experts, frozen layers), the vector is made of others, perhaps at the same length.  A method encodes a
vector whole, so the memory lies as the vector does.  When the vector changes, the memory of the parameters that are no
longer in it is put aside, and that of those which come back is put in place.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from nuq.compressors.feedback import AveragedErrors, ErrorFeedback
from nuq.exchange.compressor_map import CompressorMap
from nuq.fsdp_overlap import inside_backward
from nuq.settings.fsdp import Fsdp

Parts = Sequence[Any]  # FSDP's own records of parameters (``FSDPParam``), which stay where a parameter is replaced


def size_of(part: Any) -> int:
    """The coordinates of a parameter in a rank's part of the vector."""
    return part.padded_sharded_param_size.numel()


def reduced_now(size: int) -> Parts | None:
    """The parameters whose gradients FSDP is about to reduce, in the order of the vector.

    FSDP gives its callable a vector alone.  So this reads the variable of FSDP's function that has the parameters: only
    the callable itself may call it.  None, with a UserWarning in a backward pass, where another torch has no such
    variable.  size: the coordinates of a shard, which those of the parameters must come to.
    """
    # the frame is not kept: a frame that a variable of its own names would hold all gradients until Python collects it
    parts = sys._getframe(2).f_locals.get("fsdp_params")  # pyright: ignore[reportPrivateUsage]
    try:
        if parts and sum(map(size_of, parts)) == size:
            return list(parts)
    except (AttributeError, TypeError):  # of another torch
        pass
    if inside_backward():
        why = f"torch {torch.__version__} does not tell which parameters have gradients"
        remedy = "where they take turns in that, they get each other's memory; give feedback='none' there"
        warnings.warn(f"compress_fsdp(feedback='average'): {why}: {remedy}", stacklevel=3)
    return None


def remembering(compressors: CompressorMap, chosen: Fsdp) -> list[MemoryByParameter]:
    """Put a moving average of errors around a method, if the settings ask for one.  Returns its memories."""
    if chosen.feedback != "average":
        return []
    how = {"weight": chosen.beta, "reset_every": chosen.reset_every}
    compressors.surround(lambda encoder: AveragedErrors(encoder, {}, **how))  # sizes: once they are known
    for memory in compressors.memories:
        memory.may_undo = True
    return [MemoryByParameter(memory, chosen.reset_every) for memory in compressors.memories]


class MemoryByParameter:
    """The memory of the vectors of one module, each of which is ``rows`` shards of its parameters.

    around: has the memory of the last vector.  reset_every: steps after which all of it begins anew, 0 for never.
    """

    def __init__(self, around: ErrorFeedback, reset_every: int) -> None:
        self.around, self._reset_every = around, reset_every
        self._parts: Parts | None = None  # of the last vector; None where nobody knows them
        self._rows = self._size = 0  # of the last vector: its shards, and the coordinates of each
        self._aside: dict[Any, Tensor] = {}  # float32[rows, size], of parameters that were not in it

    def forget(self) -> None:
        """Remember nothing of earlier messages."""
        self._parts, self._rows, self._size, self._aside = None, 0, 0, {}
        self.around.sizes, self.around.memories = {}, {}

    def turn(self, name: str, worker: int, rows: int, size: int, parts: Parts | None, step: int) -> None:
        """Put the memory of the next vector in place.  That of parameters which are not in it stays as it is.

        name, rows, size, parts: the vector's, its shards, their length and its parameters.  If the parameters are not
        known (None), a vector of another length begins without a memory.  worker: whose memory it is.  step: of the
        next message.
        """
        begins = bool(self._reset_every) and step % self._reset_every == 0
        if (rows, size) == (self._rows, self._size) and (parts == self._parts or None in (parts, self._parts)):
            self._parts = parts if self._parts is None else self._parts
        else:
            self._put_aside()
            if rows != self._rows or begins:
                self._aside = {}
            found = {part: self._aside.pop(part) for part in parts or () if part in self._aside}
            self._parts, self._rows, self._size = parts, rows, size
            self.around.sizes, self.around.memories = {name: rows * size}, {}
            if found:
                like = next(iter(found.values()))
                pieces = [found.get(part, like.new_zeros(rows, size_of(part))) for part in parts or ()]
                self.take(name, worker, torch.cat(pieces, dim=1))
        if begins:
            self._aside = {}

    def take(self, name: str, worker: int, rows: Tensor) -> None:
        """Take over the memory of the last vector, float32[rows, size]."""
        self.around.memories = {worker: {"residuals": {name: rows.reshape(-1)}}}

    def _put_aside(self) -> None:
        for of_worker in self.around.memories.values() if self._parts else ():
            for vector in of_worker["residuals"].values():
                sizes = [size_of(part) for part in self._parts or ()]
                pieces = vector.view(self._rows, -1).split(sizes, dim=1)
                self._aside |= {part: piece.clone() for part, piece in zip(self._parts or (), pieces, strict=True)}
