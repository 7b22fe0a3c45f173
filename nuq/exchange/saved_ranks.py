"""The states of all ranks in one dictionary, and what they become on another number of ranks.

A rank's ``state_dict`` has one entry, under the rank's name, ``{"rank1": (state,)}``: residuals differ from rank to
rank.  The name is the rank among all ranks, so that groups which train parts of a model have names of their own.  A
state of such a group also has the group's ranks, and is for that group.  The entries of a group's ranks together are
the state of a training.  As many ranks take their own entries, which is exact.  On another number of ranks

- the memory of every rank is the mean of all saved memories: residuals, momenta and EF21's estimates, whose mean is
  what the ranks still owe, or know, together;
- a memory of means (``both=True``) belongs to the owners of shards, which are others now.  What the owners owe goes
  into every rank's own memory: residuals grow by it, and estimates shrink by it, so that the next messages bring it;
- levels, step, PowerSGD's starts and the mean of EF21's estimates are alike on all ranks, and stay as they are;
- statistics for the next levels go to rank r from the saved ranks r, r + N, r + 2 N, ..., of N ranks now;
- thresholds that a method keeps for each worker (``casq``) are left out with a warning: they are found anew.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from nuq.compressors.feedback import MEANS
from nuq.exchange.compressor_map import CompressorMap, by_encoder
from nuq.exchange.saved_encoders import is_list_of, require

_RANK = re.compile(r"rank(0|[1-9]\d{0,8})")
HOW = (
    "take all ranks' states in one dictionary (states |= what each rank saved, or nuq.saved_states(folder) of "
    "torch.distributed.checkpoint) and load_state_dict(states)"
)


@dataclass(frozen=True)
class Owner:
    """The rank whose state an entry is, by its number among all ranks, and its group's ranks: () for all ranks."""

    rank: int
    group: tuple[int, ...]

    @classmethod
    def within(cls, group: dist.ProcessGroup | None) -> Owner:
        ranks = dist.get_process_group_ranks(group)
        return cls(dist.get_rank(), () if ranks == list(range(dist.get_world_size())) else tuple(ranks))

    def entry(self, state: dict[str, Any]) -> dict[str, Any]:
        """A rank's state under its name; torch.distributed.checkpoint saves a tuple whole, under this one key."""
        return {f"rank{self.rank}": ({**state, "group": list(self.group)} if self.group else state,)}


def by_rank(states: Any) -> dict[int | None, Any]:
    """The states in a dictionary of entries, by rank; None for one without a name, as states were before.

    ValueError for anything else.
    """
    if not isinstance(states, Mapping):
        raise ValueError(f"a state={states!r:.100}: must be what state_dict gave")
    if not states or not all(isinstance(key, str) and _RANK.fullmatch(key) for key in states):
        return {None: states}
    found = {int(key.removeprefix("rank")): kept for key, kept in sorted(states.items(), key=lambda item: len(item[0]))}
    return {rank: kept[0] if isinstance(kept, tuple) and len(kept) == 1 else kept for rank, kept in found.items()}


def of_group(
    states: Mapping[int | None, Any], own: tuple[int, ...], fits: Callable[[Any], bool] = lambda state: True
) -> dict[int | None, Any]:
    """The states that the ranks of a group go on from, by rank within the saved group.

    states: as ``by_rank`` gave them; own: the group's ranks, as in ``Owner``.  If several groups are saved,
    this one's are taken, or those of the only group whose states fit.  ValueError if there is none.
    """
    found: dict[tuple[int, ...], dict[int | None, Any]] = {}
    for number, state in states.items():
        require(isinstance(state, Mapping), "", state, "what state_dict gave")
        ranks = state.get("group", [])
        good = is_list_of(int, ranks) and (not ranks or number is None or number in ranks)
        require(good, "group", ranks, f"a list of ranks, rank {number} among them")
        found.setdefault(tuple(ranks), {})[ranks.index(number) if ranks and number is not None else number] = state
    if len(found) == 1:
        return next(iter(found.values()))
    fitting = [ranks for ranks, of_ranks in found.items() if all(map(fits, of_ranks.values()))]
    if own not in fitting and len(fitting) != 1:
        one = next(iter(found))
        some = [f"rank{number}" for number in one or range(len(found[one]))]
        raise ValueError(
            f"states of {len(found)} groups of ranks, {_shown(found)}, and none is this rank's group, "
            f"{_shown([own])}: give the entries of one group alone, as {{name: states[name] for name in {some!r:.60}}}"
        )
    return found[own if own in fitting else fitting[0]]


