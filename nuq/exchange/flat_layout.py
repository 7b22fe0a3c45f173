"""The layout of a flat vector: which coordinates belong to which parameter, and how they are cut into segments.

Inside an exchange a gradient is one flat vector with one ``FlatLayout``; what is encoded, cut among owners or checked
is a segment of it.  A method with scope=tensor gets one segment per parameter, with scope=model one of all its
parameters.  Where those are no neighbors in the model (``nuq.settings.layers``: they are those of one line), the vector
lists the parameters in another order than the model.  Segments marked ``exact`` travel in full precision (small
tensors, whose headers and norms would cost more than they save).  Methods that cast every number have small tensors
cast, neighbors as one segment.

A collective that cuts the vector into shards cuts the segments with it; a piece of a segment has random numbers of its
own.
"""

from __future__ import annotations

import itertools
from bisect import bisect
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

_ALIGNMENT = 64  # coordinates: shards begin where packed codes and vector registers like it


@dataclass(frozen=True)
class Segment:
    """A segment of a flat vector: ``size`` coordinates from ``start`` on."""

    name: str
    start: int
    size: int
    exact: bool = False
    first: int = -1  # the number of the first coordinate within ``name``, -1 for the whole
    encoder: int = 0  # the number of the one that encodes it (``PayloadCodec``)
    shape: tuple[int, ...] | None = None  # of the parameter, row after row; None for vectors of several

    @property
    def key_name(self) -> str:
        """The name that keys the random numbers: the parameter's name, and the place within it where it was cut."""
        return self.name if self.first < 0 else f"{self.name}[{self.first}]"

    @property
    def place(self) -> slice:
        """The coordinates of the flat vector."""
        return slice(self.start, self.start + self.size)


@dataclass(frozen=True, eq=False)
class FlatLayout:
    """The segments of a flat vector, one after another, and the order of the parameters in it.

    order: of the vector's parameters, as their numbers in the model; None where it is the model's own.  Layouts are
    compared by identity: what is known of one (its shards, a codec's offsets) is kept with it.
    """

    segments: tuple[Segment, ...]
    order: tuple[int, ...] | None = None
    _shards: dict[int, tuple[FlatLayout, ...]] = field(default_factory=dict, repr=False)

    @property
    def start(self) -> int:
        """The first coordinate; 0 where there is none."""
        return self.segments[0].start if self.segments else 0

    @cached_property
    def num_coordinates(self) -> int:
        return sum(segment.size for segment in self.segments)

    @property
    def place(self) -> slice:
        """The coordinates of the whole flat vector that these segments cover."""
        return slice(self.start, self.start + self.num_coordinates)

    def encoded_by(self, encoder: int) -> bool:
        """Whether an encoder has any of the segments."""
        return any(own.encoder == encoder and not own.exact for own in self.segments)

    def shards(self, count: int) -> tuple[FlatLayout, ...]:
        """The layouts of ``count`` shards of nearly equal length; the last ones may be empty."""
        if count not in self._shards:
            self._shards[count] = tuple(FlatLayout(tuple(shard)) for shard in _cut(self.segments, count))
        return self._shards[count]

    def chosen(self, choose: Callable[[Segment], bool]) -> FlatLayout:
        """The layout of some of the segments, where they lie."""
        return FlatLayout(tuple(filter(choose, self.segments)))

    @cached_property
    def packed(self) -> FlatLayout:
        """The same segments one after another from coordinate 0 on."""
        starts = itertools.accumulate((segment.size for segment in self.segments), initial=0)
        return FlatLayout(tuple(replace(own, start=start) for own, start in zip(self.segments, starts, strict=False)))

    def within(self, sizes: Mapping[str, int], chosen: Collection[str]) -> list[tuple[Segment, slice]]:
        """The segments in which chosen parameters lie, and their places within those; empty ones lie nowhere.

        sizes: coordinates of all parameters, in this order.
        """
        ends = [own.start + own.size for own in self.segments]
        found, starts = [], itertools.accumulate(sizes.values(), initial=self.start)
        for (name, size), start in zip(sizes.items(), starts, strict=False):
            if size and name in chosen:
                own = self.segments[bisect(ends, start)]
                found.append((own, slice(start - own.start, start - own.start + size)))
        return found

    def views(self, vector: Tensor) -> list[Tensor]:
        """The segments of a vector as views of it, in a parameter's shape where they are a whole one."""
        pieces = ((vector[own.place], own) for own in self.segments)
        return [piece if own.shape is None or own.first >= 0 else piece.view(own.shape) for piece, own in pieces]

    def arranged(self, of_parameters: Sequence[Any]) -> list[Any]:
        """Items, one for every parameter, from the model's order into the vector's order."""
        return list(of_parameters) if self.order is None else [of_parameters[number] for number in self.order]

    def from_model(self, vector: Tensor, sizes: Sequence[int]) -> Tensor:
        """A vector in this order, from one in the model's; sizes as in ``restored``."""
        return vector if self.order is None else torch.cat(self.arranged(vector.split(list(sizes))))

    def restored(self, vector: Tensor, sizes: Sequence[int]) -> Tensor:
        """A vector in the model's order, from one in this order.  sizes: coordinates of the model's parameters."""
        if self.order is None:
            return vector
        pieces = dict(zip(self.order, vector.split([sizes[number] for number in self.order]), strict=True))
        return torch.cat([pieces[number] for number in range(len(sizes))])


