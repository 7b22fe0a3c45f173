"""Means of the workers' gradients from messages: the ways the messages can take, each of which leaves all ranks with
the same bits.

==============  ==========================================================================================  =========================
collective      what travels                                                                                bytes one rank sends
==============  ==========================================================================================  =========================
gather          every worker's message to every rank, decoded in worker order                               (M - 1) b
two_stage       shard c of every message to worker c, who decodes, averages and encodes it again for all  (M - 1) / M (b + b2)
server          every message to rank 0, who averages the first K to arrive and answers in b2 bits          b; rank 0: (M - 1) b2
==============  ==========================================================================================  =========================

with M workers, one per rank, b and b2 the bytes of a whole message in the first and the second encoding.  The error of
two stages is (w1 / M) R + w2 (1 + (w1 / M) R) of the mean's squared norm, with w1, w2 the two encodings' relative
variances and R = mean |x_i|^2 / |mean x|^2: the second one is not divided by M, so it deserves more bits.

A method may bring a collective of its own: PowerSGD's averages factors instead of messages
(``nuq.exchange.collectives.powersgd``).

A process may host several workers (``WorkerPlacement``), all of them in a simulation: the bits of ``gather`` and
``two_stage``, and of ``server`` with K = M, do not depend on the split.
"""

from __future__ import annotations

import random
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Protocol

import torch
from torch import Tensor

from nuq.compressors import Compressor
from nuq.compressors.feedback import ErrorFeedback
from nuq.compressors.quantized import AdaptiveQuantizer
from nuq.errors import NonFiniteError
from nuq.exchange.collectives.parameter_server import MOST_BEHIND, Arrivals
from nuq.exchange.payload import (
    PayloadCodec,
    RemoteNonFinite,
    Segment,
    check_mean,
    cut,
    joined,
    num_coordinates,
    within,
)
from nuq.exchange.transport import Swap, Transport
from nuq.kernels.spec import Key
from nuq.kernels.statistics import Statistics

SHARD = 1 << 19  # coordinates of a shard, at least, where a vector is long enough for several rounds of two stages
PROBE = "gate"  # keys what only measures time: levels are fitted in the first steps alone
Vectors = Mapping[int, Tensor]  # of every worker that this process hosts: float[n]


