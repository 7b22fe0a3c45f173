"""What SLURM's commands take and print, in the words of a real 22.05."""

from __future__ import annotations

import getpass
import os
import re
import shlex
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tests.virtual_slurm.notation import indices, options, ranges, seconds, specs

if TYPE_CHECKING:
    from tests.virtual_slurm.cluster import Cluster
    from tests.virtual_slurm.job import Job

INVALID = "Invalid job id specified"
FULL = "Slurm temporarily unable to accept job, sleeping and retrying"
POLICY = (
    "Batch job submission failed: Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)"
)
FAILED = "Batch job submission failed: "
LOST = "Socket timed out on send/recv operation"
REFUSED_S = 130.0  # of a controller that is full: sbatch goes on trying


class Reply(NamedTuple):
    """The exit code and the words of a command, and how long it takes to say them."""

    code: int = 0
    out: bytes = b""
    err: str = ""
    takes_s: float = 0.1


def answer(cluster: Cluster, words: Sequence[str], environment: Mapping[str, str]) -> Reply:
    """What becomes of a command."""
    cluster.words.append(list(words))
    command = words[0]
    if cluster.silence and command != "sacct":
        error = f"slurm_load_jobs error: {cluster.silence}"
        if command == "sbatch":
            error = f"{'allocation failure: ' if '--test-only' in words else FAILED}{cluster.silence}"
        return Reply(1, b"", f"{error}\n")
    named, rest = options(words)
    reply = _COMMANDS[command](cluster, named, rest, environment)
    reply = Reply(0, reply.encode()) if isinstance(reply, str) else reply
    return reply._replace(takes_s=reply.takes_s + cluster.slow_s)


def _stamp(moment: float | None, environment: Mapping[str, str], otherwise: str = "N/A") -> str:
    if moment is None:
        return otherwise
    how = environment.get("SLURM_TIME_FORMAT", "standard")
    return f"{moment:.0f}" if how == "%s" else time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(moment))


# --- sbatch -------------------------------------------------------------------------------------------------------


def _sbatch(cluster: Cluster, named: dict[str, str], rest: list[str], environment: Mapping[str, str]) -> Reply:
    del environment
    file = rest[0] if rest else "wrap"
    script = f"#!/bin/sh\n{named['wrap']}\n" if "wrap" in named else Path(file).read_text()
    of_file = [word for line in script.splitlines() if line.startswith("#SBATCH ") for word in shlex.split(line[8:])]
    asked = {**options(["sbatch", *of_file])[0], **named}
    if "no-requeue" in asked:
        asked.pop("requeue", None)
    is_trial = "test-only" in asked
    refused = "allocation failure: " if is_trial else FAILED
    fate = ""
    if not is_trial:
        fate = cluster.replies.pop(1, "")
        cluster.replies = {number - 1: text for number, text in cluster.replies.items()}
    if fate and fate not in ("lost", "late"):
        final = FAILED if fate.startswith(FAILED) else f"sbatch: error: {fate}\n{POLICY}"
        return Reply(1, b"", fate if final == FAILED else final)
    if why := _refusal(cluster, asked, is_trial=is_trial):
        if why == FULL and not is_trial:
            return Reply(1, b"", f"sbatch: error: {FULL}\n", REFUSED_S)
        first, _, last = why.rpartition("\n")
        return Reply(1, b"", f"{f'sbatch: error: {first}{chr(10)}' if first else ''}{refused}{last}\n")
    if is_trial:
        when = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(cluster.now))
        return Reply(0, b"", f"sbatch: Job {cluster.next_id} to start at {when} using 1 processors on nodes "
                     f"{cluster.nodes[0]} in partition {cluster.partition(asked)}\n")  # fmt: skip
    if fate == "late":  # a controller that is too busy to answer takes it all the same
        cluster.at(cluster.now + cluster.between(30.0, 1.0, 55.0), lambda: cluster.submit(asked, file, script))
    else:
        taken = cluster.submit(asked, file, script)[0].array
    if fate:
        return Reply(1, b"", f"{FAILED}{LOST}\n")
    said = f"{taken}\n" if "parsable" in asked else f"Submitted batch job {taken}\n"
    return Reply(0, cluster.banner + said.encode())