def _shown(groups: Iterable[tuple[int, ...]], most: int = 4) -> str:
    """The first few groups, by their first few ranks."""
    texts = [", ".join([*map(str, ranks[:most]), *["..."] * (len(ranks) > most)]) or "all" for ranks in groups]
    return " and ".join([*texts[:most], *[f"{len(texts) - most} more"] * (len(texts) > most)])


def saved_states(checkpoint_id: Any, name: str = "compression") -> dict[str, Any]:
    """All ranks' states in a folder of torch.distributed.checkpoint, for ``load_state_dict`` on any number of ranks.

    checkpoint_id: the folder that ``dcp.save({name: state}, checkpoint_id=...)`` wrote, where ``state`` is a
    CompressionState or an OuterLoop.  Every rank that calls it reads by itself.  ValueError where there are none.
    """
    from torch.distributed.checkpoint.filesystem import FileSystemReader
    from torch.distributed.checkpoint.state_dict_loader import load

    reader = FileSystemReader(checkpoint_id)
    keys = [key.removeprefix(f"{name}.") for key in reader.read_metadata().state_dict_metadata]
    states: dict[str, Any] = {name: {key: None for key in keys if _RANK.fullmatch(key)}}
    if not states[name]:
        raise ValueError(f"{checkpoint_id} has no state of any rank under {name!r}: it takes what dcp.save wrote")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "torch.distributed is disabled")  # as it is meant here
        load(states, storage_reader=reader, no_dist=True)
    return states[name]


def own_or_all(
    states: Mapping[int | None, Mapping[str, Any]], rank: int, world: int, num_memories: int
) -> int | Sequence[int] | None:
    """The key of the state that this rank goes on from, or the ranks of all states, which are to be combined.

    states: as ``by_rank`` gave them, checked.  num_memories: of the workers, or machines, that remember here.
    ValueError where states of some ranks are missing, and for one alone that remembers what is not this rank's.
    """
    given = [number for number in states if number is not None]
    if not given:
        _check_own(states[None], None, rank, world, num_memories)
        return None
    for number in given:
        if (its := states[number].get("rank", number)) != number:
            raise ValueError(f"the state of rank {its} under the name of rank {number}: {HOW}")
    told = {states[number].get("ranks", len(given)) for number in given}
    if len(told) > 1:
        raise ValueError(
            f"states of trainings on {' and '.join(map(str, sorted(told)))} ranks: must be of one training"
        )
    (before,) = told
    if rank in given and before == world and _as_before(states[rank], num_memories):
        return rank
    missing = [str(number) for number in range(before) if number not in given]
    if not missing:
        return sorted(given)
    if len(given) > 1:
        raise ValueError(f"states of {len(given)} ranks of {before}: rank {', '.join(missing[:5])} is missing; {HOW}")
    _check_own(states[given[0]], given[0], rank, world, num_memories)
    return given[0]


def _as_before(state: Mapping[str, Any], num_memories: int) -> bool:
    return state.get("memories", num_memories) == num_memories


def _check_own(state: Mapping[str, Any], owner: int | None, rank: int, world: int, num_memories: int) -> None:
    """Raise ValueError for a single state that remembers, and is another rank's or of another number of ranks."""
    of_ranks = any("memories" in own for own in by_encoder(state["coders"]))  # a machine's other ranks have none
    if not remembers(state["coders"]) and (_as_before(state, num_memories) or not of_ranks):
        return
    owner, before = _owner(state) if owner is None else owner, state.get("ranks", world)
    if before != world:
        what = f"a state of rank {owner} of {before}, loaded on rank {rank} of {world}"
        raise ValueError(f"{what}: what messages left out is each rank's own; {HOW}")
    if owner not in (None, rank):
        raise ValueError(
            f"a state of rank {owner}, loaded on rank {rank}: what its messages left out is each rank's own, so every "
            "rank saves its own state.state_dict(), as in f'state{rank}.pt', and loads it again"
        )
    if not _as_before(state, num_memories):
        what = f"a state of {state['memories']} that remember (ranks, or machines of several)"
        raise ValueError(f"{what}, where {num_memories} do here; {HOW}")


