"""Submission of an sbatch file to SLURM, and questions to SLURM about one."""

from __future__ import annotations

import contextlib
import math
import os
import re
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from grid.engine.slurm import commands
from grid.engine.slurm.commands import output_of, text
from grid.engine.slurm.scheduler_cache import Full, Unreachable
from settings.resources import Resources, megabytes, seconds, time_text


def check_sbatch() -> None:
    """Raise FileNotFoundError where nothing can be submitted."""
    if not commands.is_here("sbatch"):
        raise FileNotFoundError(
            "there is no sbatch on this machine: submit on a login node of the cluster (the original command without "
            "--submit writes the files, to call sbatch there yourself)"
        )


def submit(path: Path, job_name: str | None = None) -> str:
    """Submit an sbatch file, under another name where one is given; returns the job's id.

    ValueError, with SLURM's words, where it refuses (``TooMany``, ``TooLarge``).  ``Full`` where it has no room for any
    job now.  ``Unreachable`` where nobody knows whether the job was accepted: so is whatever else goes wrong after
    sbatch was started.
    """
    check_sbatch()
    reply = _ask_sbatch(["--parsable", *([f"--job-name={job_name}"] if job_name else []), str(path)], path)
    if len(found := _ids(reply)) != 1:
        raise Unreachable(f"sbatch {path}: the answer {reply!r} is no job id; {NOT_KNOWN}")
    return found.pop()


def _ids(reply: str) -> set[str]:
    """The job ids among the lines of an answer: sites put a banner before it, or a notice after it."""
    return set(re.findall(r"^[ \t]*([0-9]{1,18})(?:;[^\s;]+)?[ \t]*\r?$", reply, re.MULTILINE))


def test_only(path: Path) -> None:
    """Raise ValueError, with SLURM's words, where SLURM would not accept the file.

    Raises ``Unreachable`` without an answer.
    """
    check_sbatch()
    _ask_sbatch(["--test-only", str(path)], path)


def too_long(partition: str | None, time_s: int) -> str:
    """A sentence on what is wrong with a time limit on a partition (None: the cluster's own).

    It is empty where nothing is known to be wrong.

    sbatch takes such a job, and it waits for ever (EnforcePartLimits=NO, SLURM's default).
    """
    lines = [[word.partition("=") for word in line.split()] for line in _told("scontrol", "show", "partition", "-o")]
    known = [{name: value for name, _, value in line} for line in lines]
    limits = {
        values["PartitionName"]: _limit_s(values.get("MaxTime", "")) for values in known if "PartitionName" in values
    }
    names = (
        partition.split(",")
        if partition
        else [values["PartitionName"] for values in known if values.get("Default") == "YES"]
    )
    asked = [limits[name] for name in names if name in limits]
    if not asked or max(asked) >= time_s:
        return ""
    able = [name for name, limit in limits.items() if limit >= time_s]
    others = f"partitions that give more: {', '.join(able)}" if able else "no partition gives more"
    return (
        f"partition {','.join(names)} ends jobs after {time_text(int(max(asked)))}, and time={time_text(time_s)} is "
        f"asked for ({others})"
    )


def nodes_off(asked: Resources, parallel: int) -> str:
    """A sentence on the nodes that could run such scripts and are down or drained.

    It is empty where there are none, or where even with them there are too few.

    ``sbatch --test-only`` knows only nodes on which jobs may start now.
    """
    words = ["-p", asked.partition] if asked.partition else []
    able: dict[str, str] = {}
    for line in _told("sinfo", "-h", "-N", *words, "-o", "%P|%N|%T|%c|%m|%G"):
        partition, name, state, cpus, mem, gres = [*line.split("|", 5), *[""] * 6][:6]
        gpus = sum(int(count) for count in re.findall(r"gpu:(?:[^,:()]+:)?(\d+)", gres))
        if not asked.partition and not partition.endswith("*"):
            continue
        given = [int(word.rstrip("+") or 0) for word in (cpus, mem) if re.fullmatch(r"\d+\+?", word)]
        needed = [asked.cpus_for(parallel), megabytes(asked.mem_for(parallel))]
        if len(given) == 2 and all(
            have >= need for have, need in zip([*given, gpus], [*needed, asked.gpus_for(parallel)], strict=True)
        ):
            able[name] = state
    off = {name: state for name, state in able.items() if OFF.match(state)}
    if not off or len(able) < asked.nodes:
        return ""
    some = ", ".join(f"{name} is {state.rstrip('*')}" for name, state in list(off.items())[:3])
    return f"{some}{f' and {len(off) - 3} more nodes are off' if len(off) > 3 else ''}"


def _told(*command: str) -> list[str]:
    """The lines that a command of SLURM's prints; none where it does not answer."""
    with contextlib.suppress(Unreachable):
        return output_of(command).splitlines()
    return []


def _limit_s(value: str) -> float:
    try:
        return seconds(value)
    except ValueError:  # UNLIMITED
        return math.inf


def of_the_shell(file: str) -> dict[str, str]:
    """The variables of this process that decide what a job of this sbatch file gets, or how its runs work."""
    return {name: value for name, value in _environment(file).items() if _DECIDES.match(name)}


_DECIDES = re.compile("SBATCH_|NUQ_(?!SITE$)|CUDA_|NVIDIA_|NCCL_|OMP_|MKL_|TORCH_|PYTHONPATH$|LD_PRELOAD$")


