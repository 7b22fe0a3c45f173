"""What is promised of a sweep on a cluster, whatever happens; the truth is the cluster's own."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from grid.engine.states import evidence
from grid.engine.states.runs import named, runs_of
from tests.virtual_slurm.cluster import Cluster
from tests.virtual_slurm.job import Job


class Broken(AssertionError):
    """A promise that was broken."""


class Promises:
    """The promises of the sweep ``tiny`` of a file, in one checkout."""

    slurm: Cluster
    root: Path
    family: Path

    def __init__(self) -> None:
        self.cap: int | None = None  # of the plan
        self.caps: dict[str, int] = {}  # of each submission
        self.scripts: dict[int, tuple[Path, list[str]]] = {}

    def expect(self, holds: object, promise: str) -> None:
        if not holds:
            raise Broken(promise)

    def jobs(self) -> list[Job]:
        """Those of this sweep."""
        return [job for job in self.slurm.jobs if job.options.get("job-name", "").startswith("tiny-")]

    def script(self, job: Job) -> tuple[Path, list[str]]:
        """A job's script without its suffix, and the runs in it."""
        if id(job) not in self.scripts:
            (place,) = shlex.split(re.findall(r'bash (.+_"\$SLURM_ARRAY_TASK_ID"\.sh)', job.script)[0])
            path = Path(place.replace("$SLURM_ARRAY_TASK_ID", str(job.index)))
            runs = re.findall(r"^runs=\(\n(.*?)^\)$", path.read_text(), re.M | re.S)[0]
            self.scripts[id(job)] = path.with_suffix(""), shlex.split(runs)
        return self.scripts[id(job)]

    def runs(self, job: Job) -> list[str]:
        return self.script(job)[1]

    def noted(self, job: Job, run: str) -> int | None:
        """The last exit code of a run that its job's script noted."""
        text = self.slurm.read(self.script(job)[0].with_suffix(".ended")) or ""
        codes = re.findall(rf"^(\d+)(?:@\d+)? {re.escape(run)}$", text, re.M)
        return int(codes[-1]) if codes else None

    def may_live(self, run: str, but: Sequence[Job] = ()) -> str:
        """The process or job that works on a run or may yet start it; empty where there is none."""
        if run in self.slurm.locks:
            return "main.py"
        for job in self.jobs():
            if job.is_over or job in but or job.revived or run not in self.runs(job):
                continue
            if self.noted(job, run) in (None, 75) and not self.is_done(run):
                return f"{job.name} ({job.shown})"
        return ""

    def is_done(self, run: str) -> bool:
        return any(code == 0 for _, code in self.slurm.finished.get(run, ()))

    def accepted(self, jobs: list[Job]) -> None:
        """SLURM has taken a job: nothing of it may be alive already."""
        for job in jobs:
            if job in self.jobs():
                for run in self.runs(job):
                    other = self.may_live(run, but=jobs)
                    self.expect(not other, f"{job.name} was submitted for {run}, while {other} may be alive")

    def begins(self, job: Job) -> None:
        """SLURM starts a job."""
        self.expect(not job.recalled, f"{job.name} begins again, and was cancelled")
        if self.cap and job in self.jobs():
            same = [
                other for other in self.jobs() if other.state == "RUNNING" and other.life and _of(other) == _of(job)
            ]
            self.expect(len(same) < self.caps.get(_of(job), 99), f"{job.name} begins beside {len(same)} others")

    def look(self) -> set[str]:
        """No state lies; returns the words of all."""
        of_sweep = runs_of(named(str(self.family), "tiny")[1], self.root)
        self.slurm.show()
        view = evidence.of(of_sweep, self.root, max_age_s=0)
        for run, state in view.states.items():
            jobs = [job for job in self.jobs() if run in self.runs(job)]
            told = f"{run} is {state.word} ({state.reason})"
            if state.word == "done":
                self.expect(self.is_done(run), f"{told}, and has not finished")
            if state.word in ("failed", "diverged"):
                begun = any(name == run for _, _, name in self.slurm.begun)
                codes = {self.noted(job, run) for job in jobs} - {None, 0, 75}
                of_slurm = {job.state for job in jobs} & {"TIMEOUT", "OUT_OF_MEMORY"}
                self.expect(begun or codes or of_slurm, f"{told}, and never began")
                self.expect(not self.is_done(run), f"{told}, and is done")
            if state.may_start:
                other = self.may_live(run)
                self.expect(not other, f"{told} and may be started, while {other} may be alive")
                self.expect(not self.is_done(run), f"{told} and may be started, and is done")
        return {state.word for state in view.states.values()}


def _of(job: Job) -> str:
    """The submission that a job is of."""
    return job.options["job-name"].removeprefix("tiny-").rpartition("-")[0]