def _refusal(cluster: Cluster, asked: Mapping[str, str], *, is_trial: bool) -> str:
    name = cluster.partition(asked)
    if name not in cluster.partitions:
        return f"invalid partition specified: {name}\nInvalid partition name specified"
    spec = asked.get("array", "").partition("%")[0]
    count = indices(spec) if spec else [0]
    if count[-1] >= cluster.max_array_size:
        return "Invalid job array specification"
    is_checked = cluster.enforce_limits or is_trial
    if is_checked and seconds(asked.get("time", "0")) > seconds(cluster.partitions[name]):
        return "Requested time limit is invalid (missing or exceeds some limit)"
    places = cluster.up(asked) if is_trial else cluster.nodes
    if is_checked and len(cluster.able(asked, places)) < int(asked.get("nodes", "1")):
        return "Requested node configuration is not available"
    if sum(map(cluster.known, cluster.jobs)) + len(count) >= cluster.max_job_count:  # one record stays free
        return "Resource temporarily unavailable" if is_trial else FULL
    standing = sum(not job.is_over for job in cluster.jobs)
    if not is_trial and cluster.max_submit and standing + len(count) > cluster.max_submit:
        return f"AssocMaxSubmitJobLimit\n{POLICY.removeprefix(FAILED)}"
    return ""


# --- squeue, sacct ------------------------------------------------------------------------------------------------


def _grouped(jobs: Iterable[Job], whole: bool) -> list[list[Job]]:
    """The jobs of each line: elements that have not begun share one, unless each is asked for."""
    lines: dict[object, list[Job]] = {}
    for job in sorted(jobs, key=lambda job: (job.state != "PENDING", job.array, job.index or 0)):
        shares = not whole and job.index is not None and not job.has_begun and job.state in ("PENDING", "CANCELLED")
        lines.setdefault((job.array, job.reason, job.state) if shares else id(job), []).append(job)
    return list(lines.values())


def _name(jobs: Sequence[Job]) -> str:
    """``12``, ``12_3`` or ``12_[5-9%4]``."""
    first = jobs[0]
    if first.has_begun or first.index is None or first.state != "PENDING":
        return first.name if len(jobs) == 1 else f"{first.array}_[{ranges(job.index or 0 for job in jobs)}]"
    throttle = first.options["array"].partition("%")[2]
    return f"{first.array}_[{ranges(job.index or 0 for job in jobs)}{throttle and '%' + throttle}]"


def _squeue(cluster: Cluster, named: dict[str, str], rest: list[str], environment: Mapping[str, str]) -> Reply | str:
    jobs = [job for job in cluster.jobs if cluster.known(job)]
    if "jobs" in named:
        ids = specs([named["jobs"]])
        jobs = [job for spec in ids for job in cluster.find(spec) if cluster.known(job)]
        if not jobs and len(ids) == 1:
            return Reply(1, b"", f"slurm_load_jobs error: {INVALID}\n")
    if "name" in named:
        jobs = [job for job in jobs if job.options.get("job-name") in named["name"].split(",")]
    if "state" not in named and "states" not in named:
        jobs = [job for job in jobs if not job.is_over]
    elif "all" not in (states := named.get("state", named.get("states", "")).split(",")):
        jobs = [job for job in jobs if job.shown in states]
    each = "array" in named
    lines = [] if "noheader" in named else ["JOBID"]
    for group in _grouped(jobs, each):
        first = group[0]
        values = {
            "i": first.name if each else _name(group),
            "T": first.shown,
            "V": _stamp(first.queued, environment),
            "S": _stamp(first.start, environment),
            "e": _stamp(first.end, environment),
            "N": ",".join(first.nodes),
            "r": first.reason,
            "j": first.options.get("job-name", "wrap"),
            "o": first.file,
            "U": str(os.getuid()),
            "K": "N/A" if first.index is None else str(first.index),
        }
        lines.append(re.sub(r"%([A-Za-z])", lambda found, of=values: of[found[1]], named.get("format", "%i %T %r")))
    return "".join(f"{line}\n" for line in lines)


