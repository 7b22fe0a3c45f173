"""The text of an sbatch file, through submitit, and its submission; with ``scheduler.py`` the only file that knows
SLURM.
"""

from __future__ import annotations

import importlib.metadata
import math
import os
import re
import shlex
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from grid.engine.scripts.script import WAIT
from grid.engine.slurm.scheduler_cache import Full, Unreachable
from grid.engine.slurm.site import Site
from grid.engine.sweeps.resources import Resources, megabytes, seconds, time_text

SUBMITIT = ((1, 5), (1, 6))  # versions whose private text function has the signature we call: from, below
MAX_REQUEUES = 100  # a run that is checkpointed and requeued more often is going nowhere
LARGEST_INDEX = 1000  # of an array under SLURM's default MaxArraySize
ANSWER_S = 60.0  # a controller that takes longer to answer is down, or so busy that nobody knows
CHECKPOINT_S = 20  # of the warning before the time limit that torchrun leaves for what comes after the ranks
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
    """SLURM refuses the job because of how many this user, account or quality of service has."""


class TooLarge(ValueError):
    """SLURM refuses the indices of an array: they are above its MaxArraySize."""


def array_spec(first: int, count: int, max_running: int | None) -> str:
    """``0-37``, or ``0-37%8`` with at most 8 running at once."""
    return f"{first}-{first + count - 1}" + (f"%{max_running}" if max_running else "")


# The batch shell alone gets USR2 some time before the time limit; it hands it on, and requeues its own array element by
# its own name (SLURM_JOB_ID of one element equals the id of the whole array).  A TERM to a job that the controller is
# ending already is scancel, or a requeue of SLURM's own: both have the last word.  An element that SLURM has started
# again, for it had given this node up, is another shell's.
_COMMAND = """cd {root} || exit 2
{start}
finish
if [ "$code" -eq 75 ]; then
  element="${{SLURM_ARRAY_JOB_ID}}_${{SLURM_ARRAY_TASK_ID}}"
  job="$(scontrol show job -o "$element")"
  state="$(sed -n 's/.*JobState=\\([A-Z_]*\\).*/\\1/p' <<<"$job")"
  restarts="$(sed -n 's/.* Restarts=\\([0-9]*\\).*/\\1/p' <<<"$job")"
  case "$signalled $state" in
    *' PENDING' | 'TERM COMPLETING' | 'TERM CANCELLED')
      echo "SLURM ends or requeues this job by itself; if it was cancelled, submit this file again to go on"
      exit "$code"
      ;;
  esac
  if [ "${{restarts:-0}}" -gt "${{SLURM_RESTART_COUNT:-0}}" ]; then
    echo "SLURM has started this job again meanwhile"
  elif [ "${{SLURM_RESTART_COUNT:-0}}" -ge {max_requeues} ]; then
    echo "not requeued after ${{SLURM_RESTART_COUNT:-0}} restarts; submit this file again to go on"
  elif {requeue} "$element"; then
    exit 0
  fi
fi
exit "$code\""""

# The site's lines may change the environment and may end the script, so the element's own script follows in their
# shell;  a signal before its time ends that shell, which counts as 75.
_ELEMENT = """{exports}
if [ ! -s {job} ]; then # tells whoever missed the answer of sbatch
  echo "$SLURM_ARRAY_JOB_ID" >{job}.$$ && mv -f {job}.$$ {job}
fi
requeue() {{ # the controller may be down for a moment
  for pause in 0 5 20 60; do
    sleep "$pause"
    if scontrol requeue "$1"; then return 0; fi
  done
  return 1
}}
(
{preamble}exec bash {script}_"$SLURM_ARRAY_TASK_ID".sh
) &"""


def sbatch_text(
    prefix: str,
    root: Path,
    first: int,
    count: int,
    resources: Resources,
    max_running: int | None = None,
    *,
    code: str = "",
) -> str:
    """The array job that runs ``jobs/<prefix>_<first>.sh`` and so on, one script an element: the original command's.

    ``code`` is the snapshot that they execute, as seen from ``root``; empty: the checkout as it is then.
    """
    pinned = f"export NUQ_CODE={shlex.quote(str(root / code))}\n" if code else ""
    start = f'{pinned}bash jobs/{prefix}_"$SLURM_ARRAY_TASK_ID".sh &'
    return _text(
        WAIT
        + _COMMAND.format(
            root=shlex.quote(str(root)), start=start, max_requeues=MAX_REQUEUES, requeue="scontrol requeue"
        ),
        prefix,
        resources,
        {
            "nodes": 1,
            "ntasks": resources.ranks,
            "cpus_per_task": resources.cpus,
            "gpus_per_node": resources.num_gpus or None,
            "mem": resources.mem,
            "array": array_spec(first, count, max_running),
            "output": _output(root / "jobs" / "logs", prefix),
            "signal": "B:USR2@120",
        },
    )


