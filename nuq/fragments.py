"""The fragments of an outer loop (``nuq.outer``): parts of a model that travel one after another in a round."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from nuq.compressors.feedback import ErrorFeedback
from nuq.exchange.finite import first_not_finite, largest
from nuq.exchange.flat_layout import FlatLayout
from nuq.exchange.parts import parts_of
from nuq.kernels.spec import Key


@dataclass(frozen=True)
class Arrived:
    """A mean of the ranks' moves, float32[n], and what this rank remembered before it sent its own (``kept``)."""

    mean: Tensor
    before: list[Tensor]


@dataclass
class Fragment:
    """A part of the model that travels together.

    parameters: in the order of ``layout``.  at: the local step of a round after which it is sent.  outer, momentum:
    float32[n], what the outer optimizer has of it, alike on all ranks.  coming: the mean of the ranks' moves, on its
    way; due: the local step after which it is taken over.  left: where the last exchange failed on this rank, what its
    own message left out (``kept``).
    """

    parameters: dict[str, nn.Parameter]
    layout: FlatLayout
    at: int
    outer: Tensor
    momentum: Tensor
    coming: Future[Arrived] | None = None
    due: int = 0
    left: list[Tensor] = field(default_factory=list)

    def local(self) -> Tensor:
        """This rank's own parameters: float32[n]."""
        return torch.cat([p.detach().reshape(-1).to(torch.float32) for p in self.parameters.values()])

    def split(self, vector: Tensor) -> dict[str, Tensor]:
        """A vector as views in the parameters' shapes."""
        pieces = vector.split([p.numel() for p in self.parameters.values()])
        return {name: piece.view(p.shape) for (name, p), piece in zip(self.parameters.items(), pieces, strict=True)}

    def at_fault(self, vector: Tensor) -> str:
        """The parameter of the first coordinate that is not finite, or else of the largest one."""
        pieces = self.split(vector)
        number = first_not_finite(pieces.values())
        return list(pieces)[largest(list(pieces.values())) if number is None else number]

    def write(self, vector: Tensor) -> None:
        """Set this rank's parameters."""
        with torch.no_grad():
            for p, piece in zip(self.parameters.values(), self.split(vector).values(), strict=True):
                p.copy_(piece)

    def kept(self, memories: Sequence[ErrorFeedback], key: Key) -> list[Tensor]:
        """What a rank's messages left out of it, as views of the memories: float32[size], by memory and vector."""
        return [
            view
            for memory in memories
            for own in self.layout.segments
            if not own.exact
            for view in memory.place(key.of(own.key_name), self.outer[own.place]).values()
        ]


def fragments_of(
    parameters: Mapping[str, nn.Parameter],
    count: int,
    every: int,
    arrange: Callable[[Mapping[str, Sequence[int]]], FlatLayout],
) -> list[Fragment]:
    """The parts of these parameters (``parts_of``), as the first parameters have them."""
    made = []
    for part in parts_of({name: p.shape for name, p in parameters.items()}, count, every, arrange):
        own = {name: parameters[name] for name in part.names}
        fragment = Fragment(own, part.layout, part.at, torch.empty(0), torch.empty(0))
        fragment.outer = fragment.local()
        fragment.momentum = torch.zeros_like(fragment.outer)
        made.append(fragment)
    return made
