"""The fragments of an outer loop (``nuq.outer``): parts of a model that travel one after another in a round.

A rank's fragment holds its own numbers of the parameters: under FSDP2 their local shards.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from nuq.compressors.feedback import ErrorFeedback
from nuq.exchange import saved_ranks
from nuq.exchange.compressor_map import CompressorMap
from nuq.exchange.driver import Driver
from nuq.exchange.finite import first_not_finite, largest
from nuq.exchange.flat_layout import FlatLayout
from nuq.exchange.parts import parts_of
from nuq.exchange.saved_encoders import checked_encoders, dictionary, is_list_of, require, tensor, whole
from nuq.kernels.spec import Key
from nuq.parameters import places_of, shard
from nuq.settings.outer import Outer


def outer_step(outer: Tensor, buffer: Tensor, mean: Tensor, *, lr: float, momentum: float, nesterov: bool) -> None:
    """Take a step of the outer optimizer, SGD as PyTorch's, in place.

    outer, buffer: float32[n], the outer parameters and what the momentum remembers; mean: float32[n], of the workers'
    moves, each the outer parameters minus its own.
    """
    buffer.mul_(momentum).add_(mean)
    outer.sub_(mean.add(buffer, alpha=momentum) if nesterov else buffer, alpha=lr)


KINDS = ("outer", "momentum")  # of a fragment's vectors


@dataclass(frozen=True)
class Arrived:
    """A mean of the ranks' moves, float32[n], and what this rank remembered before it sent its own (``kept``)."""

    mean: Tensor
    before: list[Tensor]


@dataclass
class Fragment:
    """A part of the model that travels together.

    parameters: in the order of ``layout``.  at: the local step of a round after which it is sent.  outer, momentum:
    float32[n], what the outer optimizer has of it, alike on all ranks.  taken: the local step whose moves it took over
    last.  coming: the mean of the ranks' moves, on its way; sent: the local step after which they were sent.  left:
    where the last exchange failed on this rank, what its own message left out (``kept``).
    """

    parameters: dict[str, nn.Parameter]
    layout: FlatLayout
    at: int
    outer: Tensor
    momentum: Tensor
    taken: int = 0
    coming: Future[Arrived] | None = None
    sent: int = 0
    left: list[Tensor] = field(default_factory=list)

    def local(self) -> Tensor:
        """This rank's own parameters: float32[n]."""
        return _joined(self.parameters)

    def split(self, vector: Tensor) -> dict[str, Tensor]:
        """A vector as views in the shapes of this rank's parameters."""
        shapes = {name: shard(p).shape for name, p in self.parameters.items()}
        pieces = vector.split([shape.numel() for shape in shapes.values()])
        return {name: piece.view(shape) for (name, shape), piece in zip(shapes.items(), pieces, strict=True)}

    def take(self, chosen: Outer, mixing: float) -> None:
        """Take over the mean on its way: a step of the outer optimizer, and of this rank's parameters to it.

        mixing: the share of this rank's own parameters that stays.
        """
        mean, how = self._arrived(), {"momentum": chosen.outer_momentum, "nesterov": chosen.nesterov}
        outer_step(self.outer, self.momentum, mean, lr=chosen.outer_lr, **how)
        self.write(torch.lerp(self.outer, self.local(), mixing) if mixing else self.outer)

    def end(self, mean: Tensor, count: int) -> None:
        """Take over the mean of the ranks' moves as it is: all ranks have the mean of their parameters."""
        self.outer.sub_(mean)
        self.write(self.outer)
        self.taken = self.sent = count

    def _arrived(self) -> Tensor:
        assert self.coming is not None
        self.coming.exception()  # wait; whoever interrupts that leaves it on its way
        coming, self.coming = self.coming, None
        mean = coming.result().mean
        self.taken = self.sent
        return mean

    def at_fault(self, vector: Tensor) -> str:
        """The parameter of the first coordinate that is not finite, or else of the largest one."""
        pieces = self.split(vector)
        number = first_not_finite(pieces.values())
        return list(pieces)[largest(list(pieces.values())) if number is None else number]

    def write(self, vector: Tensor) -> None:
        """Set this rank's parameters."""
        for p, piece in zip(self.parameters.values(), self.split(vector).values(), strict=True):
            shard(p).copy_(piece)

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
    """The parts of these parameters (``parts_of``), as the first parameters have them.

    They are cut by the sizes of whole parameters, so that the ranks of a machine send shards of the same ones.
    arrange: the layout of a vector of this rank's shards, from their shapes.
    """

    def of_shards(some: Mapping[str, Sequence[int]]) -> FlatLayout:
        return arrange({name: shard(parameters[name]).shape for name in some})

    made = []
    for part in parts_of({name: p.shape for name, p in parameters.items()}, count, every, of_shards):
        own = {name: parameters[name] for name in part.names}
        outer = _joined(own)
        made.append(Fragment(own, part.layout, part.at, outer, torch.zeros_like(outer)))
    return made


