"""The thread that exchanges DDP's buckets beside the backward pass."""

from __future__ import annotations

import queue
import threading
import weakref
from collections.abc import Callable

import torch
from torch import Tensor

from nuq.exchange.hook.buckets import Bucket
from nuq.exchange.payload import told_plainly


class BucketThread:
    """A thread that exchanges buckets in the order in which DDP gives them, which is the same on all ranks.

    exchange: buckets that go together, whose means it writes into their memory.  waits: whether buckets of a step are
    kept until its last one is there.  error: the first one of an exchange; nothing is exchanged after it, and every
    bucket is done at once.  The thread begins with the first bucket.
    """

    def __init__(self, exchange: Callable[[list[Bucket]], None], waits: Callable[[], bool]) -> None:
        self.error: BaseException | None = None
        self._exchange, self._waits = exchange, waits
        self._jobs: queue.SimpleQueue[Bucket | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    @property
    def runs(self) -> bool:
        """Whether the thread has begun and was not closed since."""
        return self._thread is not None

    def submit(self, buffer: Tensor, names: tuple[str, ...], is_last: bool) -> torch.futures.Future[Tensor]:
        """Hand a bucket to the thread; returns the future of its mean, in the bucket's own memory.

        An error that a future carries becomes a RuntimeError in DDP; one of the backward pass stays what it is.
        """
        cuda = buffer.device.type == "cuda"
        ready = torch.cuda.current_stream(buffer.device).record_event() if cuda else None
        done: torch.futures.Future[None] = torch.futures.Future(devices=[buffer.device] if cuda else [])
        inside = torch._C._current_graph_task_id() != -1  # of a backward pass, unlike in DDP's join
        bucket = Bucket(buffer, names, is_last, done, ready)
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

    def _put(self, job: Bucket) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, daemon=True, name="nuq exchange")
            self._thread.start()
            self._at_exit = weakref.finalize(self, _end, self._thread, self._jobs)
        self._jobs.put(job)

    def close(self) -> None:
        """End the thread, after it has exchanged what it was given."""
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join()
            self._at_exit.detach()
            self._thread = None

    def _work(self) -> None:
        stream: torch.cuda.Stream | None = None
        jobs: list[Bucket] = []  # that are exchanged together
        while (job := self._jobs.get()) is not None:
            jobs.append(job)
            if self._waits() and not job.last and self.error is None:
                continue
            if job.ready is not None:
                stream = stream or torch.cuda.Stream(job.buffer.device)
            try:
                with told_plainly(), torch.no_grad(), torch.cuda.stream(stream):
                    for one in jobs:
                        if stream is not None and one.ready is not None:
                            stream.wait_event(one.ready)
                    if self.error is None:
                        self._exchange(jobs)
                    for one in jobs:
                        one.done.set_result(None)
            except BaseException as error:  # noqa: BLE001  whatever it is, the backward pass waits for it
                self.error = error
                for one in jobs:
                    one.done.set_result(None)
            jobs = []


def _end(thread: threading.Thread, jobs: queue.SimpleQueue[Bucket | None]) -> None:
    """End all threads before the interpreter exits.

    A thread that returned from C++ afterwards would end the process by an abort.
    """
    jobs.put(None)
    thread.join(2.0)
