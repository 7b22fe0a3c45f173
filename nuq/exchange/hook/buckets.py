"""DDP's buckets as vectors: the parameters whose gradients lie in them, and the order of their exchange."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from nuq.exchange.flat_layout import FlatLayout
from nuq.parameters import dense


@dataclass
class Bucket:
    """One bucket on its way through the exchange.

    used: of its parameters those that this rank used, where that is asked.
    """

    buffer: Tensor
    names: tuple[str, ...]
    last: bool
    done: torch.futures.Future[None]
    ready: Any  # torch.cuda.Event, or None on the CPU
    used: frozenset[str] = frozenset()

    def pieces(self, sizes: Mapping[str, int]) -> dict[str, Tensor]:
        """The gradients float[n] by name, as they lie in the buffer.  sizes: of the parameters."""
        return dict(zip(self.names, self.buffer.split([sizes[name] for name in self.names]), strict=True))


@dataclass(frozen=True)
class Plan:
    """The vector in whose form some buckets are exchanged.

    order: its parameters, or None for the one bucket's buffer as it lies.  sizes: coordinates of its parameters, in the
    vector's order.  parameters: the model's, whose memory formats a buffer has.
    """

    layout: FlatLayout
    order: tuple[str, ...] | None
    sizes: Mapping[str, int]
    parameters: Mapping[str, nn.Parameter]

    def vector(self, buckets: Sequence[Bucket]) -> Tensor:
        """The vector float[n]: the buffer itself, or a copy of the gradients, each row after row."""
        if self.order is None:
            (bucket,) = buckets
            return bucket.buffer
        gradients = self._gradients(buckets)
        return torch.cat([gradients[name].reshape(-1) for name in self.order])

    def spread(self, mean: Tensor, buckets: Sequence[Bucket]) -> None:
        """Write the mean into the buckets."""
        if self.order is not None:
            gradients = self._gradients(buckets)
            of = [gradients[name] for name in self.order]
            for gradient, piece in zip(of, mean.split([gradient.numel() for gradient in of]), strict=True):
                gradient.copy_(piece.view(gradient.shape))
        elif mean is not buckets[0].buffer:
            buckets[0].buffer.copy_(mean)

    def _gradients(self, buckets: Sequence[Bucket]) -> dict[str, Tensor]:
        """Views of the buffers by name, as DDP fills them: in a parameter's own memory format, if it has no gaps."""
        views = {}
        for bucket in buckets:
            for name, piece in bucket.pieces({name: self.parameters[name].numel() for name in bucket.names}).items():
                p = self.parameters[name]
                views[name] = piece.as_strided(p.shape, p.stride()) if dense(p) else piece.view(p.shape)
        return views


def emptied(buckets: Sequence[Bucket], sizes: Mapping[str, int], names: Collection[str]) -> Callable[[], None]:
    """Make the gradients of some parameters zero, until what is returned puts them back."""
    every = {name: piece for bucket in buckets for name, piece in bucket.pieces(sizes).items()} if names else {}
    held = [(every[name], every[name].clone()) for name in names]
    for piece, _ in held:
        piece.zero_()

    def put_back() -> None:
        for piece, before in held:
            piece.copy_(before)

    return put_back


def made(
    names: Sequence[str],
    parameters: Mapping[str, nn.Parameter],
    arrange: Callable[[Mapping[str, Sequence[int]]], FlatLayout],
    *,
    waits: bool,
    shaped: bool,
) -> Plan:
    """The plan of a bucket or (waits) of all buckets in the model's order.

    A bucket has one part per parameter, with small neighbours together in full precision.

    shaped: the encoders look at matrices, whose rows must lie one after another.
    """
    listed = [name for name in parameters if name in names] if waits else list(names)
    layout = arrange({name: tuple(parameters[name].shape) for name in listed})
    copied = waits or (shaped and not all(parameters[name].is_contiguous() for name in names))
    order = tuple(layout.arranged(listed)) if copied else None
    return Plan(layout, order, {name: parameters[name].numel() for name in order or names}, parameters)
