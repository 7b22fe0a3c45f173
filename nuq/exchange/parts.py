"""The parts of a model that travel one after another in a round of local steps (Streaming DiLoCo's fragments)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from nuq.exchange.flat_layout import FlatLayout


@dataclass(frozen=True, eq=False)
class Part:
    """Neighboring parameters that travel together as one vector.

    names: in the vector's order; layout: of the vector; at: the local step of a round after which it is sent, 0 for the
    round's end.
    """

    names: tuple[str, ...]
    layout: FlatLayout
    at: int


def parts_of(
    shapes: Mapping[str, Sequence[int]],
    count: int,
    every: int,
    arrange: Callable[[Mapping[str, Sequence[int]]], FlatLayout],
) -> list[Part]:
    """At most ``count`` parts of neighboring tensors, with about as many coordinates in each.

    shapes: of all parameters, in the model's order.  every: local steps of a round, over which parts are sent at even
    distances, the last one at its end.  arrange: the layout of a vector of parameters, from their shapes.
    """
    sizes = {name: math.prod(shape) for name, shape in shapes.items()}
    groups: list[list[str]] = [[] for _ in range(count)]
    total, before = max(sum(sizes.values()), 1), 0
    for name, size in sizes.items():
        groups[min(int(count * (before + size / 2) / total), count - 1)].append(name)  # where its middle lies
        before += size
    made, begins = [], Counter[str]()
    for number, names in enumerate(groups):
        if names:
            layout = _continued(arrange({name: shapes[name] for name in names}), begins)
            made.append(Part(tuple(layout.arranged(names)), layout, (every * (number + 1) // count) % every))
    return made


def _continued(layout: FlatLayout, begins: Counter[str]) -> FlatLayout:
    """A part's layout whose piece of a vector of the whole model (scope=model) begins where the last one ended.

    So every part has a piece of its own of what is remembered.  begins: by vector, which it moves on.
    """
    segments = []
    for own in layout.segments:
        segments.append(replace(own, first=begins[own.name]) if begins[own.name] and not own.exact else own)
        begins[own.name] += 0 if own.exact else own.size
    return FlatLayout(tuple(segments), layout.order)
