"""scontrol and scancel."""

from __future__ import annotations

import getopt
import getpass
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from .controller import INVALID, Controller
from .model import SHORT, CommandError, Job, Partition
from .options import signal_number
from .squeue import log_path, used_s
from .text import expand_hosts, fold_hosts, long_duration, parse_limit, parse_moment, stamp, tasks_text

VERSION = "22.05.8"


def scontrol(controller: Controller, words: Sequence[str]) -> str:
    """The text that scontrol prints; CommandError where an argument is wrong."""
    one_line = any(word in {"-o", "--oneliner"} for word in words)
    words = [word for word in words if not word.startswith("-")]
    verb, *rest = words or [""]
    match verb.lower():
        case "show":
            return _show(controller, rest, one_line=one_line)
        case "requeue" | "requeuehold":
            for spec in _listed(rest):
                _each(controller, spec, lambda job: controller.requeue(job, hold=verb.lower() == "requeuehold"))
            return ""
        case "suspend" | "resume":
            for spec in _listed(rest):
                _each(controller, spec, lambda job: controller.suspend(job, on=verb == "suspend"))
            return ""
        case "hold" | "uhold" | "release":
            for spec in _listed(rest):
                _each(controller, spec, lambda job: _hold(job, hold=verb != "release"))
            return ""
        case "update":
            return _update(controller, rest)
        case "ping":
            return "Slurmctld(primary) at localhost is UP\n"
        case "version":
            return f"slurm-wlm {VERSION}\n"
        case _:
            raise CommandError(f"invalid keyword: {verb}")


def _listed(words: Sequence[str]) -> list[str]:
    """Job names of ``12,13_1 14``; commas between brackets separate tasks."""
    if not words:
        raise CommandError("too few arguments for keyword")
    return [spec for word in words for spec in expand_specs(word.removeprefix("jobid="))]


def expand_specs(text: str) -> list[str]:
    """``12,13_[1,3]`` as ``12`` and ``13_[1,3]``."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter == "[") - (letter == "]")
        if letter == "," and not depth:
            parts.append("")
        else:
            parts[-1] += letter
    return [part for part in parts if part]


def _each(controller: Controller, spec: str, action: Callable[[Job], None]) -> None:
    """Do it to all that the name means; the array's id means every element."""
    jobs = [job for job in controller.find(spec, split=True) if controller.remembered(job)]
    if not jobs:
        raise CommandError(_of(INVALID, spec))
    failures = []
    for job in jobs:
        try:
            action(job)
        except CommandError as error:
            failures.append(error.text)
    if len(failures) == len(jobs):
        raise CommandError(_of(failures[0], spec))


def _of(failure: str, spec: str) -> str:
    """An element is named before the failure, a job after it."""
    return f"{spec}: {failure}" if "_" in spec else f"{failure} for job {spec}"


def _hold(job: Job, *, hold: bool) -> None:
    if job.state != "PENDING":
        raise CommandError("Job is no longer pending execution")
    job.held, job.reason = hold, "JobHeldUser" if hold else "None"


def _update(controller: Controller, words: Sequence[str]) -> str:
    settings = {name.lower(): value for name, _, value in (word.partition("=") for word in words)}
    spec = settings.pop("jobid", "")
    node = settings.pop("nodename", "")
    if node:
        states = {"down": controller.fail_node, "drain": controller.drained_nodes.add}
        states |= dict.fromkeys(("resume", "idle"), controller.resume_node)
        for name in expand_hosts(node):
            states.get(settings.get("state", "").lower(), lambda name: None)(name)
        return ""
    if not spec:
        raise CommandError(
            'No valid entity in update command\nInput line must include "NodeName", "JobId" or "PartitionName"'
        )

    def change(job: Job) -> None:
        for name, value in settings.items():
            match name:
                case "arraytaskthrottle" if job.array:
                    job.array.throttle = int(value)
                case "timelimit":
                    job.limit_s = parse_limit(value)
                    if job.start is not None and job.state == "RUNNING":
                        job.deadline = (
                            None if job.limit_s is None else job.start + job.limit_s * controller.config.second
                        )
                case "starttime":
                    job.eligible = parse_moment(value, time.time(), controller.config.second)
                case "requeue":
                    job.request = replace(job.request, requeue=value == "1")
                case "comment":
                    job.comment = value
                case _:
                    raise CommandError(f"Update of this parameter is not supported: {name}={value}\nRequest aborted")

    for name in expand_specs(spec):
        _each(controller, name, change)
    return ""


