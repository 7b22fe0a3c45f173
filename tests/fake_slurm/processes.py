"""A job's processes: started in a session of their own, found again by that session or by a variable, signalled."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Collection, Mapping
from pathlib import Path

MARK = "FAKE_SLURM_JOB"  # in the environment of everything a job starts: FOLDER:JOBID


def spawn(
    script: Path,
    arguments: tuple[str, ...],
    cwd: str,
    environ: Mapping[str, str],
    files: tuple[str, str, str],
    *,
    append: bool,
) -> subprocess.Popen[bytes]:
    """The script with its standard input, output and error (the same name twice: one file).

    OSError where a file cannot be opened.
    """
    mode = "ab" if append else "wb"
    stdin, stdout, stderr = files
    with (
        open(stdin, "rb") as source,
        open(stdout, mode) as out,
        open(stderr if stderr != stdout else os.devnull, mode) as err,
    ):
        return subprocess.Popen(
            [str(script), *arguments],
            stdin=source,
            stdout=out,
            stderr=err if stderr != stdout else subprocess.STDOUT,
            cwd=cwd,
            env=dict(environ),
            start_new_session=True,
            restore_signals=True,
        )


def of_job(
    mark: str, session: int | None = None, *, steps_only: bool = False, without: Collection[int] = ()
) -> list[int]:
    """Processes that carry the mark (``FOLDER:ID``, or ``FOLDER:`` for all jobs), or that live in the session; no
    sessions ``without``.
    """
    wanted = f"\0{MARK}={mark}".encode() + (b"" if mark.endswith(":") else b"\0")
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdecimal() or int(entry) == os.getpid():
            continue
        try:
            state, _, _, its_session = Path("/proc", entry, "stat").read_bytes().rpartition(b")")[2].split()[:4]
            if state in (b"Z", b"X"):
                continue
            environ = b"\0" + Path("/proc", entry, "environ").read_bytes() + b"\0"
        except OSError:
            continue
        if int(its_session) in without:
            continue
        if (wanted in environ or int(its_session) == session) and (not steps_only or b"\0SLURM_STEP_ID=" in environ):
            found.append(int(entry))
    return found


def send(pids: list[int], number: int) -> None:
    """The signal to each that is still there; SIGTERM comes with SIGCONT, so that a stopped one hears it."""
    for pid in pids:
        try:
            os.kill(pid, number)
            if number == signal.SIGTERM:
                os.kill(pid, signal.SIGCONT)
        except (ProcessLookupError, PermissionError):
            continue


def group_lives(pid: int) -> bool:
    """Whether a process of the group is left."""
    try:
        os.killpg(pid, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def end_group(pid: int) -> None:
    """SIGKILL to what a script left running behind."""
    try:
        os.killpg(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return
