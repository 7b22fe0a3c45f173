"""The choice of the collective that exchanges a method's messages, from its name and settings."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from nuq.compressors.compressor import Compressor
from nuq.exchange.collectives.collective import Collective, ExchangeStats, Vectors, WorkerPlacement
from nuq.exchange.collectives.gather import Gather
from nuq.exchange.collectives.hierarchical import Hierarchical, Machines
from nuq.exchange.collectives.powersgd import Encoder, Power
from nuq.exchange.collectives.server import Server
from nuq.exchange.collectives.two_stage import TwoStage
from nuq.exchange.compressor_map import USUAL_SIZE, CompressorMap, MethodState
from nuq.exchange.flat_layout import FlatLayout
from nuq.exchange.mean_error import least_bits
from nuq.exchange.transport import Transport
from nuq.kernels.spec import Key
from nuq.registry import method
from nuq.settings.exchange import Exchange


def fewest_bytes(compressors: CompressorMap, transport: Transport, num_workers: int) -> str:
    """The collective, gather or two_stage, for which one rank sends fewer bytes (``nuq.exchange.collectives``).

    Where they are alike it is gather, which errs less.  Two stages encode means in as many bits as it takes to err
    little more than gather (``nuq.exchange.mean_error``), and in ``second_bits`` at least; the method states take that
    over where it is chosen.  A collective call: every rank makes it.
    """
    every = compressors.every
    if compressors.single_worker or not _pays(compressors, [each.mean_encoder for each in every], num_workers):
        return "gather"
    bits = [
        least_bits(each.name, each.settings, fewest, num_workers, compressors.num_coordinates)
        if method(each.name).collective != "power"  # whose factors' means are exact
        else fewest
        for each, fewest in zip(every, compressors.second_bits, strict=True)
    ]
    bits = transport.numbers([number or 0 for number in bits], "control")[0]  # measured, so one rank's word
    if 0 in bits:
        return "gather"
    seconds = [each.encoder_of_means(number) for each, number in zip(every, bits, strict=True)]
    if not _pays(compressors, seconds, num_workers):
        return "gather"
    compressors.encode_means_by(seconds, bits)
    return "two_stage"


def _pays(compressors: CompressorMap, seconds: Sequence[Compressor], num_workers: int) -> bool:
    """Whether one rank sends less in two stages, the second one with these encoders, than in one."""
    first, second = (
        sum(
            share * each.method.usual_bytes(USUAL_SIZE)
            for each, share in zip(encoders, compressors.shares, strict=True)
        )
        for encoders in (compressors.codec.compressors, seconds)
    )
    return num_workers * first > first + second + USUAL_SIZE / 100


def ranks_per_machine() -> int:
    """The number of ranks per machine that torchrun states; 1 where it states none."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", "1"))


def build(
    compressors: CompressorMap,
    exchange: Exchange,
    transport: Transport,
    placement: WorkerPlacement,
    stats: ExchangeStats,
    *,
    per_machine: int = 0,
) -> tuple[str, Collective]:
    """The collective of these settings, and its name where ``auto`` chose.  A collective call: every rank makes it.

    ValueError for a collective that these ranks, this backend or this method cannot do.
    """
    name, workers = exchange.collective, placement.num_workers

    def of_messages(name: str) -> Collective:
        if name == "gather":
            return Gather(transport, placement, compressors.codec, stats)
        return TwoStage(transport, placement, compressors.codec, compressors.mean_codec, stats)

    powers = {at: each for at, each in enumerate(compressors.every) if method(each.name).collective == "power"}
    if powers and name in ("auto", "gather", "two_stage"):
        encoders, rest = {at: _power_encoder(each) for at, each in powers.items()}, None
        if len(powers) < len(compressors.every):
            rest = of_messages(fewest_bytes(compressors, transport, workers) if name == "auto" else name)
        in_two_stages = workers > 2 if name == "auto" else name == "two_stage"
        return "power", Power(transport, placement, encoders, in_two_stages, rest, stats)
    if name == "auto":
        per_machine = per_machine or ranks_per_machine()
        several = 1 < per_machine < transport.world and transport.world % per_machine == 0
        if several and transport.world == dist.get_world_size() and not compressors.single_worker:
            name = "hierarchical"
        else:
            name = fewest_bytes(compressors, transport, workers)
    elif compressors.single_worker and name != "gather":
        why = f"{compressors.name} sends one worker's gradient alone"
        raise ValueError(f"collective={name!r}: {why}; legal here: auto, gather")
    if name in ("gather", "two_stage"):
        return name, of_messages(name)
    if name == "server":
        wanted = exchange.num_aggregate or workers
        if wanted > workers:
            legal = f"1 to {workers}, 0 for all"
            raise ValueError(f"num_aggregate={wanted}: there are {workers} workers; legal here: {legal}")
        if wanted < workers and compressors.memories:
            why = f"late messages are thrown away, and with them what {compressors.name}'s feedback takes for sent"
            raise ValueError(f"num_aggregate={wanted}: {why}; legal here: 0 (all), or feedback none")
        return name, Server(transport, placement, compressors.codec, compressors.mean_codec, wanted, stats)
    if transport.group is None:
        remedy = "start it with torchrun; in one process choose gather"
        raise ValueError(f"collective='hierarchical' is about several machines: {remedy}")
    machines = Machines.of(transport, per_machine or ranks_per_machine())
    inner = dataclasses.replace(exchange, collective=fewest_bytes(compressors, transport, machines.count))

    def between(outer: Transport, every_machine: WorkerPlacement, inner_stats: ExchangeStats) -> Collective:
        return build(compressors, inner, outer, every_machine, inner_stats)[1]

    return name, Hierarchical(machines, transport, placement, between, stats)


def _power_encoder(method_state: MethodState) -> Encoder:
    """The method and its workers' memory as PowerSGD's collective takes them; ValueError for a memory of means."""
    if len(method_state.memories) > 1:
        why = "the means of powersgd's factors are exact, so that there is nothing to remember"
        raise ValueError(f"both=True: {why}; legal here: False")
    return Encoder(method_state.compressor, next(iter(method_state.memories), None))


@dataclasses.dataclass
class Dense(Collective):
    """The dense collective: the backend's own all-reduce, in bfloat16 unless told otherwise, as PyTorch's own hook."""

    transport: Transport
    dtype: torch.dtype = torch.bfloat16
    stats: ExchangeStats = dataclasses.field(default_factory=ExchangeStats)

    def mean(self, vectors: Vectors, layout: FlatLayout, key: Key, out: Tensor) -> None:
        del layout, key
        with self.stats.time("encode"):
            sent = vectors[self.transport.rank].to(self.dtype, copy=True).div_(self.transport.world)
        with self.stats.time("wire"):
            self.transport.dense_sum(sent, "dense")
        with self.stats.time("decode"):
            out.copy_(sent)
