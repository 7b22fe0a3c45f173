"""The transport of bytes from rank to rank, over any torch.distributed backend, counted as they reach the network.

Everything that the collectives of this library send goes through ``Transport.swap``: every rank sends to and receives
from others directly.  An operation that fails therefore fails with a certain rank; which one is to blame, ranks tell
each other in the group's store (``nuq.exchange.missing``).  Where the store has ended with the others, a rank that was
away for longer than they wait for it names itself.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from weakref import WeakKeyDictionary

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.constants import default_pg_timeout

from nuq.errors import NonFiniteError, RankFailed, RankLost
from nuq.exchange import missing
from nuq.exchange.missing import FAILED, GONE, GRACE_S, LATE, REFUSED_GRACE_S, ROLL_CALL, absence

_LONGEST_S = 1e9  # thirty years, which backends still count in nanoseconds
_TAG_BITS = 18  # exchanges before the tags of one Transport begin anew; gloo matches sends and receives by tag
_ROLL_CALL_TAG, _SILENT_TAG, _FIRST_TAG = range(3)  # the second is never sent
_BROKEN = re.compile(  # what gloo and NCCL say of a connection that broke or waited in vain
    r"connect|timed? ?out|timing out|timeout|broken pipe|reset by|closed|socket|network|read error|write error|"
    r"end of file|unreachable|aborted|remote process",
    re.IGNORECASE,
)
_built: WeakKeyDictionary[dist.ProcessGroup, int] = WeakKeyDictionary()  # Transport of every group so far


def group_of(group: Any) -> dist.ProcessGroup | None:
    """The group that a caller gave, or that of all ranks, if there is one; ValueError for what is no group."""
    if group is None:
        return dist.group.WORLD
    if not isinstance(group, dist.ProcessGroup):
        remedy = "as torch.distributed.new_group and mesh.get_group give one, or None for all ranks"
        raise ValueError(f"group={group!r:.100}: must be a torch.distributed.ProcessGroup with this rank, {remedy}")
    return group


def apart(group: dist.ProcessGroup, timeout_s: float | None = None) -> dist.ProcessGroup:
    """A new group of all ranks.  A collective call: every rank makes it.

    A backend matches collectives by their order, so what a thread of ours issues must not share a group with what
    another thread does (DDP's own in the backward pass: its map of unused parameters, synchronised batch norm).
    ValueError for a part of the ranks, of which only all together can make a group; RankLost where one of them is not
    there within ``timeout_s`` (None: the limit of ``group``).
    """
    some, every = dist.get_world_size(group), dist.get_world_size()
    if some < every:
        remedy = "make a second one by torch.distributed.new_group for this state alone and give it as group"
        raise ValueError(f"a group of {some} of the {every} ranks, which others may use: {remedy}")
    limit = timedelta(seconds=timeout_s) if timeout_s is not None else limit_of(group)
    try:
        made = dist.new_group(backend=dist.get_backend(group), timeout=limit)
    except dist.DistError as error:
        why = str(error).strip().splitlines()[0]
        raise RankLost(f"no second group of all {every} ranks: one of them is gone or late ({why})") from error
    assert isinstance(made, dist.ProcessGroup)
    return made


def backend_of(group: dist.ProcessGroup, device: str) -> str:
    """The backend (gloo, nccl, ...) that carries tensors of a device; a group may have one backend for each."""
    listed = dict(pair.split(":") for pair in dist.get_backend_config(group).split(",") if ":" in pair)
    return listed.get(device, str(dist.get_backend(group)))


def limit_of(group: dist.ProcessGroup | None, device: str = "cpu") -> timedelta:
    """The time that the backend of a group waits for a rank, as the group was made."""
    try:
        return group._get_backend(torch.device(device)).options._timeout  # pyright: ignore[reportOptionalMemberAccess]
    except (AttributeError, RuntimeError):  # no group, no such device, or a backend that does not say
        return default_pg_timeout


def _nothing() -> None:
    pass


class Swap:
    """An exchange on its way."""

    def __init__(self, transport: Transport, received: dict[int, Tensor], operations: list[Any]) -> None:
        self.works: list[tuple[int, Any]] = []
        # the operations keep what is sent alive
        self._transport, self._received, self._operations = transport, received, operations

    def wait(self) -> dict[int, Tensor]:
        """Wait for the exchange: what every rank sent, by rank."""
        for rank, work in self.works:
            try:  # below 0: NCCL's, of the current stream
                work.wait() if rank < 0 else work.wait(self._transport.timeout)
            except RuntimeError as error:
                self._transport.abandon(self)
                raise self._transport.lost(rank, error) from error
        self._transport.posted.discard(self)
        absence.begins()
        return self._received


@dataclass(frozen=True, slots=True)
class _Telling:
    """The context of ``Transport.telling``: four calls, where ``contextlib`` takes seven."""

    transport: Transport

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, trace: object) -> None:
        if error is not None and not isinstance(error, NonFiniteError | RankLost):
            self.transport.tell(error)


@dataclass(frozen=True, slots=True)
class RefusalsTold:
    """The context of a whole collective call: it tells of an error as ``Transport.telling``.

    group: of the ranks that wait in that call; None where there is none.
    """

    group: dist.ProcessGroup | None

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, trace: object) -> None:
        if error is not None and not isinstance(error, NonFiniteError | RankLost):
            Transport(self.group, numbered=False).tell(error, REFUSED_GRACE_S)


class Transport:
    """The transport between the ranks of a process group (None: this process alone).

    timeout_s: how long to wait for a rank before it counts as lost (None: as long as the group's own operations do),
    ``patience`` times in fact.  device: where the gradients lie (the CPU, unless told otherwise).  bytes_sent: by
    purpose, this rank's own.  siblings: others, of other groups, that are of no use any more when a rank of these is
    lost.  failure: the error of this rank for which it has closed the group.  All ranks have to build the Transport of
    a group in the same order: their number keeps their messages apart.  numbered: False for one that only tells.
    """

    def __init__(
        self,
        group: dist.ProcessGroup | None,
        *,
        timeout_s: float | None = None,
        device: torch.device | None = None,
        patience: int = 1,
        numbered: bool = True,
    ) -> None:
        self.group = group
        self.rank, self.world = (dist.get_rank(group), dist.get_world_size(group)) if group is not None else (0, 1)
        self.others = [rank for rank in range(self.world) if rank != self.rank]
        self._patience, self._device_type = patience, "cpu" if device is None else device.type
        self.wait_for(timeout_s)
        self.bytes_sent: Counter[str] = Counter()
        number = 0
        if group is not None:
            if group not in _built:
                missing.go_on()
            number = _built[group] = _built.get(group, 0) + numbered
        self.number, self._number = number, number % (1 << 30 - _TAG_BITS)
        self._exchanges = itertools.count(1)
        cuda = device is not None and device.type == "cuda"
        self._nccl = cuda and group is not None and backend_of(group, "cuda") == "nccl"
        self.device = device if self._nccl and device is not None else torch.device("cpu")  # where what is sent lies
        self.siblings: list[Transport] = []
        self.failure: BaseException | None = None
        self.farewell: Callable[[], None] = _nothing  # called before the group is closed for it
        self.posted: set[Swap] = set()  # and not waited for
        self._abandoned: list[object] = []  # what failed operations may still read or write

    def wait_for(self, timeout_s: float | None) -> None:
        """Wait so long for a rank from now on, as ``timeout_s`` says above; ValueError for what is no time."""
        is_number = isinstance(timeout_s, int | float) and not isinstance(timeout_s, bool)
        if timeout_s is not None and not (is_number and 0 < timeout_s <= _LONGEST_S):
            rule = f"must be a number of seconds above 0 and up to {_LONGEST_S:g}, or None"
            raise ValueError(f"timeout_s={timeout_s!r:.100}: {rule}")
        limit = limit_of(self.group, self._device_type) if timeout_s is None else timedelta(seconds=timeout_s)
        self.timeout_s, self.timeout = timeout_s, self._patience * limit
        own = f"None, the process group's own {self.timeout.total_seconds():g} s"
        self._waited = f"timeout_s={own if timeout_s is None else f'{timeout_s:g}'}"

    def next_tag(self) -> int:
        return (self._number << _TAG_BITS) | (next(self._exchanges) % ((1 << _TAG_BITS) - _FIRST_TAG) + _FIRST_TAG)

    def abandon(self, swap: Swap) -> None:
        """Keep the memory that a failed exchange may still read or write."""
        self._abandoned.append(swap)

    def swap(self, outgoing: Mapping[int, Tensor], sizes: Mapping[int, int], purpose: str) -> dict[int, Tensor]:
        """Send uint8 tensors to ranks, receive as many bytes as ``sizes`` says from ranks; empty ones do not travel.

        RankLost, with the rank's number, where one died or did not answer in time.
        """
        return self.post(outgoing, sizes, purpose).wait()

    @property
    def posts_at_once(self) -> bool:
        """Whether ``post`` returns before others have posted theirs, and what they never post holds up nothing else."""
        return not self._nccl

    def post(self, outgoing: Mapping[int, Tensor], sizes: Mapping[int, int], purpose: str) -> Swap:
        """Start a ``swap`` without waiting: what is received is there after ``wait``."""
        tag = self.next_tag()
        absence.ends()
        received = {rank: torch.empty(size, dtype=torch.uint8, device=self.device) for rank, size in sizes.items()}
        operations = [(rank, dist.irecv, tensor) for rank, tensor in received.items() if tensor.numel()]
        outgoing = {rank: tensor.to(self.device) for rank, tensor in outgoing.items()}
        operations += [(rank, dist.isend, tensor) for rank, tensor in outgoing.items() if tensor.numel()]
        self.bytes_sent[purpose] += sum(tensor.numel() for tensor in outgoing.values())
        swap = Swap(self, received, operations)
        self.posted.add(swap)
        if self._nccl:  # posted one by one they would wait for each other
            calls = [dist.P2POp(call, tensor, group=self.group, group_peer=rank) for rank, call, tensor in operations]
            swap.works = [(-1, work) for work in dist.batch_isend_irecv(calls)] if calls else []
            return swap
        for rank, call, tensor in operations:
            direction = {"group_src": rank} if call is dist.irecv else {"group_dst": rank}
            try:
                swap.works.append((rank, call(tensor, group=self.group, tag=tag, **direction)))
            except RuntimeError as error:
                self.abandon(swap)
                raise self.lost(rank, error) from error
        return swap

    def to_all(self, data: Tensor, sizes: list[int], purpose: str) -> list[Tensor]:
        """Send the same bytes to every rank: what all ranks sent (``sizes``), in rank order, this one's included."""
        return self.post_to_all(data, sizes, purpose)()

    def post_to_all(self, data: Tensor, sizes: list[int], purpose: str) -> Callable[[], list[Tensor]]:
        """Start a ``to_all``; what is returned waits for it."""
        swap = self.post(dict.fromkeys(self.others, data), {rank: sizes[rank] for rank in self.others}, purpose)

        def arrived() -> list[Tensor]:
            received = swap.wait()
            return [data if rank == self.rank else received[rank] for rank in range(self.world)]

        return arrived

    def all_gather(self, tensor: Tensor, purpose: str) -> list[Tensor]:
        """Equally shaped tensors of all ranks, in rank order."""
        data = tensor.contiguous().view(-1).view(torch.uint8)
        return [
            row.view(tensor.dtype).view(tensor.shape) for row in self.to_all(data, [data.numel()] * self.world, purpose)
        ]

    def broadcast(self, tensor: Tensor, purpose: str, source: int = 0) -> None:
        """Broadcast one rank's numbers, the first one's unless told otherwise, to all ranks, in place."""
        data = tensor.contiguous().view(-1).view(torch.uint8)
        if self.rank == source:
            self.swap(dict.fromkeys(self.others, data), {}, purpose)
        else:
            tensor.copy_(self.swap({}, {source: data.numel()}, purpose)[source].view(tensor.dtype).view(tensor.shape))

    def barrier(self) -> None:
        """Wait until all ranks are here."""
        self.numbers([0], "control")

    def numbers(self, mine: list[int], purpose: str) -> list[list[int]]:
        """The integers of every rank, equally many from each."""
        data = torch.tensor(mine, dtype=torch.int64, device=self.device).view(torch.uint8)
        return [row.view(torch.int64).tolist() for row in self.to_all(data, [data.numel()] * self.world, purpose)]

    def texts(self, mine: str, purpose: str) -> list[str]:
        """The text of every rank."""
        data = torch.frombuffer(bytearray(mine.encode() or b" "), dtype=torch.uint8).to(self.device)
        sizes = [row[0] for row in self.numbers([data.numel()], purpose)]
        return [bytes(row.cpu().numpy()).decode() for row in self.to_all(data, sizes, purpose)]

    def dense_sum(self, tensor: Tensor, purpose: str) -> None:
        """Sum over the ranks by the backend's own all-reduce, in place; its bytes are counted as a ring sends them."""
        self.bytes_sent[purpose] += 2 * (self.world - 1) * tensor.numel() * tensor.element_size() // self.world
        if self.world == 1:
            return
        absence.ends()
        try:
            work = dist.all_reduce(tensor, group=self.group, async_op=True)
            assert work is not None
            work.wait() if self._nccl else work.wait(self.timeout)
        except RuntimeError as error:
            raise self.lost(None, error) from error
        absence.begins()

    def _missing(self) -> int | None:
        """The rank that does not answer, after an operation of all ranks that broke; None where it cannot be found.

        The operation does not tell which rank broke it.
        """
        if self._nccl:  # after an error it cannot be used again
            return None
        word, tag = torch.zeros(1, dtype=torch.uint8, device="cpu"), (self._number << _TAG_BITS) | _ROLL_CALL_TAG
        for call in (dist.isend, dist.irecv):  # where the connection is closed, at once
            for rank in self.others:
                direction = {"group_src": rank} if call is dist.irecv else {"group_dst": rank}
                try:
                    work = call(word.clone(), group=self.group, tag=tag, **direction)
                    self._abandoned.append(work)
                    if call is dist.irecv and work is not None:
                        work.wait(ROLL_CALL)
                except RuntimeError:
                    return rank
        return self.others[0]

    def _hang_up(self) -> None:
        """Close this rank's connections in the group, which the lost rank has broken.

        Whoever waits for this rank then asks the store, too.  Without that, such a rank would notice first when this
        process ends, and the store may end with it.
        """
        for rank in () if self._nccl else self.others:
            with suppress(RuntimeError):  # gloo closes them all where an operation times out
                word, tag = torch.zeros(1, dtype=torch.uint8, device="cpu"), (self._number << _TAG_BITS) | _SILENT_TAG
                work = dist.irecv(word, group=self.group, tag=tag, group_src=rank)
                self._abandoned.append((work, word))
                assert work is not None
                work.wait(timedelta(milliseconds=1))

    def telling(self) -> _Telling:
        """Tell the others of an error of this rank in here, so that they stop waiting for it: they raise RankFailed.

        NonFiniteError and RankLost come to all ranks by themselves.  So does any other error that all ranks have at
        about the same time, and then the group stays as it is; else it is closed as after RankLost.
        """
        return _Telling(self)

    def tell(self, error: BaseException, grace_s: float = GRACE_S) -> None:
        """Tell of an error of this rank (``telling``); grace_s: for the others to have one, too."""
        told = vars(error).setdefault("_nuq_told", set())  # in which groups: contexts lie in one another
        if self.group is not None and self.world > 1 and self.group.group_name not in told:
            told.add(self.group.group_name)
            self._tell(self.group, error, min(grace_s, self.timeout.total_seconds() / 4))

    def _tell(self, group: dist.ProcessGroup, error: BaseException, grace_s: float) -> None:
        closed = (self, *self.siblings)
        for transport in closed:  # known before another thread of this rank finds its connections closed
            transport.failure = error
        if missing.failed_on_all(group, error, grace_s):
            for transport in closed:
                transport.failure = None
            return
        self.farewell()
        for transport in closed:
            transport._abandoned += transport.posted
            transport._hang_up()
        if dist.get_rank() == 0:
            missing.until_all_have_asked(self.world - 1)

    def lost(self, rank: int | None, error: BaseException, *, grace_s: float = 0.0) -> BaseException:
        """The error that names the rank which was found missing first, by its number among all ranks.

        RankLost, RankFailed for a rank that told of an error of its own, or that error where it was this rank's.  The
        name is right as far as the store still tells.

        rank: with which an operation failed; None: it does not say, so the ranks are called one by one.
        grace_s: time left to that rank to say first whom it misses itself.

        An error that tells of no broken connection is raised as it is: a tensor cannot be sent, and no rank is gone.
        """
        if self.failure is not None:
            return self.failure
        if isinstance(error, NotImplementedError) or not _BROKEN.search(str(error)):
            raise error
        assert self.group is not None and dist.group.WORLD is not None
        if rank is None and not missing.some_rank_failed(self.group):
            rank = self._missing()
        name = None if rank is None else dist.get_global_rank(self.group, rank)
        text = (str(error) or type(error).__name__).strip().splitlines()[0]
        why = re.sub(r"^\[[^]]*\] *", "", text).split(". ")[0]  # without the place in gloo's sources
        how = LATE if "imed out" in why else GONE
        if dist.get_world_size() > 2:
            # the grace is shorter than others wait for this rank
            grace_s = max(grace_s, min(GRACE_S, self.timeout.total_seconds() / 4))
        if first := missing.first_told(None if name is None else f"{name} {how}", grace_s):
            number, _, how = first.partition(" ")
            name = int(number)
            for transport in (self, *self.siblings):
                transport._hang_up()
            if dist.get_rank() == 0:
                missing.until_all_have_asked((self.world if how.startswith(FAILED) else dist.get_world_size()) - 1)
        elif how == GONE and absence.seconds > self.timeout.total_seconds():
            # the others gave up, and the store ended with them
            name, how = dist.get_rank(), f"{LATE}, {absence.seconds:.0f} s after its last exchange"
        world = dist.get_world_size()
        who = f"rank {name} of {world}" if name is not None else f"one of the {world} ranks"
        if how.startswith(FAILED):
            return RankFailed(f"{who} {how}")
        waited = f"{self._waited}; " if how.startswith(LATE) else ""
        return RankLost(f"{who} {how} ({waited}rank {dist.get_rank()} saw: {why})")