def chunk_text(
    job_name: str,
    root: Path,
    folder: Path,
    prefix: str,
    count: int,
    resources: Resources,
    site: Site,
    *,
    code: str,
    parallel: int = 1,
    cap: int | None = None,
    dependency: str | None = None,
) -> str:
    """The array job of a chunk: element i runs ``<folder>/<prefix>_<i>.sh``, i from 0 to count - 1, ``cap`` of them at
    once.

    ``resources`` are those of one experiment, of which a script runs ``parallel`` at a time.  ``code`` is the snapshot
    that they execute (as seen from ``root``, as ``folder`` may be; empty: the checkout itself), ``dependency`` what
    SLURM has to wait for, as sbatch takes it.  Logs are ``<folder>/logs/<prefix>_<job>_<index>.log``: that folder has
    to exist.  ``<folder>/<prefix>.job`` gets the array's id from the first element that starts.
    """
    place = root / folder
    exports = {
        "NUQ_SHUTDOWN_S": str(max(CHECKPOINT_S, site.signal_s - CHECKPOINT_S)),
        **({"NUQ_CODE": str(root / code)} if code else {}),
    }
    start = _ELEMENT.format(
        exports="\n".join(f"export {name}={shlex.quote(value)}" for name, value in exports.items()),
        job=shlex.quote(str(place / f"{prefix}.job")),
        preamble="".join(f"{line}\n" for line in site.preamble()),
        script=shlex.quote(str(place / prefix)),
    )
    command = _COMMAND.format(
        root=shlex.quote(str(root)), start=start, max_requeues=site.max_requeues, requeue="requeue"
    )
    tasks = 1 if resources.nodes > 1 else resources.ranks_per_node * parallel  # on several nodes one torchrun each
    mail = {"mail_user": site.mail.user, "mail_type": ",".join(site.mail.on)} if site.mail else {}
    return _text(
        WAIT + command,
        job_name,
        resources,
        {
            "nodes": resources.nodes,
            "ntasks_per_node": tasks,
            "cpus_per_task": resources.cpus_for(parallel) // tasks,
            "gpus_per_node": resources.gpus_for(parallel) or None,
            "mem": resources.mem_for(parallel),
            "array": array_spec(0, count, cap),
            "output": _output(place / "logs", prefix),
            "signal": f"B:USR2@{site.signal_s}",
            "dependency": dependency,
            "kill_on_invalid_dep": "yes" if dependency else None,
            **mail,
            **_options(site.sbatch),
        },
    )


def _output(folder: Path, prefix: str) -> str:
    """The log of an element; what looks like sbatch's own marks in the path is no such mark."""
    return f"{str(folder).replace('%', '%%')}/{prefix}_%A_%a.log"


def _options(texts: Sequence[str]) -> dict[str, str | bool]:
    """``--licenses=a`` and ``--exclusive`` as names with values."""
    options: dict[str, str | bool] = {}
    for text in texts:
        name, equals, value = text.removeprefix("--").partition("=")
        options[name.replace("-", "_")] = value if equals else True
    return options


def _text(command: str, job_name: str, resources: Resources, options: Mapping[str, Any]) -> str:
    _check_version()
    from submitit.slurm.slurm import _make_sbatch_string

    chosen = {
        name: getattr(resources, name) for name in ("partition", "account", "qos", "constraint", "exclude", "time")
    }
    more = {"requeue": True, **chosen, **options}
    return _make_sbatch_string(
        command=command,
        folder="unused",  # the name of the log is an option
        job_name=job_name,
        time=None,  # type: ignore[arg-type]
        wckey=None,  # type: ignore[arg-type]
        additional_parameters={name: value for name, value in more.items() if value is not None},
        stderr_to_stdout=True,
        use_srun=False,
    )


def _check_version() -> None:
    version = importlib.metadata.version("submitit")
    lowest, above = SUBMITIT
    if not lowest <= tuple(int(part) for part in version.split(".")[:2]) < above:
        bounds = ">={}.{},<{}.{}".format(*lowest, *above)
        raise RuntimeError(
            f"submitit {version} is installed, but sbatch files are written with a private function of submitit "
            f"{bounds}"
        )


def check_sbatch() -> None:
    """FileNotFoundError where nothing can be submitted."""
    if shutil.which("sbatch") is None:
        raise FileNotFoundError(
            "there is no sbatch on this machine: submit on a login node of the cluster "
            "(the original command without --submit writes the files, to call sbatch there yourself)"
        )


def submit(path: Path, job_name: str | None = None) -> str:
    """Submit an sbatch file, under another name where one is given; the job's id.

    ValueError, with SLURM's words, where it refuses (``TooMany``, ``TooLarge``).  ``Full`` where it has no room for any
    job now.  ``Unreachable`` where nobody knows whether the job was accepted.
    """
    check_sbatch()
    reply = _ask_sbatch(["--parsable", *([f"--job-name={job_name}"] if job_name else []), str(path)], path)
    job_id = (reply.splitlines() or [""])[-1].partition(";")[0].strip()
    if not job_id.isdecimal():
        raise Unreachable(f"sbatch {path}: the answer {reply!r} is no job id; whether SLURM took the job is not known")
    return job_id


