"""Time passes: processes that ended are noted, limits and warnings fall due, and what may start does."""

from __future__ import annotations

import signal
import time

from .controller import Controller
from .model import ENDED, CommandError, Job
from .placing import Room, place, whole
from .text import parse_limit


def tick(controller: Controller) -> None:
    """One look at everything."""
    now = time.time()
    for job in [job for job in controller.jobs.values() if job.process]:
        controller.reap(job)
    for job in [job for job in controller.jobs.values() if job.state == "RUNNING" and not job.ending]:
        _watch(controller, job, now)
    _start(controller, now)


def _watch(controller: Controller, job: Job, now: float) -> None:
    """The warning before the time limit, the limit, the end of a preemption's grace."""
    second = controller.config.second
    if job.deadline is not None:
        request = job.request
        warning = job.deadline - request.signal_lead_s * second - controller.config.signal_early_s
        if request.signal and not job.warned and now >= warning:
            job.warned = True
            controller.send_signal(job, request.signal, batch=request.signal_batch, steps=not request.signal_batch)
        if now >= job.deadline:
            controller.time_out(job)
    if job.grace_until is not None and now >= job.grace_until and not job.ending:
        controller.preempt(job)


def _start(controller: Controller, now: float) -> None:
    """Start jobs in the order of submission; within a partition nobody overtakes one that waits for resources."""
    pending = [job for job in controller.jobs.values() if job.state == "PENDING" and not job.ending]
    if not pending:
        return
    running: dict[int, int] = {}
    for job in controller.jobs.values():
        if job.array and (job.state == "RUNNING" or job.ending):
            running[job.array.id] = running.get(job.array.id, 0) + 1
    rooms = controller.rooms()
    blocked: set[str] = set()
    for job in sorted(pending, key=lambda job: (job.array_id, job.task is None, job.task or 0)):
        while job.state == "PENDING" and not job.ending:
            reason = _obstacle(controller, job, now, running) or (
                "Priority" if job.request.partition in blocked else ""
            )
            share = None
            if not reason:
                partition = controller.partition(job.request.partition)
                assert partition is not None
                share = place(job.request, partition, rooms, controller.config)
                if share is None:
                    reason = _why_not(controller, job)
                    if reason != "PartitionConfig":
                        blocked.add(job.request.partition)
            if share is None:
                job.reason = reason
                break
            started = controller.start(job, share, rooms)
            if started.state == "RUNNING":
                for name in share.nodes:
                    left = rooms[name]
                    rooms[name] = Room(left.cpus - share.cpus, left.mem_mb - share.mem_mb, left.gpus[share.gpus :])
                running[started.array_id] = running.get(started.array_id, 0) + 1
            if started is job:
                break


def _obstacle(controller: Controller, job: Job, now: float, running: dict[int, int]) -> str:
    """The reason why the job may not start even on an empty cluster; "" if it may."""
    if job.held:
        return "JobHeldUser"
    if job.request.dependency:
        standing = dependency(controller, job)
        if standing == "never":
            if job.request.kill_on_invalid_dep:
                controller.cancel(job)
            return "DependencyNeverSatisfied"
        if standing == "wait":
            return "Dependency"
    if now < job.eligible:
        return "BeginTime"
    if controller.hold_reason is not None:
        return controller.hold_reason
    partition = controller.partition(job.request.partition)
    most = parse_limit(partition.max_time) if partition else None
    if most is not None and (job.limit_s is None or job.limit_s > most):
        return "PartitionTimeLimit"
    if job.throttle and running.get(job.array_id, 0) >= job.throttle:
        return "JobArrayTaskLimit"
    return ""


def _why_not(controller: Controller, job: Job) -> str:
    """Too little is free, or it could never be with the nodes that are up."""
    up = {name: whole(controller.config) for name in controller.config.nodes if name in controller.up_nodes()}
    partition = controller.partition(job.request.partition)
    assert partition is not None
    empty = {name: whole(controller.config) for name in controller.config.nodes}
    if place(job.request, partition, empty, controller.config) is None:
        return "PartitionConfig"
    if place(job.request, partition, up, controller.config) is None:
        return "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions"
    return "Resources"


def dependency(controller: Controller, job: Job) -> str:
    """``met``, ``wait`` or ``never``; CommandError for text that is no dependency."""
    text = job.request.dependency
    any_of = "?" in text
    found = [_condition(controller, job, part) for part in text.replace("?", ",").split(",") if part]
    if any_of:
        return "met" if "met" in found else "wait" if "wait" in found else "never"
    return "never" if "never" in found else "wait" if "wait" in found else "met"


def _condition(controller: Controller, job: Job, text: str) -> str:
    kind, *ids = text.split(":")
    if kind == "singleton":
        older = [
            other
            for other in controller.unfinished()
            if other.id < job.array_id and other.request.name == job.request.name
        ]
        return "wait" if older else "met"
    if kind not in {"after", "afterany", "afterok", "afternotok", "aftercorr"} or not ids:
        raise CommandError("Job dependency problem")
    if kind == "aftercorr" and job.task is not None:
        ids = [f"{name}_{job.task}" for name in ids]
    standings = [_standing(kind, controller, name.partition("+")[0]) for name in ids]
    return "never" if "never" in standings else "wait" if "wait" in standings else "met"


def _standing(kind: str, controller: Controller, spec: str) -> str:
    jobs = [job for job in controller.find(spec) if controller.remembered(job)]
    if not jobs:
        return "met"  # measured, even for afterok: the controller does not know it, so there is nothing to wait for
    over = [job.state in ENDED and not job.ending for job in jobs]
    well = [job.state == "COMPLETED" for job in jobs]
    if kind == "after":
        return "met" if all(job.start or job.state in ENDED for job in jobs) else "wait"
    if kind in {"afterok", "aftercorr"} and any(end and not good for end, good in zip(over, well, strict=True)):
        return "never"
    if not all(over):
        return "wait"
    return "never" if kind == "afternotok" and all(well) else "met"


def shutdown(controller: Controller) -> None:
    """SIGKILL to everything any job started."""
    from . import processes

    for _ in range(3):
        left = processes.of_job(f"{controller.folder}:")
        processes.send(left, signal.SIGKILL)
        for job in controller.jobs.values():
            if job.process:
                processes.end_group(job.process.pid)
                job.process.wait()
                job.process = None
        if not left:
            return
