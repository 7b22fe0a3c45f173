"""DDP's buckets as vectors: whose gradients lie in them, and in which order these are exchanged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from nuq.payload import Part


@dataclass
class Bucket:
    """One bucket on its way.  gradients: views of the buffer, one per name; empty where nobody asks for them."""

    buffer: Tensor
    names: tuple[str, ...]
    last: bool
    done: torch.futures.Future[None]
    ready: Any  # torch.cuda.Event, or None on the CPU
    gradients: list[Tensor]


@dataclass(frozen=True)
class Plan:
    """The vector that some buckets are exchanged as.  order: its parameters, or None for the one bucket's buffer as it lies."""

    parts: list[Part]
    order: tuple[str, ...] | None = None

    def vector(self, buckets: Sequence[Bucket]) -> Tensor:
        """float[n]: the buffer itself, or a copy of the gradients, each row after row."""
        if self.order is None:
            (bucket,) = buckets
            return bucket.buffer
        gradients = _by_name(buckets)
        return torch.cat([gradients[name].reshape(-1) for name in self.order])

    def spread(self, mean: Tensor, buckets: Sequence[Bucket]) -> None:
        """The mean into the buckets."""
        if self.order is not None:
            gradients = _by_name(buckets)
            of = [gradients[name] for name in self.order]
            for gradient, piece in zip(of, mean.split([gradient.numel() for gradient in of]), strict=True):
                gradient.copy_(piece.view(gradient.shape))
        elif mean is not buckets[0].buffer:
            buckets[0].buffer.copy_(mean)


def _by_name(buckets: Sequence[Bucket]) -> dict[str, Tensor]:
    return {name: gradient for bucket in buckets for name, gradient in zip(bucket.names, bucket.gradients, strict=True)}


def named(model: nn.Module) -> dict[str, nn.Parameter]:
    """The trained parameters, by their names without what DDP and torch.compile put before them, where that leaves them apart."""
    trained = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    plain = {_plain(name): p for name, p in trained}
    return plain if len(plain) == len(trained) else dict(trained)


def _plain(name: str) -> str:
    return ".".join(word for word in name.split(".") if word not in ("module", "_orig_mod"))
