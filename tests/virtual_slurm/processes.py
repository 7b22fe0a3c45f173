"""The processes of a job as generators.

A generator yields how many seconds it waits, or the process that it waits for, and gets the signal that woke it, or
None.
"""

from __future__ import annotations

import math
import re
from collections.abc import Generator
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from tests.virtual_slurm.controller import Controller
    from tests.virtual_slurm.job import Job

Steps: TypeAlias = "Generator[float | Process, str | None, int]"


class Process:
    """A process, its children and its exit code (None: it lives)."""

    def __init__(self, life: Life, steps: Steps, ignores: tuple[str, ...] = ()) -> None:
        self.life, self.steps, self.ignores = life, steps, ignores
        self.code: int | None = None
        self.heard: list[str] = []  # signals that came while it did not wait
        self.waits = 0  # the number of the present wait: an alarm for an earlier one is void
        self.parent: Process | None = None
        self.is_running = False
        life.processes.append(self)
        self.resume(None)

    def resume(self, signal: str | None) -> None:
        if self.code is not None:
            return
        self.waits += 1
        number, self.is_running = self.waits, True
        try:
            wanted = self.steps.send(signal)
        except StopIteration as end:
            self.end(end.value)
            return
        finally:
            self.is_running = False
        if self.heard:
            wanted = 0.0
        if isinstance(wanted, Process):
            if wanted.code is None:
                wanted.parent = self
                return
            wanted = 0.0
        if wanted < math.inf:
            cluster = self.life.cluster
            cluster.at(cluster.now + wanted, lambda: self.wake(number))

    def wake(self, number: int | None = None) -> None:
        """Its alarm rings, or its child has ended."""
        if number not in (None, self.waits) or self.code is not None:
            return
        if self.life.is_stopped:
            self.life.postponed.append(lambda: self.wake(number))
            return
        self.resume(self.heard.pop(0) if self.heard else None)

    def signal(self, name: str) -> None:
        if self.code is not None or name in self.ignores:
            return
        self.heard.append(name)
        if not self.is_running:
            cluster = self.life.cluster
            number = self.waits
            cluster.at(cluster.now, lambda: self.wake(number))

    def end(self, code: int) -> None:
        if self.code is None:
            self.code = code
            self.steps.close()
            if self.parent is not None:
                self.life.cluster.at(self.life.cluster.now, self.parent.wake)
            self.life.ended(self)


class Life:
    """The processes of one start of a job."""

    def __init__(self, cluster: Controller, job: Job) -> None:
        self.cluster, self.job = cluster, job
        self.node, self.restarts, self.name = job.nodes[0], job.restarts, job.name
        self.processes: list[Process] = []
        self.is_stopped = False
        self.postponed: list[Any] = []

    def begin(self) -> None:
        """The batch script starts."""
        self.say("")
        self.batch = Process(self, self.script())

    def script(self) -> Steps:
        raise NotImplementedError

    def say(self, line: str) -> None:
        """A line in the log of the job."""
        self.cluster.append(self.job.log, f"{line}\n" if line else "")

    def signal(self, name: str, *, batch: bool = False) -> None:
        """To everything, or to the batch shell alone."""
        for process in [self.batch] if batch else list(self.processes):
            process.signal(name)

    def kill(self) -> None:
        for process in self.processes:
            process.parent = None
            process.end(137)

    def stop(self, *, on: bool) -> None:
        """SIGSTOP to everything, or SIGCONT."""
        self.is_stopped = on
        postponed, self.postponed = ([], self.postponed) if on else (self.postponed, [])
        for go_on in postponed:
            self.cluster.at(self.cluster.now, go_on)

    def ended(self, process: Process) -> None:
        if process is self.processes[0] and process.code is not None:
            self.kill()  # what the batch script left behind
            self.cluster.over(self.job, self, process.code)


class Plain(Life):
    """A script of ``sleep N``, ``exit N`` and ``trap 'exit N' USR2`` alone."""

    def script(self) -> Steps:
        traps = {name: int(code) for code, name in re.findall(r"^trap 'exit (\d+)' (\w+)", self.job.script, re.M)}
        for word, number in re.findall(r"^\s*(?:trap.*|(sleep|exit|false)\s*(\d*).*)$", self.job.script, re.M):
            if word in ("exit", "false"):
                return int(number or 1)
            if heard := (yield float(number or 0)):
                return traps.get(heard, 143)
        return 0
