"""Two stages: shards of the messages go to their owners, and the owners' means, encoded again, to everyone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from nuq.exchange.collectives.collective import (
    Collective,
    ExchangeStats,
    Vectors,
    WorkerPlacement,
    of_worker,
    padded,
    sizes_by_rank,
)
from nuq.exchange.collectives.means import encoded_mean, scale
from nuq.exchange.flat_layout import FlatLayout
from nuq.exchange.payload import PayloadCodec, RemoteNonFinite, joined
from nuq.exchange.transport import Swap, Transport
from nuq.kernels.spec import Key

SHARD = 1 << 19  # coordinates of a shard, at least, where a vector is long enough for several rounds of two stages


@dataclass
class TwoStage(Collective):
    """The collective that sends each shard to its owner, and the owner's mean, encoded again, to everyone.

    Long vectors go in several rounds: while one is on the wire, the one before is decoded, averaged and encoded.
    """

    transport: Transport
    placement: WorkerPlacement
    codec: PayloadCodec
    mean_codec: PayloadCodec
    stats: ExchangeStats = field(default_factory=ExchangeStats)

    def mean(self, vectors: Vectors, layout: FlatLayout, key: Key, out: Tensor) -> None:
        workers = self.placement.num_workers
        num_rounds = max(layout.num_coordinates // (workers * SHARD), 1)
        shards = layout.shards(num_rounds * workers)
        rounds = [_Round(self, shards[start : start + workers], key) for start in range(0, len(shards), workers)]
        try:
            for number in range(num_rounds + 2):
                if number < num_rounds:
                    rounds[number].send(vectors)
                if 1 <= number <= num_rounds:
                    rounds[number - 1].average(out.device)
                if number >= 2:
                    rounds[number - 2].receive(out)
        except RemoteNonFinite:  # alike on all ranks: what they have begun they bring to its end
            for begun in rounds:
                begun.drain()
            raise


class _Round:
    """One shard of every worker, on its way through both stages."""

    def __init__(self, how: TwoStage, shards: Sequence[FlatLayout], key: Key) -> None:
        self.how, self.shards, self.key = how, shards, key
        self.mine = how.placement.shares[how.transport.rank]
        self.others = [rank for rank in range(how.transport.world) if rank != how.transport.rank]
        self.payloads: dict[tuple[int, int], Tensor] = {}  # by worker and owner
        self.means: list[Tensor] = []
        self.swap: Swap | None = None

    def send(self, vectors: Vectors) -> None:
        """Encode the shards, and start sending them to their owners."""
        how, shares = self.how, self.how.placement.shares
        with how.stats.time("encode"):
            for worker in self.mine:
                key = of_worker(self.key, worker, how.placement.num_workers)
                for owner, shard in enumerate(self.shards):
                    self.payloads[worker, owner] = how.codec.encode_or_mark(vectors[worker], shard, key)
        how.stats.count("messages", [self.payloads[self.mine[0], owner] for owner in range(len(self.shards))])
        if not self.others:
            return
        with how.stats.time("wire"):
            self.wanted = {
                rank: [(worker, owner) for worker in shares[rank] for owner in self.mine] for rank in self.others
            }
            self.sizes = {rank: self._sizes(rank) for rank in self.others} if how.codec.fixed else self._told_sizes()
            outgoing = {
                rank: joined([self.payloads[w, o] for w in self.mine for o in shares[rank]], how.transport.device)
                for rank in self.others
            }
            self.swap = how.transport.post(
                outgoing, {rank: sum(sizes) for rank, sizes in self.sizes.items()}, "messages"
            )

    def _sizes(self, rank: int) -> list[int]:
        return [self.how.codec.size(self.shards[owner]) or 0 for _, owner in self.wanted[rank]]

    def _told_sizes(self) -> dict[int, list[int]]:
        how, count = self.how, len(self.shards)
        lengths = [payload.numel() for payload in self.payloads.values()]  # by worker, then by owner
        told = how.transport.numbers(padded(lengths, how.placement.most * count), "control")
        first = {rank: how.placement.shares[rank].start for rank in self.others}
        return {
            rank: [told[rank][(w - first[rank]) * count + owner] for w, owner in self.wanted[rank]]
            for rank in self.others
        }

    def average(self, device: torch.device) -> None:
        """Average the shards that this rank owns, and start sending the means to everyone."""
        how = self.how
        if self.swap is not None:
            with how.stats.time("wire"):
                received, self.swap = self.swap.wait(), None
            for rank, pairs in self.wanted.items():
                self.payloads |= dict(zip(pairs, received[rank].split(self.sizes[rank]), strict=True))
        self.means = [self._mean(owner, self.shards[owner], device) for owner in self.mine]
        how.stats.count("means", self.means[:1])
        if self.others:
            with how.stats.time("wire"):
                self.sizes = sizes_by_rank(
                    how.transport, how.placement, self.means, [how.mean_codec.size(shard) for shard in self.shards]
                )
                data = joined(self.means, how.transport.device)
                self.swap = how.transport.post(
                    dict.fromkeys(self.others, data), {r: sum(self.sizes[r]) for r in self.others}, "means"
                )

    def _mean(self, owner: int, shard: FlatLayout, device: torch.device) -> Tensor:
        """The mean of one shard, encoded.

        It is the marker where a worker sent one: the other ranks have yet to hear of it.
        """
        how, shard = self.how, shard.packed
        with how.stats.time("decode"):
            mean = torch.zeros(shard.num_coordinates, dtype=torch.float32, device=device)
            try:
                for worker in range(how.placement.num_workers):
                    how.codec.add(self.payloads.pop((worker, owner)), shard, mean)
            except RemoteNonFinite as marked:
                return how.mean_codec.marker(marked.worker, marked.number, shard, device)
            scale(mean, how.placement.num_workers)
        with how.stats.time("encode"):
            return encoded_mean(how.mean_codec, mean, shard, replace(self.key, worker=owner))

    def receive(self, out: Tensor) -> None:
        """Receive everyone's means, and write each into its place in the vector."""
        how, payloads = self.how, self.means
        if self.swap is not None:
            with how.stats.time("wire"):
                received, self.swap = self.swap.wait(), None
                received[how.transport.rank] = joined(self.means, out.device)
            payloads = [payload for rank, sizes in self.sizes.items() for payload in received[rank].split(sizes)]
        with how.stats.time("decode"):
            for shard, payload in zip(self.shards, payloads, strict=True):
                out[shard.place].zero_()
                how.mean_codec.add(payload, shard, out)

    def drain(self) -> None:
        if self.swap is not None:
            self.swap.wait()
