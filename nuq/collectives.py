"""Means of the workers' gradients from messages: the ways the messages can take, each of which leaves all ranks with the same bits.

==============  ==========================================================================================  =========================
collective      what travels                                                                                bytes one rank sends
==============  ==========================================================================================  =========================
gather          every worker's message to every rank, decoded in worker order                               (M - 1) b
two_stage       stretch c of every message to worker c, who decodes, averages and encodes it again for all  (M - 1) / M (b + b2)
server          every message to rank 0, who averages the first K to arrive and answers in b2 bits          b; rank 0: (M - 1) b2
==============  ==========================================================================================  =========================

with M workers, one per rank, b and b2 the bytes of a whole message in the first and the second encoding.  The error of two stages is
(w1 / M) R + w2 (1 + (w1 / M) R) of the mean's squared norm, with w1, w2 the two encodings' relative variances and
R = mean |x_i|^2 / |mean x|^2: the second one is not divided by M, so it deserves more bits.

A process may host several workers (``Hosts``), all of them in a simulation: the bits of ``gather`` and ``two_stage``, and of ``server``
with K = M, do not depend on the split.
"""

from __future__ import annotations

import random
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Protocol

import torch
from torch import Tensor

from nuq.arrivals import Arrivals
from nuq.links import Links
from nuq.ops import Key
from nuq.payload import Codec, Marked, Part, cut, num_coordinates

Vectors = Mapping[int, Tensor]  # of every worker that this process hosts: float[n]