@dataclass(frozen=True)
class WorkerPlacement:
    """Which workers every rank hosts, in contiguous blocks."""

    shares: tuple[range, ...]

    @classmethod
    def of(cls, num_workers: int, world: int) -> WorkerPlacement:
        """Workers dealt to ranks; a single worker lives on rank 0."""
        bounds = [num_workers * rank // world for rank in range(world + 1)]
        if bounds[1] == 0:
            bounds = [0] + [num_workers] * world
        return cls(tuple(range(bounds[rank], bounds[rank + 1]) for rank in range(world)))

    @property
    def num_workers(self) -> int:
        return self.shares[-1].stop

    @property
    def most(self) -> int:
        """Workers of the rank that hosts most."""
        return max(len(share) for share in self.shares)


@dataclass
class ExchangeStats:
    """What exchanges took.  seconds: by encode, wire, decode, local, levels.  encoded: bytes of the first worker's
    messages, and means.
    """

    seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    encoded: Counter[str] = field(default_factory=Counter)

    @contextmanager
    def time(self, what: str) -> Iterator[None]:
        started = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[what] += time.perf_counter() - started

    def count(self, what: str, payloads: Sequence[Tensor]) -> None:
        self.encoded[what] += sum(payload.numel() for payload in payloads)


class Collective(Protocol):
    """mean(vectors, parts, key, out): the workers' mean into ``out``, float32[n], which may be the memory of a vector.

    key: seed and step; the worker is filled in.  The errors of decoding (MessageError, RemoteNonFinite), of
    ``Transport`` (RankLost), and NonFiniteError where the mean overflows.
    """

    def mean(self, vectors: Vectors, parts: Sequence[Segment], key: Key, out: Tensor) -> None: ...


def of_worker(key: Key, worker: int) -> Key:
    """The same step's key of a worker."""
    return replace(key, worker=worker)


def padded(numbers: list[int], length: int) -> list[int]:
    """Zeros behind, so that every rank tells as many."""
    return numbers + [0] * (length - len(numbers))


def encoded_mean(mean_compressor: PayloadCodec, mean: Tensor, parts: Sequence[Segment], key: Key) -> Tensor:
    """A mean as the payload that goes to everyone.

    Until their first update the levels of an adaptive encoder are those of a normal law.  Single gradients bear that,
    since their errors average out; a mean's does not, and trainings diverged: so until then they are fitted to each
    mean (they travel with it).
    """
    if key.parameter != PROBE and any(_unfitted(codec) for codec in mean_compressor.every):
        every = [
            PayloadCodec(_fitted(codec, mean, [part for part in parts if part.encoder == number], key), codec.settings)
            for number, codec in enumerate(mean_compressor.every)
        ]
        mean_compressor = PayloadCodec(every[0].compressor, every[0].settings, every[1:])
    return mean_compressor.encode_or_mark(mean, parts, key.of("mean"))


def _unfitted(codec: PayloadCodec) -> bool:
    compressor = within(codec.compressor)
    return isinstance(compressor, AdaptiveQuantizer) and not compressor.fitted


def _fitted(codec: PayloadCodec, mean: Tensor, parts: Sequence[Segment], key: Key) -> Compressor:
    """The encoder, or a copy of it with levels for this mean."""
    around = codec.compressor
    if not _unfitted(codec):
        return around
    compressor = copy(within(around))
    statistics = Statistics.empty(compressor.settings.num_components)
    with suppress(NonFiniteError):  # encoding it says so, to all ranks
        for part in parts:
            if not part.exact:
                piece = mean[part.start : part.start + part.size]
                compressor.observe(piece, key.of("mean/statistics").of(part.key_name), statistics)
        compressor.update(statistics)
    if not isinstance(around, ErrorFeedback):
        return compressor
    around = copy(around)  # of the same memory
    around.inner = compressor
    return around


def scale(total: Tensor, num_workers: int) -> None:
    """total *= float32(1/M), the one rounding that all splits share."""
    total *= torch.tensor(1.0 / num_workers, dtype=torch.float32)


@dataclass
class Gather:
    """Every message to everyone."""

    transport: Transport
    placement: WorkerPlacement
    codec: PayloadCodec
    account: ExchangeStats = field(default_factory=ExchangeStats)

    def mean(self, vectors: Vectors, parts: Sequence[Segment], key: Key, out: Tensor) -> None:
        with self.account.time("encode"):
            payloads = [
                self.codec.encode_or_mark(vectors[w], parts, of_worker(key, w))
                for w in self.placement.shares[self.transport.rank]
            ]
        self.account.count("messages", payloads[:1])
        with self.account.time("wire"):
            sizes = [self.codec.size(parts)] * self.placement.num_workers
            received = to_everyone(self.transport, self.placement, payloads, sizes, "messages")
        with self.account.time("decode"):
            out.zero_()
            for payload in received:
                self.codec.add(payload, parts, out)
            scale(out, self.placement.num_workers)
            check_mean(out, parts)


def to_everyone(
    transport: Transport, placement: WorkerPlacement, mine: Sequence[Tensor], sizes: Sequence[int | None], purpose: str
) -> list[Tensor]:
    """Every worker's payload, in worker order.  sizes: of every worker's; told first where one is not known (None)."""
    if transport.world == 1:
        return list(mine)
    per_rank = sizes_by_rank(transport, placement, mine, sizes)
    rows = transport.to_all(joined(mine, transport.device), [sum(row) for row in per_rank.values()], purpose)
    return [payload for row, data in zip(per_rank.values(), rows, strict=True) for payload in data.split(row)]


def sizes_by_rank(
    transport: Transport, placement: WorkerPlacement, mine: Sequence[Tensor], sizes: Sequence[int | None]
) -> dict[int, list[int]]:
    """The bytes of every worker's payload, by rank."""
    if None in sizes:
        told = transport.numbers(padded([payload.numel() for payload in mine], placement.most), "control")
        return {rank: told[rank][: len(share)] for rank, share in enumerate(placement.shares)}
    return {
        rank: [size or 0 for size in sizes[share.start : share.stop]] for rank, share in enumerate(placement.shares)
    }


@dataclass
class TwoStage:
    """Shard by shard to the shard's owner, and the owner's mean, encoded again, to everyone.

    Long vectors go in several rounds: while one is on the wire, the one before is decoded, averaged and encoded.
    """

    transport: Transport
    placement: WorkerPlacement
    codec: PayloadCodec
    mean_compressor: PayloadCodec
    account: ExchangeStats = field(default_factory=ExchangeStats)

    def mean(self, vectors: Vectors, parts: Sequence[Segment], key: Key, out: Tensor) -> None:
        workers = self.placement.num_workers
        num_rounds = max(num_coordinates(parts) // (workers * SHARD), 1)
        shards = cut(parts, num_rounds * workers)
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
    """One shard of every worker, through both stages."""

    def __init__(self, how: TwoStage, shards: list[list[Segment]], key: Key) -> None:
        self.how, self.shards, self.key = how, shards, key
        self.mine = how.placement.shares[how.transport.rank]
        self.others = [rank for rank in range(how.transport.world) if rank != how.transport.rank]
        self.payloads: dict[tuple[int, int], Tensor] = {}  # by worker and owner
        self.means: list[Tensor] = []
        self.swap: Swap | None = None

    def send(self, vectors: Vectors) -> None:
        """Encode, and start sending to the owners."""
        how, shares = self.how, self.how.placement.shares
        with how.account.time("encode"):
            for worker in self.mine:
                for owner, shard in enumerate(self.shards):
                    self.payloads[worker, owner] = how.codec.encode_or_mark(
                        vectors[worker], shard, of_worker(self.key, worker)
                    )
        how.account.count("messages", [self.payloads[self.mine[0], owner] for owner in range(len(self.shards))])
        if not self.others:
            return
        with how.account.time("wire"):
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
        """The means of the shards that are owned here, and start sending them to everyone."""
        how = self.how
        if self.swap is not None:
            with how.account.time("wire"):
                received, self.swap = self.swap.wait(), None
            for rank, pairs in self.wanted.items():
                self.payloads |= dict(zip(pairs, received[rank].split(self.sizes[rank]), strict=True))
        self.means = [self._mean(owner, self.shards[owner], device) for owner in self.mine]
        how.account.count("means", self.means[:1])
        if self.others:
            with how.account.time("wire"):
                self.sizes = sizes_by_rank(
                    how.transport, how.placement, self.means, [how.mean_compressor.size(shard) for shard in self.shards]
                )
                data = joined(self.means, how.transport.device)
                self.swap = how.transport.post(
                    dict.fromkeys(self.others, data), {r: sum(self.sizes[r]) for r in self.others}, "means"
                )

    def _mean(self, owner: int, shard: list[Segment], device: torch.device) -> Tensor:
        """The mean of one shard, encoded.

        The marker where a worker sent one: the other ranks have yet to hear of it.
        """
        if not shard:
            return joined([], device)
        how, base = self.how, shard[0].start
        with how.account.time("decode"):
            mean = torch.zeros(num_coordinates(shard), dtype=torch.float32, device=device)
            try:
                for worker in range(how.placement.num_workers):
                    how.codec.add(self.payloads.pop((worker, owner)), shard, mean, base=base)
            except RemoteNonFinite as marked:
                return how.mean_compressor.marker(marked.worker, marked.number, shard, device)
            scale(mean, how.placement.num_workers)
        with how.account.time("encode"):
            at_zero = [replace(part, start=part.start - base) for part in shard]
            return encoded_mean(how.mean_compressor, mean, at_zero, replace(self.key, worker=owner))

    def receive(self, out: Tensor) -> None:
        """Everyone's means into their indices."""
        how, payloads = self.how, self.means
        if self.swap is not None:
            with how.account.time("wire"):
                received, self.swap = self.swap.wait(), None
                received[how.transport.rank] = joined(self.means, out.device)
            payloads = [payload for rank, sizes in self.sizes.items() for payload in received[rank].split(sizes)]
        with how.account.time("decode"):
            for shard, payload in zip(self.shards, payloads, strict=True):
                if shard:
                    out[shard[0].start : shard[0].start + num_coordinates(shard)].zero_()
                how.mean_compressor.add(payload, shard, out)

    def drain(self) -> None:
        if self.swap is not None:
            self.swap.wait()


@dataclass
class Server:
    """Every message to rank 0, who averages the first ``num_aggregate`` to arrive and answers all (ATOMO's parameter
    server).

    Late messages are thrown away, as are their gradients.  In a simulation the order of arrival is drawn, from seed and
    step.  With num_aggregate = M everything is waited for and added in worker order.
    """

    transport: Transport
    placement: WorkerPlacement
    codec: PayloadCodec
    mean_compressor: PayloadCodec
    num_aggregate: int
    account: ExchangeStats = field(default_factory=ExchangeStats)

    def __post_init__(self) -> None:
        behind = (
            MOST_BEHIND if self.num_aggregate < self.placement.num_workers else 0
        )  # where all are waited for, all are there to read
        self._arrivals = Arrivals(self.transport, most_behind=behind) if self.transport.world > 1 else None

    def mean(self, vectors: Vectors, parts: Sequence[Segment], key: Key, out: Tensor) -> None:
        with self.account.time("encode"):
            mine = self.placement.shares[self.transport.rank]
            payloads = {w: self.codec.encode_or_mark(vectors[w], parts, of_worker(key, w)) for w in mine}
        self.account.count("messages", list(payloads.values())[:1])
        if self.transport.rank == 0:
            reply = self._serve(payloads, parts, key, out)
        else:
            assert self._arrivals is not None
            with self.account.time("wire"):
                reply = self._arrivals.ask(payloads)
        self.account.count("means", [reply])
        with self.account.time("decode"):
            out.zero_()
            self.mean_compressor.add(reply, parts, out)

    def settle(self) -> None:
        """Read what came late: before the ranks part."""
        if self._arrivals is not None:
            self._arrivals.settle()

    def _serve(self, payloads: dict[int, Tensor], parts: Sequence[Segment], key: Key, out: Tensor) -> Tensor:
        with self.account.time("wire"):
            if self._arrivals is not None:
                ranks = {worker: rank for rank, share in enumerate(self.placement.shares) if rank for worker in share}
                payloads |= self._arrivals.first(self.num_aggregate - len(payloads), ranks)
            taken = sorted(payloads)
            if len(taken) > self.num_aggregate:  # more are hosted here than are wanted
                taken = sorted(random.Random(key.words()[0]).sample(taken, self.num_aggregate))
        with self.account.time("decode"):
            out.zero_()
            try:
                for worker in taken:
                    self.codec.add(payloads[worker], parts, out)
                scale(out, len(taken))
                reply = encoded_mean(self.mean_compressor, out, parts, replace(key, worker=0))
            except RemoteNonFinite as marked:
                reply = self.mean_compressor.marker(marked.worker, marked.number, parts, out.device)
        if self._arrivals is not None:
            self._arrivals.answer(reply)
        return reply
