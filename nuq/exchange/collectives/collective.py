"""The interface of a collective: the placement of workers, the statistics of an exchange, and bytes to everyone."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from torch import Tensor

from nuq.exchange.flat_layout import FlatLayout
from nuq.exchange.payload import PayloadCodec, checked, joined
from nuq.exchange.transport import Transport
from nuq.kernels.spec import Key

PROBE = "gate"  # keys what only measures time: levels are fitted in the first steps alone
Vectors = Mapping[int, Tensor]  # of every worker that this process hosts: float[n]


@dataclass(frozen=True)
class WorkerPlacement:
    """The workers that every rank hosts, in contiguous blocks."""

    shares: tuple[range, ...]

    @classmethod
    def of(cls, num_workers: int, world: int) -> WorkerPlacement:
        """The placement of workers on ranks in nearly equal blocks; a single worker lives on rank 0."""
        bounds = [num_workers * rank // world for rank in range(world + 1)]
        if bounds[1] == 0:
            bounds = [0] + [num_workers] * world
        return cls(tuple(range(bounds[rank], bounds[rank + 1]) for rank in range(world)))

    @property
    def num_workers(self) -> int:
        return self.shares[-1].stop

    @property
    def most(self) -> int:
        """The largest number of workers on one rank."""
        return max(len(share) for share in self.shares)


@dataclass
class ExchangeStats:
    """The time and the bytes that exchanges took, told by several threads.

    seconds: by encode, wire, decode, local, levels, and what a trainer adds. encoded: bytes of the first worker's
    messages, and means.
    """

    seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    encoded: Counter[str] = field(default_factory=Counter)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    def time(self, what: str) -> _Timed:
        """A context whose seconds count as ``what``."""
        return _Timed(self, what)

    def count(self, what: str, payloads: Sequence[Tensor]) -> None:
        self.encoded[what] += sum(payload.numel() for payload in payloads)


class _Timed:  # contextlib takes six calls of Python, which a short exchange feels
    def __init__(self, stats: ExchangeStats, what: str) -> None:
        self.stats, self.what, self.started = stats, what, time.perf_counter()

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        with self.stats._lock:
            self.stats.seconds[self.what] += time.perf_counter() - self.started


class Collective(ABC):
    """A way from the workers' vectors to their mean, the same bits on all ranks."""

    @abstractmethod
    def mean(self, vectors: Vectors, layout: FlatLayout, key: Key, out: Tensor) -> None:
        """Write the workers' mean into ``out`` float32[n], which may be the memory of a vector.

        key: seed and step; the worker is filled in.  The errors of decoding (MessageError, RemoteNonFinite), of
        ``Transport`` (RankLost), and NonFiniteError where the mean overflows.
        """

    def begin(self, vectors: Vectors, layout: FlatLayout, key: Key, out: Tensor) -> Callable[[], None]:
        """Begin a ``mean``; what is returned brings it to its end, sends nothing, and may run in another thread.

        So the next mean can be encoded and sent while this one is on its way.  Means end in the order in which they
        began; the vectors stay as they are until then.  By default everything happens at once.
        """
        self.mean(vectors, layout, key, out)
        return nothing_left

    @property
    def inner_transports(self) -> Sequence[Transport]:
        """The transports that carry bytes beside the one that it was built with."""
        return ()

    def remembering(self, hosted: Sequence[int]) -> Sequence[int]:
        """The numbers, as keys have them, of the workers whose memories this rank keeps: those hosted here."""
        return hosted

    def num_remembering(self, workers: int) -> int:
        """The number of workers, or of machines, whose memories all ranks keep together."""
        return workers

    def bits_by_vector(self) -> dict[str, float]:
        """Bits a coordinate of what this collective encoded without the method's codec, by the name of the vector."""
        return {}

    def settle(self) -> None:
        """Read what came late; every rank calls it after the same exchange, before the ranks part."""
        return


def nothing_left() -> None:
    """The end of a mean that was there at once."""


def of_worker(key: Key, worker: int, workers: int) -> Key:
    """The key of one of the workers whose mean is wanted, at the same step.

    A mean that is encoded again has the key of its owner alone: nobody averages it with others.
    """
    return replace(key, worker=worker, workers=workers)


def padded(numbers: list[int], length: int) -> list[int]:
    """The numbers padded with zeros, so that every rank sends equally many."""
    return numbers + [0] * (length - len(numbers))


def to_everyone(
    transport: Transport,
    placement: WorkerPlacement,
    mine: Sequence[Tensor],
    sizes: Mapping[int, Sequence[int]],
    purpose: str,
) -> Callable[[], list[Tensor]]:
    """Send the payloads of all workers to every rank; what is returned waits for them and gives them in worker order.

    sizes: the bytes of every worker's, by rank.
    """
    if transport.world == 1:
        return lambda: list(mine)
    arrived = transport.post_to_all(joined(mine, transport.device), [sum(row) for row in sizes.values()], purpose)
    return lambda: [payload for row, data in zip(sizes.values(), arrived(), strict=True) for payload in data.split(row)]


def sizes_by_rank(
    transport: Transport,
    placement: WorkerPlacement,
    mine: Sequence[Tensor],
    codec: PayloadCodec,
    layouts: Sequence[FlatLayout],
) -> dict[int, list[int]]:
    """The bytes of every worker's payload (of the layouts), by rank: known beforehand, or told by the ranks."""
    sizes, shares = [codec.size(layout) for layout in layouts], dict(enumerate(placement.shares))
    if transport.world == 1 or None not in sizes:
        return {rank: [size or 0 for size in sizes[share.start : share.stop]] for rank, share in shares.items()}
    told = transport.numbers(padded([payload.numel() for payload in mine], placement.most), "control")
    most = [codec.most_bytes(layout) for layout in layouts]
    pairs = {rank: zip(share, told[rank], strict=False) for rank, share in shares.items()}
    return {rank: [checked(size, most[worker], rank) for worker, size in of] for rank, of in pairs.items()}