@dataclass(frozen=True)
class Hosts:
    """Which workers every rank hosts, in contiguous blocks."""

    shares: tuple[range, ...]

    @classmethod
    def of(cls, num_workers: int, world: int) -> Hosts:
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
class Account:
    """What exchanges took.  seconds: by encode, wire, decode, local.  encoded: bytes of the first hosted worker's messages, and means."""

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

    key: seed and step; the worker is filled in.  The errors of decoding (MessageError, Marked) and of ``Links`` (RankLost).
    """

    def mean(self, vectors: Vectors, parts: Sequence[Part], key: Key, out: Tensor) -> None: ...


def of_worker(key: Key, worker: int) -> Key:
    return replace(key, worker=worker)


def joined(payloads: Sequence[Tensor], device: torch.device) -> Tensor:
    """One after another, without a copy where there is only one."""
    if len(payloads) == 1:
        return payloads[0]
    return torch.cat(list(payloads)) if payloads else torch.empty(0, dtype=torch.uint8, device=device)


def padded(numbers: list[int], length: int) -> list[int]:
    return numbers + [0] * (length - len(numbers))


def scale(total: Tensor, num_workers: int) -> None:
    """total *= float32(1/M), the one rounding that all splits share."""
    total *= torch.tensor(1.0 / num_workers, dtype=torch.float32)


@dataclass
class Gather:
    """Every message to everyone."""

    links: Links
    hosts: Hosts
    codec: Codec
    account: Account = field(default_factory=Account)

    def mean(self, vectors: Vectors, parts: Sequence[Part], key: Key, out: Tensor) -> None:
        with self.account.time("encode"):
            payloads = [self.codec.encode_or_mark(vectors[w], parts, of_worker(key, w)) for w in self.hosts.shares[self.links.rank]]
        self.account.count("messages", payloads[:1])
        with self.account.time("wire"):
            sizes = [self.codec.size(parts)] * self.hosts.num_workers
            received = to_everyone(self.links, self.hosts, payloads, sizes, "messages")
        with self.account.time("decode"):
            out.zero_()
            for payload in received:
                self.codec.add(payload, parts, out)
            scale(out, self.hosts.num_workers)


def to_everyone(links: Links, hosts: Hosts, mine: Sequence[Tensor], sizes: Sequence[int | None], purpose: str) -> list[Tensor]:
    """Every worker's payload, in worker order.  sizes: of every worker's; told first where one is not known (None)."""
    if links.world == 1:
        return list(mine)
    if None in sizes:
        told = links.numbers(padded([payload.numel() for payload in mine], hosts.most), "control")
        per_rank = [row[: len(share)] for row, share in zip(told, hosts.shares, strict=True)]
    else:
        per_rank = [[size or 0 for size in sizes[share.start : share.stop]] for share in hosts.shares]
    rows = links.to_all(joined(mine, links.device), [sum(row) for row in per_rank], purpose)
    return [payload for row, data in zip(per_rank, rows, strict=True) for payload in data.split(row)]


@dataclass
class TwoStage:
    """Stretch by stretch to the stretch's owner, and the owner's mean, encoded again, to everyone."""

    links: Links
    hosts: Hosts
    codec: Codec
    second: Codec
    account: Account = field(default_factory=Account)

    def mean(self, vectors: Vectors, parts: Sequence[Part], key: Key, out: Tensor) -> None:
        stretches = cut(parts, self.hosts.num_workers)
        mine = self.hosts.shares[self.links.rank]
        with self.account.time("encode"):
            payloads = {
                (worker, owner): self.codec.encode_or_mark(vectors[worker], stretch, of_worker(key, worker))
                for worker in mine
                for owner, stretch in enumerate(stretches)
            }
        self.account.count("messages", [payloads[mine[0], owner] for owner in range(len(stretches))])
        with self.account.time("wire"):
            payloads |= self._to_owners(payloads, stretches)
        means = [self._mean_of(owner, payloads, stretches[owner], key, out.device) for owner in mine]
        self.account.count("means", means[:1])
        with self.account.time("wire"):
            received = to_everyone(self.links, self.hosts, means, [self.second.size(stretch) for stretch in stretches], "means")
        with self.account.time("decode"):
            out.zero_()
            for stretch, payload in zip(stretches, received, strict=True):
                self.second.add(payload, stretch, out)

    def _mean_of(
        self, owner: int, payloads: Mapping[tuple[int, int], Tensor], stretch: list[Part], key: Key, device: torch.device
    ) -> Tensor:
        """The mean of one stretch, encoded; the marker where a worker sent one: the other ranks have yet to hear of it."""
        if not stretch:
            return joined([], device)
        base = stretch[0].start
        with self.account.time("decode"):
            mean = torch.zeros(num_coordinates(stretch), dtype=torch.float32, device=device)
            try:
                for worker in range(self.hosts.num_workers):
                    self.codec.add(payloads[worker, owner], stretch, mean, base=base)
            except Marked as marked:
                return self.second.marker(marked.worker, marked.number, stretch, device)
            scale(mean, self.hosts.num_workers)
        with self.account.time("encode"):
            at_zero = [replace(part, start=part.start - base) for part in stretch]
            return self.second.encode_or_mark(mean, at_zero, replace(key, worker=owner).of("mean"))

    def _to_owners(self, payloads: Mapping[tuple[int, int], Tensor], stretches: list[list[Part]]) -> dict[tuple[int, int], Tensor]:
        """The others' payloads, by (worker, owner), of the stretches that this process's workers own."""
        links, shares = self.links, self.hosts.shares
        if links.world == 1:
            return {}
        mine, others = shares[links.rank], [rank for rank in range(links.world) if rank != links.rank]
        wanted = {rank: [(worker, owner) for worker in shares[rank] for owner in mine] for rank in others}
        size = {pair: self.codec.size(stretches[pair[1]]) for pairs in wanted.values() for pair in pairs}
        if not self.codec.fixed:
            lengths = [payload.numel() for payload in payloads.values()]  # by worker, then by owner
            told = links.numbers(padded(lengths, self.hosts.most * len(stretches)), "control")
            size = {pair: told[r][(pair[0] - shares[r].start) * len(stretches) + pair[1]] for r in others for pair in wanted[r]}
        outgoing = {rank: joined([payloads[w, owner] for w in mine for owner in shares[rank]], links.device) for rank in others}
        sizes = {rank: [size[pair] or 0 for pair in wanted[rank]] for rank in others}
        received = links.swap(outgoing, {rank: sum(row) for rank, row in sizes.items()}, "messages")
        return {pair: part for rank in others for pair, part in zip(wanted[rank], received[rank].split(sizes[rank]), strict=True)}


@dataclass
class Server:
    """Every message to rank 0, who averages the first ``num_aggregate`` to arrive and answers all (ATOMO's parameter server).

    Late messages are thrown away, as are their gradients.  In a simulation the order of arrival is drawn, from seed and step.  With
    num_aggregate = M everything is waited for and added in worker order.
    """

    links: Links
    hosts: Hosts
    codec: Codec
    second: Codec
    num_aggregate: int
    account: Account = field(default_factory=Account)

    def __post_init__(self) -> None:
        self._arrivals = Arrivals(self.links) if self.links.world > 1 else None

    def mean(self, vectors: Vectors, parts: Sequence[Part], key: Key, out: Tensor) -> None:
        with self.account.time("encode"):
            mine = self.hosts.shares[self.links.rank]
            payloads = {w: self.codec.encode_or_mark(vectors[w], parts, of_worker(key, w)) for w in mine}
        self.account.count("messages", list(payloads.values())[:1])
        if self.links.rank == 0:
            reply = self._serve(payloads, parts, key, out)
        else:
            assert self._arrivals is not None
            with self.account.time("wire"):
                reply = self._arrivals.ask(payloads)
        self.account.count("means", [reply])
        with self.account.time("decode"):
            out.zero_()
            self.second.add(reply, parts, out)

    def settle(self) -> None:
        """Read what came late: before the ranks part."""
        if self._arrivals is not None:
            self._arrivals.settle()

    def _serve(self, payloads: dict[int, Tensor], parts: Sequence[Part], key: Key, out: Tensor) -> Tensor:
        with self.account.time("wire"):
            if self._arrivals is not None:
                ranks = {worker: rank for rank, share in enumerate(self.hosts.shares) if rank for worker in share}
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
                reply = self.second.encode_or_mark(out, parts, replace(key, worker=0).of("mean"))
            except Marked as marked:
                reply = self.second.marker(marked.worker, marked.number, parts, out.device)
        if self._arrivals is not None:
            self._arrivals.answer(reply)
        return reply
