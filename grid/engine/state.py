"""The run folder: its file names, atomic writes, and the state of a run from the files that it left.

A state never claims more than the evidence: what cannot be told is ``unknown``, with the reason.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

STALE_S = 600.0  # a running experiment refreshes its heartbeat about every 10 s; this leaves room for long passes
ENDED = {"done", "failed", "diverged", "preempted"}
STARTABLE = {"new", "failed", "diverged", "preempted", "lost"}  # running and unknown ones may be alive: leave them alone
TAIL_BYTES = 16384


def write_text(path: Path, text: str, *, executable: bool = False) -> None:
    """Write aside, then rename: a reader sees the old file or the new one."""
    aside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        aside.write_text(text)
        if executable:
            aside.chmod(0o755)
        os.replace(aside, path)
    finally:
        aside.unlink(missing_ok=True)


@dataclass(frozen=True)
class State:
    """What is known of a run: one word, the reason for it in doubtful cases, and its own words."""

    word: str  # new, running, done, failed, diverged, preempted, lost, unknown
    reason: str = ""
    step: int = 0
    steps: int = 0
    seconds: float = 0.0
    attempt: int = 0

    @property
    def may_start(self) -> bool:
        return self.word in STARTABLE


@dataclass(frozen=True)
class RunFolder:
    """All file names of one run."""

    path: Path

    @property
    def config(self) -> Path:
        return self.path / "config.yaml"

    @property
    def script(self) -> Path:
        return self.path / "run.sh"

    @property
    def status(self) -> Path:
        return self.path / "status.json"

    @property
    def log(self) -> Path:
        return self.path / "stdout.log"

    def state(self, now: float | None = None) -> State:
        """The state according to ``status.json``; ``new`` where there is none."""
        try:
            values = json.loads(self.status.read_text())
        except FileNotFoundError:
            return State("new")
        except NotADirectoryError:  # a file stands where a folder should: nothing can be kept there
            raise
        except (OSError, ValueError) as error:
            return State("unknown", f"{self.status.name} cannot be read ({error}); delete it to start the run again")
        if not isinstance(values, dict):
            return State("unknown", f"{self.status.name} is no record of a run; delete it to start the run again")
        word, reason = _judge(values, time.time() if now is None else now)
        numbers = {key: _number(values.get(key)) for key in ("step", "steps", "seconds", "attempt")}
        return State(word, reason, int(numbers["step"]), int(numbers["steps"]), numbers["seconds"], int(numbers["attempt"]))

    def is_locked(self) -> bool:
        """Whether a process holds this folder's lock right now: its own lock, or that of the file .lock in it."""
        return any(_is_locked(path) for path in (self.path, self.path / ".lock"))

    def last_lines(self, count: int) -> list[str]:
        """The end of the log, empty lines left out."""
        try:
            with self.log.open("rb") as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - TAIL_BYTES))
                text = file.read().decode(errors="replace")
        except FileNotFoundError:
            return []
        return [line for line in text.splitlines() if line.strip()][-count:]


def _is_locked(path: Path) -> bool:
    try:
        file = os.open(path, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # a file system without locks
        return False
    finally:
        os.close(file)
    return False


def _number(value: Any) -> float:
    """A finite number as it is, anything else as 0."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0.0
    return float(value) if -1e15 < value < 1e15 else 0.0


def _judge(values: dict[str, Any], now: float) -> tuple[str, str]:
    """(state, reason) of a status record at time ``now``."""
    word = values.get("state")
    if isinstance(word, str) and word in ENDED:
        failure = values.get("failure")
        return word, str(failure.get("message", "")) if isinstance(failure, dict) else ""
    if word != "running":
        return "unknown", f"status.json says state={word!r}, which means nothing here"
    heartbeat, host, pid = _number(values.get("heartbeat")), values.get("host"), int(_number(values.get("pid")))
    if heartbeat <= 0:
        return "unknown", "it says running, without a heartbeat"
    age_s = now - heartbeat
    here = host == socket.gethostname() and pid > 0
    if here and not _alive(pid):
        return "lost", f"its process {pid} on this machine is gone"
    if age_s <= STALE_S:
        return "running", ""
    if here:
        return "unknown", f"no heartbeat for {age_s:.0f} s, yet a process {pid} exists on this machine"
    return "lost", f"no heartbeat for {age_s:.0f} s from {host}"


def _alive(pid: int) -> bool:
    """Whether the process exists and has not ended (a zombie has)."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except FileNotFoundError:
        return not Path("/proc/self").exists()  # gone since, unless this system has no /proc
    return fields[:1] != [b"Z"]
