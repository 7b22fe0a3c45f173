"""The driver of an exchange: observe, fit, encode, exchange, decode, remember, account.

The simulation of workers, the DDP hook, FSDP and ``all_reduce`` are thin over it: they know where gradients come from
and where the mean goes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor

from nuq.exchange.collective_factory import Dense, build
from nuq.exchange.collectives.collective import ExchangeStats, Vectors, WorkerPlacement
from nuq.exchange.collectives.reduce_scatter import ReduceScatter
from nuq.exchange.compressor_map import CompressorMap, Parts
from nuq.exchange.flat_layout import FlatLayout, Segment
from nuq.exchange.level_updates import LevelUpdates, fit_levels
from nuq.exchange.payload import RemoteNonFinite, check_mean
from nuq.exchange.transport import Transport
from nuq.kernels.spec import Key
from nuq.settings.exchange import Exchange
from nuq.settings.feedback import Feedback


@dataclass(frozen=True)
class Memory:
    """The memory of what messages leave out; momentum, nesterov: the optimizer's, where it acts in the workers."""

    feedback: Feedback
    momentum: float = 0.0
    nesterov: bool = False


class Driver:
    """The compressors, the collective, the levels and the account of exchanges between workers.

    layout: of the whole vector, for what is remembered of it and the levels that it needs.  levels: their updates, from
    all workers' gradients.  stats: seconds and encoded bytes.  collective_name: as the settings say it, or as ``auto``
    chose; ``dense`` is at hand in every case.  Building a driver is a collective call: every rank makes it.

    ValueError for a collective that these ranks, this backend or this method cannot do.
    """

    def __init__(
        self,
        compressors: CompressorMap,
        layout: FlatLayout,
        exchange: Exchange,
        transport: Transport,
        num_workers: int,
        seed: int,
        *,
        memory: Memory | None = None,
        per_machine: int = 0,
    ) -> None:
        self.compressors, self.transport = compressors, transport
        self.num_workers = 1 if compressors.single_worker else num_workers
        self.placement = WorkerPlacement.of(self.num_workers, transport.world)
        self.hosted = self.placement.shares[transport.rank]
        self.stats = ExchangeStats()
        if memory is not None:
            compressors.remember(memory.feedback, layout, self.num_workers, memory.momentum, memory.nesterov)
        self.levels = LevelUpdates(compressors, transport, self.placement, seed, self.stats, layout)
        self.dense = Dense(transport, stats=self.stats)
        if exchange.collective == "dense":
            self.collective_name, self.collective = "dense", self.dense
        else:
            self.collective_name, self.collective = build(
                compressors, exchange, transport, self.placement, self.stats, per_machine=per_machine
            )
        self._compressing = self.collective
        codec = compressors.codec
        self._reduce_scatter = ReduceScatter(transport, self.placement, codec, self.stats, marks_all=True)

    @property
    def is_dense(self) -> bool:
        """Whether nothing is compressed: the collective is the backend's own."""
        return self.collective_name == "dense"

    def turn_dense(self) -> None:
        """Exchange by the backend's own collective from now on."""
        self.collective_name, self.collective = "dense", self.dense

    def mean(self, vectors: Vectors, layout: FlatLayout, key: Key, out: Tensor) -> None:
        """Write the workers' mean (``Collective.mean``) into ``out`` float32[n]; remember what messages leave out."""
        self.begin(vectors, layout, key, out)()

    def begin(
        self, vectors: Vectors, layout: FlatLayout, key: Key, out: Tensor, unused: Parts = ()
    ) -> Callable[[], None]:
        """Begin a ``mean``; what is returned ends it (``Collective.begin``).

        unused: the parts that no worker used, as all ranks know.  There the vectors are zero and the mean says nothing,
        and what is remembered stays as it is.
        """
        completes = not self.is_dense and self.compressors.sends_differences
        with self.transport.telling(), self.compressors.aside(unused) if unused else nullcontext():
            arrived = self.collective.begin(vectors, layout, key, out)

        def end() -> None:
            with self.transport.telling():
                arrived()
                if completes:
                    self.compressors.complete(out, layout, unused)
                    check_mean(out, layout)

        return end

    def sent(self, layout: FlatLayout) -> list[Segment]:
        """The segments of a vector as they are encoded."""
        shards = layout.shards(self.transport.world) if self.collective_name == "two_stage" else [layout]
        return [segment for shard in shards for segment in shard.segments]

    @property
    def remembering(self) -> Sequence[int]:
        """The workers whose memories this rank keeps; at most as many as are hosted here."""
        return self._compressing.remembering(self.hosted)

    @property
    def num_remembering(self) -> int:
        """The number of workers, or of machines, whose memories all ranks keep together."""
        return self._compressing.num_remembering(self.num_workers)

    def fit_levels(self, vector: Tensor, segments: Sequence[Segment], key: Key) -> None:
        """Fit adaptive methods' levels to the one vector that is about to be sent (``level_updates.fit_levels``)."""
        with self.transport.telling(), self.stats.time("levels"):
            fit_levels(self.compressors, vector, segments, key)

    def begin_reduce_scatter(
        self, vector: Tensor, rounds: Sequence[Sequence[FlatLayout]], key: Key, factor: float, out: Tensor
    ) -> Callable[[], None]:
        """Send all ranks' vectors to the owners of their shards; what is returned receives them and ends it.

        ``out`` float[n] becomes this rank's shard of the sum, times ``factor``.  One worker on each rank.  rounds: the
        pieces of all shards that are sent together, of one segment each; while one round is on its way, the next one is
        encoded.  The result is not checked: what overflows is infinite.  RemoteNonFinite, on all ranks, where one's
        vector is not finite.
        """
        rank = self.transport.rank
        with self.transport.telling():
            sent = [self._reduce_scatter.send({rank: vector}, pieces, key) for pieces in rounds]

        def end() -> None:
            with self.transport.telling():
                receive()

        def receive() -> None:
            try:
                for each, pieces in zip(sent, rounds, strict=True):
                    each.receive()
                    with self.stats.time("decode"):
                        at = pieces[rank].start - rounds[0][rank].start
                        place = out[at : at + pieces[rank].num_coordinates]
                        if place.dtype == torch.float32:
                            each.mean(rank, factor, place)
                        else:
                            place.copy_(each.mean(rank, factor, torch.empty_like(place, dtype=torch.float32)))
            except RemoteNonFinite:  # alike on all ranks: what they have begun they bring to its end
                for each in sent:
                    each.drain()
                raise

        return end

    def gather(self, mine: Mapping[int, Tensor], purpose: str = "tensors") -> list[Tensor]:
        """Equally shaped tensors of all workers, in worker order; ``mine`` holds the hosted ones."""
        if self.transport.group is None:
            return [mine[worker] for worker in self.hosted]
        # the first process tells shape and dtype, for those that host no worker
        sample = mine[self.hosted[0]] if self.hosted else torch.empty(0, dtype=torch.float32, device="cpu")
        told = self.transport.texts(json.dumps([list(sample.shape), str(sample.dtype)]), "control")[0]
        shape, dtype = json.loads(told)
        kind = getattr(torch, dtype.removeprefix("torch."))
        rows = torch.zeros(self.placement.most, *shape, dtype=kind, device=self.transport.device)
        for slot, worker in enumerate(self.hosted):
            rows[slot] = mine[worker]
        received = self.transport.all_gather(rows, purpose)
        pairs = zip(self.placement.shares, received, strict=True)
        return [block[slot] for share, block in pairs for slot in range(len(share))]

    @property
    def bytes_sent(self) -> int:
        """The bytes that this process has handed to the network, beside what carries them."""
        every = [self.transport, *self._compressing.inner_transports]
        return sum(transport.bytes_sent.total() for transport in every)

    def bits_by_vector(self) -> dict[str, float]:
        """Bits a coordinate of this process's messages so far, by the name of the vector; empty where all was dense."""
        return self.compressors.codec.bits_by_vector() | self._compressing.bits_by_vector()

    def settle(self) -> None:
        """Read what a server left unread.  Every process calls it after the same exchange, before the ranks part."""
        self._compressing.settle()
