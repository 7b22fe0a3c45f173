"""Layouts of vectors for tests, flat vectors, and the lengths of frames."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from nuq.exchange.flat_layout import FlatLayout, Segment


def flat(parts: Iterable[Tensor]) -> Tensor:
    """The parts one after another, as one vector."""
    return torch.cat([part.reshape(-1) for part in parts])


def tiled(sizes: dict[str, int], *more: Segment) -> FlatLayout:
    """One segment per name, one after another, and some more."""
    segments, start = [], 0
    for name, size in sizes.items():
        segments.append(Segment(name, start, size, shape=(size,)))
        start += size
    return FlatLayout((*segments, *more))


def frame_bytes(*body_bytes: int) -> int:
    """The length of a frame by hand: a head, an entry for each message, and bodies in steps of 4 bytes."""
    return 12 + sum(16 + (size + 3) // 4 * 4 for size in body_bytes)
