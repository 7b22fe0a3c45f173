"""The file status.json: a run's report on itself. It is written aside and renamed, so no reader sees half of it.

Three times tell a run that works from one that is stuck and from one that is gone, all in unix seconds: ``heartbeat``,
when its process last wrote this file, which a thread does whatever the run is at; ``progress``, when the run itself
last got on (a step, a batch of an evaluation, a sampled gradient, or the beginning of its ``phase``); ``stepped``, when
it last finished a step.  ``memory_bytes`` is what its processes on this machine have taken at most.
"""

from __future__ import annotations

import errno
import json
import math
import os
import socket
import threading
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from files import atomic
from files.plain import Unreadable, read_text
from train.process import footprint
from train.process.terminal import complain

ROOT = Path(__file__).parents[2]
HEARTBEAT_S = 2.0
LOOK_S, GROWN = 0.25, 1.1  # memory that grows is told sooner: who runs out of it is killed without a last word
PATIENCE_S = 60.0  # heartbeats may fail for so long before they end a run: file servers have short troubles
EXIT_DONE, EXIT_BAD_SETTINGS, EXIT_DIVERGED, EXIT_REQUEUE, EXIT_INTERRUPTED, EXIT_CRASH = 0, 2, 3, 75, 130, 1
EXIT_HELD = 4  # another process has the folder: no word on the run
METRICS = (
    "loss",
    "Vloss",
    "Vacc",
    "comm/bits_per_coordinate",
)  # told: the latest; all else is in the logs
SLURM = ("JOB_ID", "TASK_ID", "JOB_NAME", "RESTART_COUNT", "CLUSTER_NAME")  # they identify the job and its life
MESSAGE_CHARACTERS = 2000
_REMEDY = ": move it away, and the run goes on from its checkpoint, where it has one"
_KINDS: dict[str, tuple[Any, str]] = {  # the kinds of the values that are read again
    **dict.fromkeys(("attempt", "step", "saved_step"), (int, "number")),
    "seconds": ((int, float), "number"),  # a finite one, as all of these
    "state": (str, "word"),
    "failure": ((dict, type(None)), "object"),
}
STATES = {EXIT_DONE: "done", EXIT_REQUEUE: "preempted", EXIT_INTERRUPTED: "preempted", EXIT_DIVERGED: "diverged"}


def write_text(path: Path, text: str) -> None:
    """Write aside, flush to disk, rename.  OSError, with the path, leaves the old file and nothing beside it."""
    try:
        atomic.write_text(path, text, durable=True)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def read(run_dir: Path, remedy: str = _REMEDY) -> dict[str, Any]:
    """The last status of a run, empty where there is none; ValueError, with the remedy, names a damaged file."""
    path = run_dir / "status.json"
    try:
        status = json.loads(read_text(path))
        _check(status)
    except FileNotFoundError:
        return {}
    except Unreadable as error:
        raise ValueError(f"{path} {error}{remedy}") from error
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is damaged ({error}){remedy}") from error
    return status


def _check(status: object) -> None:
    """Raise ValueError where a value that others go by is there, and of another kind than a run writes."""
    if not isinstance(status, dict):
        raise ValueError("it holds no object")
    for name, (kind, words) in _KINDS.items():
        value = status.get(name)
        if name in status and not (isinstance(value, kind) and (not isinstance(value, float) or math.isfinite(value))):
            raise ValueError(f"{name} is {status[name]!r}, which is no {words}")


def tidy(folder: Path, *names: str) -> None:
    """Delete what killed processes have left of these files, half-written; only for who holds the folder."""
    for name in names:
        for path in folder.glob(f".{name}.*.tmp"):
            path.unlink(missing_ok=True)


def _last_attempt(run_dir: Path) -> int:
    """The largest number that an event file bears, for it is no attempt's but one; 0 where there is none."""
    return max(
        (int(path.suffix[2:]) for path in run_dir.glob("events.out.tfevents.*.a*") if path.suffix[2:].isdigit()),
        default=0,
    )


