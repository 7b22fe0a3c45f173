"""The same scripts on this machine, in slots: one run.sh per core, or per GPU where there are any."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Protocol

from grid.engine.runs import Run, prepare

if TYPE_CHECKING:
    from rich.progress import TaskID

POLL_S = 0.1
GRACE_S = 30.0  # between SIGTERM and SIGKILL: time to write a checkpoint
LAST_LINES = 5
BAD_SETTINGS = 2  # the exit code of main.py for bad settings or data, and for a folder that another process holds
ENOUGH_REFUSALS = 2


class Display(Protocol):
    """Where progress goes: bars on a terminal, lines elsewhere."""

    def note(self, text: str) -> None: ...
    def started(self, slot: int, run: Run) -> None: ...
    def beat(self, slot: int, run: Run) -> None: ...
    def ended(self, slot: int, run: Run, text: str) -> None: ...
    def passed(self, run: Run, text: str) -> None: ...


@dataclass
class Outcome:
    """What became of a sweep's runs."""

    done: list[Run] = field(default_factory=list)
    skipped: list[Run] = field(default_factory=list)  # done before, or meanwhile by another runner
    left: list[tuple[Run, str]] = field(default_factory=list)  # not started: alive elsewhere, or in doubt
    failed: list[tuple[Run, str]] = field(default_factory=list)
    given_up: list[Run] = field(default_factory=list)  # not started: the first ones were refused for their settings
    stopped: bool = False

    @property
    def exit_code(self) -> int:
        if self.stopped:
            return 130
        return 1 if self.failed or self.left or self.given_up else 0


@dataclass
class _Child:
    run: Run
    process: subprocess.Popen[bytes]
    began: float


def visible_gpus(environ: Mapping[str, str] = os.environ) -> list[str]:
    """The GPUs of this machine, without importing torch: those of CUDA_VISIBLE_DEVICES, else those of the driver."""
    named = environ.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        return [name for name in named.split(",") if name and name != "-1"]
    with contextlib.suppress(OSError):
        return [str(index) for index, _ in enumerate(sorted(os.listdir("/proc/driver/nvidia/gpus")))]
    return []


def default_slots() -> int:
    """One slot per GPU, else one per core that this process may use."""
    return len(visible_gpus()) or len(os.sched_getaffinity(0))


def run_all(runs: Sequence[Run], slots: int, display: Display) -> Outcome:
    """Run what is missing, ``slots`` at a time.  SIGINT and SIGTERM stop every child before this returns.

    Another runner may work on the same sweep, so the state of a run is read again just before it is started.  Where two
    runs have ended for bad settings or data, and none is done, no further one is started.
    """
    outcome = Outcome()
    waiting = [run for run in runs if not _passed(run, outcome)]
    num_refused = 0
    free = list(range(slots))[::-1]
    children: dict[int, _Child] = {}
    with _stop_signals() as stopping:
        try:
            while (waiting and not stopping()) or children:
                while waiting and free and not stopping():
                    run = waiting.pop(0)
                    if why := _passed(run, outcome):
                        display.passed(run, f"now {why}, by another process; not started here")
                        continue
                    slot = free.pop()
                    prepare(run)
                    children[slot] = _Child(run, _start(run, slot), time.monotonic())
                    display.started(slot, run)
                if stopping():
                    break
                time.sleep(POLL_S)
                for slot, child in list(children.items()):
                    code = child.process.poll()
                    if code is None:
                        display.beat(slot, child.run)
                        continue
                    del children[slot]
                    free.append(slot)
                    failure = _failure(child, code)
                    if code == BAD_SETTINGS and _is_taken(child.run):
                        failure = "another process runs it already"
                        outcome.left.append((child.run, failure))
                    elif failure:
                        outcome.failed.append((child.run, failure))
                        num_refused += code == BAD_SETTINGS
                    else:
                        outcome.done.append(child.run)
                    display.ended(slot, child.run, failure or f"done in {time.monotonic() - child.began:.0f} s")
                if num_refused >= ENOUGH_REFUSALS and not outcome.done:
                    outcome.given_up += waiting
                    waiting.clear()
        finally:
            outcome.stopped = stopping() > 0
            if children:
                display.note(f"stopping {len(children)} run{'s' if len(children) > 1 else ''}; a second Ctrl-C stops them at once")
                _stop(list(children.values()), stopping)
    return outcome


def _passed(run: Run, outcome: Outcome) -> str:
    """The word for why this run is not to be started, noted in the outcome; empty when it is."""
    state = run.state()
    if state.may_start:
        return ""
    if state.word == "done":
        outcome.skipped.append(run)
    else:
        outcome.left.append((run, f"{state.word}: {state.reason or 'it runs already'}"))
    return state.word


def _is_taken(run: Run) -> bool:
    """Whether main.py refused this folder because another process trains in it, or just did."""
    return run.state().word in ("running", "done") or run.folder.is_locked()


