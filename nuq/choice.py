"""From a method's name and settings to the collective that exchanges its messages."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from nuq.collectives import Account, Collective, Gather, Hosts, Server, TwoStage
from nuq.compressors.quantized import AdaptiveQuantizer
from nuq.feedback import ErrorFeedback, MomentumCorrection
from nuq.hierarchy import Hierarchical, Machines
from nuq.links import Links
from nuq.payload import Codec
from nuq.registry import method
from nuq.settings import check, unknown
from nuq.settings.exchange import Exchange
from nuq.settings.feedback import Feedback

_LONG = 1 << 20  # coordinates: what a message costs beside its codes is then small


def second_settings(name: str, settings: Any, second_bits: int) -> tuple[str, Any]:
    """The method, and its settings, that encodes means: the same one with other bits, or the one the table names."""
    second = method(name).second or name
    schema = method(second).settings
    shared = {item.name: getattr(settings, item.name) for item in dataclasses.fields(schema) if hasattr(settings, item.name)}
    if "bits" in {item.name for item in dataclasses.fields(schema)}:
        shared["bits"] = type(schema().bits)(second_bits)
    if "num_levels" in shared:  # in place of the bits
        shared["num_levels"] = 0
    return second, schema(**shared)


def sorted_settings(name: str, others: Sequence[type], given: Mapping[str, Any], defaults: Mapping[str, Any]) -> list[Any]:
    """The settings of a method, then those of ``others``, from one list of keywords; ValueError for one that none of them reads.

    defaults: where they are not the schemas' own.
    """
    schemas = [method(name).settings, *others]
    fields = [{item.name for item in dataclasses.fields(schema)} for schema in schemas]
    for key in given:
        if not any(key in names for names in fields):
            raise unknown(f"setting of method={name}", key, sorted(set().union(*fields)))
    made = [
        schema(**{key: value for key, value in {**defaults, **given}.items() if key in names})
        for schema, names in zip(schemas, fields, strict=True)
    ]
    for settings in made:
        check(type(settings), vars(settings), "")
    return made


class Coders:
    """The two encoders of a method: of workers' gradients, and of means; ``remember`` gives them a memory."""

    def __init__(self, name: str, settings: Any, second_bits: int) -> None:
        self.name, self.settings = name, settings
        self.single_worker = method(name).single_worker
        self.codec = self.bare = Codec(method(name).load()(settings), settings)
        self.memories: list[ErrorFeedback] = []
        second, second_set = second_settings(name, settings, second_bits)
        self.second = Codec(method(second).load()(second_set), second_set)

    def remember(
        self, feedback: Feedback, sizes: Mapping[str, int], num_workers: int, momentum: float = 0.0, nesterov: bool = False
    ) -> None:
        """Put the memory of the settings around the encoders; ``bare`` stays the method itself.  sizes: coordinates of every vector."""
        kind = method(self.name).feedback if feedback.kind == "auto" else feedback.kind
        if kind == "none":
            return
        inner = self.codec.compressor
        around = ErrorFeedback(inner, sizes)
        if kind == "momentum":
            how = {"clip_norm": feedback.clip_norm, "clip_value": feedback.clip_value, "num_workers": num_workers}
            around = MomentumCorrection(inner, sizes, momentum=momentum, nesterov=nesterov, masking=feedback.masking, **how)
        self.codec = Codec(around, self.settings)
        self.memories = [around]
        if feedback.both:
            around = ErrorFeedback(self.second.compressor, {f"mean/{name}": size for name, size in sizes.items()})
            self.second = Codec(around, self.second.settings)
            self.memories.append(around)

    @property
    def compressor(self) -> Any:
        """The method itself, without a memory."""
        return self.bare.compressor

    @property
    def adaptive(self) -> list[AdaptiveQuantizer]:
        """The encoders whose levels follow the gradients."""
        both = (_within(codec) for codec in (self.codec, self.second))
        return [compressor for compressor in both if isinstance(compressor, AdaptiveQuantizer)]

    def state_dict(self) -> dict[str, Any]:
        """The encoders' own states, and the memories around them; copies."""
        own = {"compressor": self.compressor.state_dict(), "second": _within(self.second).state_dict()}
        return {**own, "memories": [around.memory() for around in self.memories]} if self.memories else own

    def load_state_dict(self, state: dict[str, Any], device: torch.device | None = None) -> None:
        self.compressor.load_state_dict(state["compressor"])
        _within(self.second).load_state_dict(state["second"])
        for around, memory in zip(self.memories, state.get("memories", ()), strict=True):
            around.load_memory(memory, device)


