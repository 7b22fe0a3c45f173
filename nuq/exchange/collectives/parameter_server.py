"""Rank 0 as a parameter server that takes messages in the order of their arrival and does not wait for everyone.

Every message is told with the exchange it belongs to, so a late one is recognised and thrown away when it comes.
Nobody waits for what he sent to be read: a rank that lags finds the answers in order, up to ``MOST_BEHIND`` of them.
Hence ``settle`` at the end: what has not been read is lost with the process that sent it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor

from nuq.exchange.missing import absence, some_rank_failed
from nuq.exchange.payload import checked
from nuq.exchange.transport import Transport, backend_of

MOST_BEHIND = 16  # exchanges
# times longer than rank 0 for a worker: rank 0 waits for them, and should be the one to say who is missing
_PATIENCE = 2
_HEAD_BYTES = 32  # exchange, rank, worker, payload's bytes: int64
_FAILED = -1  # in place of the bytes, by a rank that has failed
_FAREWELL_S = 2.0


class ParameterServer:
    """Both ends of the server, in turns: ``ask`` on the workers' ranks, ``first`` and ``answer`` on rank 0."""

    def __init__(self, transport: Transport, *, most_behind: int = MOST_BEHIND) -> None:
        assert transport.group is not None
        if backend_of(transport.group, transport.device.type) != "gloo":
            why = "takes messages as they arrive, which only gloo can do"
            raise ValueError(f"collective='server' {why}; legal here: gather, two_stage")
        self._transport = transport
        self._most_behind = most_behind
        self._heads, self._payloads, self._replies = transport.next_tag(), transport.next_tag(), transport.next_tag()
        self._exchange = 0
        self._read: dict[int, int] = {}  # on rank 0: messages of every other rank so far
        self._hosted: dict[int, int] = {}  # workers of every other rank
        self._most_bytes = 0  # of a payload, in this exchange and all before, whose late messages are read too
        # the sends of each exchange that may not have been read
        self._pending: deque[list[tuple[int, dist.Work, Tensor]]] = deque()
        if transport.rank:
            transport.farewell = self._say_failed

    def _send(self, rank: int, data: Tensor, tag: int) -> tuple[int, dist.Work, Tensor]:
        data = data.to(self._transport.device)
        try:
            work = dist.isend(data, group=self._transport.group, group_dst=rank, tag=tag)
        except RuntimeError as error:
            raise self._transport.lost(rank, error) from error
        assert work is not None
        return rank, work, data

    def _receive(self, rank: int | None, size: int, tag: int, *, suspects: Iterable[int] = ()) -> Tensor:
        """Receive from the given rank, or from whichever comes first. suspects: who may be to blame if none does."""
        data = torch.empty(size, dtype=torch.uint8, device="cpu")
        source = {} if rank is None else {"group_src": rank}
        try:
            work = dist.irecv(data, group=self._transport.group, tag=tag, **source)
            assert work is not None
            work.wait(self._transport.timeout * (1 if self._transport.rank == 0 else _PATIENCE))
        except RuntimeError as error:
            grace_s = 0.5 * bool(self._transport.rank)
            raise self._transport.lost(min(suspects, default=rank), error, grace_s=grace_s) from error
        absence.begins()
        return data

    # --- the workers' ranks ---

    def _say_failed(self) -> None:
        """Say that this rank has failed: who takes messages from whichever rank comes first sees no closed connection.

        ``some_rank_failed`` says it to a rank 0 that comes later than this one waits for it.
        """
        head = torch.tensor([self._exchange, self._transport.rank, 0, _FAILED], dtype=torch.int64, device="cpu")
        with suppress(RuntimeError):
            _, work, _ = self._send(0, head.view(torch.uint8), self._heads)
            work.wait(timedelta(seconds=_FAREWELL_S))

    def ask(self, payloads: Mapping[int, Tensor], most_bytes: int) -> Tensor:
        """Send this rank's payloads, by worker, and receive the answer to everyone, of at most so many bytes."""
        sent = []
        absence.ends()
        for worker, payload in payloads.items():
            numbers = [self._exchange, self._transport.rank, worker, payload.numel()]
            head = torch.tensor(numbers, dtype=torch.int64, device="cpu").view(torch.uint8)
            sent += [self._send(0, head, self._heads), self._send(0, payload, self._payloads)]
            self._transport.bytes_sent["messages"] += payload.numel()
            self._transport.bytes_sent["control"] += _HEAD_BYTES
        self._exchange += 1
        self._pending.append(sent)
        size = checked(int(self._receive(0, 8, self._replies).view(torch.int64)[0]), most_bytes, 0)
        reply = self._receive(0, size, self._replies)
        self._wait(self._most_behind)
        return reply

    # --- rank 0 ---

    def first(self, count: int, ranks: Mapping[int, int], most_bytes: int) -> dict[int, Tensor]:
        """The first ``count`` payloads (of at most ``most_bytes``) to arrive, by worker; ranks: of others' workers."""
        self._most_bytes = max(self._most_bytes, most_bytes)
        self._hosted = {rank: list(ranks.values()).count(rank) for rank in set(ranks.values())}
        found: dict[int, Tensor] = {}
        absence.ends()
        group = self._transport.group
        assert group is not None
        if absence.seconds > _FAREWELL_S / 2 and some_rank_failed(group):
            raise self._transport.lost(None, RuntimeError("it closes its connections"))
        while len(found) < min(count, len(ranks)):
            exchange, worker, payload = self._next({rank for other, rank in ranks.items() if other not in found})
            if exchange == self._exchange:  # an earlier one: too late
                found[worker] = payload
        self._exchange += 1
        while late := self._owing(MOST_BEHIND):  # whose next messages would wait to be read, with nobody reading
            self._next(late)
        return found

    def _owing(self, exchanges: int) -> set[int]:
        """The ranks of which more than so many exchanges' messages are unread."""
        least = {rank: (self._exchange - exchanges) * hosted for rank, hosted in self._hosted.items()}
        return {rank for rank, count in least.items() if self._read.get(rank, 0) < count}

    def _next(self, suspects: Iterable[int] = ()) -> tuple[int, int, Tensor]:
        head = self._receive(None, _HEAD_BYTES, self._heads, suspects=suspects)
        exchange, rank, worker, size = head.view(torch.int64).tolist()
        if size == _FAILED:
            raise self._transport.lost(rank, RuntimeError("it closes its connections"))
        self._read[rank] = self._read.get(rank, 0) + 1
        return exchange, worker, self._receive(rank, checked(size, self._most_bytes, rank), self._payloads)

    def answer(self, reply: Tensor) -> None:
        """Send the answer to all other ranks, without waiting for them."""
        size = torch.tensor([reply.numel()], dtype=torch.int64, device="cpu").view(torch.uint8)
        others = range(1, self._transport.world)
        self._pending.append([self._send(rank, data, self._replies) for rank in others for data in (size, reply)])
        self._transport.bytes_sent["means"] += reply.numel() * len(others)
        self._transport.bytes_sent["control"] += size.numel() * len(others)
        self._wait(self._most_behind)

    # --- the end ---

    def settle(self) -> None:
        """Read what came late, and wait until the sends are complete."""
        while late := self._owing(0):
            self._next(late)
        self._wait(0)

    def _wait(self, most: int) -> None:
        while len(self._pending) > most:
            for rank, work, _ in self._pending.popleft():
                try:
                    work.wait(self._transport.timeout)
                except RuntimeError as error:
                    raise self._transport.lost(rank, error) from error
