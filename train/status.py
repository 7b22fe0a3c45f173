"""status.json: what a run says of itself.  Written aside and renamed, so a reader never sees half of it."""

from __future__ import annotations

import json
import os
import socket
import time
import traceback
from pathlib import Path
from typing import Any

HEARTBEAT_S = 2.0
EXIT_DONE, EXIT_BAD_SETTINGS, EXIT_DIVERGED, EXIT_REQUEUE, EXIT_INTERRUPTED, EXIT_CRASH = 0, 2, 3, 75, 130, 1
STATES = {EXIT_DONE: "done", EXIT_REQUEUE: "preempted", EXIT_INTERRUPTED: "preempted", EXIT_DIVERGED: "diverged"}


def write_text(path: Path, text: str) -> None:
    """Write aside, flush to disk, rename."""
    aside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(aside, "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, path)
    finally:
        aside.unlink(missing_ok=True)


def read(run_dir: Path) -> dict[str, Any]:
    """The last status of a run; an empty dict where there is none.  ValueError names a file that is damaged."""
    path = run_dir / "status.json"
    try:
        status = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise ValueError(f"{path} is damaged ({error}): move it away to start this run anew") from error
    if not isinstance(status, dict):
        raise ValueError(f"{path} is damaged (it holds no object): move it away to start this run anew")
    return status


class Status:
    """Kept by rank 0 of a run; the other ranks pass ``run_dir=None`` and write nothing."""

    def __init__(self, run_dir: Path | None, steps: int, device: str, threads: int) -> None:
        self._path = run_dir / "status.json" if run_dir else None
        before = read(run_dir) if run_dir else {}
        self.attempt = before.get("attempt", 0) + 1
        self._seconds_before = before.get("seconds", 0.0)
        self._started = self._written = time.time()
        self._values: dict[str, Any] = {
            "state": "running",
            "attempt": self.attempt,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "slurm": {key: value for key, value in os.environ.items() if key.startswith("SLURM_") and key.endswith(("JOB_ID", "TASK_ID"))},
            "start": self._started,
            "heartbeat": self._started,
            "end": None,
            "step": before.get("step", 0),
            "steps": steps,
            "exit_code": None,
            "failure": None,
            "device": device,
            "threads": threads,
            "seconds": self._seconds_before,
        }
        self._write()

    def _write(self) -> None:
        now = time.time()
        self._values.update(heartbeat=now, seconds=self._seconds_before + now - self._started)
        self._written = now
        if self._path:
            write_text(self._path, json.dumps(self._values, indent=1))

    def beat(self, step: int) -> None:
        """Called every step; reaches the disk at most every HEARTBEAT_S."""
        self._values["step"] = step
        if time.time() - self._written >= HEARTBEAT_S:
            self._write()

    def end(self, exit_code: int, failure: BaseException | None = None) -> None:
        self._values.update(state=STATES.get(exit_code, "failed"), exit_code=exit_code, end=time.time())
        if failure is not None:
            frames = traceback.extract_tb(failure.__traceback__)
            place = f" at {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
            self._values["failure"] = {"signature": type(failure).__name__ + place, "message": str(failure)}
        self._write()
