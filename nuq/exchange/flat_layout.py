"""The place of every parameter in the flat vector that is exchanged, and its part of the vector.

A method with scope=tensor gets one part per parameter, with scope=model one part of all its parameters.  Where those
are no neighbours in the model (``nuq.settings.layers``: they are those of one line), the vector lists the parameters in
another order than the model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from nuq.exchange.payload import Segment


@dataclass(frozen=True)
class FlatLayout:
    """The order of the parameters in a flat vector, and the vector's parts.

    order: of the vector's parameters, as their numbers in the model; None where it is the model's own.
    """

    parts: list[Segment]
    order: tuple[int, ...] | None = None

    def arranged(self, of_parameters: Sequence[Any]) -> Sequence[Any]:
        """Items, one for every parameter, from the model's order into the vector's order."""
        return of_parameters if self.order is None else [of_parameters[number] for number in self.order]

    def restored(self, vector: Tensor, sizes: Sequence[int]) -> Tensor:
        """A vector in the model's order, from one in this order.

        sizes: coordinates of the model's parameters.
        """
        if self.order is None:
            return vector
        pieces = dict(zip(self.order, vector.split([sizes[number] for number in self.order]), strict=True))
        return torch.cat([pieces[number] for number in range(len(sizes))])


def arranged(
    shapes: Mapping[str, Sequence[int]],
    encoders: Mapping[str, int],
    vector_names: Sequence[str | None],
    exact: Callable[[str], bool] = lambda name: False,
) -> FlatLayout:
    """The flat layout of some parameters, given the encoder of each.

    shapes: of the parameters, in the model's order.  encoders: the number of every parameter's encoder. vector_names:
    by encoder, the name of the one vector of scope=model, None for scope=tensor.  exact: whether a parameter travels in
    full precision, whatever its encoder; such neighbours are one part.
    """
    numbers = {name: number for number, name in enumerate(shapes)}
    groups: dict[str, list[str]] = {}  # parameters by the part they are in
    for name in shapes:
        whole = None if exact(name) else vector_names[encoders[name]]
        groups.setdefault(f"scope=model of {encoders[name]}" if whole is not None else f"parameter {name}", []).append(
            name
        )
    parts: list[Segment] = []
    start = 0
    for names in groups.values():
        first = names[0]
        encoder, size = encoders[first], sum(_num_coordinates(shapes[name]) for name in names)
        if exact(first):
            if parts and parts[-1].exact:
                parts[-1] = replace(parts[-1], name=f"{parts[-1].name}, {first}", size=parts[-1].size + size)
            else:
                parts.append(Segment(first, start, size, exact=True))
        elif vector_names[encoder] is not None:
            parts.append(Segment(vector_names[encoder] or "", start, size, encoder=encoder))
        else:
            parts.append(Segment(first, start, size, encoder=encoder, shape=tuple(shapes[first])))
        start += size
    order = tuple(numbers[name] for names in groups.values() for name in names)
    return FlatLayout(parts, None if order == tuple(range(len(order))) else order)


def _num_coordinates(shape: Sequence[int]) -> int:
    return torch.Size(shape).numel()
