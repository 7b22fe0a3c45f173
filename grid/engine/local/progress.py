"""Progress of runs on this machine, as a person sees it: bars on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from files.escaped import escaped, plain
from grid.engine.states.runs import Run

if TYPE_CHECKING:
    from rich.progress import TaskID


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

    def ended(self, slot: int, run: Run, text: str) -> None:
        del slot
        self.passed(run, text)

    def passed(self, run: Run, text: str) -> None:
        self._ended += 1
        print(f"[{self._ended}/{self._total}] {title(run)}: {text}", flush=True)


class Bars:
    """A display with one bar for the sweep and one bar per slot, fed from each run's status.json."""

    def __init__(self, total: int) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        console = Console(file=plain(sys.stdout))
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._progress = Progress(*columns, console=console)
        self._all = self._progress.add_task("runs", total=total)
        self._slots: dict[int, tuple[TaskID, float]] = {}  # slot -> (task, when its status was last read)

    def __enter__(self) -> Bars:
        self._progress.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._progress.stop()

    def note(self, text: str) -> None:
        self._progress.console.print(escaped(text), markup=False, highlight=False)

    def started(self, slot: int, run: Run) -> None:
        from rich.markup import escape

        task = self._progress.add_task(escape(escaped(title(run))), total=run.experiment.config["steps"])
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