def test_only(path: Path) -> None:
    """Nothing where SLURM would accept the file; ValueError, with SLURM's words, where it would not.

    ``Unreachable``.
    """
    check_sbatch()
    _ask_sbatch(["--test-only", str(path)], path)


def too_long(partition: str | None, time_s: int) -> str:
    """What is wrong with a time limit on a partition (None: the cluster's own), in words; empty where nothing is known
    to be.

    sbatch takes such a job, and it waits for ever (EnforcePartLimits=NO, SLURM's default).
    """
    try:
        done = subprocess.run(
            ["scontrol", "show", "partition", "-o"], capture_output=True, text=True, check=False, timeout=ANSWER_S
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    lines = [
        [word.partition("=") for word in line.split()] for line in done.stdout.splitlines() if done.returncode == 0
    ]
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
        f"partition {','.join(names)} ends jobs after {time_text(int(max(asked)))}, and time={time_text(time_s)} "
        f"is asked for ({others})"
    )


def nodes_off(asked: Resources, parallel: int) -> str:
    """The nodes that could run such scripts and are down or drained, in words; empty where there are none, or too few
    with them.

    ``sbatch --test-only`` knows only nodes on which jobs may start now.
    """
    words = ["-p", asked.partition] if asked.partition else []
    try:
        done = subprocess.run(
            ["sinfo", "-h", "-N", *words, "-o", "%P|%N|%T|%c|%m|%G"],
            capture_output=True,
            text=True,
            check=False,
            timeout=ANSWER_S,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    able: dict[str, str] = {}
    for line in done.stdout.splitlines():
        partition, name, state, cpus, mem, gres = [*line.split("|", 5), *[""] * 6][:6]
        gpus = sum(int(count) for count in re.findall(r"gpu:(?:[^,:()]+:)?(\d+)", gres))
        if not asked.partition and not partition.endswith("*"):
            continue
        given = [int(text.rstrip("+") or 0) for text in (cpus, mem) if re.fullmatch(r"\d+\+?", text)]
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


def _limit_s(text: str) -> float:
    try:
        return seconds(text)
    except ValueError:  # UNLIMITED
        return math.inf


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


def _environment(path: Path) -> dict[str, str]:
    """Ours, without variables that would overrule what the sbatch file says."""
    said = set(re.findall(r"^#SBATCH --([\w-]+)", path.read_text() if path.exists() else "", re.MULTILINE))
    kept = {name for name, option in _LEFT_OPEN.items() if option not in said}
    return {name: value for name, value in os.environ.items() if not name.startswith("SBATCH_") or name in kept}


def _ask_sbatch(words: Sequence[str], path: Path) -> str:
    # close_fds=False: sbatch holds the lock of its submission, too, so that nobody goes on before it has ended,
    # whatever ends us
    with subprocess.Popen(
        ["sbatch", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        close_fds=False,
        env=_environment(path),
    ) as process:
        try:
            out, err = _heard(process, path)
        except BaseException:
            process.kill()
            raise
    said = " ".join((err.strip() or out.strip()).split())
    if process.returncode < 0:
        raise Unreachable(
            f"sbatch {path}: was killed by signal {-process.returncode}; whether SLURM took the job is not known"
        )
    if process.returncode != 0 and FULL.search(said):
        raise Full(f"sbatch {path}: {said}")
    if process.returncode != 0 and NO_ANSWER.search(said):
        raise Unreachable(f"sbatch {path}: {said}")
    if process.returncode != 0 and TOO_MANY.search(said):
        raise TooMany(f"sbatch refused {path}: {said}; when some of your jobs have ended, the same command goes on")
    if process.returncode != 0:
        raise (TooLarge if TOO_LARGE in said else ValueError)(f"sbatch refused {path}: {said}")
    return out.strip()


def _heard(process: subprocess.Popen[str], path: Path) -> tuple[str, str]:
    """What sbatch wrote by its end; ``Full`` as soon as it says that it waits for room, ``Unreachable`` after
    ``ANSWER_S``.
    """
    end = time.monotonic() + ANSWER_S
    while True:
        try:
            return process.communicate(timeout=min(LOOK_S, ANSWER_S))
        except subprocess.TimeoutExpired as late:
            said = late.stderr or b""  # bytes, whatever the pipe is
            words = said.decode(errors="replace") if isinstance(said, bytes) else said
            if FULL.search(words):
                raise Full(f"sbatch {path}: {' '.join(words.split())}") from None
            if time.monotonic() >= end:
                raise Unreachable(
                    f"sbatch {path}: no answer within {ANSWER_S:.0f} s; whether SLURM took the job is not known"
                ) from None