def _sacct(cluster: Cluster, named: dict[str, str], rest: list[str], environment: Mapping[str, str]) -> Reply | str:
    if not cluster.accounting:
        return Reply(1, b"", "Slurm accounting storage is disabled\n")
    if cluster.sacct_is_down:
        return Reply(1, b"", "sacct: error: Problem talking to the database: Connection refused\n")
    jobs = cluster.jobs
    if "jobs" in named:
        jobs = [job for spec in specs([named["jobs"]]) for job in cluster.find(spec)]
    if "name" in named:
        jobs = [job for job in jobs if job.options.get("job-name") in named["name"].split(",")]
    lines = []
    for group in _grouped(jobs, False):
        first = group[0]
        values = {
            "JobID": _name(group),
            "State": f"CANCELLED by {os.getuid()}" if first.shown == "CANCELLED" else first.state,
            "ExitCode": first.exit_code,
            "Start": _stamp(first.start, environment, "None"),
            "End": _stamp(None if first.ending else first.end, environment, "Unknown"),
            "NodeList": ",".join(first.nodes) or "None assigned",
            "JobName": first.options.get("job-name", "wrap"),
        }
        lines.append("|".join(values[name] for name in named["format"].split(",")))
    return "".join(f"{line}\n" for line in lines)


# --- scontrol, scancel, sinfo, sacctmgr ---------------------------------------------------------------------------


def shown(job: Job) -> str:
    """A job as ``scontrol show job -o`` tells of it."""
    return (
        f"JobId={job.number} ArrayJobId={job.array} ArrayTaskId={job.index} JobName={job.options.get('job-name')} "
        f"JobState={job.shown} Reason={job.reason.replace(' ', '_')} Dependency=(null) Restarts={job.restarts} "
        f"ExitCode={job.exit_code}\n"
    )


def _scontrol(cluster: Cluster, named: dict[str, str], rest: list[str], environment: Mapping[str, str]) -> Reply | str:
    verb, *rest = rest
    verb, values = verb.lower(), dict[str, str]()
    if verb == "show":
        return _show(cluster, rest)
    if verb == "update":
        values = {name.lower(): value for name, _, value in (word.partition("=") for word in rest)}
        for node in values.get("nodename", "").split(",") if "nodename" in values else ():
            state = values["state"].lower()
            if state == "drain":
                cluster.drained.add(node)
            elif state == "down":
                cluster.fail_node(node)
            else:
                cluster.resume_node(node)
        rest = [values["jobid"]] if "jobid" in values else []
    errors = []
    for spec in specs(rest):
        jobs = [job for job in cluster.find(spec) if cluster.known(job)]
        if not jobs:
            errors.append(f"{spec}: {INVALID}" if "_" in spec else f"{INVALID} for job {spec}")
        for job in jobs:
            if verb in ("requeue", "requeuehold"):
                if why := cluster.requeue(job, hold=verb == "requeuehold"):
                    errors.append(f"{spec}: {why}")
            elif verb == "update" and "requeue" in values:
                job.may_requeue = values["requeue"] == "1"
            elif verb in ("suspend", "resume"):
                cluster.suspend(job, on=verb == "suspend")
            elif verb in ("hold", "release") and job.state == "PENDING":
                job.held, job.reason = verb == "hold", "JobHeldUser" if verb == "hold" else "None"
                cluster.poke()
    return Reply(1, b"", "".join(f"{error}\n" for error in errors)) if errors else ""


