"""A server: every message goes to rank 0, who averages the first ones to arrive and answers."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

from torch import Tensor

from nuq.exchange.collectives.collective import Collective, ExchangeStats, Vectors, WorkerPlacement, of_worker
from nuq.exchange.collectives.means import encoded_mean, recover_overflow, scale
from nuq.exchange.collectives.parameter_server import MOST_BEHIND, ParameterServer
from nuq.exchange.flat_layout import FlatLayout
from nuq.exchange.payload import PayloadCodec, RemoteNonFinite
from nuq.exchange.transport import Transport
from nuq.kernels.spec import Key


@dataclass
class Server(Collective):
    """The collective in which rank 0 averages the first ``num_aggregate`` messages to arrive and answers all.

    It is ATOMO's parameter server.  Late messages are thrown away, as are their gradients.  In a simulation the order
    of arrival is drawn, from seed and step.  With num_aggregate = M everything is waited for and added in worker order.
    """

    transport: Transport
    placement: WorkerPlacement
    codec: PayloadCodec
    mean_codec: PayloadCodec
    num_aggregate: int
    stats: ExchangeStats = field(default_factory=ExchangeStats)

    def __post_init__(self) -> None:
        # where every worker is waited for, no message is left behind unread
        behind = MOST_BEHIND if self.num_aggregate < self.placement.num_workers else 0
        self._server = ParameterServer(self.transport, most_behind=behind) if self.transport.world > 1 else None

    def mean(self, vectors: Vectors, layout: FlatLayout, key: Key, out: Tensor) -> None:
        with self.stats.time("encode"):
            mine = self.placement.shares[self.transport.rank]
            keys = {w: of_worker(key, w, self.placement.num_workers) for w in mine}
            payloads = {w: self.codec.encode_or_mark(vectors[w], layout, keys[w]) for w in mine}
        self.stats.count("messages", list(payloads.values())[:1])
        if self.transport.rank == 0:
            reply = self._serve(payloads, layout, key, out)
        else:
            assert self._server is not None
            with self.stats.time("wire"):
                reply = self._server.ask(payloads, self.mean_codec.most_bytes(layout))
        self.stats.count("means", [reply])
        with self.stats.time("decode"):
            out.zero_()
            self.mean_codec.add(reply, layout, out)

    def settle(self) -> None:
        if self._server is not None:
            self._server.settle()

    def _serve(self, payloads: dict[int, Tensor], layout: FlatLayout, key: Key, out: Tensor) -> Tensor:
        with self.stats.time("wire"):
            if self._server is not None:
                ranks = {worker: rank for rank, share in enumerate(self.placement.shares) if rank for worker in share}
                count, most_bytes = self.num_aggregate - len(payloads), self.codec.most_bytes(layout)
                payloads |= self._server.first(count, ranks, most_bytes)
            taken = sorted(payloads)
            if len(taken) > self.num_aggregate:  # more are hosted here than are wanted
                taken = sorted(random.Random(key.words()[0]).sample(taken, self.num_aggregate))
        with self.stats.time("decode"):
            out.zero_()
            try:
                for worker in taken:
                    self.codec.add(payloads[worker], layout, out)
                scale(out, len(taken))
                recover_overflow(self.codec, [payloads[worker] for worker in taken], layout, out, 1.0 / len(taken))
                reply = encoded_mean(self.mean_codec, out, layout, replace(key, worker=0))
            except RemoteNonFinite as marked:
                reply = self.mean_codec.marker(marked.worker, marked.number, layout, out.device)
        if self._server is not None:
            self._server.answer(reply)
        return reply
