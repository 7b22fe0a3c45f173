"""Groups of processes that run functions: one group serves many tests, since starting it costs more than most of them.

Children are forked from a server that has imported torch once and done nothing with it.
"""

from __future__ import annotations

import multiprocessing
import pickle
import time
import traceback
import warnings
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.tensor.debug import _clear_sharding_prop_cache

from tests.ports import free_port

_PRELOADED = [
    "torch",
    "torch.distributed",
    "torch.nn.parallel",
    "torch._dynamo",
    "pytest",
    "nuq.ddp",
    "nuq.functional",
    "nuq.simulation",
    __name__,
]
_CONTEXT = multiprocessing.get_context("forkserver")


@dataclass(frozen=True)
class Outcome:
    """The outcome of a function on one rank: a value, an error (its traceback), or the end of its process, whose exit
    code this is.
    """

    value: Any = None
    error: str = ""
    exit_code: int | None = None
    hung: bool = False


class Ranks:
    """A gloo group of ``world`` processes on this machine.

    Functions are called as ``function(group, *arguments)`` on the first so many ranks, with the group of those; they
    and what they return travel as pickles.  Warnings are errors there as here.
    """

    def __init__(self, world: int) -> None:
        self.world = world
        self._processes: list[Any] = []
        self._pipes: list[Connection] = []

    def _start(self) -> None:
        _CONTEXT.set_forkserver_preload(_PRELOADED)
        ends = [_CONTEXT.Pipe() for _ in range(self.world)]
        self._pipes = [ours for ours, _ in ends]
        port = free_port()
        self._processes = [
            _CONTEXT.Process(target=_serve, args=(rank, self.world, port, ends[rank][1]), daemon=True)
            for rank in range(self.world)
        ]
        for process, (_, theirs) in zip(self._processes, ends, strict=True):
            process.start()
            theirs.close()

    def start(self) -> None:
        """Start the processes and wait until they are a group."""
        self.run(_nothing)

    def stop(self) -> None:
        for process in self._processes:
            process.kill()
            process.join()
        self._processes = []

    def outcomes(
        self,
        function: Callable[..., Any],
        *arguments: Any,
        world: int = 0,
        timeout_s: float = 100.0,
        without: Collection[int] = (),
    ) -> list[Outcome]:
        """The outcome of the function on every rank.

        After anything but values the processes are stopped.  without: not waited for.
        """
        world = world or self.world
        if not self._processes:
            self._start()
        call = pickle.dumps((function, world, arguments))
        for pipe in self._pipes[:world]:
            pipe.send_bytes(call)
        found: dict[int, Outcome] = {}
        end = time.monotonic() + timeout_s
        while len(found.keys() | set(without)) < world and time.monotonic() < end:
            waiting = {self._pipes[rank]: rank for rank in range(world) if rank not in found and rank not in without}
            for pipe in wait(list(waiting), end - time.monotonic()):
                assert isinstance(pipe, Connection)
                found[waiting[pipe]] = self._read(pipe, self._processes[waiting[pipe]])
            if any(outcome.error for outcome in found.values()):
                end = min(end, time.monotonic() + 30.0)  # the others may wait for that rank in vain
        ordered = [found.get(rank, Outcome(hung=True)) for rank in range(world)]
        if any(outcome.error or outcome.hung or outcome.exit_code is not None for outcome in ordered):
            self.stop()
        return ordered

    @staticmethod
    def _read(pipe: Connection, process: Any) -> Outcome:
        try:
            return pickle.loads(pipe.recv_bytes())
        except (EOFError, ConnectionError):
            process.join(10)
            return Outcome(exit_code=process.exitcode)

    def run(self, function: Callable[..., Any], *arguments: Any, world: int = 0, timeout_s: float = 100.0) -> list[Any]:
        """The function's values, by rank; AssertionError with a rank's traceback where it raised, died or hung."""
        outcomes = self.outcomes(function, *arguments, world=world, timeout_s=timeout_s)
        failed = [f"on rank {rank}:\n{outcome.error}" for rank, outcome in enumerate(outcomes) if outcome.error]
        assert not failed, "\n".join(failed)
        for rank, outcome in enumerate(outcomes):
            assert outcome.exit_code is None, f"rank {rank} ended with exit code {outcome.exit_code}"
            assert not outcome.hung, f"rank {rank} hangs in {function.__name__}"
        return [outcome.value for outcome in outcomes]


def _nothing(group: dist.ProcessGroup) -> None:
    del group


_apart: dict[int, Any] = {}


def second_group(group: dist.ProcessGroup) -> dist.ProcessGroup:
    """The same ranks once more."""
    return _apart[dist.get_world_size(group)]


def first_ranks(size: int) -> dist.ProcessGroup:
    """A group of the first so many ranks."""
    return _apart[size]


def _serve(rank: int, world: int, port: int, pipe: Connection) -> None:
    """A rank: functions one after another, until the other end of the pipe is closed.

    What DTensor keeps of an operation has the mesh of its first call.  A later mesh of another group counts as the same
    if it has the same ranks.  Where the ranks' first calls differ, so would their groups, and each waits for the other.
    """
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world, timeout=timedelta(seconds=60)
    )
    groups = {size: dist.new_group(range(size)) for size in range(1, world)}
    groups[world] = dist.group.WORLD
    _apart.update({size: dist.new_group(range(size)) for size in range(1, world + 1)})
    with suppress(EOFError):
        while True:
            function, size, arguments = pickle.loads(pipe.recv_bytes())
            _clear_sharding_prop_cache()
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("error")
                    outcome = Outcome(value=function(groups[size], *arguments))
            except BaseException:  # noqa: BLE001  whatever it is, the test tells
                outcome = Outcome(error=traceback.format_exc())
            pipe.send_bytes(pickle.dumps(outcome))
