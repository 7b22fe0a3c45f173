"""The words of an sbatch call as a request: its script's ``#SBATCH`` lines, then ``SBATCH_*`` variables, then its own
options.
"""

from __future__ import annotations

import getopt
import shlex
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from .model import CommandError, Config, Request
from .text import expand_hosts, parse_array, parse_limit, parse_megabytes, parse_moment

_SHORT = "A:a:b:c:C:d:D:e:G:Hi:J:L:M:m:N:n:o:p:q:Qst:vw:x:"
_LETTERS = {
    "A": "account",
    "a": "array",
    "b": "begin",
    "c": "cpus-per-task",
    "C": "constraint",
    "d": "dependency",
    "D": "chdir",
    "e": "error",
    "G": "gpus",
    "H": "hold",
    "i": "input",
    "J": "job-name",
    "N": "nodes",
    "n": "ntasks",
    "o": "output",
    "p": "partition",
    "q": "qos",
    "Q": "quiet",
    "t": "time",
    "w": "nodelist",
    "x": "exclude",
}
_FLAGS = [
    "hold",
    "requeue",
    "no-requeue",
    "exclusive",
    "test-only",
    "parsable",
    "quiet",
    "verbose",
    "oversubscribe",
    "overcommit",
    "spread-job",
]
# Accepted as the real one does, without effect here.
_WITHOUT_EFFECT = str.split(
    "mail-type mail-user licenses clusters distribution nice priority wckey reservation tmp hint threads-per-core "
    "cores-per-socket sockets-per-node mem-per-gpu cpus-per-gpu gpu-bind gpus-per-socket ntasks-per-core "
    "ntasks-per-gpu "
    "deadline propagate get-user-env switches"
)
_VALUED = str.split(
    "account array begin chdir comment constraint cpus-per-task dependency error exclude export gpus gpus-per-node "
    "gpus-per-task gres "
    "input job-name kill-on-invalid-dep mem mem-per-cpu nodelist nodes ntasks ntasks-per-node open-mode output "
    "partition qos signal "
    "time wrap"
)
_COUNTS = {"cpus-per-task", "ntasks", "ntasks-per-node"}
_VARIABLES = {
    "SBATCH_ACCOUNT": "account",
    "SBATCH_PARTITION": "partition",
    "SBATCH_QOS": "qos",
    "SBATCH_TIMELIMIT": "time",
    "SBATCH_JOB_NAME": "job-name",
    "SBATCH_OUTPUT": "output",
    "SBATCH_CONSTRAINT": "constraint",
}


def _parse(words: Sequence[str]) -> tuple[list[tuple[str, str]], list[str]]:
    """Options as (long name, value), and what follows them."""
    words = ["--exclusive" if word.startswith("--exclusive=") else word for word in words]
    try:
        pairs, rest = getopt.getopt(words, _SHORT, [*_FLAGS, *(f"{name}=" for name in _VALUED + _WITHOUT_EFFECT)])
    except getopt.GetoptError as error:
        kind = "option requires an argument" if "requires" in error.msg else "unrecognized option"
        dashes = "--" if len(error.opt) > 1 else "-"
        raise CommandError(
            f"sbatch: {kind} '{dashes}{error.opt}'\nTry \"sbatch --help\" for more information", 255
        ) from None
    named = [(name[2:] if name.startswith("--") else _LETTERS.get(name[1:], ""), value) for name, value in pairs]
    return named, rest


def script_of(words: Sequence[str], cwd: str, read_stdin: Callable[[], str]) -> tuple[str, str, tuple[str, ...]]:
    """The batch script's text, its path ("" for standard input and --wrap) and its arguments."""
    options, rest = _parse(words)
    wrapped = dict(options).get("wrap")
    if wrapped is not None:
        return f"#!/bin/sh\n# This script was created by sbatch --wrap.\n\n{wrapped}\n", "", tuple(rest)
    path = ""
    if rest:
        path = str(Path(cwd, rest[0]))
        try:
            text = Path(path).read_text(encoding="utf-8", errors="surrogateescape")
        except OSError:
            raise CommandError(f"sbatch: error: Unable to open file {rest[0]}") from None
    else:
        text = read_stdin()
    if not text:
        raise CommandError("sbatch: error: Batch script is empty!")
    if not text.strip():
        raise CommandError("sbatch: error: Batch script contains only whitespace!")
    if not text.startswith("#!"):
        raise CommandError(
            "sbatch: error: This does not look like a batch script.  The first\n"
            "sbatch: error: line must start with #! followed by the path to an interpreter.\nsbatch: error: For "
            "instance: #!/bin/sh"
        )
    if "\r\n" in text:
        raise CommandError(
            "sbatch: error: Batch script contains DOS line breaks (\\r\\n)\nsbatch: error: instead of expected UNIX "
            "line breaks (\\n)."
        )
    return text, path, tuple(rest[1:])


def directives(script: str) -> list[str]:
    """The words of the ``#SBATCH`` lines, which end at the first command."""
    words: list[str] = []
    for line in script.splitlines():
        if line.startswith("#SBATCH"):
            words += shlex.split(line.removeprefix("#SBATCH"), comments=True)
        elif line.strip() and not line.lstrip().startswith("#"):
            break
    return words


