"""Access to a run folder: one process may work in it, also where several machines see it.

A lock keeps out the other processes of this machine, and of every machine where the file system hands locks on.  Where
it does not, a run of another machine is known by its heartbeats alone.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

from settings import run
from train.process import status as statuses
from train.process.signals import NOTHING_YET, Preempted

STALE_S = 600.0  # a heartbeat so old is nobody's, whatever the clocks; ``grid`` goes by the same
LOOK_S = 1.0  # between two looks at the heartbeat of another machine


class Held(ValueError):
    """The error that another process works in this folder, or may."""


@contextlib.contextmanager
def only_process_in(folder: Path, held: str = "") -> Iterator[bool]:
    """Hold a folder: two processes that train in one would overwrite each other. Yields whether locks are kept here.

    ``Held``, which says ``held``, where another process has it.
    """
    held = held or f"run_dir={str(folder)!r}: another process is training in this folder; wait for it or choose another"
    lock = os.open(folder, os.O_RDONLY)
    keeps_locks = True
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise Held(held) from error
        except OSError as error:
            keeps_locks = False
            warnings.warn(
                f"{folder} cannot be locked ({error}): take care that only one process works in it", stacklevel=2
            )
        yield keeps_locks
    finally:
        os.close(lock)


def await_silence(run_dir: Path, keeps_locks: bool, stopped: Callable[[], bool]) -> None:
    """Return once no other process can be alive in a folder that this one holds.

    What says that it runs on another machine may do so, for its lock may not have travelled.  Its clock may differ from
    ours, so its heartbeat is watched for NUQ_LAG_S, and not compared with our time unless it is older than ``STALE_S``.
    ``Held`` where it moves, or where the run has been finished meanwhile, Preempted where this process is asked to
    stop, ValueError where the status is damaged.
    """
    before = statuses.read(run_dir)
    if before.get("state") == "done":
        raise Held(f"run_dir={str(run_dir)!r}: another process has finished this run just now")
    host, pid, heartbeat = (before.get(name) for name in ("host", "pid", "heartbeat"))
    is_here = host == socket.gethostname()
    gone = is_here and (keeps_locks or not (isinstance(pid, int) and Path(f"/proc/{pid}").exists()))
    if before.get("state") != "running" or gone or not isinstance(heartbeat, int | float):
        return
    if time.time() - heartbeat > STALE_S:
        return
    patience_s = run.lag_s(os.environ.get("NUQ_LAG_S"))
    who = f"process {pid} on {host}"
    print(
        f"main.py: {run_dir}: {who} may be training here; waiting up to {patience_s:.0f} s for a sign of life of it",
        flush=True,
    )
    end = time.monotonic() + patience_s
    while time.monotonic() < end:
        if stopped():
            raise Preempted(NOTHING_YET)
        time.sleep(min(LOOK_S, patience_s))
        if statuses.read(run_dir) != before:
            raise Held(f"run_dir={str(run_dir)!r}: {who} is training in this folder; wait for it or choose another")
