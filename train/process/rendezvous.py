"""The meeting of the ranks of a run, and the store where one tells the others why it ends.

Connecting to the store where they meet and ``init_process_group`` wait in C++, where no signal, no end of torchrun and
no refusal of another rank is heard.  So a thread waits there, and the main one listens.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, TCPStore

from nuq.errors import RankLost
from train.process import status as statuses
from train.process.signals import NOTHING_YET, Preempted, StopSignal
from train.process.status import Refused

LOOK_S = 0.1  # between two looks at what there is to hear
REACH_S = 5.0  # the time for one attempt to reach the store
GRACE_S = 10.0  # the time for the others, which may still be importing, once this rank was asked to stop
_threads: list[threading.Thread] = []  # threads that wait, or have waited, in C++


def num_ranks() -> int:
    """The number of processes that train together; ValueError where several were not told where to meet."""
    told = os.environ.get("WORLD_SIZE", "1")
    if not told.isdecimal() or not int(told):
        raise ValueError(f"the environment has WORLD_SIZE={told!r}, which is no number of ranks; torchrun sets it")
    ranks = int(told)
    for name, most in (("RANK", ranks - 1), ("MASTER_ADDR", None), ("MASTER_PORT", 65535)) if ranks > 1 else ():
        value = os.environ.get(name)
        if value is None:
            raise ValueError(f"the environment has WORLD_SIZE={ranks} but no {name}: start the ranks with torchrun")
        if most is not None and not (value.isdecimal() and int(value) <= most):
            raise ValueError(f"the environment has {name}={value!r}; legal: 0 to {most}; torchrun sets it")
    return ranks


def own_rank() -> int:
    """The rank of this process among ``num_ranks``; 0 where it is alone, whatever the environment says."""
    return int(os.environ["RANK"]) if num_ranks() > 1 else 0


def refuse(exit_code: int, error: BaseException, *, patience_s: float = GRACE_S) -> None:
    """Tell the other ranks, which wait for this one, that it does not start.

    Nothing happens where they cannot be reached.

    patience_s: for the place where they meet to be there, which without torchrun the first rank makes, and there for
    them to look.
    """
    with contextlib.suppress(RuntimeError, ValueError, TimeoutError):
        if num_ranks() > 1:
            end = time.monotonic() + patience_s
            _reach(lambda: time.monotonic() >= end)
            store = _in_thread(lambda: _store(REACH_S)).result(REACH_S)
            _tell(store, exit_code, error)
            _know(store, patience_s)


def _tell(store: PrefixStore, exit_code: int, error: BaseException) -> None:
    """Leave in the store why this rank ends.  The first word stays: what others then meet follows from it."""
    told = {"exit_code": exit_code, "rank": own_rank(), **statuses.account(error)}
    store.compare_set("refused", "", json.dumps(told))


def _told(store: PrefixStore) -> Refused | None:
    """The end of another rank, as it has told it; None where none has."""
    return Refused(**json.loads(store.get("refused"))) if store.check(["refused"]) else None


def _know(store: PrefixStore, patience_s: float) -> None:
    """Note that this rank knows of a refusal; who keeps the store waits at most so long until all ranks know."""
    everybody, end = [f"knows/{rank}" for rank in range(num_ranks())], time.monotonic() + patience_s
    with contextlib.suppress(RuntimeError):  # who keeps it has gone
        store.set(f"knows/{own_rank()}", "")
        while _is_host() and not store.check(everybody) and time.monotonic() < end:
            time.sleep(LOOK_S)


def leave(exit_code: int) -> None:
    """End the process at once where a thread still waits: one that came back in Python's shutdown would abort it."""
    if any(thread.is_alive() for thread in _threads):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(exit_code)


