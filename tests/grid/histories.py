"""Random true histories of one run on a cluster, and what an observer gets to see of them at any moment.

Clocks of hosts differ by up to a minute, files show up to a minute late, answers are up to 40 s old.
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from grid.engine.slurm.scheduler_cache import FAILURES, Answer, Job
from grid.engine.states.judge import Record
from grid.engine.states.state import Claim, Damaged

T0 = 1_000_000.0
SKEW_S = LAG_S = 60.0
OLD_S = 40.0
SLURMD_TIMEOUT_S = (
    120.0  # a node is silent for longer (300 s by default) before SLURM gives it up: what runs there began before
)
HELD = 4  # the exit code of a run whose folder another process has
CUTS = (
    "term",
    "kill",
    "cancel_term",
    "cancel_kill",
    "timeout",
    "oom",
    "node_fail",
    "node_fail_requeue",
    "script_fails",
)
WORDS = {
    "timeout": "TIMEOUT",
    "oom": "OUT_OF_MEMORY",
    "node_fail": "NODE_FAIL",
    "node_fail_requeue": "NODE_FAIL",
    "script_fails": "FAILED",
}


@dataclass
class Timeline:
    """A value that changes in time."""

    times: list[float] = field(default_factory=list)
    values: list[Any] = field(default_factory=list)

    def put(self, at: float, value: Any) -> None:
        assert not self.times or at >= self.times[-1], "a history goes forward"
        self.times.append(at)
        self.values.append(value)

    def at(self, time: float) -> Any:
        index = bisect.bisect_right(self.times, time)
        return self.values[index - 1] if index else None


@dataclass
class Element:
    """One array element that is to run the run, as it really went."""

    name: str
    submitted_at: float
    first: bool
    queue: Timeline = field(default_factory=Timeline)  # Job, in the controller's clock; None once forgotten
    history: Timeline = field(default_factory=Timeline)  # Job, what accounting says
    ledger: Timeline = field(default_factory=Timeline)  # (exit code, life, when), the last in the file server's clock
    life: int = 0
    over_at: float = 0.0
    recalled: Timeline = field(default_factory=Timeline)  # whether it was cancelled from here, and we noted it
    may_run: Timeline = field(default_factory=Timeline)  # whether it can still start the run, or runs it


@dataclass
class World:
    random: Random
    by_hand: bool  # a job script without a ledger, that nobody wrote down
    status: Timeline = field(default_factory=Timeline)
    alive: list[tuple[float, float]] = field(default_factory=list)
    finished: list[float] = field(default_factory=list)
    failed: list[float] = field(default_factory=list)
    elements: list[Element] = field(default_factory=list)
    attempt: int = 0

    def __post_init__(self) -> None:
        skews = (self.random.choice([0.0, SKEW_S, self.random.uniform(0, SKEW_S)]) for _ in "cnof")
        self.controller_s, self.node_s, self.observer_s, self.files_s = skews
        self.forget_s = self.random.choice([2.0, 300.0])
        self.has_accounting = self.random.random() < 0.5

    # --- what happens ---

    def submit(self, at: float) -> None:
        """A new array element for the run, with its whole life."""
        random = self.random
        element = Element(f"{100 + len(self.elements)}_{random.randrange(9)}", at, random.random() < 0.5)
        self.elements.append(element)
        now = at
        element.may_run.put(now, True)
        for element.life in range(4):
            life = element.life
            queued = now + self.controller_s
            self._queued(
                element, now, Job("PENDING", random.choice(["Priority", "Resources", "BeginTime"]), queued=queued)
            )
            now += random.uniform(0, 400) if life == 0 else random.uniform(5, 200)
            if random.random() < 0.05:
                self._recall(element, now)
                self._over(element, now, "CANCELLED")
                break
            cut = random.choice(CUTS) if random.random() < 0.7 and life < 3 else None
            now, again = self._life(element, now, cut)
            if not again:
                break
        else:
            self._over(element, now, "FAILED")
        element.over_at = now

    def _life(self, element: Element, start: float, cut: str | None) -> tuple[float, bool]:
        """One start of the job, until its end; whether it is queued again."""
        random = self.random
        self._queued(
            element,
            start,
            replace(element.queue.values[-1], word="RUNNING", reason="", node="n1", start=start + self.controller_s),
        )
        cut_at = start + random.choice([random.uniform(0, 30), random.uniform(0, 3000)]) if cut else float("inf")
        now = start + (random.uniform(0, 5) if element.first else random.uniform(0, 1500))  # the runs before it
        code = self._noted(element, now)
        if now < cut_at and not self._is_done(now) and (self.by_hand or code in (None, 75)):
            now, code = self._run(element, now, cut, cut_at)
        if now < cut_at:  # the runs after it
            end = now + random.choice([random.uniform(0.2, 5), random.uniform(0.2, 1000)])
            if end < cut_at and code == HELD:
                return end, True
            if end < cut_at:
                self._over(element, end, "FAILED" if random.random() < 0.3 or (code or 0) != 0 else "COMPLETED")
                return end, False
        return self._cut(element, cut or "", max(cut_at, now))

    def _run(self, element: Element, start: float, cut: str | None, cut_at: float) -> tuple[float, int | None]:
        """The process of the run: its heartbeats and its end, by itself or by the cut."""
        random = self.random
        begun = start + random.uniform(0.5, 30)  # python and torch are being loaded
        if begun < cut_at and any(
            begun < stop for _, stop in self.alive
        ):  # the folder is in the hands of an earlier life
            if random.random() < 0.7 or self.by_hand or element.may_run.times[-1] > begun:
                return begun, HELD
            self._note(element, begun, 2)  # what it needs is not on this node
            self.failed.append(begun)
            element.may_run.put(begun, False)
            return begun, 2
        if self._is_done(begun):
            return begun, 0
        self.attempt += 1
        natural = begun + random.choice([random.uniform(0, 60), random.uniform(0, 4000)])
        is_cut_off = (
            cut in ("node_fail", "node_fail_requeue") and begun < cut_at - SLURMD_TIMEOUT_S and random.random() < 0.7
        )
        orphan_s = random.uniform(0, 2000) if is_cut_off else 0.0  # it lives on, out of the controller's reach
        stop = min(natural, cut_at + orphan_s)
        dies_at = None  # the shell of run.sh, and main.py does not
        if not self.by_hand and not is_cut_off and begun < stop and random.random() < 0.2:
            dies_at = random.uniform(begun, stop)
            stop = min(
                natural, dies_at + random.uniform(0, 2000)
            )  # SLURM may have lost sight of it: its job's end is not its own
            self._note(element, dies_at, 137)
            self.failed.append(dies_at)
        now = begun
        ids = dict(zip(("SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID"), element.name.split("_"), strict=True))
        ids |= {"SLURM_RESTART_COUNT": str(element.life)} if element.life else {}
        record: dict[str, Any] = {
            "state": "running",
            "host": "n1",
            "pid": 77,
            "start": begun + self.node_s,
            "slurm": ids,
        }
        while now < stop:
            self._write(now, {**record, "heartbeat": now + self.node_s})
            now += random.choice([2.0, 30.0, random.uniform(2, 400)])
        self.alive.append((start, stop))
        if dies_at is not None:
            if stop == natural:
                self._ends(stop, record, random.choice([0, 1, 3]))
            element.may_run.put(stop, False)
            return dies_at + 0.01, 137
        if natural >= cut_at + orphan_s:
            if cut in ("term", "cancel_term") and begun < cut_at:
                self._write(stop, {**record, "heartbeat": stop + self.node_s, "state": "preempted", "exit_code": 75})
                self._note(element, stop + 0.01, 75)
            elif cut in WORDS:
                self.failed.append(cut_at)
            return cut_at, None
        code = random.choice([0, 0, 0, 1, 3, 137])
        self._ends(stop, record, code)
        if not self.by_hand:
            self._note(element, stop + 0.01, code)
        if not self.by_hand or code == 0:
            element.may_run.put(stop + 0.01, False)
        return min(stop + 0.01, cut_at), code

    def _ends(self, at: float, record: dict[str, Any], code: int) -> None:
        """The run ends by itself, or is killed."""
        if code != 137:
            word = {0: "done", 1: "failed", 3: "diverged"}[code]
            self._write(
                at,
                {
                    **record,
                    "heartbeat": at + self.node_s,
                    "state": word,
                    "exit_code": code,
                    "failure": {"message": "why"},
                },
            )
        (self.failed if code else self.finished).append(at)

    def _note(self, element: Element, at: float, code: int) -> None:
        """A line of the ledger.  Its file may be written again soon after, for the next run of the script."""
        later_s = self.random.choice([0.0, self.random.uniform(0, 100)])
        element.ledger.put(at, (code, element.life, at + later_s + self.files_s))

    def _noted(self, element: Element, at: float) -> int | None:
        found = element.ledger.at(at)
        return found[0] if found else None

    def _cut(self, element: Element, cut: str, at: float) -> tuple[float, bool]:
        if cut in ("term", "kill", "node_fail_requeue"):
            return at, True
        if cut in WORDS and not self._is_done(at) and element.first:
            self.failed.append(at)
        if cut in ("cancel_term", "cancel_kill"):
            self._recall(element, at)
        self._queued(element, at, replace(element.queue.values[-1], word="COMPLETING"))
        end = at + self.random.uniform(0, 5)
        self._over(element, end, WORDS.get(cut, "CANCELLED"))
        return end, False

    def _over(self, element: Element, at: float, word: str) -> None:
        before = element.queue.values[-1]
        job = Job(word, node="n1", start=before.start or at + self.controller_s, end=at + self.controller_s)
        self._queued(element, at, job)
        element.history.put(at + self.random.uniform(0, 30), job)
        element.queue.put(at + self.forget_s, None)
        element.may_run.put(max(at, element.may_run.times[-1]), False)

    def _recall(self, element: Element, at: float) -> None:
        if not self.by_hand and self.random.random() < 0.7:
            element.recalled.put(at + self.random.uniform(0, 2), True)

    def _queued(self, element: Element, at: float, job: Job) -> None:
        element.queue.put(at, job)

    def _write(self, at: float, record: dict[str, Any]) -> None:
        self.status.put(max(at, self.status.times[-1] if self.status.times else 0.0), record)

    def _is_done(self, at: float) -> bool:
        return any(end <= at for end in self.finished)

    # --- what is true ---

    def can_be_alive(self, at: float) -> bool:
        """A process of the run exists, or a job that will start one."""
        return any(start <= at < stop for start, stop in self.alive) or any(
            element.submitted_at <= at and element.may_run.at(at) for element in self.elements
        )

    def later(self, at: float) -> float:
        """A moment to look: often shortly after something happened."""
        element = self.elements[-1]
        events = [time for line in (element.queue, element.ledger) for time in line.times if time > at]
        events += [stop for _, stop in self.alive if stop > at]
        if events and self.random.random() < 0.6:
            return min(events) + self.random.choice(
                [self.random.uniform(0, 10), self.random.uniform(0, 60), self.random.uniform(0, 700)]
            )
        return at + self.random.choice(
            [self.random.uniform(0, 20), self.random.uniform(0, 300), self.random.uniform(0, 2000)]
        )

    # --- what is seen ---

    def seen_record(self, at: float) -> Record:
        record = self.status.at(at - self.random.choice([0.0, LAG_S, self.random.uniform(0, LAG_S)]))
        if record is None or self.random.random() < 0.95:
            return record
        return self.random.choice([Damaged("cut"), {}, {**record, "heartbeat": None}, {**record, "state": "paused"}])

    def seen_claim(self, at: float) -> Claim | None:
        if self.by_hand:
            return None
        element = self.elements[-1]
        code, life, when = element.ledger.at(at - self.random.choice([0.0, LAG_S, self.random.uniform(0, LAG_S)])) or (
            None,
            0,
            0.0,
        )
        name = None if self.random.random() < 0.1 else element.name
        cluster, recalled = self.random.choice(["", "here"]), bool(name and element.recalled.at(at))
        return Claim(name, element.submitted_at + self.observer_s, element.first, code, cluster, recalled, life, when)

    def seen_answer(self, at: float, element: str | None) -> tuple[Answer | None, Job | None]:
        """The scheduler's answer, and the job in it or in accounting."""
        dice = self.random.random()
        asked = at - self.random.uniform(0, OLD_S)
        found = next((item for item in self.elements if item.name == element), None)
        ids = frozenset({element.partition("_")[0]} if element else set())
        if dice < 0.1:
            return None, None
        if dice < 0.2:
            return Answer(asked + self.observer_s, {}, False, error="down", ids=ids), None
        if dice < 0.25:
            return Answer(asked + self.observer_s, {}, ids=ids, cluster="elsewhere"), None
        if dice < 0.3:
            return Answer(asked + self.observer_s, {}), None  # to another question
        if found is None or asked < found.submitted_at:
            return None, None
        job = found.queue.at(asked)
        if job is None and self.has_accounting:
            job = found.history.at(asked)
        if job is None and found.recalled.at(at):  # our own word
            job = Job("CANCELLED")
        missed, keeps_s = asked, self.random.choice([0.0, self.forget_s])
        if found.queue.at(asked) is None:
            missed = self.random.uniform(found.queue.times[-1], asked)
        return Answer(
            asked + self.observer_s,
            {},
            ids=ids,
            cluster="here",
            missed={found.name: missed + self.observer_s},
            keeps_s=keeps_s,
        ), job

    def failures(self, at: float) -> bool:
        return any(time <= at for time in self.failed)


assert set(WORDS.values()) <= FAILURES