def _show(controller: Controller, words: Sequence[str], *, one_line: bool) -> str:
    what, name = (words[0].lower() if words else ""), (words[1] if len(words) > 1 else "")
    match what:
        case "job" | "jobs":
            jobs = [
                job
                for job in (controller.find(name) if name else controller.jobs.values())
                if controller.remembered(job)
            ]
            if name and not jobs:
                raise CommandError(f"slurm_load_jobs error: {INVALID}")
            return (
                "".join(_record(_job(controller, job), one_line=one_line) for job in jobs) or "No jobs in the system\n"
            )
        case "config":
            return _config(controller)
        case "hostnames" | "hostname":
            return "".join(host + "\n" for host in expand_hosts(name or os.environ.get("SLURM_JOB_NODELIST", "")))
        case "hostlist" | "hostlistsorted":
            return fold_hosts(name.split(",")) + "\n"
        case "partition" | "partitions":
            found = [item for item in controller.config.partitions if name in {"", item.name}]
            if not found:
                raise CommandError(f"Partition {name} not found")
            return "".join(_record(_partition(controller, item), one_line=one_line) for item in found)
        case "node" | "nodes":
            if name and name not in controller.config.nodes:
                raise CommandError(f"Node {name} not found")
            return "".join(
                _record(_node(controller, item), one_line=one_line)
                for item in controller.config.nodes
                if name in {"", item}
            )
        case _:
            raise CommandError(f"invalid entity:{what} for keyword:show ")


def _record(pairs: list[tuple[str, str]], *, one_line: bool) -> str:
    text = [f"{name}={value}" for name, value in pairs]
    return " ".join(text) + "\n" if one_line else "\n   ".join(text) + "\n\n"


def _job(controller: Controller, job: Job) -> list[tuple[str, str]]:
    request = job.request
    array = []
    if job.array:
        task = tasks_text(job.waiting, 0) if job.waiting else str(job.task)
        array = [("ArrayJobId", str(job.array.id)), ("ArrayTaskId", task)]
        array += [("ArrayTaskThrottle", str(job.throttle))] if job.throttle else []
    return [
        ("JobId", str(job.id)),
        *array,
        ("JobName", request.name),
        ("UserId", f"{getpass.getuser()}({os.getuid()})"),
        ("Account", request.account or "root"),
        ("QOS", request.qos or "normal"),
        ("JobState", job.shown_state),
        ("Reason", job.reason.replace(" ", "_")),
        (
            "Dependency",
            f"{request.dependency}(unfulfilled)"
            if request.dependency and job.reason.startswith("Dependency")
            else "(null)",
        ),
        ("Requeue", str(int(request.requeue))),
        ("Restarts", str(job.restarts)),
        ("BatchFlag", "1"),
        ("ExitCode", job.exit_code),
        ("RunTime", long_duration(used_s(job, controller.config.second))),
        ("TimeLimit", long_duration(job.limit_s)),
        ("SubmitTime", stamp(job.submit)),
        ("EligibleTime", stamp(job.eligible)),
        ("StartTime", stamp(job.start)),
        ("EndTime", stamp(job.end or job.deadline)),
        ("Partition", request.partition),
        ("NodeList", fold_hosts(job.nodes) or "(null)"),
        *([("BatchHost", job.nodes[0])] if job.nodes else []),
        ("NumNodes", str(len(job.nodes) or max(request.nodes, 1))),
        ("NumCPUs", str(sum(job.cpus.values()) or max(request.num_tasks, 1) * max(request.cpus_per_task, 1))),
        ("NumTasks", str(max(request.num_tasks, request.tasks_per_node * max(request.nodes, 1), request.nodes, 1))),
        ("CPUs/Task", str(request.cpus_per_task) if request.cpus_per_task else "N/A"),
        ("MinMemoryNode", f"{request.mem_mb}M"),
        ("Command", request.command or "(null)"),
        ("WorkDir", request.workdir),
        *([("Comment", job.comment)] if job.comment else []),
        ("StdErr", request.error or log_path(job)),
        ("StdIn", request.input),
        ("StdOut", log_path(job)),
    ]