@contextlib.contextmanager
def _stop_signals() -> Iterator[Callable[[], int]]:
    """How often we were asked to stop; the old handlers come back afterwards."""
    asked: list[int] = []

    def handle(number: int, frame: FrameType | None) -> None:
        del frame
        asked.append(number)

    heard = [number for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, handle) for number in heard}
    try:
        yield lambda: len(asked)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _start(run: Run, slot: int) -> subprocess.Popen[bytes]:
    """run.sh in a process group of its own, so that the terminal's Ctrl-C reaches it only through us."""
    gpus = visible_gpus()
    environ = {**os.environ, "OMP_NUM_THREADS": "1", "NPROC": "1", "PYTHON": os.environ.get("PYTHON", sys.executable)}
    if gpus:
        environ["CUDA_VISIBLE_DEVICES"] = gpus[slot % len(gpus)]
    with run.folder.log.open("ab") as log:
        return subprocess.Popen(
            ["bash", str(run.folder.script)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=environ,
            start_new_session=True,
        )


def _failure(child: _Child, code: int) -> str:
    """Why this run counts as failed; empty when it is done, by its exit code and by its own record."""
    state = child.run.state()
    if code == 0 and state.word == "done":
        return ""
    words = {
        0: "exit code 0, but the run does not say that it is done",
        BAD_SETTINGS: "bad settings or data",
        3: "diverged",
        75: "stopped by a signal",
    }
    return words.get(code) or (f"killed by signal {-code}" if code < 0 else f"exit code {code}")


def _stop(children: Sequence[_Child], stopping: Callable[[], int]) -> None:
    """SIGTERM to every process group, GRACE_S to checkpoint, then SIGKILL to what is left of the groups."""
    asked = stopping()
    for child in children:
        _signal_group(child, signal.SIGTERM)
    end = time.monotonic() + GRACE_S
    while any(child.process.poll() is None for child in children) and time.monotonic() < end and stopping() <= asked:
        time.sleep(POLL_S)
    for child in children:
        _signal_group(child, signal.SIGKILL)
        child.process.wait()


def _signal_group(child: _Child, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.process.pid, number)


# --- displays -----------------------------------------------------------------------------------------------------


def title(run: Run) -> str:
    """A run as people name it."""
    return f"{run.experiment.label} (seed {run.experiment.seed})"


class Lines:
    """One plain line per event: for logs and pipes."""

    def __init__(self, total: int) -> None:
        self._total, self._ended = total, 0

    def note(self, text: str) -> None:
        print(text, flush=True)

    def started(self, slot: int, run: Run) -> None:
        del slot
        print(f"start {title(run)}: {run.run_dir}", flush=True)

    def beat(self, slot: int, run: Run) -> None:
        del slot, run

    def ended(self, slot: int, run: Run, text: str) -> None:
        del slot
        self.passed(run, text)

    def passed(self, run: Run, text: str) -> None:
        self._ended += 1
        print(f"[{self._ended}/{self._total}] {title(run)}: {text}", flush=True)


class Bars:
    """A bar for the sweep and one per slot, from each run's status.json."""

    def __init__(self, total: int) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        self._progress = Progress(TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._all = self._progress.add_task("runs", total=total)
        self._slots: dict[int, tuple[TaskID, float]] = {}  # slot -> (task, when its status was last read)

    def __enter__(self) -> Bars:
        self._progress.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._progress.stop()

    def note(self, text: str) -> None:
        self._progress.console.print(text, markup=False, highlight=False)

    def started(self, slot: int, run: Run) -> None:
        from rich.markup import escape

        task = self._progress.add_task(escape(title(run)), total=run.experiment.config["steps"])
        self._slots[slot] = (task, 0.0)

    def beat(self, slot: int, run: Run) -> None:
        task, read = self._slots[slot]
        if time.monotonic() - read >= 1.0:
            state = run.state()
            if state.word == "running":
                self._progress.update(task, completed=state.step)
            self._slots[slot] = (task, time.monotonic())

    def ended(self, slot: int, run: Run, text: str) -> None:
        task, _ = self._slots.pop(slot)
        self._progress.remove_task(task)
        self.passed(run, text)

    def passed(self, run: Run, text: str) -> None:
        self._progress.advance(self._all)
        self.note(f"{title(run)}: {text}")


def run_with_progress(runs: Sequence[Run], slots: int) -> Outcome:
    """``run_all`` with bars on a terminal and lines elsewhere, then a summary."""
    total = sum(run.state().may_start for run in runs)
    if sys.stdout.isatty():
        with Bars(total) as bars:
            outcome = run_all(runs, slots, bars)
    else:
        outcome = run_all(runs, slots, Lines(total))
    print(summary(outcome))
    return outcome


def summary(outcome: Outcome) -> str:
    """What became of the sweep; for each failure the last lines of its log."""
    lines = []
    for run, reason in outcome.left:
        lines.append(f"not started: {title(run)}, {run.run_dir}: {reason}")
    for run, reason in outcome.failed:
        lines.append(f"failed: {title(run)}: {reason}; the end of {Path(run.run_dir) / run.folder.log.name}:")
        lines += [f"    {line}" for line in run.folder.last_lines(LAST_LINES)] or ["    (empty)"]
    if outcome.given_up:
        log = Path(outcome.failed[0][0].run_dir) / outcome.failed[0][0].folder.log.name
        lines.append(
            f"gave up: the first runs were all refused for bad settings or data; see the reason with: tail {shlex.quote(str(log))}"
        )
    if outcome.stopped:
        lines.append("stopped; the same command goes on from the last checkpoints")
    counts = [(len(outcome.done), "done"), (len(outcome.skipped), "done before"), (len(outcome.failed), "failed")]
    counts.append((len(outcome.left) + len(outcome.given_up), "not started"))
    lines.append(", ".join(f"{count} {word}" for count, word in counts if count) or "nothing to do")
    return "\n".join(lines)
