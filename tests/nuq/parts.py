"""Parts of a vector for tests."""

from __future__ import annotations

from nuq.exchange.payload import Segment


def tiled(sizes: dict[str, int]) -> list[Segment]:
    """One vector per name, one after another."""
    parts, start = [], 0
    for name, size in sizes.items():
        parts.append(Segment(name, start, size, shape=(size,)))
        start += size
    return parts