def _within(codec: Codec) -> Any:
    """The method inside what remembers."""
    return getattr(codec.compressor, "inner", codec.compressor)


def fewest_bytes(coders: Coders, num_workers: int) -> str:
    """gather or two_stage, by what one rank sends (``nuq.collectives``); gather, which errs less, where they are alike."""
    if coders.single_worker:
        return "gather"
    first, second = coders.codec.compressor.message_bytes(_LONG), coders.second.compressor.message_bytes(_LONG)
    return "gather" if num_workers * first <= first + second + _LONG / 100 else "two_stage"


def ranks_per_machine() -> int:
    """As torchrun says; 1 where nothing does."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", "1"))


def build(
    coders: Coders, exchange: Exchange, links: Links, hosts: Hosts, account: Account, *, per_machine: int = 0
) -> tuple[str, Collective]:
    """The collective of these settings, and its name where ``auto`` chose.  A collective call: every rank makes it.

    ValueError for a collective that these ranks, this backend or this method cannot do.
    """
    name, workers = exchange.collective, hosts.num_workers
    if name == "auto":
        per_machine = per_machine or ranks_per_machine()
        several = 1 < per_machine < links.world and links.world % per_machine == 0 and links.world == dist.get_world_size()
        name = "hierarchical" if several and not coders.single_worker else fewest_bytes(coders, workers)
    elif coders.single_worker and name != "gather":
        raise ValueError(f"collective={name!r}: {coders.name} sends one worker's gradient alone; legal here: auto, gather")
    if name == "gather":
        return name, Gather(links, hosts, coders.codec, account)
    if name == "two_stage":
        return name, TwoStage(links, hosts, coders.codec, coders.second, account)
    if name == "server":
        wanted = exchange.num_aggregate or workers
        if wanted > workers:
            raise ValueError(f"num_aggregate={wanted}: there are {workers} workers; legal here: 1 to {workers}, 0 for all")
        return name, Server(links, hosts, coders.codec, coders.second, wanted, account)
    if links.group is None:
        raise ValueError("collective='hierarchical' is about several machines: start it with torchrun; in one process choose gather")
    machines = Machines.of(links.group, per_machine or ranks_per_machine(), links.timeout.total_seconds(), links.device)

    def between(outer: Links, every_machine: Hosts, inner_account: Account) -> Collective:
        inner = dataclasses.replace(exchange, collective=fewest_bytes(coders, machines.count))
        return build(coders, inner, outer, every_machine, inner_account)[1]

    return name, Hierarchical(machines, links, hosts, between, account)


@dataclasses.dataclass
class Dense:
    """No compression: the backend's own all-reduce, in bfloat16 unless told otherwise; bits as PyTorch's own hook."""

    links: Links
    dtype: torch.dtype = torch.bfloat16
    account: Account = dataclasses.field(default_factory=Account)

    def mean(self, vectors: Any, parts: Any, key: Any, out: Tensor) -> None:
        del parts, key
        with self.account.time("encode"):
            sent = vectors[self.links.rank].to(self.dtype, copy=True).div_(self.links.world)
        with self.account.time("wire"):
            self.links.dense_sum(sent, "dense")
        with self.account.time("decode"):
            out.copy_(sent)
