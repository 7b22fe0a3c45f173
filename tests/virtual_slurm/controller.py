"""The controller, its nodes and their files: what happens to jobs, and when."""

from __future__ import annotations

import contextlib
import heapq
import itertools
import math
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from tests.virtual_slurm import notation
from tests.virtual_slurm.job import Ending, Job
from tests.virtual_slurm.processes import Life, Plain
from tests.virtual_slurm.real import Real
from tests.virtual_slurm.scripted import Scripted

EPOCH = 1_800_000_000.0
FOREVER_S = 43200.0  # a wait of a test that takes longer has failed
SILENT_S = 120.0  # a node is silent for longer before it is given up: what lives on there began before that
REASONS = {"TIMEOUT": "TimeLimit", "NODE_FAIL": "NodeDown", "OUT_OF_MEMORY": "OutOfMemory"}
OFF = "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions"
NO_CONTACT = "Unable to contact slurm controller (connect failure)"
real_time = time.time


@dataclass
class Controller:
    """A SLURM of ``nodes``, in a time that passes only by ``advance``; a ``random`` one is slow and late at random."""

    folder: Path
    nodes: Any = 1  # names, or how many: n1, n2, ...
    cpus: int = 4
    gpus: int = 0
    mem_mb: int = 256_000
    partitions: Mapping[str, str] = field(default_factory=lambda: {"debug": "UNLIMITED"})  # name -> longest time
    accounting: bool = True
    max_array_size: int = 1001
    max_job_count: int = 10000
    max_submit: int = 0  # 0: any number
    tells_limits: bool = False  # whether sacctmgr tells of max_submit
    min_job_age_s: float = 300.0
    requeue_delay_s: float = 120.0
    kill_wait_s: float = 30.0
    enforce_limits: bool = True
    real: bool = False  # bash runs the scripts of jobs, each to its end in a moment
    random: Random | None = None
    lag_s: float = 0.0  # files of nodes are seen as much later, at most
    skew_s: float = 0.0  # by which the clocks of nodes differ from this one's, at most

    def __post_init__(self) -> None:
        self.nodes = [f"n{1 + number}" for number in range(self.nodes)] if isinstance(self.nodes, int) else self.nodes
        self.now = real_time() if self.real else EPOCH
        self.jobs: list[Job] = []
        self.next_id = 1
        self.down: set[str] = set()
        self.drained: set[str] = set()
        self.outliving: list[Life] = []  # of jobs whose node fell silent
        self.hold_reason: str | None = None
        self.silence = ""  # what every command but sacct says
        self.slow_s = 0.0  # before a command is answered
        self.unheard = 0.0  # the share of the questions of scripts that get no answer
        self.sacct_is_down = False
        self.replies: dict[int, str] = {}  # number of a call of sbatch, from now on -> "lost", "late" or a refusal
        self.banner = b""  # before whatever sbatch says
        self.words: list[list[str]] = []
        self.hook: Callable[[str, str], None] = lambda moment, command: None
        self.accepted: Callable[[list[Job]], None] = lambda jobs: None
        self.begins: Callable[[Job], None] = lambda job: None
        self.locks: dict[str, object] = {}  # run folder -> the process that has it
        self.beating: dict[str, Callable[[float], None]] = {}
        self.begun: list[tuple[float, Life, str]] = []  # when main.py of which life began to work on which run
        self.finished: dict[str, list[tuple[float, int]]] = {}  # run folder -> when and with what code it ended itself
        self._events: list[tuple[float, int, Callable[[], object]]] = []
        self._count = itertools.count()
        self._unseen: dict[Path, list[tuple[float, str, float]]] = {}
        self._waits = False
        self.clocks = {node: self.between(0.0, -self.skew_s, self.skew_s) for node in self.nodes}

    # --- time ---

    def at(self, when: float, do: Callable[[], object]) -> None:
        heapq.heappush(self._events, (when, next(self._count), do))

    def advance(self, seconds: float) -> None:
        """Let time pass, and happen what falls into it."""
        end = self.now + seconds
        while self._events and self._events[0][0] <= end:
            when, _, do = heapq.heappop(self._events)
            self.now = max(self.now, when)
            do()
        self.now = max(self.now, end)
        self.show()

    def until(self, condition: Callable[[], object], what: str) -> None:
        """Let time pass until the condition holds; an AssertionError that says ``what`` where it never does."""
        end = self.now + FOREVER_S
        while not condition():
            assert self._events and self.now < end, what
            self.advance(max(self._events[0][0] - self.now, 0.0))

    def between(self, usual: float, low: float, high: float) -> float:
        """A number of seconds: the usual one, or a random one."""
        return self.random.uniform(low, high) if self.random else usual

    # --- files of nodes ---

    def write(self, path: Path, text: str, node: str = "") -> None:
        """A node writes a file; others see it in a moment, or later.  A device stays what it is."""
        if path.exists() and not path.is_file():
            return
        at = self.now + (self.random.choice([0.0, self.random.uniform(0, self.lag_s)]) if self.random else 0.0)
        line = self._unseen.setdefault(path, [])
        line.append((max([at, *(seen for seen, _, _ in line)]), text, self.now + self.clocks.get(node, 0.0)))
        self.show()

    def append(self, path: Path, text: str) -> None:
        self.write(path, (self.read(path) or "") + text)

    def read(self, path: Path) -> str | None:
        """What a node reads; None where there is no such file."""
        if line := self._unseen.get(path):
            return line[-1][1]
        try:
            return path.read_text()
        except (OSError, UnicodeDecodeError):
            return None

    def is_unseen(self, path: Path) -> bool:
        """Whether something was written that only nodes see yet."""
        return path in self._unseen

    def show(self) -> None:
        """Bring to the disk what can be seen by now."""
        for path, line in list(self._unseen.items()):
            seen = [item for item in line if item[0] <= self.now]
            if not seen:
                continue
            del line[: len(seen)]
            with contextlib.suppress(OSError):
                aside = path.with_name(f".{path.name}.aside")
                aside.write_text(seen[-1][1])
                os.utime(aside, (seen[-1][2], seen[-1][2]))
                aside.replace(path)
            if not line:
                del self._unseen[path]
        for beat in list(self.beating.values()):
            beat(self.now)

    # --- jobs ---

    def find(self, spec: str) -> list[Job]:
        """The jobs called ``12``, ``12_3`` or ``12_[3-5,8]``."""
        head, _, tail = spec.partition("_")
        wanted = set(notation.indices(tail.strip("[]"))) if tail else None
        return [job for job in self.jobs if str(job.array) == head and (wanted is None or job.index in wanted)]

    def known(self, job: Job) -> bool:
        """Whether squeue and scontrol still know the job."""
        return not job.is_over or job.end is None or self.now < job.end + self.min_job_age_s

    def submit(self, options: Mapping[str, str], file: str, script: str) -> list[Job]:
        """Take a job, or an array."""
        spec, _, _ = options.get("array", "").partition("%")
        made = [
            Job(self.next_id, index, options, file, script, self.now, self.next_id, held="hold" in options)
            for index in (notation.indices(spec) if spec else [None])
        ]
        for job in made:
            job.reason = "JobHeldUser" if job.held else self.hold_reason or "None"
            job.may_requeue = "requeue" in options
        self.next_id += 1
        self.jobs += made
        self.accepted(made)
        self.poke()
        return made

    def poke(self) -> None:
        """Let the scheduler look at the queue soon."""
        if not self._waits:
            self._waits = True
            self.at(self.now + self.between(1.0, 0.2, 20.0), self._schedule)

    def _schedule(self) -> None:
        self._waits = False
        busy = {node: [0, 0, 0] for node in self.nodes}
        running: dict[int, int] = {}
        for job in self.jobs:
            if job.state in ("RUNNING", "SUSPENDED"):
                running[job.array] = running.get(job.array, 0) + 1
                for node in job.nodes:
                    busy[node] = [have + more for have, more in zip(busy[node], self.needs(job.options), strict=True)]
        for job in [job for job in self.jobs if job.state == "PENDING"]:
            job.reason, nodes = self._obstacle(job, running), ()
            if job.state != "PENDING" or job.reason:
                continue
            free = [node for node in self.up(job.options) if self._fits(job.options, busy[node])]
            count = int(job.options.get("nodes", "1"))
            if len(free) < count:
                job.reason = "Resources" if len(self.able(job.options, self.up(job.options))) >= count else OFF
                continue
            nodes = tuple(free[:count])
            for node in nodes:
                busy[node] = [have + more for have, more in zip(busy[node], self.needs(job.options), strict=True)]
            running[job.array] = running.get(job.array, 0) + 1
            self._start(job, nodes)

    def _obstacle(self, job: Job, running: Mapping[int, int]) -> str:
        """The reason why a job may not start even where there is room; empty where it may."""
        if job.held:
            return "JobHeldUser" if job.reason != "JobHeldAdmin" else job.reason
        for how, spec in re.findall(r"(after\w+):(\d+)", job.options.get("dependency", "")):
            firsts = [first for first in self.find(spec) if self.known(first)]
            if how == "afterok" and any(first.is_over and first.state != "COMPLETED" for first in firsts):
                if "kill-on-invalid-dep" in job.options:
                    job.state, job.end = "CANCELLED", self.now
                return "DependencyNeverSatisfied"
            if not all(first.is_over for first in firsts):
                return "Dependency"
        if self.now < job.eligible:
            self.at(job.eligible, self.poke)
            return "BeginTime"
        if self.hold_reason is not None:
            return self.hold_reason
        limit = notation.seconds(self.partitions.get(self.partition(job.options), "UNLIMITED"))
        if notation.seconds(job.options.get("time", "0")) > limit:
            return "PartitionTimeLimit"
        throttle = job.options.get("array", "").partition("%")[2]
        return "JobArrayTaskLimit" if throttle and running.get(job.array, 0) >= int(throttle) else ""

    def partition(self, options: Mapping[str, str]) -> str:
        return options.get("partition", next(iter(self.partitions)))

    def up(self, options: Mapping[str, str]) -> list[str]:
        """The nodes on which such a job may start."""
        only, without = options.get("nodelist", "").split(","), options.get("exclude", "").split(",")
        off = self.down | self.drained | set(without)
        return [node for node in self.nodes if node not in off and (only == [""] or node in only)]

    def able(self, options: Mapping[str, str], nodes: Sequence[str]) -> list[str]:
        """Those of the nodes that could hold such a job if they were empty."""
        return [node for node in nodes if self._fits(options, [0, 0, 0])]

    def needs(self, options: Mapping[str, str]) -> list[int]:
        """The cores, GPUs and megabytes of one node."""
        tasks = int(options.get("ntasks-per-node") or options.get("ntasks", "1"))
        gpus = options.get("gpus-per-node", "0").rpartition(":")[2]
        return [tasks * int(options.get("cpus-per-task", "1")), int(gpus), notation.megabytes(options.get("mem", "0"))]

    def _fits(self, options: Mapping[str, str], busy: Sequence[int]) -> bool:
        room = zip([self.cpus, self.gpus, self.mem_mb], busy, self.needs(options), strict=True)
        return all(whole - taken >= more for whole, taken, more in room)

    def _start(self, job: Job, nodes: tuple[str, ...]) -> None:
        self.begins(job)
        if not job.has_begun and any(other.array == job.array and not other.has_begun and other is not job
                                     and not other.is_over for other in self.jobs):  # fmt: skip
            job.number = self.next_id  # the last one keeps the id of the array
            self.next_id += 1
        job.state, job.reason, job.nodes, job.start, job.end = "RUNNING", "None", nodes, self.now, None
        job.has_begun, job.exit_code = True, "0:0"
        kind = Real if self.real else Scripted if "SLURM_ARRAY_TASK_ID" in job.script else Plain
        if not job.log.parent.is_dir():
            job.state, job.end, job.exit_code, job.reason = "FAILED", self.now, "0:53", "NonZeroExitCode"
            return self.poke()
        limit_s = notation.seconds(job.options.get("time") or self.partitions[self.partition(job.options)])
        life = job.life = kind(self, job)
        life.begin()
        if limit_s < math.inf and not job.is_over:
            lead = re.fullmatch(r"B:(\w+)@(\d+)", job.options.get("signal", ""))
            if lead:
                early_s = int(lead[2]) + self.between(0.0, 0.0, 60.0)
                self.at(self.now + max(limit_s - early_s, 0.0), lambda: life.signal(lead[1], batch=True))
            self.at(self.now + limit_s, lambda: job.life is life and self._time_out(job))
        return None

    def _time_out(self, job: Job) -> None:
        self.finish(job, "TIMEOUT", " DUE TO TIME LIMIT")

    def finish(self, job: Job, state: str, why: str = "", *, requeue: bool = False, hold: bool = False,
               kill: bool = False) -> None:  # fmt: skip
        """Have a job's processes end, by SIGTERM and then SIGKILL; ``state`` is what it has come to then."""
        if job.state not in ("RUNNING", "SUSPENDED"):
            return
        life = job.life
        if job.ending:
            if state == "CANCELLED":
                job.ending.requeue, job.ending.state = False, state
        else:
            job.ending, job.end = Ending(state, requeue, hold), self.now
            job.reason = REASONS.get(state, "None")
            notice = f"slurmstepd: error: *** JOB {job.number} ON {job.nodes[0]} CANCELLED AT {self.now:.0f}{why} ***"
            if state == "OUT_OF_MEMORY":
                notice = f"slurmstepd: error: Detected 1 oom-kill event(s) in StepId={job.number}.batch."
            if state != "NODE_FAIL":
                self.append(job.log, f"{notice}\n")
        if life is None:
            return
        if kill:
            life.kill()
            self.over(job, life, 0)
            return
        self.at(self.now + self.kill_wait_s, lambda: (life.kill(), self.over(job, life, 0))[1])
        life.signal("TERM")

    def over(self, job: Job, life: Life, code: int) -> None:
        """The processes of a job are gone."""
        if job.life is not life:
            return
        job.life, ending, job.ending = None, job.ending, None
        self.poke()
        if ending is None:
            job.state, job.end = ("COMPLETED" if code == 0 else "FAILED"), self.now
            job.exit_code, job.reason = f"{code}:0", "None" if code == 0 else "NonZeroExitCode"
        elif ending.requeue and job.may_requeue:
            self.again(job, hold=ending.hold)
        else:
            job.state = ending.state
            job.exit_code = {"OUT_OF_MEMORY": "0:125", "NODE_FAIL": "1:0"}.get(ending.state, "0:0")

    def again(self, job: Job, *, hold: bool) -> None:
        """Put a job into the queue again."""
        job.state, job.restarts, job.held, job.queued = "PENDING", job.restarts + 1, hold, self.now
        job.reason = "JobHeldUser" if hold else "BeginTime"
        job.eligible = self.now + self.requeue_delay_s
        job.start = job.end = None
        job.nodes, job.exit_code = (), "0:0"
        self.poke()

    def requeue(self, job: Job, *, hold: bool = False) -> str:
        """As ``scontrol requeue``: the complaint, or nothing.  A job that is being cancelled is requeued, too."""
        if job.state == "PENDING":
            return "Job is pending execution"
        if not job.may_requeue:
            return "Requested operation is presently disabled"
        if job.ending:
            job.ending.requeue, job.ending.hold = True, hold
        elif job.state == "RUNNING":
            self.finish(job, "CANCELLED", " DUE TO JOB REQUEUE", requeue=True, hold=hold)
        else:
            self.again(job, hold=hold)
        return ""

    def cancel(self, specs: Sequence[str], state: str = "") -> None:
        """As ``scancel``: what waits beside others of its array is forgotten at once."""
        for spec in specs:
            found = [job for job in self.find(spec) if not job.is_over and state in ("", job.shown)]
            for job in found:
                if job.state != "PENDING":
                    self.finish(job, "CANCELLED")
                    continue
                stays = "_" in spec and any(
                    other.array == job.array and other.state == "PENDING" and not other.has_begun and other not in found
                    for other in self.jobs
                )
                if stays and not job.has_begun:
                    self.jobs.remove(job)
                else:
                    job.state, job.end, job.reason = "CANCELLED", self.now, "None"
        self.poke()
