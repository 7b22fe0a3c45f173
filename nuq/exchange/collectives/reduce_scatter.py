"""The reduce-scatter: every worker's shards go to their owners, who add them up; the first half of two stages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from nuq.exchange.collectives.collective import ExchangeStats, Vectors, WorkerPlacement, of_worker, padded
from nuq.exchange.collectives.means import recover_overflow
from nuq.exchange.flat_layout import FlatLayout
from nuq.exchange.payload import PayloadCodec, checked, joined
from nuq.exchange.transport import Swap, Transport
from nuq.kernels.spec import Key


@dataclass
class ReduceScatter:
    """Sends each worker's shards to their owners; there are as many shards as workers, and each owns one.

    marks_all: a worker whose gradient is not finite says so to every owner, not only to those of the shards at fault.
    """

    transport: Transport
    placement: WorkerPlacement
    codec: PayloadCodec
    stats: ExchangeStats = field(default_factory=ExchangeStats)
    marks_all: bool = False

    def send(self, vectors: Vectors, shards: Sequence[FlatLayout], key: Key) -> SentShards:
        """Encode the shards of the workers hosted here, and start sending them to their owners."""
        payloads: dict[tuple[int, int], Tensor] = {}
        with self.stats.time("encode"):
            for worker in self.placement.shares[self.transport.rank]:
                own = of_worker(key, worker, self.placement.num_workers)
                row = self.codec.encode_or_mark_each(vectors[worker], shards, own, together=self.marks_all)
                payloads |= {(worker, owner): payload for owner, payload in enumerate(row)}
        return SentShards(self, shards, payloads)


class SentShards:
    """The shards of the workers hosted here for every owner, and what others send to the owners here."""

    def __init__(
        self, how: ReduceScatter, shards: Sequence[FlatLayout], payloads: dict[tuple[int, int], Tensor]
    ) -> None:
        self.how, self.shards, self.payloads = how, shards, payloads  # by worker and owner
        self.mine = how.placement.shares[how.transport.rank]
        self.others = how.transport.others
        self.swap: Swap | None = None
        how.stats.count("messages", [payloads[self.mine[0], owner] for owner in range(len(shards))])
        if self.others:
            with how.stats.time("wire"):
                self._post()

    def _post(self) -> None:
        how, shares = self.how, self.how.placement.shares
        self.wanted = {
            rank: [(worker, owner) for worker in shares[rank] for owner in self.mine] for rank in self.others
        }
        self.sizes = self._sizes()
        outgoing = {
            rank: joined([self.payloads[w, o] for w in self.mine for o in shares[rank]], how.transport.device)
            for rank in self.others
        }
        self.swap = how.transport.post(outgoing, {rank: sum(sizes) for rank, sizes in self.sizes.items()}, "messages")

    def _sizes(self) -> dict[int, list[int]]:
        """The bytes of the wanted shards, by rank: known beforehand, or told by the ranks."""
        how, count = self.how, len(self.shards)
        if how.codec.fixed:
            size_of = [how.codec.size(shard) or 0 for shard in self.shards]
            return {rank: [size_of[owner] for _, owner in pairs] for rank, pairs in self.wanted.items()}
        lengths = [payload.numel() for payload in self.payloads.values()]  # by worker, then by owner
        told = how.transport.numbers(padded(lengths, how.placement.most * count), "control")
        first = {rank: how.placement.shares[rank].start for rank in self.others}
        return {
            rank: [
                checked(told[rank][(w - first[rank]) * count + owner], how.codec.most_bytes(self.shards[owner]), rank)
                for w, owner in pairs
            ]
            for rank, pairs in self.wanted.items()
        }

    def receive(self) -> None:
        """Wait for what others sent to the owners here."""
        if self.swap is not None:
            with self.how.stats.time("wire"):
                received, self.swap = self.swap.wait(), None
            for rank, pairs in self.wanted.items():
                self.payloads |= dict(zip(pairs, received[rank].split(self.sizes[rank]), strict=True))

    def mean(self, owner: int, factor: float, mean: Tensor) -> Tensor:
        """Write the sum of all workers' shards of an owner here, in worker order, times ``factor``, into float32[n].

        The errors of decoding: RemoteNonFinite for a shard whose worker's gradient is not finite, MessageError.
        """
        payloads = [self.payloads.pop((worker, owner)) for worker in range(self.how.placement.num_workers)]
        codec, layout = self.how.codec, self.shards[owner].packed
        mean.zero_()
        for payload in payloads:
            codec.add(payload, layout, mean)
        mean *= torch.tensor(factor, dtype=torch.float32, device="cpu")
        recover_overflow(codec, payloads, layout, mean, factor)
        return mean

    def drain(self) -> None:
        """Wait for pending transfers and discard what they bring."""
        if self.swap is not None:
            self.swap.wait()
