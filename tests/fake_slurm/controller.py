"""The state of the cluster and what happens to a job: split off, started, signalled, ended, requeued."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from dataclasses import replace
from pathlib import Path

from . import launch, processes
from .model import ENDED, Array, Attempt, CommandError, Config, Ending, Job, Partition, Request
from .placing import Room, Share, whole
from .text import parse_array, stamp

INVALID = "Invalid job id specified"


class Controller:
    """Jobs and nodes; ``scheduling.tick`` moves them on."""

    def __init__(self, config: Config, folder: Path) -> None:
        self.config = config
        self.folder = folder
        self.started = time.time()
        self.jobs: dict[int, Job] = {}
        self.next_id = 1
        self.down_nodes: set[str] = set()
        self.drained_nodes: set[str] = set()
        self.hold_reason: str | None = None  # why nothing may start
        self.controller_down = False
        self.sacct_down = False
        self.refusals: dict[int, str] = {}  # sbatch calls yet to come (1: the next) that fail, and with which words
        self.orphans: list[subprocess.Popen[bytes]] = []  # scripts of nodes that do not answer: they run on
        self.lost_replies: set[int] = set()  # sbatch calls yet to come that work but say they did not

    # --- look up ---

    def partition(self, name: str) -> Partition | None:
        found = [item for item in self.config.partitions if item.name == name or not name]
        return found[0] if found else None

    def find(self, spec: str, *, split: bool = False) -> list[Job]:
        """Jobs called ``12``, ``12_3`` or ``12_[3-5]``; ``split``: a named element that has not started becomes a
        record of its own.
        """
        head, underscore, tail = spec.partition("_")
        if not head.isdecimal():
            raise CommandError(INVALID)
        number = int(head)
        members = [job for job in self.jobs.values() if job.array_id == number]
        if not underscore:
            return members or [job for job in self.jobs.values() if job.id == number]
        try:
            tasks = set(parse_array(tail.strip("[]"))[0])
        except ValueError:
            raise CommandError(INVALID) from None
        found = [job for job in members if job.task in tasks and not job.waiting]
        for job in [job for job in members if tasks & set(job.waiting)]:
            found += [self.split(job, task) for task in sorted(tasks & set(job.waiting))] if split else [job]
        return found

    def remembered(self, job: Job) -> bool:
        """Whether squeue and scontrol still know the job."""
        return job.end is None or job.ending is not None or time.time() < job.end + self.config.min_job_age_s

    def up_nodes(self) -> list[str]:
        """Nodes that are neither down nor drained."""
        return [name for name in self.config.nodes if name not in self.down_nodes | self.drained_nodes]

    def resume_node(self, name: str) -> None:
        """The node is back."""
        self.down_nodes.discard(name)
        self.drained_nodes.discard(name)

    def rooms(self) -> dict[str, Room]:
        """The free resources of each node on which jobs may start."""
        rooms = {name: whole(self.config) for name in self.up_nodes()}
        for job in self.jobs.values():
            for name in job.nodes if job.state in {"RUNNING", "SUSPENDED"} or job.ending else ():
                if name in rooms:
                    left = rooms[name]
                    gpus = tuple(index for index in left.gpus if index not in job.gpus.get(name, []))
                    rooms[name] = Room(left.cpus - job.cpus[name], left.mem_mb - job.mem_mb[name], gpus)
        return rooms

    # --- a job's life ---

    def add(self, request: Request, limit_s: float | None) -> Job:
        """A new pending job."""
        now = time.time()
        array = Array(self.next_id, request.tasks, request.throttle) if request.tasks is not None else None
        job = Job(
            id=self.next_id,
            request=request,
            submit=now,
            limit_s=limit_s,
            eligible=max(now, request.begin),
            array=array,
            waiting=list(request.tasks or ()),
            held=request.hold,
            comment=request.comment,
        )
        self.jobs[job.id] = job
        self.next_id += 1
        return job

    def split(self, job: Job, task: int) -> Job:
        """The element as a record of its own; the last one keeps the array's id."""
        if len(job.waiting) == 1:
            job.task, job.waiting = task, []
            return job
        job.waiting.remove(task)
        element = replace(job, id=self.next_id, task=task, waiting=[], history=[])
        self.jobs[element.id] = element
        self.next_id += 1
        return element

    def start(self, job: Job, share: Share, rooms: dict[str, Room]) -> Job:
        """Start the job, or the next element of an array."""
        if job.waiting:
            job = self.split(job, job.waiting[0])
        now = time.time()
        job.nodes = share.nodes
        job.cpus = dict.fromkeys(share.nodes, share.cpus)
        job.mem_mb = dict.fromkeys(share.nodes, share.mem_mb)
        job.gpus = {name: list(rooms[name].gpus[: share.gpus]) for name in share.nodes}
        job.state, job.reason, job.start, job.end, job.warned, job.exit_code = (
            "RUNNING",
            "None",
            now,
            None,
            False,
            "0:0",
        )
        job.deadline = None if job.limit_s is None else now + job.limit_s * self.config.second
        job.process = launch.start(job, self.config, self.folder)
        if job.process is None:
            job.state, job.end, job.exit_code, job.reason = "FAILED", now, "0:53", "NonZeroExitCode"
        return job

    def send_signal(self, job: Job, number: int, *, batch: bool = False, steps: bool = False) -> None:
        """Send a signal to the batch shell alone, to what srun started alone, or to everything of the job."""
        if job.process is None:
            return
        if batch:
            processes.send([job.process.pid], number)
        else:
            lost = {orphan.pid for orphan in self.orphans}
            processes.send(
                processes.of_job(f"{self.folder}:{job.id}", job.process.pid, steps_only=steps, without=lost), number
            )

    def end(self, job: Job, ending: Ending, why: str = "", *, number: int = signal.SIGTERM) -> None:
        """Tell a running job's processes to leave; SIGKILL follows at ``ending.kill_at``."""
        if job.ending:
            return
        job.ending, job.grace_until = ending, None
        job.end = time.time()
        if ending.state not in {"NODE_FAIL", "OUT_OF_MEMORY"}:
            self._tell(
                job, f"slurmstepd: error: *** JOB {job.id} ON {job.nodes[0]} CANCELLED AT {stamp(time.time())}{why} ***"
            )
        elif ending.state == "OUT_OF_MEMORY":
            event = f"slurmstepd: error: Detected 1 oom-kill event(s) in StepId={job.id}.batch."
            self._tell(job, f"{event} Some of your processes may have been killed by the cgroup out-of-memory handler.")
        self.send_signal(job, number)

    def _tell(self, job: Job, line: str) -> None:
        try:
            with open(job.output, "a") as file:
                file.write(line + "\n")
        except OSError:
            return

    def cancel(self, job: Job, state: str = "CANCELLED") -> None:
        """Cancel jobs as scancel does; finished ones stay as they are."""
        if job.ending:
            if job.ending.requeue:
                job.ending.requeue, job.ending.state, job.ending.uid = False, state, os.getuid()
        elif job.state == "PENDING":
            job.state, job.end, job.cancelled_by = state, time.time(), os.getuid()
        elif job.state in {"RUNNING", "SUSPENDED"}:
            self.suspend(job, on=False)
            self.end(job, Ending(state, self._kill_at(), uid=os.getuid()))

    def drop_waiting(self, spec: str) -> bool:
        """Cancel elements of an array of which others have not begun either: nothing remembers them; False where there
        are none such.
        """
        tasks = {job.task for job in self.find(spec) if not job.waiting}
        for job in [job for job in self.find(spec) if job.waiting and "_" in spec]:
            wanted = set(parse_array(spec.partition("_")[2].strip("[]"))[0])
            if tasks & wanted or set(job.waiting) <= wanted:
                return False
            job.waiting = [task for task in job.waiting if task not in wanted]
            return True
        return False

    def suspend(self, job: Job, *, on: bool) -> None:
        """Stop all its processes where they are, or let them go on."""
        if job.state == ("RUNNING" if on else "SUSPENDED"):
            job.state = "SUSPENDED" if on else "RUNNING"
            self.send_signal(job, signal.SIGSTOP if on else signal.SIGCONT)

    def begin_anew(self) -> None:
        """The controller lost its state: no job is known, and ids begin with 1."""
        self.jobs, self.next_id = {}, 1

    def _kill_at(self) -> float:
        return time.time() + self.config.kill_wait_s

    def requeue(self, job: Job, *, hold: bool = False) -> None:
        """Requeue a job as ``scontrol requeue`` does; CommandError with the reason where it cannot."""
        if job.ending and not job.ending.requeue:
            raise CommandError("Job can not be altered now, try later")
        if job.state == "PENDING" or job.ending:
            raise CommandError("Job is pending execution")
        if not job.request.requeue:
            raise CommandError("Requested operation is presently disabled")
        if job.state == "RUNNING":
            self.end(job, Ending("REQUEUED", self._kill_at(), requeue=True, hold=hold), " DUE TO JOB REQUEUE")
        else:
            job.history.append(
                Attempt(job.state, job.start or job.submit, job.end or job.submit, job.nodes, job.exit_code)
            )
            self._wait_again(job, hold=hold)

    def preempt(self, job: Job, grace_s: float = 0.0) -> None:
        """SIGTERM to its steps, ``grace_s`` later to all of it; then requeued where it may be, else PREEMPTED."""
        if grace_s > 0 and job.grace_until is None:
            self.send_signal(job, signal.SIGTERM, steps=True)
            job.grace_until = time.time() + grace_s
        else:
            self.end(job, Ending("PREEMPTED", self._kill_at(), requeue=job.request.requeue), " DUE TO PREEMPTION")

    def fail_node(self, name: str) -> None:
        """Its jobs die at once: requeued where they may be, else NODE_FAIL."""
        self.down_nodes.add(name)
        for job in list(self.jobs.values()):
            if job.state == "RUNNING" and name in job.nodes:
                if job.ending:
                    self.send_signal(job, signal.SIGKILL)
                self.end(job, Ending("NODE_FAIL", time.time(), requeue=job.request.requeue), number=signal.SIGKILL)

    def lose_node(self, name: str) -> None:
        """It does not answer: its jobs are given up or requeued, and their processes live on, out of reach."""
        self.down_nodes.add(name)
        for job in list(self.jobs.values()):
            if job.state == "RUNNING" and name in job.nodes and job.process and not job.ending:
                self.orphans.append(job.process)
                job.process, job.end = None, time.time()
                self._ended(job, Ending("NODE_FAIL", time.time(), requeue=job.request.requeue))

    def time_out(self, job: Job) -> None:
        """The limit is over."""
        job.reason = "TimeLimit"
        self.end(job, Ending("TIMEOUT", self._kill_at()), " DUE TO TIME LIMIT")

    def kill_for_memory(self, job: Job) -> None:
        """Kill the job as the kernel does, without a word to the processes."""
        self.end(job, Ending("OUT_OF_MEMORY", time.time()), number=signal.SIGKILL)

    def reap(self, job: Job) -> None:
        """Note that a job's processes are gone, and decide what becomes of it."""
        if job.process is None:
            return
        code, ending = job.process.poll(), job.ending
        gone = code is not None and (ending is None or ending.killed or not processes.group_lives(job.process.pid))
        if not gone and ending and not ending.killed and time.time() >= ending.kill_at:
            self.send_signal(job, signal.SIGKILL)
            ending.killed = True
        if not gone or code is None:
            return
        processes.end_group(job.process.pid)
        job.process = None
        if ending is None:
            job.state, job.end = ("COMPLETED" if code == 0 else "FAILED"), time.time()
            job.exit_code = f"0:{-code}" if code < 0 else f"{code}:0"
            job.reason = "None" if code == 0 else "NonZeroExitCode"
            return
        self._ended(job, ending)

    def _ended(self, job: Job, ending: Ending) -> None:
        """Decide what becomes of a job that was ended."""
        job.ending = None
        if ending.requeue:
            job.history.append(Attempt(ending.state, job.start or job.submit, job.end or time.time(), job.nodes))
            self._wait_again(job, hold=ending.hold)
        else:
            job.state, job.cancelled_by = ending.state, ending.uid
            job.exit_code = {"OUT_OF_MEMORY": "0:125", "NODE_FAIL": "1:0"}.get(ending.state, "0:0")
            job.reason = {"TIMEOUT": "TimeLimit", "NODE_FAIL": "NodeDown", "OUT_OF_MEMORY": "OutOfMemory"}.get(
                ending.state, "None"
            )

    def _wait_again(self, job: Job, *, hold: bool) -> None:
        job.state, job.restarts, job.held = "PENDING", job.restarts + 1, hold
        job.reason = "BeginTime" if self.config.requeue_delay_s else "None"
        job.submit = time.time()
        job.eligible = job.submit + self.config.requeue_delay_s
        job.start = job.end = job.deadline = None
        job.nodes, job.exit_code = (), "0:0"

    def unfinished(self) -> list[Job]:
        """Jobs that are not at their end yet."""
        return [job for job in self.jobs.values() if job.state not in ENDED or job.ending]
