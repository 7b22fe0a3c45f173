"""status.json: what a run says of itself.  Written aside and renamed, so a reader never sees half of it."""

from __future__ import annotations

import json
import os
import socket
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
HEARTBEAT_S = 2.0
EXIT_DONE, EXIT_BAD_SETTINGS, EXIT_DIVERGED, EXIT_REQUEUE, EXIT_INTERRUPTED, EXIT_CRASH = 0, 2, 3, 75, 130, 1
METRICS = ("loss", "Vloss", "Vacc")  # the latest of these are told; everything else is in the logs
SLURM = ("JOB_ID", "TASK_ID", "RESTART_COUNT", "CLUSTER_NAME")  # which job this is, and which of its lives
MESSAGE_CHARACTERS = 2000
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

    def __init__(self, run_dir: Path | None, steps: int, device: str, threads: int, machine: Mapping[str, Any] | None = None) -> None:
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
            "slurm": {key: value for key, value in os.environ.items() if key.startswith("SLURM_") and key.endswith(SLURM)},
            "code": Path(os.environ.get("NUQ_CODE", "")).name,
            "start": self._started,
            "heartbeat": self._started,
            "end": None,
            "step": before.get("step", 0),
            "steps": steps,
            "exit_code": None,
            "failure": None,
            "device": device,
            "machine": dict(machine or {}),
            "threads": threads,
            "seconds": self._seconds_before,
            "metrics": dict(metrics) if isinstance(metrics := before.get("metrics"), dict) else {},
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

    def tell(self, values: Mapping[str, float]) -> None:
        """Keep the latest of ``METRICS`` for the next heartbeat."""
        self._values["metrics"] = {**self._values["metrics"], **{name: values[name] for name in METRICS if name in values}}

    def end(self, exit_code: int, failure: BaseException | None = None) -> None:
        self._values.update(state=STATES.get(exit_code, "failed"), exit_code=exit_code, end=time.time())
        if failure is not None:
            message = str(failure)[:MESSAGE_CHARACTERS]
            self._values["failure"] = {"signature": type(failure).__name__ + _place(failure), "message": message}
        self._write()


def _place(failure: BaseException) -> str:
    """`` at FILE:LINE in FUNCTION`` of the last frame in this checkout, else of the last one; empty for one that was never raised."""
    frames = traceback.extract_tb(failure.__traceback__)
    own = [frame for frame in frames if Path(frame.filename).is_relative_to(ROOT) and "site-packages" not in frame.filename]
    return f" at {Path((own or frames)[-1].filename).name}:{(own or frames)[-1].lineno} in {(own or frames)[-1].name}" if frames else ""
