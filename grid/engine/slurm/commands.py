"""Calls of SLURM's commands with a limit on their time, and readers of the tables that they print.

Every command is started by ``started``, and ``is_here`` says whether there is one: a test replaces these two.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime

from grid.engine.slurm.elements import compact
from grid.engine.slurm.scheduler_cache import Unreachable


def rows(text: str, count: int) -> Iterator[tuple[str, list[str]]]:
    """The name and the ``count`` fields after it of every line.

    Unreachable where one cannot be read: then absence would mean nothing.
    """
    for line in text.splitlines():
        if not line.strip() or line.startswith("CLUSTER:"):
            continue
        name, *fields = line.split("|", count)
        if len(fields) != count:
            raise Unreachable(
                f"this line of the scheduler's answer has {len(fields) + 1} fields where {count + 1} were asked for: "
                f"{line[:80]!r}"
            )
        yield name, fields


def timestamp(text: str) -> float | None:
    """Seconds since 1970, also from a SLURM that ignores SLURM_TIME_FORMAT; None for N/A, Unknown, None."""
    try:
        return float(text) if text.isdecimal() else datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError, OSError):
        return None


def leading_number(text: str | None, default: int) -> int:
    """The whole number that the text begins with, as in ``300 sec``."""
    found = re.match(r"\d+", text or "")
    return int(found[0]) if found else default


def accounting_start(since: float) -> str:
    """The time from which accounting is asked about jobs submitted since then, as ``sacct -S`` takes it."""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(max(0.0, since - MARGIN_S)))


def _environment() -> dict[str, str]:
    """The environment of SLURM's commands.

    Texts are plain, times are seconds, ranges are whole, and the filters that a user's shell may set are removed.
    """
    own = {"LC_ALL": "C", "SLURM_TIME_FORMAT": "%s", "SLURM_BITSTR_LEN": "0"}
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("SQUEUE_", "SACCT_", "SCANCEL_"))}
    return {**kept, **own}


def is_here(command: str) -> bool:
    """Whether this machine has the command."""
    return shutil.which(command) is not None


def started(
    command: Sequence[str], environment: Mapping[str, str], *, keeps_locks: bool = False
) -> subprocess.Popen[bytes]:
    """The process of a command; it holds the locks of this process, too, with ``keeps_locks``."""
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        close_fds=not keeps_locks,
        env=environment,
    )


def text(output: bytes | None) -> str:
    """What a command wrote, whatever its bytes are."""
    return (output or b"").decode(errors="replace")


def output_of(command: Sequence[str]) -> str:
    """The whole standard output of a command; raises Unreachable, with the first line of complaint, where it fails."""
    try:
        with started(command, _environment()) as process:
            try:
                out, err = process.communicate(timeout=TIMEOUT_S)
            except BaseException:
                process.kill()
                raise
    except FileNotFoundError:
        raise Unreachable(f"there is no {command[0]} on {socket.gethostname()}") from None
    except subprocess.TimeoutExpired:
        raise Unreachable(f"{command[0]} gave no answer within {TIMEOUT_S:.0f} s") from None
    except OSError as error:
        raise Unreachable(f"{command[0]} cannot be started: {error.strerror or error}") from None
    if process.returncode != 0:
        raise Unreachable(_complaint(text(err)) or f"{command[0]} ended with code {process.returncode}")
    return text(out)


def _complaint(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else ""


def word_lists(elements: Collection[str]) -> Iterator[list[str]]:
    """The elements as compact words, in lists that each fit one command line."""
    words = compact(elements)
    for start in range(0, len(words), MANY):
        yield words[start : start + MANY]


TIMEOUT_S = 20.0
MANY = 500  # words in one command line
MARGIN_S = 86400.0  # accounting is asked from a day before the first submission: clocks, time zones
