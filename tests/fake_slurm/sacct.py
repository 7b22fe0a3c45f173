"""sacct, which works from the accounting database: it keeps what squeue has forgotten, and works while the controller
is down.
"""

from __future__ import annotations

import getopt
import getpass
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from .controller import Controller
from .model import SHORT, CommandError, Job
from .squeue import bitstr_length, job_name, used_s
from .text import fold_hosts, long_duration, parse_moment, stamp

DEFAULT = "JobID,JobName,Partition,ExchangeStats,AllocCPUS,State,ExitCode"
_WIDTHS = {"jobid": 12, "jobname": 10, "partition": 10, "account": 10, "alloccpus": 10, "state": 10, "exitcode": 8}
_NAMES = str.split(
    "JobID JobIDRaw JobName State ExitCode DerivedExitCode Elapsed ElapsedRaw NodeList Reason Start End Submit "
    "Eligible Partition ExchangeStats "
    "QOS Comment Timelimit TimelimitRaw ReqMem ReqCPUS AllocCPUS NCPUS NNodes AllocNodes AllocTRES ReqTRES User UID "
    "WorkDir Priority "
    "Cluster MaxRSS"
)
_FIELDS = {name.lower(): name for name in _NAMES}
_OPTIONS = str.split(
    "allocations parsable parsable2 noheader format= jobs= starttime= endtime= state= name= user= array duplicates "
    "allusers me "
    "partition= delimiter= units= truncate version allclusters"
)


def sacct(controller: Controller, words: Sequence[str], environ: Mapping[str, str]) -> str:
    """The text that sacct prints; CommandError where accounting is off or the database does not answer."""
    try:
        pairs, rest = getopt.gnu_getopt(words, "XpPno:j:S:E:s:u:Dar:TV", _OPTIONS)
    except getopt.GetoptError as error:
        raise CommandError(
            f"sacct: unrecognized option '{error.opt}'\nTry \"sacct --help\" for more information"
        ) from None
    if not controller.config.accounting:
        raise CommandError("Slurm accounting storage is disabled")
    if controller.sacct_down:
        raise CommandError(
            "sacct: error: slurm_persist_conn_open_without_init: failed to open persistent connection to "
            "host:localhost:6819: Connection "
            "refused\nsacct: error: Sending PersistInit msg: Connection refused\n"
            "sacct: error: Problem talking to the database: Connection refused"
        )
    if rest:
        raise CommandError(f"sacct: error: Unknown arguments:\nsacct: error:  {rest[0]}")
    options = dict(pairs)

    def said(*names: str) -> str | None:
        return next((options[name] for name in names if name in options), None)

    names = []
    for word in (said("-o", "--format") or DEFAULT).split(","):
        name = word.partition("%")[0].lower()
        if name not in _FIELDS:
            raise CommandError(f'sacct: error: Invalid field requested: "{word.partition("%")[0]}"')
        names.append(name)
    rows = _rows(controller, said, duplicates=said("-D", "--duplicates") is not None)
    length = bitstr_length(environ)
    steps = said("-X", "--allocations") is None
    lines: list[list[str]] = []
    for job in rows:
        values = _values(controller, job, length)
        lines.append([values[name]() for name in names])
        if steps and job.start is not None:
            lines.append([_of_batch_step(name, values) for name in names])
    return _table(names, lines, options)


def _rows(controller: Controller, said: Callable[..., str | None], *, duplicates: bool) -> list[Job]:
    """The records that are asked for; earlier starts of a requeued job as records of their own with ``duplicates``."""
    now = time.time()
    ids, states, names = said("-j", "--jobs"), said("-s", "--state"), said("--name")
    midnight = time.mktime((*time.localtime(now)[:3], 0, 0, 0, 0, 0, -1))
    try:
        text = said("-S", "--starttime")
        since = parse_moment(text, now, 1.0) if text else 0.0 if ids else now if states else midnight
        text = said("-E", "--endtime")
        until = parse_moment(text, now, 1.0) if text else now
    except (ValueError, KeyError):
        raise CommandError(f"sacct: error: Invalid time specification (pos=0): {text}") from None
    jobs = list(controller.jobs.values())
    if ids:
        jobs = list(
            {job.id: job for spec in ids.split(",") for job in controller.find(spec.partition(".")[0])}.values()
        )
    rows: list[Job] = []
    for job in sorted(jobs, key=lambda job: (job.array_id, job.task is None, job.task or 0)):
        if duplicates:
            for old in job.history:
                past = replace(
                    job,
                    state=old.state,
                    start=old.start,
                    end=old.end,
                    nodes=old.nodes,
                    exit_code=old.exit_code,
                    ending=None,
                    waiting=[],
                )
                rows.append(past)
        rows.append(job)
    long = {short: name for name, short in SHORT.items()}
    wanted = {long.get(word, word) for word in states.upper().split(",")} if states else None
    return [
        job
        for job in rows
        if (ids or _eligible(job))
        and (job.end is None or job.end >= since)
        and job.submit <= until
        and (wanted is None or job.state in wanted)
        and (names is None or job.request.name in names.split(","))
    ]


