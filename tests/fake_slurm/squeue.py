"""squeue and sinfo."""

from __future__ import annotations

import getopt
import getpass
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from . import launch
from .controller import INVALID, Controller
from .model import SHORT, CommandError, Job
from .text import fold_hosts, long_duration, parse_limit, short_duration, stamp, tasks_text

DEFAULT = "%.18i %.9P %.8j %.8u %.2t %.10M %.6D %R"
_ACTIVE = {"PENDING", "RUNNING", "COMPLETING", "SUSPENDED", "CONFIGURING"}
_HEADERS = (
    "i=JOBID A=JOBID F=ARRAY_JOB_ID K=ARRAY_TASK_ID T=STATE t=ST r=REASON R=NODELIST(REASON) j=NAME k=COMMENT M=TIME "
    "l=TIME_LIMIT "
    "L=TIME_LEFT N=NODELIST u=USER U=UID P=PARTITION Z=WORK_DIR E=DEPENDENCY V=SUBMIT_TIME S=START_TIME e=END_TIME "
    "D=NODES C=CPUS "
    "Q=PRIORITY a=ACCOUNT q=QOS o=COMMAND B=EXEC_HOST m=MIN_MEMORY b=TRES_PER_NODE f=FEATURES x=EXC_NODES"
)
HEADERS = {letter: name for letter, _, name in (item.partition("=") for item in _HEADERS.split())}


def bitstr_length(environ: Mapping[str, str]) -> int:
    """Characters of an array's tasks that are shown; 64 where SLURM_BITSTR_LEN says nothing."""
    text = environ.get("SLURM_BITSTR_LEN", "")
    return int(text) if text.isdecimal() else 64


def job_name(job: Job, length: int) -> str:
    """``12``, ``12_3`` or ``12_[5-9%4]``."""
    if job.array is None:
        return str(job.id)
    return f"{job.array.id}_" + (f"[{tasks_text(job.waiting, job.throttle, length)}]" if job.waiting else f"{job.task}")


def used_s(job: Job, second: float) -> float:
    """Seconds that it ran, as the job's limit counts them."""
    return 0.0 if job.start is None else ((job.end or time.time()) - job.start) / second


def fields(controller: Controller, job: Job, length: int) -> dict[str, Callable[[], str]]:
    """The text that each letter of a format prints."""
    request = job.request
    shown = job.shown_state
    used = used_s(job, controller.config.second)
    nodes = max(request.nodes, len(job.nodes), 1)

    def where() -> str:
        return (
            f"({job.reason})" if shown in {"PENDING", "FAILED", "TIMEOUT", "OUT_OF_MEMORY"} else fold_hosts(job.nodes)
        )

    return {
        "i": lambda: job_name(job, length),
        "A": lambda: str(job.id),
        "F": lambda: str(job.array_id),
        "K": lambda: (
            tasks_text(job.waiting, job.throttle, length)
            if job.waiting
            else "N/A"
            if job.task is None
            else str(job.task)
        ),
        "T": lambda: shown,
        "t": lambda: SHORT[shown],
        "r": lambda: job.reason,
        "R": where,
        "j": lambda: request.name,
        "k": lambda: job.comment or "(null)",
        "M": lambda: short_duration(used),
        "l": lambda: short_duration(job.limit_s),
        "L": lambda: short_duration(None if job.limit_s is None else max(job.limit_s - used, 0)),
        "N": lambda: fold_hosts(job.nodes),
        "u": getpass.getuser,
        "U": lambda: str(os.getuid()),
        "P": lambda: request.partition,
        "Z": lambda: request.workdir,
        "E": lambda: (
            f"{request.dependency}(unfulfilled)"
            if request.dependency and job.reason.startswith("Dependency")
            else "(null)"
        ),
        "V": lambda: stamp(job.submit),
        "S": lambda: stamp(job.start, "N/A"),
        "e": lambda: stamp(job.end or job.deadline, "N/A"),
        "D": lambda: str(nodes),
        "C": lambda: str(
            sum(job.cpus.values()) if job.nodes else max(request.num_tasks, nodes) * max(request.cpus_per_task, 1)
        ),
        "Q": lambda: str(max(4294901760 - job.array_id, 0)),
        "a": lambda: request.account or "root",
        "q": lambda: request.qos or "normal",
        "o": lambda: request.command or "(null)",
        "B": lambda: job.nodes[0] if job.nodes else "n/a",
        "m": lambda: f"{request.mem_mb}M",
        "b": lambda: f"gres:gpu:{request.gpus_per_node}" if request.gpus_per_node else "N/A",
        "f": lambda: request.constraint or "(null)",
        "x": lambda: fold_hosts(request.exclude),
    }


def formatted(layout: str, values: Mapping[str, Callable[[], str]]) -> str:
    """``%5i`` cuts and pads on the right, ``%.5i`` on the left."""

    def one(found: re.Match[str]) -> str:
        dot, width, letter = found.groups()
        if letter not in values:
            return found[0]
        text = values[letter]()
        if not width:
            return text
        return text[: int(width)].rjust(int(width)) if dot else text[: int(width)].ljust(int(width))

    return re.sub(r"%(\.?)(\d*)([A-Za-z])", one, layout)


