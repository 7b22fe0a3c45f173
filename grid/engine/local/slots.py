"""Execution of the same job scripts on this machine, in slots: one run.sh per core, or per GPU where there are any."""

from __future__ import annotations

import contextlib
import fcntl
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

from files.live_line import is_live
from grid.engine.local.machine import Machine, Share, ranks_of
from grid.engine.local.progress import Lines, Live, Word, title
from grid.engine.states import folder_lock
from grid.engine.states.run_files import RunFolder
from grid.engine.states.runs import Run, prepare
from grid.engine.states.state import HELD, UNMET

POLL_S = 0.1
GRACE_S = 30.0  # between SIGTERM and SIGKILL: time to write a checkpoint
LAST_LINES = 5
BAD_SETTINGS = 2  # the exit code of main.py for bad settings or data
ENOUGH_REFUSALS = 2


@dataclass
class Outcome:
    """The result of executing a sweep's runs."""

    done: list[Run] = field(default_factory=list)
    skipped: list[Run] = field(default_factory=list)  # done before, or meanwhile by another runner
    left: list[tuple[Run, str]] = field(default_factory=list)  # not started: alive elsewhere, or in doubt
    failed: list[tuple[Run, str]] = field(default_factory=list)
    given_up: list[Run] = field(default_factory=list)  # not started: the first ones were refused for their settings
    stopped: bool = False  # by a signal, and with it:
    halted: list[Run] = field(default_factory=list)  # these, which were running
    waiting: list[Run] = field(default_factory=list)  # and these before they were started

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
    share: Share


def run_all(
    runs: Sequence[Run],
    slots: int | None,
    display: Lines | Live,
    busy: Mapping[str, str] | None = None,
    ended: Callable[[Run], object] | None = None,
) -> Outcome:
    """Run the missing runs, as many at a time as the machine has room for.

    SIGINT and SIGTERM stop every child before this returns.

    ``slots`` overrules the machine's size (ValueError below 1).  ``busy`` are runs that are not to be started (run
    folder -> why not).  ``ended`` is called with each run that was started, when it is over.

    A run that waits for others is started when all of them are done, and is left where one has ended otherwise.

    Another runner may work on the same sweep, so the state of a run is read again just before it is started.  Where two
    runs have ended for bad settings or data, and none is done, no further one is started.
    """
    machine = Machine(slots)
    outcome, busy = Outcome(), busy or {}
    waiting = [run for run in runs if not _passed(run, outcome, busy)]
    num_refused = 0
    children: dict[int, _Child] = {}
    with _stop_signals() as stopping:
        try:
            while (waiting and not stopping()) or children:
                ours = {run.run_dir for run in [*waiting, *(child.run for child in children.values())]}
                for run in list(waiting):
                    if stopping() or not ours.isdisjoint(run.after) or (share := machine.take(run)) is None:
                        continue
                    waiting.remove(run)
                    if unmet := _unmet(run):
                        machine.give_back(share)
                        outcome.left.append((run, f"it waits for {unmet}"))
                        display.passed(run, f"not started: it waits for {unmet}")
                        continue
                    if why := _passed(run, outcome, busy):
                        machine.give_back(share)
                        display.passed(run, f"now {why}, by another process; not started here")
                        continue
                    prepare([run])
                    children[share.slot] = _Child(run, _start(run, share), time.monotonic(), share)
                    display.started(share.slot, run)
                if stopping():
                    break
                time.sleep(POLL_S)
                for slot, child in list(children.items()):
                    code = child.process.poll()
                    if code is None:
                        display.beat(slot, child.run)
                        continue
                    del children[slot]
                    machine.give_back(child.share)
                    failure = _failure(child, code)
                    word: Word = "failed" if failure else "done"
                    if code == HELD:
                        word, failure = "left", "another process runs it already"
                        outcome.left.append((child.run, failure))
                    elif code == UNMET:
                        word, failure = "left", "a run that it waits for is not done"
                        outcome.left.append((child.run, failure))
                    elif failure:
                        outcome.failed.append((child.run, failure))
                        num_refused += code == BAD_SETTINGS
                    else:
                        outcome.done.append(child.run)
                    display.ended(slot, child.run, failure or f"done in {time.monotonic() - child.began:.0f} s", word)
                    if ended is not None:
                        ended(child.run)
                if num_refused >= ENOUGH_REFUSALS and not outcome.done:
                    outcome.given_up += waiting
                    waiting.clear()
        finally:
            outcome.stopped = stopping() > 0
            outcome.waiting = waiting
            if children:
                display.note(
                    f"stopping {len(children)} run{'s' if len(children) > 1 else ''}; a second Ctrl-C stops them at "
                    f"once"
                )
                _stop(list(children.values()), stopping)
                for run in (child.run for child in children.values()):
                    (outcome.done if run.state().word == "done" else outcome.halted).append(run)
    return outcome


def _unmet(run: Run) -> str:
    """What a run waits for: the labels and states of those that are not done."""
    words = [(label, RunFolder(run.root / at).state().word) for at, label in run.after.items()]
    return ", ".join(f"{label} ({word})" for label, word in words if word != "done")