def _partition(controller: Controller, item: Partition) -> list[tuple[str, str]]:
    config = controller.config
    return [
        ("PartitionName", item.name),
        ("AllowAccounts", ",".join(config.accounts) or "ALL"),
        ("AllowQos", ",".join(config.qos) or "ALL"),
        ("Default", "YES" if item is config.partitions[0] else "NO"),
        ("DefaultTime", "NONE" if item.default_time is None else long_duration(parse_limit(item.default_time))),
        ("MaxNodes", "UNLIMITED"),
        ("MaxTime", long_duration(parse_limit(item.max_time))),
        ("Nodes", fold_hosts(item.nodes)),
        ("State", "UP"),
        ("TotalCPUs", str(config.cpus * len(item.nodes))),
        ("TotalNodes", str(len(item.nodes))),
        ("MaxMemPerNode", "UNLIMITED"),
    ]


def _node(controller: Controller, name: str) -> list[tuple[str, str]]:
    config = controller.config
    room = controller.rooms().get(name)
    state = "DOWN" if room is None else "IDLE" if room.cpus == config.cpus else "MIXED" if room.cpus else "ALLOCATED"
    state = "IDLE+DRAIN" if name in controller.drained_nodes else state
    return [
        ("NodeName", name),
        ("CPUAlloc", str(config.cpus - room.cpus if room else 0)),
        ("CPUTot", str(config.cpus)),
        ("AvailableFeatures", ",".join(config.features) or "(null)"),
        ("Gres", f"gpu:{config.gpus}" if config.gpus else "(null)"),
        ("NodeAddr", "127.0.0.1"),
        ("RealMemory", str(config.mem_mb)),
        ("State", state),
    ]


def _config(controller: Controller) -> str:
    config = controller.config
    values = {
        "AccountingStorageType": "accounting_storage/" + ("slurmdbd" if config.accounting else "none"),
        "BOOT_TIME": stamp(controller.started),
        "ClusterName": config.cluster_name,
        "EnforcePartLimits": "ALL" if config.enforce_limits else "NO",
        "JobRequeue": str(int(config.job_requeue)),
        "KillWait": f"{config.kill_wait_s:g} sec",
        "MaxArraySize": str(config.max_array_size),
        "MaxJobCount": str(config.max_job_count),
        "MinJobAge": f"{config.min_job_age_s:g} sec",
        "SLURM_CONF": str(controller.folder / "slurm.conf"),
        "SLURM_VERSION": VERSION,
        "SelectType": "select/cons_tres",
        "SlurmctldHost[0]": "localhost",
    }
    head = f"Configuration data as of {stamp(time.time())}\n"
    return head + "".join(f"{name:<23} = {value}\n" for name, value in values.items())


def scancel(controller: Controller, words: Sequence[str]) -> str:
    """Cancel jobs, and print nothing; CommandError where the words are wrong."""
    long = str.split("signal= batch full name= jobname= user= me state= partition= quiet verbose version")
    try:
        pairs, specs = getopt.gnu_getopt(words, "s:bfn:u:t:p:QvV", long)
    except getopt.GetoptError as error:
        raise CommandError(
            f"scancel: unrecognized option '{error.opt}'\nTry \"scancel --help\" for more information"
        ) from None
    options = {name.lstrip("-"): value for name, value in pairs}
    name = options.get("n", options.get("name", options.get("jobname")))
    state = options.get("t", options.get("state"))
    user = options.get("u", options.get("user"))
    if not specs and not {"n", "name", "jobname", "t", "state", "u", "user", "me", "p", "partition"} & set(options):
        raise CommandError("scancel: error: No job identification provided")
    if user is not None and user not in {getpass.getuser(), str(os.getuid())}:
        return ""
    text = options.get("s", options.get("signal"))
    try:
        number = None if text is None else signal_number(text)
    except (ValueError, KeyError):
        raise CommandError(f"Unknown job signal: {text}") from None
    jobs: list[Job] = []
    for spec in [part for word in specs for part in expand_specs(word)] or [
        str(job.id) for job in controller.unfinished()
    ]:
        if number is None and controller.drop_waiting(spec):
            continue
        found = [
            job for job in controller.find(spec, split=number is None and "_" in spec) if controller.remembered(job)
        ]
        jobs += found  # the real one says nothing of an unknown id, and exits with 0
    for job in jobs:
        if (name is None or job.request.name == name) and (
            state is None or state.upper() in {job.shown_state, SHORT[job.shown_state]}
        ):
            if number is None or number == 9:
                controller.cancel(job)
            elif job.state == "RUNNING":
                batch, full = bool({"b", "batch"} & set(options)), bool({"f", "full"} & set(options))
                controller.send_signal(job, number, batch=batch, steps=not batch and not full)
    return ""