def of_parameters(shapes: Mapping[str, Sequence[int]]) -> FlatLayout:
    """The layout of a vector of all parameters in the model's order, one segment for each."""
    return arranged(shapes, dict.fromkeys(shapes, 0), [None])


def _cut(segments: Sequence[Segment], num_shards: int) -> list[list[Segment]]:
    total, begin = sum(segment.size for segment in segments), segments[0].start if segments else 0
    assert all(own.start + own.size == after.start for own, after in itertools.pairwise(segments)), "a hole"
    bounds = [min(-(-total * i // num_shards // _ALIGNMENT) * _ALIGNMENT, total) for i in range(num_shards)] + [total]
    shards: list[list[Segment]] = []
    for low, high in itertools.pairwise(begin + bound for bound in bounds):
        inside = []
        for segment in segments:
            start, end = max(segment.start, low), min(segment.start + segment.size, high)
            if start < end:
                whole = end - start == segment.size
                first = segment.first if whole else max(segment.first, 0) + start - segment.start
                inside.append(replace(segment, start=start, size=end - start, first=first))
        shards.append(inside)
    return shards


def arranged(
    shapes: Mapping[str, Sequence[int]],
    encoders: Mapping[str, int],
    vector_names: Sequence[str | None],
    exact: Callable[[str], bool] = lambda name: False,
    cast: Callable[[str], bool] = lambda name: False,
) -> FlatLayout:
    """The flat layout of some parameters, given the encoder of each.

    shapes: of the parameters, in the model's order.  encoders: the number of every parameter's encoder. vector_names:
    by encoder, the name of the one vector of scope=model, None for scope=tensor.  exact: whether a parameter travels in
    full precision, whatever its encoder; such neighbors are one segment.  cast: whether it is encoded in one segment
    with such neighbors of the same encoder.
    """
    numbers = {name: number for number, name in enumerate(shapes)}
    groups: dict[str, list[str]] = {}  # parameters by the segment they are in
    for name in shapes:
        whole = None if exact(name) or cast(name) else vector_names[encoders[name]]
        group = f"parameter {name}" if whole is None else f"scope=model of {encoders[name]}"
        groups.setdefault(group, []).append(name)
    segments: list[Segment] = []
    start, joins = 0, False  # the latter: whether the last segment takes neighbors
    for names in groups.values():
        first = names[0]
        encoder, size = encoders[first], sum(torch.Size(shapes[name]).numel() for name in names)
        if exact(first) or cast(first):
            own = Segment(first, start, size, exact=exact(first), encoder=0 if exact(first) else encoder)
            last = segments[-1] if joins else None
            if last is not None and (last.exact, last.encoder) == (own.exact, own.encoder):
                segments[-1] = replace(last, name=f"{last.name}, {first}", size=last.size + size)
            else:
                segments.append(own)
        elif vector_names[encoder] is not None:
            segments.append(Segment(vector_names[encoder] or "", start, size, encoder=encoder))
        else:
            segments.append(Segment(first, start, size, encoder=encoder, shape=tuple(shapes[first])))
        start, joins = start + size, exact(first) or cast(first)
    order = tuple(numbers[name] for names in groups.values() for name in names)
    return FlatLayout(tuple(segments), None if order == tuple(range(len(order))) else order)