def _eligible(job: Job) -> bool:
    """Whether the job ever could start: one that waits for a dependency, a release or a time is shown only when it is
    asked for by its id.
    """
    return job.start is not None or not (job.held or job.reason.startswith(("Dependency", "BeginTime", "JobHeld")))


def _state(job: Job) -> str:
    if job.state == "CANCELLED":
        return f"CANCELLED by {os.getuid() if job.cancelled_by is None else job.cancelled_by}"
    return job.state


def _values(controller: Controller, job: Job, length: int) -> dict[str, Callable[[], str]]:
    request, config = job.request, controller.config
    cpus = sum(job.cpus.values()) if job.nodes else 0
    asked = max(request.num_tasks, request.nodes, 1) * max(request.cpus_per_task, 1)
    nodes = len(job.nodes) or max(request.nodes, 1)
    elapsed = used_s(job, config.second)
    gpus = sum(map(len, job.gpus.values()))
    memory_mb = nodes * (request.mem_mb or request.mem_per_cpu_mb * max(asked // nodes, 1))
    memory = f"{memory_mb // 1024}G" if memory_mb and memory_mb % 1024 == 0 else f"{memory_mb}M" if memory_mb else "0"

    def allocated() -> str:
        return (
            f"billing={cpus},cpu={cpus}," + (f"gres/gpu={gpus}," if gpus else "") + f"mem={memory},node={nodes}"
            if cpus
            else ""
        )

    return {
        "jobid": lambda: job_name(job, length),
        "jobidraw": lambda: str(job.id),
        "jobname": lambda: request.name,
        "state": lambda: _state(job),
        "exitcode": lambda: job.exit_code,
        "derivedexitcode": lambda: "0:0",
        "elapsed": lambda: long_duration(elapsed),
        "elapsedraw": lambda: str(int(elapsed)),
        "nodelist": lambda: fold_hosts(job.nodes) or "None assigned",
        "reason": lambda: job.reason.partition(" ")[0],
        "start": lambda: stamp(job.start),
        "end": lambda: stamp(None if job.ending else job.end),
        "submit": lambda: stamp(job.submit),
        "eligible": lambda: stamp(job.eligible),
        "partition": lambda: request.partition,
        "account": lambda: request.account or "root",
        "qos": lambda: request.qos or "normal",
        "comment": lambda: job.comment,
        "timelimit": lambda: long_duration(job.limit_s),
        "timelimitraw": lambda: "UNLIMITED" if job.limit_s is None else str(int(job.limit_s // 60)),
        "reqmem": lambda: memory,
        "reqcpus": lambda: str(asked),
        "alloccpus": lambda: str(cpus),
        "ncpus": lambda: str(cpus),
        "nnodes": lambda: str(nodes),
        "allocnodes": lambda: str(len(job.nodes)),
        "alloctres": allocated,
        "reqtres": lambda: f"billing={asked},cpu={asked},node={nodes}",
        "user": getpass.getuser,
        "uid": lambda: str(os.getuid()),
        "workdir": lambda: request.workdir,
        "priority": lambda: str(max(4294901760 - job.array_id, 0)),
        "cluster": lambda: config.cluster_name,
        "maxrss": lambda: "",
    }


def _of_batch_step(name: str, values: Mapping[str, Callable[[], str]]) -> str:
    """The same of the line ``12.batch``."""
    if name in {"jobid", "jobidraw"}:
        return values[name]() + ".batch"
    if name in {
        "partition",
        "user",
        "uid",
        "timelimit",
        "timelimitraw",
        "workdir",
        "reqmem",
        "qos",
        "priority",
        "reason",
    }:
        return ""
    return "batch" if name == "jobname" else values[name]().partition(" by ")[0]


def _table(names: list[str], lines: list[list[str]], options: Mapping[str, str]) -> str:
    headline = [] if "-n" in options or "--noheader" in options else [[_FIELDS[name] for name in names]]
    closed, parsable = "-p" in options or "--parsable" in options, "-P" in options or "--parsable2" in options
    if closed or parsable:
        bar = options.get("--delimiter", "|")
        return "".join(bar.join(line) + (bar if closed else "") + "\n" for line in headline + lines)

    def cell(name: str, text: str) -> str:
        width = _WIDTHS.get(name, 10)
        cut = text if len(text) <= width else text[: width - 1] + "+"
        return cut.ljust(width) if name == "jobid" else cut.rjust(width)

    rules = [["-" * _WIDTHS.get(name, 10) for name in names]] if headline else []
    return "".join(
        " ".join(cell(name, text) for name, text in zip(names, line, strict=True)) + " \n"
        for line in headline + rules + lines
    )