def request_of(
    words: Sequence[str],
    cwd: str,
    environ: Mapping[str, str],
    config: Config,
    now: float,
    read_stdin: Callable[[], str],
) -> Request:
    """The request; CommandError with sbatch's own words."""
    script, path, arguments = script_of(words, cwd, read_stdin)
    inner, extra = _parse(directives(script))
    if extra:
        raise CommandError(f"sbatch: error: Invalid directive found in batch script: {extra[0]}")
    variables = [(name, environ[variable]) for variable, name in _VARIABLES.items() if environ.get(variable)]
    if "SBATCH_REQUEUE" in environ or "SBATCH_NO_REQUEUE" in environ:
        variables.append(("requeue" if "SBATCH_REQUEUE" in environ else "no-requeue", ""))
    request = Request(
        script=script,
        arguments=arguments,
        command=path,
        name=Path(path).name or ("wrap" if any(name == "wrap" for name, _ in _parse(words)[0]) else "sbatch"),
        requeue=config.job_requeue,
        workdir=cwd,
        submit_dir=cwd,
        environ=dict(environ),
    )
    for name, value in [*inner, *variables, *_parse(words)[0]]:
        try:
            request = replace(request, **_fields(name, value, request, config, now))
        except (ValueError, KeyError):
            if name in _COUNTS:
                raise CommandError(f'sbatch: error: Invalid numeric value "{value}" for --{name}.') from None
            raise CommandError(f"sbatch: error: Invalid --{name} specification", 255) from None
    return request


def _fields(name: str, value: str, request: Request, config: Config, now: float) -> dict[str, Any]:
    """The fields that one option changes; ValueError or KeyError for a bad value."""
    plain = {"account", "partition", "qos", "comment", "constraint", "dependency", "output", "error", "input"}
    if name in plain:
        return {name: value}
    match name:
        case "job-name":
            return {"name": value}
        case "chdir":
            return {"workdir": str(Path(request.workdir, value))}
        case "array":
            try:
                tasks, throttle = parse_array(value)
            except ValueError:
                raise CommandError(
                    "sbatch: error: Batch job submission failed: Invalid job array specification"
                ) from None
            return {"tasks": tasks, "throttle": throttle}
        case "begin":
            return {"begin": parse_moment(value, now, config.second)}
        case "time":
            return {"limit_s": parse_limit(value)}
        case "cpus-per-task" | "nodes" | "ntasks" | "ntasks-per-node":
            field = {"ntasks": "num_tasks", "ntasks-per-node": "tasks_per_node"}.get(name, name.replace("-", "_"))
            return {field: _positive(value.partition("-")[0] if name == "nodes" else value)}
        case "gpus-per-node" | "gpus" | "gpus-per-task":
            count = _positive(value.rpartition(":")[2]) if value != "0" else 0
            return {
                "gpus_per_node" if name == "gpus-per-node" else "gpus": count
                * (request.num_tasks or 1 if name == "gpus-per-task" else 1)
            }
        case "gres":
            kind, _, count = value.partition(":")
            if kind not in {"gpu", "none"}:
                raise CommandError("sbatch: error: Invalid generic resource (gres) specification")
            return {"gpus_per_node": int(count.rpartition(":")[2] or 1) if kind == "gpu" else 0}
        case "mem" | "mem-per-cpu":
            return {"mem_mb" if name == "mem" else "mem_per_cpu_mb": parse_megabytes(value)}
        case "nodelist" | "exclude":
            return {"only_nodes" if name == "nodelist" else "exclude": tuple(expand_hosts(value))}
        case "kill-on-invalid-dep":
            return {"kill_on_invalid_dep": {"yes": True, "no": False}[value]}
        case "open-mode":
            return {"append": {"append": True, "a": True, "truncate": False, "t": False}[value]}
        case "signal":
            return _signal(value)
        case "requeue" | "no-requeue":
            return {"requeue": name == "requeue"}
        case "hold" | "exclusive" | "parsable" | "quiet" | "test-only":
            return {name.replace("-", "_"): True}
        case "export":
            return {"environ": _exported(value, request.environ)}
        case _:
            return {}


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError(text)
    return number


def signal_number(text: str) -> int:
    """``USR2``, ``SIGUSR2`` or ``12``; KeyError or ValueError for other text."""
    return int(text) if text.isdecimal() else signal.Signals["SIG" + text.upper().removeprefix("SIG")].value


def _signal(text: str) -> dict[str, Any]:
    """``[B:]NAME[@SECONDS]``; 60 s where nothing is said."""
    flags, colon, rest = text.rpartition(":")
    name, _, lead = rest.partition("@")
    if colon and set(flags) - set("BR"):
        raise ValueError(text)
    return {"signal": signal_number(name), "signal_lead_s": float(int(lead or 60)), "signal_batch": "B" in flags}


def _exported(text: str, environ: Mapping[str, str]) -> dict[str, str]:
    """``ALL``, ``NONE`` or a list of ``NAME`` and ``NAME=value``, which may hold ``ALL``."""
    items = text.split(",")
    kept = (
        dict(environ)
        if "ALL" in items
        else {name: environ[name] for name in ("PATH", "HOME", "USER", "FAKE_SLURM_DIR") if name in environ}
    )
    for item in items:
        name, equals, value = item.partition("=")
        if equals:
            kept[name] = value
        elif name in environ:
            kept[name] = environ[name]
    return kept