def _joined(parameters: Mapping[str, nn.Parameter]) -> Tensor:
    """This rank's shards of parameters one after another: float32[n]."""
    return torch.cat([shard(p).reshape(-1).to(torch.float32) for p in parameters.values()])


# --- what is saved ---

_KEYS = ("method", "rank", "settings", "count", "taken", "collective", *KINDS, "pending", "coders")


def saved(fragments: Sequence[Fragment], overlap: int) -> dict[str, Any]:
    """Copies of what the outer optimizer has, by kind and parameter, and of the means on their way, for which it waits.

    overlap: local steps from sending a part to taking over its mean.
    """
    vectors = {
        kind: {name: t.clone() for each in fragments for name, t in each.split(getattr(each, kind)).items()}
        for kind in KINDS
    }
    pending = {
        number: {"due": fragment.sent + overlap, **copy.deepcopy(vars(fragment.coming.result()))}
        for number, fragment in enumerate(fragments)
        if fragment.coming is not None
    }
    return {**vectors, "pending": pending, "taken_at": [fragment.taken for fragment in fragments]}


def load(fragments: Sequence[Fragment], state: Mapping[str, Any], every: int, overlap: int) -> None:
    """Take over what ``saved`` gave, in a state that is checked; every: local steps of a round."""
    # states that do not say it are of trainings that have not ended
    of_schedule = [max(state["count"] - (state["count"] - fragment.at) % every, 0) for fragment in fragments]
    for number, fragment in enumerate(fragments):
        for kind in KINDS:
            for name, piece in fragment.split(getattr(fragment, kind)).items():
                piece.copy_(state[kind][name])
        fragment.taken = state.get("taken_at", of_schedule)[number]
        if number in state["pending"]:
            own, device = state["pending"][number], fragment.outer.device
            fragment.coming, fragment.sent = Future(), own["due"] - overlap
            fragment.coming.set_result(Arrived(own["mean"].to(device), [kept.to(device) for kept in own["before"]]))