@contextlib.contextmanager
def process_group(
    device: torch.device, timeout_s: float, stop: StopSignal, exit_code: Callable[[Exception], int]
) -> Iterator[dist.ProcessGroup | None]:
    """The group that torchrun started, in which a silent rank is waited for so long; None for a single process.

    RankLost where not all ranks come, Refused where one says why it does not, Preempted where this one was asked to
    stop meanwhile.  The first rank keeps the status alone, so the others tell it what goes wrong inside, with its
    ``exit_code``: where it has lost one that did, it raises Refused, and else it knows only that the other is gone.
    """
    ranks = num_ranks()
    if ranks == 1:
        yield None
        return
    begin, rank = time.monotonic(), own_rank()
    try:
        store = _join("nccl" if device.type == "cuda" else "gloo", rank, ranks, timeout_s, stop)
    except RuntimeError as error:
        time.sleep(LOOK_S)  # where torchrun is gone, its store was gone first
        if stop.certain:
            why = Preempted(NOTHING_YET)
            refuse(statuses.EXIT_REQUEUE, why, patience_s=0.0)
            raise why from error
        late = f" within exchange.timeout_s={timeout_s:g} seconds" if time.monotonic() - begin >= timeout_s else ""
        before = " before this one was asked to stop" if stop.requested else late
        saw = str(error).strip().splitlines()[0]
        raise RankLost(f"the {ranks} ranks did not come together{before} (rank {rank} saw: {saw})") from error
    try:
        yield dist.group.WORLD
    except RankLost as error:
        with contextlib.suppress(RuntimeError):  # who keeps the store is gone, too
            if rank == 0 and (refused := _told(store)):
                raise refused from error
        raise
    except Preempted:  # as all ranks are
        raise
    except Exception as error:
        with contextlib.suppress(RuntimeError):
            if rank:
                _tell(store, exit_code(error), error)
        raise
    finally:
        dist.destroy_process_group()


def _join(backend: str, rank: int, ranks: int, timeout_s: float, stop: StopSignal) -> PrefixStore:
    """Wait until the group is there; returns the store where the ranks have met.

    RuntimeError where it is not in time, or where this rank is asked to stop.  SIGTERM may be torchrun's word that
    another rank failed: then the others, or their reason, get GRACE_S to come.
    """
    end = time.monotonic() + timeout_s

    def over() -> bool:
        nonlocal end
        if stop.requested:
            end = min(end, time.monotonic() + (0.0 if stop.certain else GRACE_S))
        return time.monotonic() >= end

    _reach(over)
    meeting = _in_thread(lambda: (_store(timeout_s), _store(timeout_s)))
    while not _done(meeting):
        if over():
            raise RuntimeError(f"what is at {_place()} does not answer")
    store, its = meeting.result()
    store.set(f"here/{rank}", "")
    timeout = timedelta(seconds=timeout_s)
    group = _in_thread(
        lambda: dist.init_process_group(backend, timeout=timeout, store=its, rank=rank, world_size=ranks)
    )
    everybody = [f"here/{other}" for other in range(ranks)]
    # NCCL's waits for nobody
    while not over() and not (group.done() and (group.exception() or store.check(everybody))):
        if refused := _told(store):
            _know(store, GRACE_S)
            raise refused
        time.sleep(LOOK_S)
    # what it prints when its time is over comes before what is said here
    failure = group.exception() if _done(group, 1.0) else None
    if failure and not over():
        raise _told(store) or failure
    missing = [key.removeprefix("here/") for key in everybody if not store.check([key])]
    if group.done() and not failure and not missing:
        return store
    raise RuntimeError(f"no rank {', '.join(missing)}" if missing else "a rank came and left")


def _place() -> tuple[str, int]:
    return os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])


def _is_host() -> bool:
    """Whether the ranks meet at this one: without torchrun, they do at the first rank."""
    return os.environ["RANK"] == "0" and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"


def _reach(over: Callable[[], bool]) -> None:
    """Wait for the meeting point, of which ``TCPStore`` would print pages; RuntimeError once ``over`` says so."""
    while not _is_host():
        try:
            socket.create_connection(_place(), REACH_S).close()
            return
        except OSError as error:
            if over():
                raise RuntimeError(f"nobody is at {_place()} ({error.strerror or error})") from error
            time.sleep(LOOK_S)


def _store(timeout_s: float) -> PrefixStore:
    """The store where the ranks of this attempt meet: torchrun keeps one store for all of ``--max-restarts``."""
    timeout = timedelta(seconds=timeout_s)
    store = TCPStore(*_place(), is_master=_is_host(), timeout=timeout, wait_for_workers=False, multi_tenant=True)
    return PrefixStore(f"attempt {os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)


def _in_thread(call: Callable[[], Any]) -> Future[Any]:
    """The future of a call that may wait in C++; its thread ends with the process, if not before (``leave``)."""
    future: Future[Any] = Future()

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as error:  # noqa: BLE001  raised where the result is asked for
            future.set_exception(error)

    _threads.append(threading.Thread(target=run, name="joining", daemon=True))
    _threads[-1].start()
    return future


def _done(future: Future[Any], within_s: float = LOOK_S) -> bool:
    """Whether the future is done within so many seconds."""
    with contextlib.suppress(TimeoutError):
        future.exception(within_s)
    return future.done()
