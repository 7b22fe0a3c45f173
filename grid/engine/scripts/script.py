"""The text of the bash scripts of an experiment and of a share of a sweep: pure functions of values."""

from __future__ import annotations

import functools
import shlex
from collections.abc import Sequence

from grid.engine.scripts.templates import filled, piece
from grid.engine.sweeps.experiments import Experiment
from grid.engine.sweeps.overrides import chosen, pinned
from settings.resources import Resources

SHUTDOWN_S = 100  # torchrun waits so long for a checkpoint after a signal; jobs are warned 120 s before their end
PORTS = (20000, 32000)  # ports of the rendezvous: below those that systems hand out by themselves

_quoted = functools.lru_cache(maxsize=4096)(shlex.quote)  # most words of thousands of runs are the same


def run_script(experiment: Experiment, run_dir: str, checkout: str) -> str:
    """The text of ``run.sh``: it runs one experiment from any folder, with the exit codes of main.py.

    ``checkout`` is the bash expression that names the checkout (see ``from_script``); ``run_dir`` is seen from there,
    and from the snapshot that NUQ_CODE may name in its place.  NUQ_NPROC ranks are spread over NUQ_NODES nodes of a
    SLURM job.
    """
    label = " ".join(experiment.label.split()) or experiment.name
    head = filled(
        "head",
        what=f"{label}, seed {experiment.seed}: one experiment of the sweep {experiment.folder}; written by "
        f"grid_run.py",
        how="bash run.sh works from any folder. Exit codes: 0 done, 75 checkpointed on a signal, 2 bad settings, 3 "
        "diverged,"
        "\n# 4 another process has its folder, else a crash",
    )
    lines = "\n".join(f"  {_quoted(text)}" for text in pinned(experiment, run_dir))
    body = filled(
        "run",
        run_dir=shlex.quote(run_dir),
        overrides=lines,
        after=_after(experiment),
        workers=experiment.config["workers"],
        shutdown_s=SHUTDOWN_S,
        ports="{} {}".format(*PORTS),
    )
    return head + filled("code", checkout=checkout) + filled("python", variable="NUQ_PYTHON") + piece("wait") + body


def _after(experiment: Experiment) -> str:
    """The lines of ``run.sh`` that wait for other runs; none where it waits for none."""
    firsts = "\n".join(f"  {shlex.quote(f'runs/{experiment.folder}/{name}')}" for name in experiment.after)
    return filled("after", firsts=firsts) if firsts else ""


def from_script(steps_up: int) -> str:
    """The bash expression for the folder so many steps above the script's own."""
    return '"$(dirname "${BASH_SOURCE[0]}")' + "/.." * steps_up + '"'


def job_script(
    title: str,
    run_dirs: Sequence[str],
    checkout: str,
    resources: Resources | int,
    *,
    parallel: int = 1,
    preamble: Sequence[str] = (),
) -> str:
    """The text of a script that runs a share of a sweep, one run after another or ``parallel`` at a time.

    Its exit codes: 0 all done, 75 please requeue, 1 some failed.

    ``resources`` are those of one experiment (a number: so many ranks).  ``preamble`` are lines of bash to begin with.
    ValueError for several runs at a time on several nodes.
    """
    if isinstance(resources, int):
        resources = Resources(ranks=resources)
    if parallel < 1 or (parallel > 1 and resources.nodes > 1):
        raise ValueError(
            f"parallel={parallel}: must be 1 for experiments on several nodes (nodes={resources.nodes}), else at "
            f"least 1"
        )
    place = filled("here", checkout=checkout)
    if not run_dirs:
        what = f"An empty share of {title}: there are more scripts than experiments."
        return (
            filled("head", what=what, how="Written by grid_run.py.")
            + place
            + 'echo "nothing to do: more scripts than experiments"\n'
        )
    count = f"{len(run_dirs)} experiment{'s' if len(run_dirs) > 1 else ''}"
    pace = f"{parallel} at a time" if parallel > 1 else "one after another"
    head = filled(
        "head",
        what=f"{count} of {title}, {pace}; what is done is skipped; written by grid_run.py",
        how="Exit codes: 0 all done, 75 checkpointed on a signal or in other hands (please requeue), 1 some failed",
    )
    slots = min(parallel, len(run_dirs))
    runs = filled(
        "runs",
        ranks=resources.ranks,
        nodes=f'export NUQ_NODES="${{NUQ_NODES:-{resources.nodes}}}"\n' if resources.nodes > 1 else "",
        runs="\n".join(f"  {shlex.quote(run)}" for run in run_dirs),
        where=" in slot $NUQ_SLOT" if slots > 1 else "",
        output=" >/dev/null" if slots > 1 else "",  # a run has its own log also where this shell writes to a terminal
    )
    loose = "\n".join(["set +u", *preamble, "set -u", ""]) if preamble else ""
    return head + piece("ledger") + place + piece("wait") + loose + runs + _work(resources, slots) + piece("result")


def _work(resources: Resources, slots: int) -> str:
    if slots == 1:
        return piece("one_after_another")
    num_gpus = resources.gpus_for(slots)
    find = own = ""
    if num_gpus:
        shared, per_run = resources.runs_per_gpu, resources.gpus_for(1)
        first = f"$1 / {shared}" if shared > 1 else f"$1 * {per_run}"
        find, own = filled("find_gpus", num_gpus=num_gpus), filled("own_gpus", first=first, per_run=per_run)
    return filled("slots", find_gpus=find, own_gpus=own, slots=slots)


def task_script(title: str, summary: str, experiments: Sequence[Experiment], command: str) -> str:
    """The text of a task of ``pjobs/``: one plain command per experiment, to run as a whole or to copy from."""
    head = filled(
        "head",
        what=f"{title}: {summary}",
        how=f"One command per experiment; a finished one returns at once. Written by `{command}`.",
    )
    parts = [head + filled("here", checkout=from_script(1)), filled("python", variable="PYTHON"), piece("task")]
    for item in experiments:
        also = f" (also: {', '.join(item.aliases)})" if item.aliases else ""
        words = " ".join(shlex.quote(text) for text in chosen(item, f"runs/{item.folder}/{item.name}"))
        parts.append(f"\n# {item.label}{also}\nrun {words}\n")
    return "".join([*parts, '\nexit "${failed:-0}"\n'])