def _passed(run: Run, outcome: Outcome, busy: Mapping[str, str]) -> str:
    """The word for why this run is not to be started, which is also noted in the outcome; empty when it is."""
    state = run.state()
    if run.run_dir in busy and state.word != "done":
        outcome.left.append((run, busy[run.run_dir]))
        return busy[run.run_dir]
    if state.may_start:
        return ""
    if state.word == "done":
        outcome.skipped.append(run)
    else:
        outcome.left.append((run, f"{state.word}: {state.reason or 'it runs already'}"))
    return state.word


@contextlib.contextmanager
def _stop_signals() -> Iterator[Callable[[], int]]:
    """The number of times that a signal asked this process to stop; the old handlers come back afterwards."""
    asked: list[int] = []

    def handle(number: int, frame: FrameType | None) -> None:
        del frame
        asked.append(number)

    heard = [
        number
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        if signal.getsignal(number) != signal.SIG_IGN
    ]
    before = {number: signal.signal(number, handle) for number in heard}
    try:
        yield lambda: len(asked)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _start(run: Run, share: Share) -> subprocess.Popen[bytes]:
    """Start run.sh in a process group of its own, so that the terminal's Ctrl-C reaches it only through us.

    Its processes share a lock on the run's log from the start, by which ``prune`` knows that one of them is alive; that
    on the folder is main.py's own.
    """
    environ = {
        **os.environ,
        "NUQ_NPROC": str(ranks_of(run)),
        "NUQ_PYTHON": os.environ.get("NUQ_PYTHON", sys.executable),
    }
    environ["OMP_NUM_THREADS"] = str(run.experiment.config["threads"])
    if share.gpus:
        environ["CUDA_VISIBLE_DEVICES"] = ",".join(share.gpus)
    with run.folder.log.open("ab") as log:
        with contextlib.suppress(OSError):  # the file system keeps no locks
            fcntl.flock(log, fcntl.LOCK_SH)
        return subprocess.Popen(
            ["bash", str(run.folder.script)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=environ,
            pass_fds=(log.fileno(),),  # beside its standard output, which run.sh opens anew
            start_new_session=True,
        )


def _failure(child: _Child, code: int) -> str:
    """The reason why this run counts as failed, by its exit code and its own record; empty when it is done."""
    state = child.run.state()
    if code == 0 and state.word == "done":
        return ""
    words = {
        0: "exit code 0, but the run does not say that it is done",
        BAD_SETTINGS: "bad settings or data",
        3: "diverged",
        75: "stopped by a signal",
    }
    failure = words.get(code) or (f"killed by signal {-code}" if code < 0 else f"exit code {code}")
    return f"run.sh ended ({failure}), and the run itself goes on" if state.word == "running" else failure


def _stop(children: Sequence[_Child], stopping: Callable[[], int]) -> None:
    """Stop every process group: SIGTERM, GRACE_S to checkpoint, then SIGKILL to what is left of the groups."""
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


# --- with a display -----------------------------------------------------------------------------------------------


def run_with_progress(
    runs: Sequence[Run],
    slots: int | None = None,
    busy: Mapping[str, str] | None = None,
    ended: Callable[[Run], object] | None = None,
) -> Outcome:
    """Call ``run_all`` with a live line on a terminal and plain lines elsewhere, then print a summary.

    The folders of the runs are shared meanwhile (``folder_lock``).
    """
    missing = [run for run in runs if run.state().may_start]
    shown = Live([run for run in missing if run.run_dir not in (busy or {})]) if is_live(sys.stdout) else None
    with contextlib.ExitStack() as held:
        for folder in sorted({run.folder.path.parent for run in runs}):
            held.enter_context(folder_lock.shared(folder))
        display = held.enter_context(shown or contextlib.nullcontext(Lines(len(missing))))
        outcome = run_all(runs, slots, display, busy, ended)
    print(summary(outcome))
    return outcome


def summary(outcome: Outcome) -> str:
    """A summary of what became of the sweep, with the last lines of the log of each failure."""
    lines = []
    for run, reason in outcome.left:
        lines.append(f"not started: {title(run)}, {run.run_dir}: {reason}")
    for run, reason in outcome.failed:
        lines.append(f"failed: {title(run)}: {reason}; the end of {Path(run.run_dir) / run.folder.log.name}:")
        lines += [f"    {line}" for line in run.folder.last_lines(LAST_LINES)] or ["    (empty)"]
    if outcome.given_up:
        log = Path(outcome.failed[0][0].run_dir) / outcome.failed[0][0].folder.log.name
        lines.append(
            f"gave up: the first runs were all refused for bad settings or data; see the reason with: tail "
            f"{shlex.quote(str(log))}"
        )
    if outcome.stopped:
        lines.append("stopped; the same command goes on from the last checkpoints")
    counts = [(len(outcome.done), "done"), (len(outcome.skipped), "done before"), (len(outcome.failed), "failed")]
    counts.append((len(outcome.halted), "stopped"))
    counts.append((len(outcome.left) + len(outcome.given_up) + len(outcome.waiting), "not started"))
    lines.append(", ".join(f"{count} {word}" for count, word in counts if count) or "nothing to do")
    return "\n".join(lines)