def checked(
    state: Any,
    own: Mapping[str, Any],
    world: int,
    fragments: Sequence[Fragment],
    compressors: CompressorMap,
    *,
    second: bool,
) -> dict[str, Any]:
    """The state of an outer loop like this one, with its encoders' states as they are loaded; ValueError for any other.

    own: what must be alike, by name: method, collective and settings.  The collective, which ``auto`` chooses by the
    number of ranks, may be another one on another number than ``world``.  second: as ``checked_encoders`` takes it.
    """
    require(isinstance(state, Mapping), "", state, "what state_dict gave")
    if missing := [key for key in _KEYS if key not in state]:
        raise ValueError(f"a state without {', '.join(missing)}: it takes what OuterLoop.state_dict gave")
    dictionary(state["settings"], "settings")
    require(whole(state.get("rank")), "rank", state["rank"], "a whole number from 0 on")
    before = state.get("ranks", world)
    require(whole(before) and before > 0, "ranks", before, "a whole number from 1 on")
    for key, value in own.items():
        theirs = state[key] if key in ("method", "collective") else state["settings"].get(key)
        if type(theirs) is type(value) and (theirs == value or (key == "collective" and before != world)):
            continue
        raise ValueError(f"a state of {key}={theirs!r:.100}: this loop has {key}={value!r}")
    for key in ("count", "taken"):
        require(whole(state[key]), key, state[key], "a whole number from 0 on, below 2^63")
    if "taken_at" in state:  # older states have none
        steps, rule = state["taken_at"], f"a list of {len(fragments)} local steps, each from 0 to {state['count']}"
        good = is_list_of(int, steps) and len(steps) == len(fragments)
        require(good and all(0 <= step <= state["count"] for step in steps), "taken_at", steps, rule)
    parameters = {name: p for fragment in fragments for name, p in fragment.parameters.items()}
    places = places_of(parameters)
    dictionary(shards := state.get("shards", places), "shards")
    for name, place in shards.items():
        if not isinstance(place, dict) or place != places.get(name):
            raise ValueError(f"a state of another shard of {name!r}: every rank saves its own, and loads it again")
    for kind in KINDS:
        dictionary(vectors := state[kind], kind)
        for name, p in parameters.items():
            shape, found = shard(p).shape, vectors.get(name)
            if not isinstance(found, Tensor) or found.shape != shape:
                has = list(found.shape) if isinstance(found, Tensor) else "nothing"
                raise ValueError(f"a state with {has} as {kind} of {name!r}: it is of shape {list(shape)} here")
            tensor(found, f"{kind} of {name!r}", torch.float32)
        foreign = [name for name in vectors if name not in parameters]
        require(not foreign, kind, foreign, "of this model's trained parameters alone")
    memories = compressors.memories
    _check_pending(state, fragments, memories, own["overlap"])
    sizes = {name: size for memory in memories for name, size in memory.sizes.items()}
    return {**state, "coders": checked_encoders(state["coders"], compressors.state_dict(), sizes, second=second)}


def _check_pending(
    state: Mapping[str, Any], fragments: Sequence[Fragment], memories: Sequence[ErrorFeedback], overlap: int
) -> None:
    """ValueError for means on their way that ``saved`` cannot have given."""
    dictionary(state["pending"], "pending")
    for number, own in state["pending"].items():
        where, last = f"pending[{number!r}]", len(fragments) - 1
        require(whole(number) and number <= last, "pending", number, f"by fragment, 0 to {last}")
        dictionary(own, where, ("due", "mean", "before"))
        low, high = overlap, state["count"] + overlap
        good = whole(own["due"]) and low <= own["due"] <= high
        require(good, f"{where}.due", own["due"], f"a local step from {low} to {high}")
        layout = fragments[number].layout
        tensor(own["mean"], f"{where}.mean", torch.float32, [layout.num_coordinates])
        sizes = [each.size for memory in memories for each in layout.segments if not each.exact for _ in memory.kinds]
        good = isinstance(own["before"], list) and len(own["before"]) == len(sizes)
        require(good, f"{where}.before", own["before"], f"a list of {len(sizes)} tensors")
        for at, (kept, size) in enumerate(zip(own["before"], sizes, strict=True)):
            tensor(kept, f"{where}.before[{at}]", torch.float32, [size])


def own_or_mean(by_rank: Mapping[int | None, Any], driver: Driver) -> Mapping[str, Any]:
    """This rank's own state among the checked ones of an outer loop, or for another number of ranks their mean.

    ``nuq.exchange.saved_ranks`` says which and how.  ValueError where they are of different local steps.
    """
    transport = driver.transport
    which = saved_ranks.own_or_all(by_rank, transport.rank, transport.world, driver.num_remembering)
    if not isinstance(which, Sequence):
        return by_rank[which]
    states = [by_rank[rank] for rank in which]
    first, *others = states
    for one in others:
        if (
            any(one[key] != first[key] for key in ("count", "taken"))
            or one["pending"].keys() != first["pending"].keys()
        ):
            raise ValueError(f"states of local steps {first['count']} and {one['count']}: must be of one step")
    coders = saved_ranks.combined([one["coders"] for one in states], driver.compressors, driver.remembering)
    pending = {}
    for number, own in first["pending"].items():
        of_ranks = zip(*(one["pending"][number]["before"] for one in states), strict=True)
        pending[number] = {**own, "before": [saved_ranks.mean(before) for before in of_ranks]}
    return {**first, "coders": coders, "pending": pending}