def _show(cluster: Cluster, rest: Sequence[str]) -> Reply | str:
    what, name = rest[0], rest[1] if len(rest) > 1 else ""
    if what == "job":
        jobs = [job for job in (cluster.find(name) if name else cluster.jobs) if cluster.known(job)]
        return "".join(map(shown, jobs)) or Reply(1, b"", f"slurm_load_jobs error: {INVALID}\n")
    if what == "partition":
        first = next(iter(cluster.partitions))
        rows = [(each, "YES" if each == first else "NO", limit) for each, limit in cluster.partitions.items()]
        return "".join(f"PartitionName={each} Default={word} MaxTime={limit}\n" for each, word, limit in rows)
    values = {
        "AccountingStorageType": "accounting_storage/" + ("slurmdbd" if cluster.accounting else "none"),
        "MaxArraySize": cluster.max_array_size,
        "MaxJobCount": cluster.max_job_count,
        "MinJobAge": f"{cluster.min_job_age_s:.0f} sec",
        "SLURM_VERSION": "22.05.8",
    }
    return "Configuration data\n" + "".join(f"{name:<23} = {value}\n" for name, value in values.items())


def _scancel(cluster: Cluster, named: dict[str, str], rest: list[str], environment: Mapping[str, str]) -> str:
    if (name := named.get("signal")) is not None:
        for job in [job for spec in specs(rest) for job in cluster.find(spec) if job.life]:
            if job.life:
                job.life.signal(name, batch="batch" in named)
        return ""
    chosen = specs(rest) or [f"{array}" for array in {job.array for job in cluster.jobs}]
    cluster.cancel(chosen, named.get("state", ""))
    return ""


def _sinfo(cluster: Cluster, named: dict[str, str], rest: list[str], environment: Mapping[str, str]) -> str:
    first = next(iter(cluster.partitions))
    lines = []
    for partition in named.get("partition", ",".join(cluster.partitions)).split(","):
        for node in cluster.nodes:
            state = "down" if node in cluster.down else "drained" if node in cluster.drained else "idle"
            values = {
                "P": partition + "*" * (partition == first),
                "N": node,
                "T": state,
                "c": str(cluster.cpus),
                "m": str(cluster.mem_mb),
                "G": f"gpu:{cluster.gpus}" if cluster.gpus else "(null)",
            }
            lines.append(re.sub(r"%([A-Za-z])", lambda found, of=values: of[found[1]], named["format"]))
    return "".join(f"{line}\n" for line in lines)


def _sacctmgr(cluster: Cluster, named: dict[str, str], rest: list[str], environment: Mapping[str, str]) -> str:
    is_told = cluster.tells_limits and f"user={getpass.getuser()}" in rest
    return f"{cluster.max_submit or ''}\n" if is_told else ""


_COMMANDS: dict[str, Callable[[Cluster, dict[str, str], list[str], Mapping[str, str]], Reply | str]] = {
    "sbatch": _sbatch,
    "squeue": _squeue,
    "sacct": _sacct,
    "scontrol": _scontrol,
    "scancel": _scancel,
    "sinfo": _sinfo,
    "sacctmgr": _sacctmgr,
}


class Process:
    """A command in the place of ``subprocess.Popen``, whose words come when its time has passed."""

    def __init__(self, cluster: Cluster, words: Sequence[str], environment: Mapping[str, str]) -> None:
        self.cluster, self.words, self.returncode = cluster, words, 0
        cluster.hook("before", words[0])
        self.reply = answer(cluster, words, environment)
        self.left_s = self.reply.takes_s

    def communicate(self, timeout: float) -> tuple[bytes, bytes]:
        passed_s = min(self.left_s, timeout)
        self.cluster.advance(passed_s)
        self.left_s -= passed_s
        if self.left_s > 0:
            raise subprocess.TimeoutExpired(list(self.words), timeout, stderr=self.reply.err.encode())
        self.returncode = self.reply.code
        self.cluster.hook("after", self.words[0])
        return self.reply.out, self.reply.err.encode()

    def kill(self) -> None:
        """SIGKILL: what it had asked of the controller stays asked."""

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *error: object) -> None:
        """Nothing is left."""
