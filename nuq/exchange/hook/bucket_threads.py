"""The threads that exchange DDP's buckets beside the backward pass: one sends, one receives."""

from __future__ import annotations

import queue
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from nuq.exchange.collectives.collective import nothing_left
from nuq.exchange.hook.buckets import Bucket
from nuq.exchange.payload import told_plainly

_MOST_BEGUN = 2  # exchanges that wait for their end, whose messages take memory; another one is begun before it waits


@dataclass(frozen=True)
class _Begun:
    """Buckets whose exchange has begun, what ends it, and the stream on which it goes on."""

    buckets: list[Bucket]
    end: Callable[[], None]
    stream: torch.cuda.Stream | None


class BucketThreads:
    """Two threads that exchange buckets in the order in which DDP gives them, which is the same on all ranks.

    begin: encodes and sends buckets that go together, in the first thread; what it returns waits for the other ranks'
    and writes the means into the buckets' memory, in the second one, and so takes no time from what is sent next.
    waits: whether buckets of a step are kept until its last one is there.  error: the first one of an exchange; nothing
    is exchanged after it, and every bucket is done at once.  The threads begin with the first bucket.
    """

    def __init__(self, begin: Callable[[list[Bucket]], Callable[[], None]], waits: Callable[[], bool]) -> None:
        self.error: BaseException | None = None
        self._begin, self._waits = begin, waits
        self._given: queue.SimpleQueue[Bucket | None] = queue.SimpleQueue()
        self._begun: queue.Queue[_Begun | None] = queue.Queue(_MOST_BEGUN)
        self._threads: list[threading.Thread] = []
        self._left: list[_Begun] = []  # by an error: their memory may still be written

    @property
    def runs(self) -> bool:
        """Whether the threads have begun and were not closed since."""
        return bool(self._threads)

    def submit(
        self, buffer: Tensor, names: tuple[str, ...], is_last: bool, used: frozenset[str]
    ) -> torch.futures.Future[Tensor]:
        """Hand a bucket to the threads; returns the future of its mean, in the bucket's own memory.

        An error that a future carries becomes a RuntimeError in DDP; one of the backward pass stays what it is.
        """
        cuda = buffer.device.type == "cuda"
        ready = torch.cuda.current_stream(buffer.device).record_event() if cuda else None
        done: torch.futures.Future[None] = torch.futures.Future(devices=[buffer.device] if cuda else [])
        inside = torch._C._current_graph_task_id() != -1  # of a backward pass, unlike in DDP's join
        bucket = Bucket(buffer, names, is_last, done, ready, used)
        self._put(bucket)
        if inside and is_last:
            after = torch.autograd.Variable._execution_engine.queue_callback
            # behind DDP's own callback, which is not there yet and waits for all futures
            after(lambda: after(self._raise))
        return done.then(lambda _: self._result(bucket, told=inside))

    def _result(self, bucket: Bucket, *, told: bool) -> Tensor:
        if not told:
            self._raise()
        return bucket.buffer

    def _raise(self) -> None:
        if self.error is not None:
            raise self.error

    def _put(self, bucket: Bucket) -> None:
        if not self._threads:
            works = {"nuq sends": self._send, "nuq receives": self._receive}
            self._threads = [threading.Thread(target=work, daemon=True, name=name) for name, work in works.items()]
            for thread in self._threads:
                thread.start()
            self._at_exit = weakref.finalize(self, _end, self._threads, self._given)
        self._given.put(bucket)

    def close(self) -> None:
        """End the threads, after they have exchanged what they were given."""
        if self._threads:
            self._given.put(None)
            for thread in self._threads:
                thread.join()
            self._at_exit.detach()
            self._threads = []

    def _send(self) -> None:
        stream: torch.cuda.Stream | None = None
        buckets: list[Bucket] = []  # that are exchanged together
        while (bucket := self._given.get()) is not None:
            buckets.append(bucket)
            with self._kept(None):
                if bucket.ready is not None:
                    stream = stream or torch.cuda.Stream(bucket.buffer.device)
                    stream.wait_event(bucket.ready)
                if self.error is None and self._waits() and not bucket.last:
                    continue
            begun = _Begun(buckets, nothing_left, stream)
            with self._kept(stream):
                if self.error is None:
                    begun = replace(begun, end=self._begin(buckets))
            self._begun.put(begun)
            buckets = []
        self._begun.put(None)

    def _receive(self) -> None:
        while (begun := self._begun.get()) is not None:
            with self._kept(begun.stream):
                if self.error is None:
                    begun.end()
            if self.error is not None:
                self._left.append(begun)
            with torch.cuda.stream(begun.stream):  # where the buckets' users wait for what is on it
                for bucket in begun.buckets:
                    bucket.done.set_result(None)

    @contextmanager
    def _kept(self, stream: torch.cuda.Stream | None) -> Iterator[None]:
        """Keep the first error, whatever it is: the backward pass waits for the buckets."""
        try:
            with told_plainly(), torch.no_grad(), torch.cuda.stream(stream):
                yield
        except BaseException as error:  # noqa: BLE001
            self.error = self.error or error


def _end(threads: Sequence[threading.Thread], given: queue.SimpleQueue[Bucket | None]) -> None:
    """End all threads before the interpreter exits: one that returned from C++ afterwards would abort the process."""
    given.put(None)
    for thread in threads:
        thread.join(2.0)