def squeue(controller: Controller, words: Sequence[str], environ: Mapping[str, str]) -> str:
    """The text that squeue prints."""
    layout, headline, each, states, ids, names, partitions = (
        environ.get("SQUEUE_FORMAT", DEFAULT),
        True,
        False,
        _ACTIVE,
        None,
        None,
        None,
    )
    long = str.split(
        "noheader format= me user= jobs= name= states= array all partition= nodelist= sort= long start account= qos= "
        "version"
    )
    try:
        pairs, rest = getopt.gnu_getopt(words, "ho:u:j:n:t:rap:w:S:lA:q:V", long)
    except getopt.GetoptError as error:
        raise CommandError(
            f"squeue: unrecognized option '{error.opt}'\nTry \"squeue --help\" for more information"
        ) from None
    if rest:
        raise CommandError(f"squeue: error: Unrecognized option: {rest[0]}\nTry 'squeue --help' for more information")
    for name, value in pairs:
        match name:
            case "-h" | "--noheader":
                headline = False
            case "-o" | "--format":
                layout = value
            case "-r" | "--array":
                each = True
            case "-t" | "--states":
                states = _states(value)
            case "-j" | "--jobs":
                ids = value.split(",")
            case "-n" | "--name":
                names = value.split(",")
            case "-p" | "--partition":
                partitions = value.split(",")
            case "-u" | "--user":
                if getpass.getuser() not in value.split(",") and str(os.getuid()) not in value.split(","):
                    states = set()
            case _:
                pass
    jobs = [job for job in controller.jobs.values() if controller.remembered(job)]
    if ids is not None:
        jobs = _named(controller, ids)
    length = bitstr_length(environ)
    lines = (
        [formatted(layout, {letter: (lambda name=name: name) for letter, name in HEADERS.items()})] if headline else []
    )
    order = {"PENDING": 0}
    for job in sorted(
        jobs, key=lambda job: (order.get(job.shown_state, 1), job.array_id, job.task is None, job.task or 0)
    ):
        if (
            job.shown_state in states
            and (names is None or job.request.name in names)
            and (partitions is None or job.request.partition in partitions)
        ):
            lines += [
                formatted(layout, fields(controller, part, length)) for part in (_elements(job) if each else [job])
            ]
    return "".join(line + "\n" for line in lines)


def _elements(job: Job) -> list[Job]:
    """Each waiting element on its own."""
    return [replace(job, task=task, waiting=[]) for task in job.waiting] or [job]


def _named(controller: Controller, ids: list[str]) -> list[Job]:
    """Several unknown ones are passed over in silence, a single one is an error."""
    found: dict[int, Job] = {}
    for spec in ids:
        known = [job for job in controller.find(spec) if controller.remembered(job)]
        if not known and len(ids) == 1:
            raise CommandError(f"slurm_load_jobs error: {INVALID}")
        found.update({job.id: job for job in known})
    return list(found.values())


def _states(text: str) -> set[str]:
    if text.lower() == "all":
        return set(SHORT)
    long = {short: name for name, short in SHORT.items()}
    chosen = {long.get(word, word) for word in text.upper().split(",")}
    for word in chosen - set(SHORT):
        raise CommandError(f"squeue: error: Invalid job state specified: {word}")
    return chosen


def sinfo(controller: Controller, words: Sequence[str]) -> str:
    """One line a partition, with -N one a node of each: formats with %P %a %l %D %t %T %N %c %m %G."""
    try:
        pairs, _ = getopt.gnu_getopt(words, "ho:p:N", ["noheader", "format=", "partition=", "Node"])
    except getopt.GetoptError as error:
        raise CommandError(f"sinfo: unrecognized option '{error.opt}'") from None
    chosen = dict(pairs)
    layout = chosen.get("-o", chosen.get("--format", "%9P %.5a %.10l %.6D %.6t %N"))
    titles = {
        "P": "PARTITION",
        "a": "AVAIL",
        "l": "TIMELIMIT",
        "D": "NODES",
        "t": "STATE",
        "T": "STATE",
        "N": "NODELIST",
    }
    titles |= {"c": "CPUS", "m": "MEMORY", "G": "GRES"}
    lines = (
        []
        if "-h" in chosen or "--noheader" in chosen
        else [formatted(layout, {k: (lambda v=v: v) for k, v in titles.items()})]
    )
    config, rooms = controller.config, controller.rooms()
    for partition in config.partitions:
        if partition.name not in chosen.get("-p", chosen.get("--partition", partition.name)).split(","):
            continue
        groups: dict[tuple[str, str], list[str]] = {}
        for name in partition.nodes:
            free = rooms[name].cpus if name in rooms else 0
            state = "idle" if free == config.cpus else "mix" if free else "alloc"
            if name not in rooms:
                state = "drain" if name in controller.drained_nodes else "down"
            groups.setdefault((state, name if {"-N", "--Node"} & set(chosen) else ""), []).append(name)
        star = "*" if partition is config.partitions[0] else ""
        for (state, _), nodes in groups.items():
            values = {
                "P": partition.name + star,
                "a": "up",
                "l": long_duration(parse_limit(partition.max_time)).replace("UNLIMITED", "infinite"),
            }
            values |= {
                "D": str(len(nodes)),
                "t": state,
                "T": {"mix": "mixed", "alloc": "allocated", "drain": "drained"}.get(state, state),
                "N": fold_hosts(nodes),
            }
            values |= {
                "c": str(config.cpus),
                "m": str(config.mem_mb),
                "G": f"gpu:{config.gpus}" if config.gpus else "(null)",
            }
            lines.append(formatted(layout, {k: (lambda v=v: v) for k, v in values.items()}))
    return "".join(line + "\n" for line in lines)


def log_path(job: Job) -> str:
    """The path of the job's output, whether it is there yet or not."""
    return launch.log_name(job, getpass.getuser())
