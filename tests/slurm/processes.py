"""The processes of a throw-away cluster: daemons, the slurmstepd that they start, and the jobs; found and killed."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path


def home(folder: Path, daemon: str) -> Path:
    """The directory that a daemon is started in, by which it and the slurmstepd that it starts are known again;
    mariadbd moves to db.
    """
    return folder / "home" / daemon


def find(folder: Path, node: str = "") -> set[int]:
    """The ids of daemons of the cluster in ``folder``, processes of its jobs, and all their descendants; of one node
    where it is named.
    """
    homes = (
        {str(home(folder, f"slurmd-{node}"))}
        if node
        else {str(each) for each in (*(folder / "home").glob("*"), folder / "db")}
    )
    conf, there = f"SLURM_CONF={folder}/slurm.conf".encode(), f"SLURMD_NODENAME={node}".encode()
    table = _process_table()

    def is_root(process: _Process) -> bool:
        # A process that its step has lost still has the environment of its job.
        return process.cwd in homes or (
            conf in process.environ and any(entry.startswith(there) for entry in process.environ)
        )

    found = {pid for pid, process in table.items() if is_root(process)}
    while grown := {pid for pid, process in table.items() if process.parent in found} - found:
        found |= grown
    return found - {os.getpid()}


def alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and that nobody has waited for does not."""
    return pid in _process_table()


def kill(folder: Path, node: str = "") -> None:
    """SIGKILL to all of them, as at one moment: no shell lives to see its command killed.

    TimeoutError when some remain after 20 s.
    """
    deadline = time.monotonic() + 20
    while find(folder, node):
        if time.monotonic() > deadline:
            raise TimeoutError(f"the processes {sorted(find(folder, node))} do not end")
        stopped: set[int] = set()
        while started := find(folder, node) - stopped:
            _send(signal.SIGSTOP, started)
            stopped |= started
        _send(signal.SIGKILL, stopped)
        time.sleep(0.05)


def _send(number: int, pids: set[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


@dataclass(frozen=True)
class _Process:
    parent: int
    cwd: str
    environ: frozenset[bytes]


def _process_table() -> dict[int, _Process]:
    table = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        with contextlib.suppress(OSError):  # it has ended meanwhile, or belongs to the kernel
            state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
            if state not in "ZX":
                environ = frozenset((entry / "environ").read_bytes().split(b"\0"))
                table[int(entry.name)] = _Process(int(parent), os.readlink(entry / "cwd"), environ)
    return table