class Refused(Exception):
    """The error that another rank does not start, or has failed on its own; ``account`` made its words there."""

    def __init__(self, exit_code: int, rank: int, message: str, signature: str) -> None:
        super().__init__(f"rank {rank}: {message}")
        self.exit_code, self.signature = exit_code, signature


class FolderGone(OSError):
    """The error that the run folder was removed, moved or replaced under the run."""


class FolderTaken(FolderGone):
    """The error that another process has taken over the run: this one, silent for so long, counted as dead."""


class Progress:
    """The phase that a run is in: told by the thread that trains, read by the one that writes the heartbeat."""

    def __init__(self) -> None:
        self.phase = "starting"
        self.at = time.time()
        self.stepped: float | None = None

    def moved(self) -> None:
        """Note that the run got on."""
        self.at = time.time()

    @contextmanager
    def during(self, phase: str) -> Iterator[None]:
        """Set the phase inside, and keep it after an error; otherwise restore the phase before."""
        before, self.phase = self.phase, phase
        self.moved()
        yield
        self.phase = before
        self.moved()


class Status:
    """The status that rank 0 of a run keeps; the other ranks pass ``run_dir=None`` and write nothing."""

    def __init__(
        self, run_dir: Path | None, steps: int, device: str, threads: int, machine: Mapping[str, Any] | None = None
    ) -> None:
        self._path = run_dir / "status.json" if run_dir else None
        self._folder = _inode(run_dir) if run_dir else None
        self._lock = threading.Lock()
        self._peak_bytes = 0  # the peak of this process, as of the last heartbeat
        self._failing: tuple[float, OSError] | None = None  # since when (monotonic), and the last error
        self.progress = Progress()
        before = read(run_dir) if run_dir else {}
        self.attempt = max(before.get("attempt", 0), _last_attempt(run_dir) if run_dir else 0) + 1
        self._seconds_before = before.get("seconds", 0.0)
        self._started = time.time()
        self._written = 0.0  # when this process last wrote, or tried to
        self._values: dict[str, Any] = {
            "state": "running",
            "attempt": self.attempt,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "slurm": {
                key: value for key, value in os.environ.items() if key.startswith("SLURM_") and key.endswith(SLURM)
            },
            "code": Path(os.environ.get("NUQ_CODE", "")).name,
            "start": self._started,
            "heartbeat": self._started,
            "phase": self.progress.phase,
            "progress": self.progress.at,
            "stepped": None,
            "end": None,
            "step": before.get("step", 0),
            "saved_step": before.get("saved_step", 0),
            "steps": steps,
            "exit_code": None,
            "failure": None,
            "device": device,
            "machine": dict(machine or {}),
            "threads": threads,
            "seconds": self._seconds_before,
            "memory_bytes": 0,
            "metrics": dict(metrics) if isinstance(metrics := before.get("metrics"), dict) else {},
            "data": dict(data) if isinstance(data := before.get("data"), dict) else {},
        }
        self._write()

    def _write(self) -> None:
        now = time.time()
        done = self.progress
        self._values.update(heartbeat=now, seconds=self._seconds_before + now - self._started)
        self._values.update(phase=done.phase, progress=done.at, stepped=done.stepped)
        self.check_own()
        self._written = now
        if self._path:
            self._peak_bytes = footprint.process_peak_bytes()
            self._values["memory_bytes"] = max(self._values["memory_bytes"], footprint.peak_bytes())
            if _inode(self._path.parent) != self._folder:
                what = "removed, moved or replaced while the run was in it"
                raise FolderGone(errno.ENOENT, what, str(self._path.parent))
            write_text(self._path, json.dumps(self._values, indent=1))

    def check_own(self) -> None:
        """Raise FolderTaken where another process has written here since this one last did; no lock has kept it out."""
        if not (self._path and self._written):
            return
        try:
            found = json.loads(self._path.read_bytes())
        except (OSError, ValueError, RecursionError):  # it comes back with the next heartbeat
            return
        if isinstance(found, dict) and any(found.get(name) != self._values[name] for name in ("host", "pid")):
            who = f"taken over by process {found.get('pid')} on {found.get('host')}"
            raise FolderTaken(errno.EBUSY, who, str(self._path.parent))

    def _refresh(self) -> None:
        """Write the status, unless it is being written; an error is kept for ``beat`` to judge."""
        if not self._lock.acquire(blocking=False):
            return
        try:
            self._write()
            self._failing = None
        except OSError as error:
            if self._failing is None:
                complain(f"no heartbeat: {describe(error)}")
            self._failing = (self._failing[0] if self._failing else time.monotonic(), error)
        finally:
            self._lock.release()

    @contextmanager
    def beating(self) -> Iterator[None]:
        """Refresh the heartbeat from a thread every HEARTBEAT_S, or as memory grows: long passes are no silence."""
        stop = threading.Event()

        def beat() -> None:
            last = time.monotonic()
            while not stop.wait(min(LOOK_S, HEARTBEAT_S)):
                if time.monotonic() - last >= HEARTBEAT_S or footprint.process_peak_bytes() > GROWN * self._peak_bytes:
                    self._refresh()
                    last = time.monotonic()

        thread = threading.Thread(target=beat, name="heartbeat", daemon=True)
        if self._path:
            thread.start()
        try:
            yield
        finally:
            stop.set()
            if thread.is_alive():
                thread.join()

    def beat(self, step: int) -> None:
        """Note a finished step, which reaches the disk at most every HEARTBEAT_S; called after every step.

        OSError where the folder is gone, or where heartbeats have failed for PATIENCE_S.
        """
        self._values["step"] = step
        self.progress.stepped = time.time()
        self.progress.moved()
        if time.time() - self._written >= HEARTBEAT_S:
            self._refresh()
        if self._failing and (
            isinstance(self._failing[1], FolderGone) or time.monotonic() - self._failing[0] > PATIENCE_S
        ):
            raise self._failing[1]

    def saved(self, step: int) -> None:
        """Note that a checkpoint of this step is on the disk: from there, not from ``step``, a lost run goes on."""
        self._values.update(step=step, saved_step=step)

    def trains_on(self, data: Mapping[str, Any]) -> None:
        """Note the data on which the run's steps are made, for the next heartbeat: the fingerprint and the sizes."""
        self._values["data"] = dict(data)

    def tell(self, values: Mapping[str, float]) -> None:
        """Keep the latest of ``METRICS`` for the next heartbeat."""
        latest = self._values["metrics"] | values
        self._values["metrics"] = {name: latest[name] for name in METRICS if name in latest}

    def end(self, exit_code: int, failure: BaseException | None = None) -> None:
        """Write the last status, once the thread is done. OSError where it cannot be written."""
        self._values.update(state=STATES.get(exit_code, "failed"), exit_code=exit_code, end=time.time())
        if failure is not None:
            self._values["failure"] = account(failure)
        with self._lock:
            self._write()


def account(failure: BaseException) -> dict[str, str]:
    """The record of a failure: its kind and place, by which the same are counted together, and its words."""
    signature = failure.signature if isinstance(failure, Refused) else type(failure).__name__ + _place(failure)
    return {"signature": signature, "message": describe(failure)[:MESSAGE_CHARACTERS]}


def describe(error: BaseException) -> str:
    """The words of an error; for an OSError, what went wrong with which file."""
    if not isinstance(error, OSError):
        return str(error)
    what = error.strerror or str(error) or type(error).__name__
    return f"{error.filename}: {what}" if error.filename else what


def _inode(folder: Path) -> tuple[int, int] | None:
    """The device and inode of a folder, which tell it whatever it is called; None where there is none."""
    try:
        found = folder.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def _place(failure: BaseException) -> str:
    """The text `` at FILE:LINE in FUNCTION`` of the last frame, if possible in this checkout; empty if never raised."""
    frames = traceback.extract_tb(failure.__traceback__)
    if not frames:
        return ""
    own = [one for one in frames if Path(one.filename).is_relative_to(ROOT) and "site-packages" not in one.filename]
    last = (own or frames)[-1]
    return f" at {Path(last.filename).name}:{last.lineno} in {last.name}"