def _environment(file: str) -> dict[str, str]:
    """The environment of this process, which sbatch hands on to the job.

    It has no variable that would overrule what the sbatch file says.  Nor has it what is the job's or step's that this
    process runs in: how that is bound (SLURM_*), how many ranks it has, and where these meet (torchrun's variables).
    """
    said = set(re.findall(r"^#SBATCH --([\w-]+)", file, re.MULTILINE))
    kept = {name for name, option in _LEFT_OPEN.items() if option not in said}
    kept |= _OF_THE_CLUSTER
    return {
        name: value
        for name, value in os.environ.items()
        if name in kept or not (name.startswith(("SBATCH_", "SLURM_")) or name in _OF_A_JOB)
    }


def _ask_sbatch(words: Sequence[str], path: Path) -> str:
    # sbatch holds the lock of its submission, too, so that nobody goes on before it has ended, whatever ends us
    environment = _environment(path.read_text() if path.exists() else "")
    with commands.started(["sbatch", *words], environment, keeps_locks=True) as process:
        try:
            out, err = _heard(process, path)
        except BaseException as error:
            process.kill()
            if isinstance(error, Exception) and not isinstance(error, Unreachable):
                raise Unreachable(f"sbatch {path}: {type(error).__name__}: {error}; {NOT_KNOWN}") from error
            raise
    if process.returncode == 0:
        return out.strip()
    said = " ".join((err.strip() or out.strip()).split())
    if process.returncode < 0 or process.returncode > 128:  # of sbatch itself, or of a script of the site around it
        number = -process.returncode if process.returncode < 0 else process.returncode - 128
        raise Unreachable(f"sbatch {path}: was killed by signal {number}; {NOT_KNOWN}")
    if _ids(out):
        raise Unreachable(f"sbatch {path}: named a job and ended with code {process.returncode} ({said}); {NOT_KNOWN}")
    if FULL.search(said):
        raise Full(f"sbatch {path}: {said}")
    if NO_ANSWER.search(said):
        raise Unreachable(f"sbatch {path}: {said}")
    if TOO_MANY.search(said):
        raise TooMany(f"sbatch refused {path}: {said}; when some of your jobs have ended, the same command goes on")
    raise (TooLarge if TOO_LARGE in said else ValueError)(f"sbatch refused {path}: {said}")


def _heard(process: subprocess.Popen[bytes], path: Path) -> tuple[str, str]:
    """The output of sbatch when it ended.

    Raises ``Full`` as soon as sbatch says that it waits for room, and ``Unreachable`` after ``ANSWER_S``.
    """
    end = time.monotonic() + ANSWER_S
    while True:
        try:
            out, err = process.communicate(timeout=min(LOOK_S, ANSWER_S))
            return text(out), text(err)
        except subprocess.TimeoutExpired as late:
            words = text(late.stderr)
            if FULL.search(words):
                raise Full(f"sbatch {path}: {' '.join(words.split())}") from None
            if time.monotonic() >= end:
                raise Unreachable(f"sbatch {path}: no answer within {ANSWER_S:.0f} s; {NOT_KNOWN}") from None


NOT_KNOWN = "whether SLURM took the job is not known"
ANSWER_S = 60.0  # a controller that takes longer to answer is down, or so busy that nobody knows
NO_ANSWER = re.compile(
    "unable to contact slurm controller|socket timed out|unexpected message received|zero bytes were transmitted"
    "|connection (failure|refused|timed out)|unable to connect|could not establish a configuration source",
    re.IGNORECASE,
)
TOO_MANY = re.compile(r"MaxSubmitJob|GrpSubmitJob")  # AssocMaxSubmitJobLimit, QOSMaxSubmitJobPerUserLimit, ...
NO_NODES = "Requested node configuration is not available"
TOO_LARGE = "Invalid job array specification"
FULL = re.compile("temporarily unable to accept job|resource temporarily unavailable", re.IGNORECASE)  # MaxJobCount
LOOK_S = 0.2  # sbatch sleeps for a second before it asks a full controller again: it is ended while it sleeps
OFF = re.compile("down|drain|fail|maint|unk|inval|power", re.IGNORECASE)  # states of a node on which nothing can start


class TooMany(ValueError):
    """The error that SLURM refuses the job because of how many this user, account or quality of service has."""


class TooLarge(ValueError):
    """The error that SLURM refuses the indices of an array because they are above its MaxArraySize."""


_OF_THE_CLUSTER = {"SLURM_CONF", "SLURM_CLUSTERS", "SLURM_JWT"}  # which one it is, and who asks
_OF_A_JOB = {
    "NUQ_CODE",
    "NUQ_EXIT_CODE",
    "NUQ_NODES",
    "NUQ_NPROC",
    "NUQ_SHUTDOWN_S",
    "NUQ_SLOT",
    *("RANK", "LOCAL_RANK", "GROUP_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"),
}  # its scripts and torchrun set these
# Variables that say what a file may leave open; every other SBATCH_* would overrule the file: its array, its signal,
# its log.
_LEFT_OPEN = {
    "SBATCH_ACCOUNT": "account",
    "SBATCH_CLUSTERS": "clusters",
    "SBATCH_CONSTRAINT": "constraint",
    "SBATCH_PARTITION": "partition",
    "SBATCH_QOS": "qos",
    "SBATCH_RESERVATION": "reservation",
    "SBATCH_TIMELIMIT": "time",
    "SBATCH_WCKEY": "wckey",
}
