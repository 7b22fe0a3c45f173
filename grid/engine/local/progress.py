"""Progress of runs on this machine, as a person sees it: a live line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from files.live_line import LiveLine, duration
from grid.engine.states.runs import Run

READ_S = 1.0  # between two looks at a run's status, and two drawings of the line
TRUSTED_S = 60.0
Word = Literal["done", "failed", "left"]  # for how a started run ended; left: another process has it


def title(run: Run) -> str:
    """The name by which people know a run."""
    return f"{run.experiment.label} (seed {run.experiment.seed})"


class Lines:
    """A display that prints one plain line per event: for logs and pipes."""

    def __init__(self, total: int) -> None:
        self._total, self._ended = total, 0

    def note(self, text: str) -> None:
        print(text, flush=True)

    def started(self, slot: int, run: Run) -> None:
        del slot
        print(f"start {title(run)}: {run.run_dir}", flush=True)

    def beat(self, slot: int, run: Run) -> None:
        del slot, run

    def ended(self, slot: int, run: Run, text: str, word: Word) -> None:
        del slot, word
        self.passed(run, text)

    def passed(self, run: Run, text: str) -> None:
        self._ended += 1
        print(f"[{self._ended}/{self._total}] {title(run)}: {text}", flush=True)


class Live:
    """A display with one line that is rewritten in place, and one that stays for each ended run.

    The line has the runs that ended and those that failed, the time left, the rate, and how far the current runs are.
    The rate is that of the runs done since the beginning.  The time left follows from what the runs done took for each
    of their steps; it is unknown until one is done, or, for the first seconds of a run say little, until ``TRUSTED_S``
    are over.
    """

    def __init__(self, runs: Sequence[Run], clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._began = clock, clock()
        self._line = LiveLine()
        self._total, self._ended, self._done, self._failed = len(runs), 0, 0, 0
        self._done_s, self._done_steps = 0.0, 0  # sums over the runs done
        self._waiting = {run.run_dir: run.experiment.config["steps"] - run.state().step for run in runs}
        self._current: dict[int, _Current] = {}  # by slot
        self._at_once = 0  # the most that ran side by side
        self._drawn = -math.inf

    def __enter__(self) -> Live:
        return self

    def __exit__(self, *exc: object) -> None:
        self._line.close()

    def note(self, text: str) -> None:
        print(text, flush=True)

    def started(self, slot: int, run: Run) -> None:
        steps, now = run.experiment.config["steps"], self._clock()
        begin = steps - self._waiting.pop(run.run_dir, steps)
        self._current[slot] = _Current(run, steps, begin, begin, now, now)
        self._at_once = max(self._at_once, len(self._current))
        self._draw()

    def beat(self, slot: int, run: Run) -> None:
        current, now = self._current[slot], self._clock()
        if now - current.read >= READ_S:
            current.look(now)
        if now - self._drawn >= READ_S:
            self._draw()

    def ended(self, slot: int, run: Run, text: str, word: Word) -> None:
        current = self._current.pop(slot)
        self._failed += word == "failed"
        if word == "done":
            self._done += 1
            self._done_s += self._clock() - current.began
            self._done_steps += current.steps - current.begin
        self.passed(run, text)

    def passed(self, run: Run, text: str) -> None:
        self._ended += 1
        self._waiting.pop(run.run_dir, None)
        self.note(f"{title(run)}: {text}")
        self._drawn = -math.inf

    def _draw(self) -> None:
        now = self._drawn = self._clock()
        elapsed_s = now - self._began
        words = [f"{self._ended}/{self._total} runs in {duration(elapsed_s)}"]
        words += [f"{self._failed} failed"] if self._failed else []
        if (left_s := self._left_s(now)) is not None:
            words.append(f"ETA {duration(left_s)}")
        if self._done and elapsed_s:
            per_hour = 3600 * self._done / elapsed_s
            words.append(f"{per_hour / 60:.1f} runs/min" if per_hour >= 60 else f"{per_hour:.1f} runs/h")
        current = [f"{title(item.run)} {100 * item.step // item.steps} %" for _, item in sorted(self._current.items())]
        self._line.show(", ".join(words) + (f" | {', '.join(current)}" if current else ""))

    def _left_s(self, now: float) -> float | None:
        current = list(self._current.values())
        seconds, steps = self._done_s, self._done_steps
        if not steps and now - self._began >= TRUSTED_S:
            seconds = sum(now - item.began for item in current)
            steps = sum(item.step - item.begin for item in current)
        if not (steps and current):
            return None
        step_s = seconds / steps
        left_s = [item.left_s(step_s, now) for item in current]
        side_by_side = min(self._at_once, len(current) + len(self._waiting))
        return max(max(left_s), (sum(left_s) + step_s * sum(self._waiting.values())) / side_by_side)


@dataclass
class _Current:
    """A run that goes on: its last step, the one that it goes on from, the one reached; when it began and was read."""

    run: Run
    steps: int
    begin: int
    step: int
    began: float
    read: float

    def look(self, now: float) -> None:
        """Read its status."""
        state = self.run.state()
        self.step = max(self.step, state.step) if state.word == "running" else self.step
        self.read = now

    def left_s(self, step_s: float, now: float) -> float:
        """What it should still take where others took ``step_s`` a step; its own pace counts once it takes longer."""
        taken_s, done = now - self.began, self.step - self.begin
        if (expected_s := step_s * (self.steps - self.begin)) > taken_s or not done:
            return max(0.0, expected_s - taken_s)
        return taken_s * (self.steps - self.step) / done
