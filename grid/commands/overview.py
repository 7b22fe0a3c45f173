"""An overview of thousands of runs on one screen, for ``status --watch``.

It shows counts, the rate, the time left by resource shape, failures, and the slowest running runs.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grid.commands.options import clipped, count
from grid.commands.report import counted, duration

if TYPE_CHECKING:
    from grid.engine.states.evidence import View
    from grid.engine.states.runs import Run
    from grid.engine.states.state import State

WAITING = ("waiting", "pending", "new", "preempted", "checkpointed", "lost")
# the resources that name a shape, where shapes differ in them
ASKED = ("nodes", "ranks", "gpus", "cpus", "mem", "time", "partition")
SMALLEST = 16  # lines: below that a screen cannot hold a line of everything


@dataclass(frozen=True)
class _Part:
    """A heading and its lines; the first lines are shown, as many as there is room for."""

    head: str
    lines: Sequence[str]

    def cut(self, room: int) -> list[str]:
        if len(self.lines) <= room:
            return [self.head, *self.lines]
        return [self.head, *self.lines[: room - 1], f"  ... and {len(self.lines) - room + 1} more"]


def screen(
    title: str, runs: Sequence[Run], view: View, root: Path, more: Sequence[str], rows: int, columns: int
) -> list[str]:
    """The text of the screen: at most ``rows`` lines (no fewer than SMALLEST) of at most ``columns`` characters.

    The lines of ``more`` stand among the first ones.
    """
    words = Counter(state.word for state in view.states.values())
    fixed = [
        f"{title}: {count(len(runs), 'run')}",
        ", ".join(f"{number} {word}" for word, number in words.most_common()),
    ]
    fixed += [
        f"why {word}: {text}"
        for word in ("waiting", "pending", "checkpointed", "unknown", "lost", "blocked")
        if words[word] and (text := counted(view, word))
    ]
    fixed += [
        f"silent: {count(silent, 'running one')}"
        for silent in [sum(state.stale for state in view.states.values())]
        if silent
    ]
    fixed += [*rate(view.states.values()), *more]
    parts = [part for part in (_shapes(runs, view), _failures(runs, view, root), _slowest(runs, view)) if part.lines]
    room = [1] * len(parts)
    left = max(rows, SMALLEST) - len(fixed) - sum(2 + size for size in room)  # an empty line and a heading before each
    while left > 0 and (needy := [place for place, part in enumerate(parts) if room[place] < len(part.lines)]):
        room[min(needy, key=lambda place: room[place])] += 1
        left -= 1
    lines = fixed + [line for part, size in zip(parts, room, strict=True) for line in ["", *part.cut(size)]]
    return [clipped(line, columns) for line in lines]


def rate(states: Iterable[State]) -> list[str]:
    """A line on the speed of all running runs together, as it has been so far."""
    running = [state for state in states if state.word == "running" and state.step and state.seconds and state.steps]
    if not running:
        return []
    steps_per_s = sum(state.step / state.seconds for state in running)
    runs_per_h = sum(3600 * state.step / state.seconds / state.steps for state in running)
    return [f"rate: {steps_per_s:.3g} steps/s, {runs_per_h:.3g} runs/h, of {count(len(running), 'running one')}"]


def left_s(state: State) -> float:
    """Seconds that a run still needs at the speed that it had; 0 where that speed is not known."""
    return state.seconds / state.step * max(state.steps - state.step, 0) if state.step and state.seconds else 0.0


def eta_s(states: Sequence[State]) -> float | None:
    """Seconds until all runs will have ended; None where nothing allows an estimate.

    The estimate assumes that as many runs as now keep running, each for as long as the average one.
    """
    running = [state for state in states if state.word == "running"]
    waiting = sum(state.word in WAITING for state in states)
    known = [state.seconds for state in states if state.word == "done" and state.seconds]
    known = known or [state.seconds / state.step * state.steps for state in running if state.step]
    if not running or not known:
        return None
    each = sum(known) / len(known)
    return (sum(left_s(state) if state.step else each for state in running) + waiting * each) / len(running)


# --- parts --------------------------------------------------------------------------------------------------------


def _shapes(runs: Sequence[Run], view: View) -> _Part:
    """One line per resource shape: how many runs are done, running and waiting, and how long the shape will take."""
    found: dict[str, tuple[Mapping[str, Any], list[State]]] = {}
    submitted = {run: chunk.resources for item in view.submissions for chunk in item.chunks for run in chunk.runs}
    for run in runs:
        asked = submitted.get(run.run_dir, run.experiment.resources)
        found.setdefault(repr(asked), (asked, []))[1].append(view.states[run.run_dir])
    lines = []
    telling = [name for name in ASKED if len({repr(asked.get(name)) for asked, _ in found.values()}) > 1]
    for asked, states in sorted(found.values(), key=lambda item: -len(item[1])):
        words = Counter(state.word for state in states)
        shape = " ".join(f"{name}={asked[name]}" for name in telling if asked.get(name) is not None) or "all"
        waits = sum(words[word] for word in WAITING)
        eta = eta_s(states)
        when = f"about {duration(eta)} left" if eta is not None else "none runs" if waits else "ended"
        lines.append(f"  {shape}: {words['done']} done, {words['running']} running, {waits} waiting; {when}")
    return _Part("left, if as many keep running, by what a run asks for:", lines)


def _failures(runs: Sequence[Run], view: View, root: Path) -> _Part:
    """Groups of failures; the group of the newest failure comes first."""
    from grid.engine.states.triage import groups
    from grid.engine.submission.retry import failures_of

    found = failures_of(runs, view, root)
    ended: dict[tuple[str, str], float] = {}
    for run in runs:
        if failure := found.get(run.run_dir):
            key = failure.kind, failure.signature
            ended[key] = max(ended.get(key, 0.0), *_written(run))
    made = sorted(groups(found.values()), key=lambda group: -ended[group.kind, group.signature])
    ago = {key: duration(max(time.time() - at, 0)) for key, at in ended.items()}
    lines = [
        f"  {group.count} {group.kind}, {ago[group.kind, group.signature]} ago: {group.signature}" for group in made
    ]
    return _Part("failed, the newest first:", lines)


def _written(run: Run) -> Iterator[float]:
    """The time at which the run's own files were last written."""
    for path in (run.folder.status, run.folder.log):
        try:
            yield os.stat(path).st_mtime
        except OSError:
            yield 0.0


def _slowest(runs: Sequence[Run], view: View) -> _Part:
    """The running runs that need longest still; those that report no step come last."""
    running = [(run, view.states[run.run_dir]) for run in runs if view.states[run.run_dir].word == "running"]
    lines = []
    for run, state in sorted(running, key=lambda item: -left_s(item[1])):
        left = f", {duration(left_s(state))} left" if left_s(state) else ""
        heard = f", heard {duration(state.age_s)} ago" if state.age_s is not None else ""
        name = clipped(run.experiment.label, 30)
        lines.append(
            f"  {name} (seed {run.experiment.seed}): {state.step}/{state.steps}{left}{heard} {state.element}".rstrip()
        )
    return _Part("running, the slowest first:", lines)
