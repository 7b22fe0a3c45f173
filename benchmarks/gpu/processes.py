"""One command with a time limit, of which nothing is left afterwards: no child, and no child of a child.

It uses only the standard library. On Linux the orphans of a command become this process's children
(``PR_SET_CHILD_SUBREAPER``), so that also one that left the command's process group, or ignores signals, is found and
killed. Elsewhere the process group is killed.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

_ADOPT = 36  # PR_SET_CHILD_SUBREAPER
_ROUND_S = 0.02  # a child may be forked while the others are killed
# A process that is killed lives on until its driver has given back the GPU's memory, which the next command may need.
DYING_S = 15.0


@dataclass(frozen=True)
class Ended:
    """The end of a command.

    exit_code: as the command ended, negative for a signal; left: processes that were killed and yet did not go.
    """

    exit_code: int
    seconds: float
    timed_out: bool
    left: int = 0


def adopt_orphans() -> None:
    """Make processes below this one that lose their parent become its children."""
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_ADOPT, 1, 0, 0, 0)


def _parents() -> dict[int, int]:
    """The parent of every process, as /proc tells; empty where there is none."""
    found = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, ValueError, IndexError):  # it has ended meanwhile
            found[int(stat.parent.name)] = int(stat.read_text(errors="replace").rpartition(")")[2].split()[1])
    return found


def _below(spared: set[int]) -> set[int]:
    """The children of this process except ``spared``, and all processes below them."""
    parents, me = _parents(), os.getpid()
    found = {process for process, parent in parents.items() if parent == me} - spared
    before = 0
    while len(found) > before:
        before = len(found)
        found |= {process for process, parent in parents.items() if parent in found}
    return found


def _children() -> set[int]:
    """The children of this process."""
    me = os.getpid()
    return {process for process, parent in _parents().items() if parent == me}


def _kill_all(leader: int | None, spared: set[int]) -> int:
    """Kill the group that ``leader`` leads, and everything that this process started except below ``spared``.

    Returns how many did not go.
    """
    until = time.monotonic() + DYING_S
    while True:
        if leader is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(leader, signal.SIGKILL)
        left = _below(spared)
        for process in left:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(process, signal.SIGKILL)
        for process in left:
            with suppress(ChildProcessError):
                os.waitpid(process, os.WNOHANG)
        if not left or time.monotonic() > until:
            return len(left)
        time.sleep(_ROUND_S)


def run(
    command: Sequence[str], log: BinaryIO, *, limit_s: float, folder: Path, environment: Mapping[str, str]
) -> Ended:
    """Run the command, both its outputs in ``log``, in a process group of its own.

    It is killed with all that it started at the limit.

    Processes that it left running are killed also where it ended by itself, and where this process is interrupted (the
    interrupt is raised again).
    """
    before, began = _children(), time.monotonic()
    process: subprocess.Popen[bytes] | None = None
    timed_out, left = False, 0
    try:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            process_group=0,
        )
        process.wait(limit_s)
    except subprocess.TimeoutExpired:
        timed_out = True
    finally:
        if process is not None and process.poll() is None:
            process.kill()
            with suppress(subprocess.TimeoutExpired):
                process.wait(DYING_S)
        left = _kill_all(process.pid if process else None, before)
    assert process is not None
    code = process.poll()
    code = -signal.SIGKILL if code is None else code
    return Ended(code, time.monotonic() - began, timed_out, left)


def heard(
    command: Sequence[str], *, limit_s: float, folder: Path, environment: Mapping[str, str]
) -> tuple[Ended, list[str]]:
    """Run a command that says little; returns how it ended and its lines."""
    with tempfile.TemporaryFile() as log:
        ended = run(command, log, limit_s=limit_s, folder=folder, environment=environment)
        log.seek(0)
        return ended, [line for line in log.read().decode(errors="replace").splitlines() if line.strip()]
