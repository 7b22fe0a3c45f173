"""Gather: the message of every worker goes to every rank."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from torch import Tensor

from nuq.errors import MessageError
from nuq.exchange.collectives.collective import (
    Collective,
    ExchangeStats,
    Vectors,
    WorkerPlacement,
    nothing_left,
    of_worker,
    sizes_by_rank,
    to_everyone,
)
from nuq.exchange.collectives.means import recover_overflow, scale
from nuq.exchange.flat_layout import FlatLayout
from nuq.exchange.payload import PayloadCodec, RemoteNonFinite, check_mean
from nuq.exchange.transport import Transport
from nuq.kernels.spec import Key


@dataclass
class Gather(Collective):
    """The collective that sends every message to every rank.

    A mean is begun apart from its end where nothing has to be told before the messages: their lengths are known.
    """

    transport: Transport
    placement: WorkerPlacement
    codec: PayloadCodec
    stats: ExchangeStats = field(default_factory=ExchangeStats)

    def mean(self, vectors: Vectors, layout: FlatLayout, key: Key, out: Tensor) -> None:
        self._send(vectors, layout, key, out)()

    def begin(self, vectors: Vectors, layout: FlatLayout, key: Key, out: Tensor) -> Callable[[], None]:
        end = self._send(vectors, layout, key, out)
        if self.codec.fixed and self.transport.posts_at_once:
            return end
        end()
        return nothing_left

    def _send(self, vectors: Vectors, layout: FlatLayout, key: Key, out: Tensor) -> Callable[[], None]:
        with self.stats.time("encode"):
            payloads = [
                self.codec.encode_or_mark(vectors[w], layout, of_worker(key, w, self.placement.num_workers))
                for w in self.placement.shares[self.transport.rank]
            ]
        self.stats.count("messages", payloads[:1])
        with self.stats.time("wire"):
            layouts = [layout] * self.placement.num_workers
            sizes = sizes_by_rank(self.transport, self.placement, payloads, self.codec, layouts)
            arrived = to_everyone(self.transport, self.placement, payloads, sizes, "messages")

        def end() -> None:
            with self.stats.time("decode"):
                added = self._added_early(payloads, layout, out)
            with self.stats.time("wire"):
                received = arrived()
            with self.stats.time("decode"):
                for worker, payload in enumerate(received):
                    if worker not in added:
                        self.codec.add(payload, layout, out)
                workers = self.placement.num_workers
                scale(out, workers)
                recover_overflow(self.codec, received, layout, out, 1.0 / workers)
                check_mean(out, layout)

        return end

    def _added_early(self, payloads: list[Tensor], layout: FlatLayout, out: Tensor) -> range:
        """Begin the sum in ``out``; the workers whose messages are added while others' are on their way.

        Of two workers it is this rank's own, as their sum is the same in either order.  One that cannot be added waits
        for its turn: all ranks raise the error of the first worker that has one.
        """
        mine = self.placement.shares[self.transport.rank]
        if self.placement.num_workers == 2 and len(mine) == 1:
            with suppress(RemoteNonFinite, MessageError):
                self.codec.add(payloads[0], layout, out.zero_())
                return mine
        out.zero_()
        return range(0)
