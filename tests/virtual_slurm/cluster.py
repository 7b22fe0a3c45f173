"""A cluster that a test plays with: its commands, what can be done to it, and its place in the product."""

from __future__ import annotations

import contextlib
import itertools
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from grid.engine.slurm import commands
from tests.virtual_slurm import answers
from tests.virtual_slurm.controller import Controller
from tests.virtual_slurm.job import ENDED, Ending, Job
from tests.virtual_slurm.scripted import Scripted

SILENT_S = 120.0  # a node is silent for longer before it is given up: what lives on there began before that
NO_CONTACT = "Unable to contact slurm controller (connect failure)"


@dataclass
class Cluster(Controller):
    """A controller whose commands are answered."""

    # --- what a test can do to it ---

    def run(self, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """A command, finished."""
        reply = answers.answer(self, words, variables)
        self.show()
        return subprocess.CompletedProcess(words, reply.code, reply.out.decode(), reply.err)

    def calls(self, command: str) -> list[list[str]]:
        return [words for words in self.words if words[0] == command]

    def records(self, spec: str | None = None) -> list[dict[str, Any]]:
        """The jobs that are known."""
        return [job.record() for job in (self.find(spec) if spec else self.jobs)]

    def wait(self, spec: str | None = None, *, state: str | None = None, restarts: int = 0) -> None:
        """Let time pass until all are at their end, or all in ``state``, after so many restarts."""
        good = {state} if state else ENDED

        def reached() -> bool:
            jobs = self.find(spec) if spec else self.jobs
            return bool(jobs) and all(job.shown in good and job.restarts >= restarts for job in jobs)

        self.until(reached, f"{self.records(spec)}: not {state or 'at their end'}")

    def at_command(self, number: int, do: Callable[[str, str], None]) -> None:
        """Before the product's command of this number from now on, do this."""
        left = itertools.count(1)

        def count(moment: str, command: str) -> None:
            if moment == "before" and next(left) == number:
                do(moment, command)

        self.hook = count

    def _each(self, spec: str, do: Callable[[Job], None]) -> None:
        for job in self.find(spec):
            do(job)
        self.show()

    def preempt(self, spec: str) -> None:
        self._each(spec, lambda job: self.finish(job, "PREEMPTED", " DUE TO PREEMPTION", requeue=True))

    def oom(self, spec: str) -> None:
        self._each(spec, lambda job: self.finish(job, "OUT_OF_MEMORY", kill=True))

    def time_limit(self, spec: str) -> None:
        """Its limit is near: the warning that --signal asked for now, the end after the lead that it asked for."""

        def warn(job: Job) -> None:
            life, lead = job.life, re.fullmatch(r"B:(\w+)@(\d+)", job.options.get("signal", ""))
            if life and lead:
                life.signal(lead[1], batch=True)
                self.at(self.now + int(lead[2]), lambda: job.life is life and self._time_out(job))

        self._each(spec, warn)

    def kill_run(self, run: str, *, shell: bool = False) -> None:
        """SIGKILL to main.py of a run, or to its run.sh alone."""
        for job in self.jobs:
            if isinstance(job.life, Scripted) and run in job.life.mains:
                main = job.life.mains[run]
                if shell:
                    main.parent = None
                (job.life.shells[run] if shell else main).end(137)

    def fail_node(self, node: str) -> None:
        """Its jobs die with it, and are requeued where they may be, else NODE_FAIL."""
        self.down.add(node)
        for job in [job for job in self.jobs if node in job.nodes]:
            self.finish(job, "NODE_FAIL", requeue=True, kill=True)

    def lose_node(self, node: str, *, requeue: bool = True) -> None:
        """As ``fail_node``, and the processes of its jobs live on."""
        self.down.add(node)
        for job in [job for job in self.jobs if node in job.nodes and job.life]:
            life = job.life
            assert life is not None
            if not job.ending:
                job.ending, job.end = Ending("NODE_FAIL", requeue), self.now
            self.over(job, life, 0)
            if isinstance(life, Scripted):
                life.outlive(self.now - SILENT_S)
                self.outliving.append(life)

    def resume_node(self, node: str) -> None:
        """The node answers again: what it still has of jobs that were given up is ended, as slurmd is told to."""
        for life in [life for life in self.outliving if life.node == node]:
            self.outliving.remove(life)
            life.kill()
        self.down.discard(node)
        self.drained.discard(node)
        self.poke()

    def suspend(self, job: Job, *, on: bool) -> None:
        if job.state == ("RUNNING" if on else "SUSPENDED") and job.life and not job.ending:
            job.state = "SUSPENDED" if on else "RUNNING"
            job.life.stop(on=on)

    def configure(self, **limits: int) -> None:
        """Other limits from now on."""
        for name, value in limits.items():
            setattr(self, name, value)

    def begin_anew(self) -> None:
        """The controller lost its state: no job is known, its processes are ended, and ids begin with 1."""
        lives, self.jobs, self.next_id = [job.life for job in self.jobs if job.life], [], 1
        for life in lives:
            life.kill()

    def hold_all(self, reason: str = "Resources") -> None:
        """Let nothing start any more."""
        self.hold_reason = reason
        for job in self.jobs:
            if job.state == "PENDING" and not job.held:
                job.reason = reason

    def release_all(self) -> None:
        self.hold_reason = None
        self.poke()

    def controller_down(self) -> None:
        self.silence = NO_CONTACT

    def controller_up(self) -> None:
        self.silence = ""

    def refuse_sbatch(self, after: int = 0, message: str = "AssocMaxSubmitJobLimit", times: int = 1) -> None:
        """Let sbatch, after so many more calls, refuse so many times."""
        self.replies |= {after + number + 1: message for number in range(times)}

    def swallow_reply(self, after: int = 0) -> None:
        """Let sbatch, after so many more calls, accept one and say that its socket timed out."""
        self.replies[after + 1] = "lost"

    # --- in the place of the real one ---

    @contextlib.contextmanager
    def in_place(self) -> Iterator[Cluster]:
        """Every command that the product starts is this cluster's, and its clock is the time."""
        kept = commands.started, commands.is_here, time.time, time.monotonic, time.sleep
        commands.started = lambda words, environment, **more: answers.Process(self, words, environment)  # type: ignore[assignment,return-value]
        commands.is_here = lambda command: True
        time.time = time.monotonic = lambda: self.now
        time.sleep = self.advance
        try:
            yield self
        finally:
            commands.started, commands.is_here, time.time, time.monotonic, time.sleep = kept
