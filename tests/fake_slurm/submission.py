"""sbatch: what it accepts, what it refuses and in which words."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from .controller import Controller
from .model import CommandError, Request
from .options import request_of
from .placing import place, whole
from .scheduling import dependency
from .text import fold_hosts, parse_limit, stamp

UNREACHABLE = "Unable to contact slurm controller (connect failure)"
POLICY = "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)"
FULL = "Slurm temporarily unable to accept job, sleeping and retrying"
FAILED = "sbatch: error: Batch job submission failed: "


def sbatch(
    controller: Controller, words: Sequence[str], cwd: str, environ: Mapping[str, str], read_stdin: Callable[[], str]
) -> tuple[str, str]:
    """Standard output and error of an accepted call; CommandError for a refused one."""
    request = request_of(words, cwd, environ, controller.config, time.time(), read_stdin)
    if controller.controller_down:
        raise CommandError(f"allocation failure: {UNREACHABLE}" if request.test_only else FAILED + UNREACHABLE)
    refusal, lost = (None, False) if request.test_only else _due(controller)
    if refusal is not None:
        raise CommandError(f"sbatch: error: {refusal}\n{FAILED}{POLICY}")
    try:
        request, limit_s = checked(controller, request)
        _within_job_count(controller, request)
        if request.test_only:
            return "", _forecast(controller, request)
        _within_submit_limit(controller, request)
        if request.dependency:
            _known(controller, request.dependency)
    except CommandError as error:
        if error.text == FULL:
            raise CommandError(f"sbatch: error: {FULL}") from None
        lines = error.text.splitlines()
        early = "".join(f"sbatch: error: {line}\n" for line in lines[:-1])
        raise CommandError(
            early + (f"allocation failure: {lines[-1]}" if request.test_only else FAILED + lines[-1])
        ) from None
    job = controller.add(request, limit_s)
    if "aftercorr" in request.dependency:
        for task in list(job.waiting):
            controller.split(job, task)
    if lost:
        raise CommandError(f"{FAILED}Socket timed out on send/recv operation")
    name = f"{job.array_id}"
    if request.parsable:
        return f"{name}\n", ""
    return ("" if request.quiet else f"Submitted batch job {name}\n"), ""


def _due(controller: Controller) -> tuple[str | None, bool]:
    """Whether this call is to be refused, or to lose its reply; counts the calls down."""
    refusal = controller.refusals.get(1)
    lost = 1 in controller.lost_replies
    controller.refusals = {call - 1: text for call, text in controller.refusals.items() if call > 1}
    controller.lost_replies = {call - 1 for call in controller.lost_replies if call > 1}
    return refusal, lost


def checked(controller: Controller, request: Request) -> tuple[Request, float | None]:
    """The request with its partition's name, and its time limit; CommandError with the controller's words."""
    config = controller.config
    partition = controller.partition(request.partition)
    if partition is None:
        raise CommandError(f"invalid partition specified: {request.partition}\nInvalid partition name specified")
    if config.accounts and request.account and request.account not in config.accounts:
        raise CommandError("Invalid account or account/partition combination specified")
    if config.qos and request.qos and request.qos not in config.qos:
        raise CommandError("Invalid qos specification")
    if request.constraint and not set(request.constraint.replace("&", ",").split(",")) <= set(config.features):
        raise CommandError("Invalid feature specification")
    if not set(request.only_nodes) | set(request.exclude) <= set(config.nodes):
        raise CommandError("Invalid node name specified")
    if request.tasks is not None and request.tasks[-1] >= config.max_array_size:
        raise CommandError("Invalid job array specification")
    most = parse_limit(partition.max_time)
    limit_s = request.limit_s
    if limit_s is None:
        limit_s = parse_limit(partition.default_time) if partition.default_time else most
    if (config.enforce_limits or request.test_only) and most is not None and (limit_s is None or limit_s > most):
        raise CommandError("Requested time limit is invalid (missing or exceeds some limit)")
    empty = {name: whole(config) for name in (controller.up_nodes() if request.test_only else config.nodes)}
    if place(request, partition, empty, config) is None:
        if request.mem_mb > config.mem_mb:
            raise CommandError(
                "Memory specification can not be satisfied\nRequested node configuration is not available"
            )
        if config.enforce_limits or request.test_only:
            raise CommandError("Requested node configuration is not available")
    return replace(request, partition=partition.name), limit_s


def _within_job_count(controller: Controller, request: Request) -> None:
    """Check the job count, as measured: an array needs a record for each element, and one always stays free."""
    known = sum(max(len(job.waiting), 1) for job in controller.jobs.values() if controller.remembered(job))
    if known + len(request.tasks or (0,)) >= controller.config.max_job_count:
        raise CommandError("Resource temporarily unavailable" if request.test_only else FULL)


def _within_submit_limit(controller: Controller, request: Request) -> None:
    most = controller.config.max_submit
    standing = sum(max(len(job.waiting), 1) for job in controller.unfinished())
    if most and standing + len(request.tasks or (0,)) > most:
        raise CommandError(f"AssocMaxSubmitJobLimit\n{POLICY}")


def _known(controller: Controller, text: str) -> None:
    """CommandError where a dependency is no such thing; a job that never was is none to wait for."""
    for part in text.replace("?", ",").split(","):
        for name in part.split(":")[1:]:
            number = name.partition("_")[0].partition("+")[0]
            if not number.isdecimal():
                raise CommandError("Job dependency problem")
    probe = replace(controller.add(Request(dependency=text), None))
    del controller.jobs[probe.id]
    controller.next_id -= 1
    dependency(controller, probe)


def _forecast(controller: Controller, request: Request) -> str:
    partition = controller.partition(request.partition)
    assert partition is not None
    share = place(
        request, partition, {name: whole(controller.config) for name in controller.up_nodes()}, controller.config
    )
    assert share is not None
    where = f"on nodes {fold_hosts(share.nodes)} in partition {partition.name}"
    return (
        f"sbatch: Job {controller.next_id} to start at {stamp(time.time())} using {share.cpus * len(share.nodes)} "
        f"processors {where}\n"
    )
