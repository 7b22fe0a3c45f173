"""Two stages: shards of the messages go to their owners, and the owners' means, encoded again, to everyone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from nuq.exchange.collectives.collective import Collective, ExchangeStats, Vectors, WorkerPlacement, sizes_by_rank
from nuq.exchange.collectives.means import encoded_mean
from nuq.exchange.collectives.reduce_scatter import ReduceScatter, SentShards
from nuq.exchange.flat_layout import FlatLayout
from nuq.exchange.payload import PayloadCodec, RemoteNonFinite, joined
from nuq.exchange.transport import Swap, Transport
from nuq.kernels.spec import Key
from nuq.settings.exchange import SHARD


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

    def __post_init__(self) -> None:
        self.first_stage = ReduceScatter(self.transport, self.placement, self.codec, self.stats)

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
        self.sent: SentShards | None = None
        self.means: list[Tensor] = []
        self.swap: Swap | None = None

    def send(self, vectors: Vectors) -> None:
        """Encode the shards, and start sending them to their owners."""
        self.sent = self.how.first_stage.send(vectors, self.shards, self.key)

    def average(self, device: torch.device) -> None:
        """Average the shards that this rank owns, and start sending the means to everyone."""
        how, sent = self.how, self.sent
        assert sent is not None
        sent.receive()
        self.means = [self._mean(sent, owner, device) for owner in sent.mine]
        how.stats.count("means", self.means[:1])
        if sent.others:
            with how.stats.time("wire"):
                self.sizes = sizes_by_rank(how.transport, how.placement, self.means, how.mean_codec, self.shards)
                data = joined(self.means, how.transport.device)
                self.swap = how.transport.post(
                    dict.fromkeys(sent.others, data), {r: sum(self.sizes[r]) for r in sent.others}, "means"
                )

    def _mean(self, sent: SentShards, owner: int, device: torch.device) -> Tensor:
        """The mean of one shard, encoded; the marker where a worker sent one, of which other ranks have yet to hear."""
        how, shard = self.how, self.shards[owner].packed
        with how.stats.time("decode"):
            try:
                mean = torch.empty(shard.num_coordinates, dtype=torch.float32, device=device)
                sent.mean(owner, 1.0 / how.placement.num_workers, mean)
            except RemoteNonFinite as marked:
                return how.mean_codec.marker(marked.worker, marked.number, shard, device)
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
        if self.sent is not None:
            self.sent.drain()
        if self.swap is not None:
            self.swap.wait()