def _owner(state: Mapping[str, Any]) -> int | None:
    """The rank of a state without a name; states once told it by their memories alone."""
    memories = (memory for own in by_encoder(state["coders"]) for memory in own.get("memories", ()))
    return state.get("rank", next((worker for memory in memories for worker in memory["workers"]), None))


def remembers(coders: dict[str, Any]) -> bool:
    """Whether the encoders' states hold what belongs to one rank alone."""
    return any(
        bool(own["compressor"].get("by_worker")) or any(memory["workers"] for memory in own.get("memories", ()))
        for own in by_encoder(coders)
    )


def combined(states: Sequence[dict[str, Any]], compressors: CompressorMap, workers: Iterable[int]) -> dict[str, Any]:
    """The encoders' state of a rank that remembers for these workers, from the encoders' states of all ranks."""
    workers, made = list(workers), []
    for number, of_ranks in enumerate(zip(*map(by_encoder, states), strict=True)):
        own = dict(of_ranks[0])
        if "by_worker" in own["compressor"]:
            own["compressor"] = {**own["compressor"], "by_worker": {}}
            if any(each["compressor"].get("by_worker") for each in of_ranks):
                what = f"the thresholds that {compressors.every[number].name} keeps for each worker"
                warnings.warn(f"a state of other ranks: {what} are left out, and found anew", stacklevel=2)
        if own.get("memories"):
            around = compressors.every[number].memories
            own["memories"] = _memories([each["memories"] for each in of_ranks], workers, around[0].decay)
        made.append(own)
    return {**made[0], "layers": made[1:]} if made[1:] else made[0]


def _memories(of_ranks: Sequence[Any], workers: Sequence[int], decay: float) -> list[dict[str, Any]]:
    """The memories around one encoder: the mean of all ranks', and what owners of means owe (see above)."""
    first, *of_means = of_ranks[0]
    kept = [of_worker for memories in of_ranks for of_worker in memories[0]["workers"].values()]
    mean = {kind: _total([of_worker[kind] for of_worker in kept], 1 / max(len(kept), 1)) for kind in first["kinds"]}
    owed = _total(
        [of_owner["residuals"] for memories in of_ranks for one in memories[1:] for of_owner in one["workers"].values()]
    )
    sign = -1.0
    if MEANS not in first:
        sign = 1 / decay if decay else 0.0  # the next step multiplies it
        if owed and not decay:
            warnings.warn("a state of other ranks: what means left out is lost with decay=0", stacklevel=3)
    of_first = mean[first["kinds"][0]]
    for name, vector in owed.items():
        of_first[name.removeprefix("mean/")] = of_first[name.removeprefix("mean/")] + sign * vector
    of_worker = {kind: {name: v.float() for name, v in of_kind.items()} for kind, of_kind in mean.items()}
    return [
        {**first, "workers": {worker: of_worker for worker in workers if kept}},
        *({**one, "workers": {}} for one in of_means),
    ]


def _total(of_ranks: Sequence[Mapping[str, Tensor]], share: float = 1.0) -> dict[str, Tensor]:
    """The sum of vectors by name, times a share: float64[n], in the ranks' order."""
    total: dict[str, Tensor] = {}
    for name, vector in (item for of_rank in of_ranks for item in of_rank.items()):
        wide = vector.to("cpu", torch.float64)
        total[name] = total[name] + wide if name in total else wide
    return {name: vector * share for name, vector in total.items()}


def mean(tensors: Iterable[Tensor]) -> Tensor:
    """The mean of the ranks' tensors, of the first one's type."""
    every = list(tensors)
    return _total([{"": tensor} for tensor in every], 1 / len(every))[""].to(every[0].dtype)
