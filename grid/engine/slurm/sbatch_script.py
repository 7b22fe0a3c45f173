"""The text of an sbatch file, made with submitit; only this package knows SLURM."""

from __future__ import annotations

import importlib.metadata
import inspect
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from grid.engine.scripts.templates import filled, piece
from grid.engine.slurm.site import Site
from settings.resources import Resources

SUBMITIT = ((1, 5), (1, 6))  # versions whose private text function has the signature we call: from, below
TRIED = "1.5.4"  # the newest of them, and the newest there is: the texts on record are made with it
NO_SITE = Site()
LARGEST_INDEX = 1000  # the largest index of an array under SLURM's default MaxArraySize
CHECKPOINT_S = 20  # the part of the warning that torchrun leaves for what comes after the ranks

# Variables that bind the steps of a job -> the options of a profile that set them (salloc and srun do, too).
BINDING: dict[str, tuple[str, ...]] = {
    '"${!SLURM_CPU_BIND@}"': (),
    '"${!SLURM_MEM_BIND@}"': ("mem_bind",),
    "SLURM_GPU_BIND": ("gpu_bind", "tres_bind"),
    "SLURM_TRES_BIND": ("gpu_bind", "tres_bind"),
    "SLURM_GPUS_PER_TASK": (),
    "SLURM_THREADS_PER_CORE": ("threads_per_core", "hint", "extra_node_info"),
}


def array_spec(indices: range, max_running: int | None) -> str:
    """The array specification: ``0-37``, or ``0-37%8`` with at most 8 elements running at once."""
    return f"{indices[0]}-{indices[-1]}" + (f"%{max_running}" if max_running else "")


def sbatch_text(
    job_name: str,
    root: Path,
    base: Path,
    indices: range,
    resources: Resources,
    site: Site = NO_SITE,
    *,
    code: str = "",
    parallel: int = 1,
    cap: int | None = None,
    dependency: str | None = None,
    is_original: bool = False,
) -> str:
    """The array job whose element i runs ``<base>_<i>.sh``, i in ``indices``, ``cap`` at a time.

    ``resources`` are those of one experiment, of which a script runs ``parallel`` at a time.  ``code`` is the snapshot
    that they execute (as seen from ``root``, as ``base`` is; empty: the checkout itself), ``dependency`` what SLURM has
    to wait for, as sbatch takes it.  Logs are ``logs/<name>_<job>_<index>.log`` beside the scripts, where ``<name>`` is
    the last part of ``base``: that folder has to exist.  ``<base>.job`` gets the array's id from the first element that
    starts.  ``is_original``: the file of the original command, which people hand to sbatch themselves, as often as they
    like: it asks for tasks as it always did, and leaves no ``.job``.
    """
    place = root / base
    if is_original:
        script = str(base)
        pinned = f"export NUQ_CODE={shlex.quote(str(root / code))}\n" if code else ""
        start = f'{pinned}bash {script}_"$SLURM_ARRAY_TASK_ID".sh &'
    else:
        script = shlex.quote(str(place))
        start = _element(root, place, site, code)
    tasks = 1 if resources.nodes > 1 else resources.ranks_per_node * parallel  # on several nodes one torchrun each
    mail = {"mail_user": site.mail.user, "mail_type": ",".join(site.mail.on)} if site.mail else {}
    names = ("partition", "account", "qos", "constraint", "exclude", "time")
    options = {
        "requeue": True,
        **{name: getattr(resources, name) for name in names},
        "nodes": resources.nodes,
        "ntasks" if is_original else "ntasks_per_node": tasks,
        "cpus_per_task": resources.cpus_for(parallel) // tasks,
        "gpus_per_node": _gpus(resources, parallel),
        "mem": resources.mem_for(parallel),
        "array": array_spec(indices, cap),
        "output": f"{str(place.parent / 'logs').replace('%', '%%')}/{place.name}_%A_%a.log",  # % is sbatch's own mark
        "signal": f"B:USR2@{site.signal_s}",
        "dependency": dependency,
        "kill_on_invalid_dep": "yes" if dependency else None,
        **mail,
        **_options(site.sbatch),
    }
    return _made(
        command=piece("wait")
        + filled(
            "batch_command",
            root=shlex.quote(str(root)),
            binding=" ".join(word for word, own in BINDING.items() if options.keys().isdisjoint(own)),
            script=script,
            start=start,
            max_requeues=site.max_requeues,
        ),
        folder="unused",  # the name of the log is an option
        job_name=job_name,
        time=None,
        wckey=None,
        additional_parameters={name: value for name, value in options.items() if value is not None},
        stderr_to_stdout=True,
        use_srun=False,
    )


def _gpus(resources: Resources, parallel: int) -> str | int | None:
    """GPUs per node, as sbatch takes them; None for none."""
    number = resources.gpus_for(parallel)
    return f"{resources.gpu_type}:{number}" if number and resources.gpu_type else number or None


def _element(root: Path, place: Path, site: Site, code: str) -> str:
    """The lines that start the script of an element, after those of the site."""
    exports = {
        "NUQ_SHUTDOWN_S": str(max(CHECKPOINT_S, site.signal_s - CHECKPOINT_S)),
        **({"NUQ_CODE": str(root / code)} if code else {}),
    }
    return filled(
        "batch_element",
        exports="\n".join(f"export {name}={shlex.quote(value)}" for name, value in exports.items()),
        job=shlex.quote(f"{place}.job"),
        preamble="".join(f"{line}\n" for line in site.preamble()),
        script=shlex.quote(str(place)),
    )


def _options(texts: Sequence[str]) -> dict[str, str | bool]:
    """Options such as ``--licenses=a`` and ``--exclusive`` as names with values."""
    options: dict[str, str | bool] = {}
    for text in texts:
        name, equals, value = text.removeprefix("--").partition("=")
        options[name.replace("-", "_")] = value if equals else True
    return options


def _made(**arguments: Any) -> str:
    """The text that submitit's private function makes; ValueError where the installed version does not have it so."""
    version = importlib.metadata.version("submitit")
    lowest, above = SUBMITIT
    try:
        from submitit.slurm.slurm import _make_sbatch_string

        inspect.signature(_make_sbatch_string).bind(**arguments)
        is_there = lowest <= tuple(int(part) for part in version.split(".")[:2]) < above
    except (ImportError, TypeError):
        is_there = False
    if not is_there:
        bounds = ">={}.{},<{}.{}".format(*lowest, *above)
        raise ValueError(
            f"submitit {version} is installed, but sbatch files are written with a private function of submitit "
            f"{bounds}, and this one may have changed it: pip install submitit=={TRIED}"
        )
    return _make_sbatch_string(**arguments)
