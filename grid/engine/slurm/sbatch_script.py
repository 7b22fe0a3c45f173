"""The text of an sbatch file, made with submitit; only this package knows SLURM."""

from __future__ import annotations

import importlib.metadata
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from grid.engine.scripts.templates import filled, piece
from grid.engine.slurm.site import Site
from grid.engine.sweeps.resources import Resources

SUBMITIT = ((1, 5), (1, 6))  # versions whose private text function has the signature we call: from, below
# A run that is checkpointed and requeued more often is going nowhere; one in other hands is looked for without end.
MAX_REQUEUES = 100
LARGEST_INDEX = 1000  # the largest index of an array under SLURM's default MaxArraySize
CHECKPOINT_S = 20  # the part of the warning that torchrun leaves for what comes after the ranks


def array_spec(first: int, count: int, max_running: int | None) -> str:
    """The array specification: ``0-37``, or ``0-37%8`` with at most 8 elements running at once."""
    return f"{first}-{first + count - 1}" + (f"%{max_running}" if max_running else "")


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
    """The original command's array job: it runs ``jobs/<prefix>_<first>.sh`` and so on, one script an element.

    ``code`` is the snapshot that they execute, as seen from ``root``; empty: the checkout as it is then.
    """
    pinned = f"export NUQ_CODE={shlex.quote(str(root / code))}\n" if code else ""
    start = f'{pinned}bash jobs/{prefix}_"$SLURM_ARRAY_TASK_ID".sh &'
    names = {"root": shlex.quote(str(root)), "script": f"jobs/{prefix}"}
    return _text(
        piece("wait")
        + filled("batch_command", **names, start=start, max_requeues=MAX_REQUEUES, requeue="scontrol requeue"),
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
    """The array job of a chunk: element i runs ``<folder>/<prefix>_<i>.sh``, i from 0 to count - 1, ``cap`` at a time.

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
    start = filled(
        "batch_element",
        exports="\n".join(f"export {name}={shlex.quote(value)}" for name, value in exports.items()),
        job=shlex.quote(str(place / f"{prefix}.job")),
        preamble="".join(f"{line}\n" for line in site.preamble()),
        script=shlex.quote(str(place / prefix)),
    )
    names = {"root": shlex.quote(str(root)), "script": shlex.quote(str(place / prefix))}
    command = filled("batch_command", **names, start=start, max_requeues=site.max_requeues, requeue="requeue")
    tasks = 1 if resources.nodes > 1 else resources.ranks_per_node * parallel  # on several nodes one torchrun each
    mail = {"mail_user": site.mail.user, "mail_type": ",".join(site.mail.on)} if site.mail else {}
    return _text(
        piece("wait") + command,
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
    """The log file of an element; sbatch's own marks in the path are escaped."""
    return f"{str(folder).replace('%', '%%')}/{prefix}_%A_%a.log"


def _options(texts: Sequence[str]) -> dict[str, str | bool]:
    """Options such as ``--licenses=a`` and ``--exclusive`` as names with values."""
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
