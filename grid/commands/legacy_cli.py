"""The original command line: job scripts, and an sbatch file for SLURM, for a named sweep."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from grid.commands.options import (
    GRID_HELP,
    add_resources,
    add_sweep_options,
    aliases,
    count,
    experiments_of,
    resources_of,
)

if TYPE_CHECKING:
    from grid.engine.states.ledger import Chunk, Submission
    from grid.engine.states.runs import Run
    from grid.engine.sweep import Sweep

CLUSTERS = ("slurm", "local")


def write_parser(epilog: str) -> argparse.ArgumentParser:
    """The original command's options, and what the resources of a script add to them."""
    parser = argparse.ArgumentParser(
        prog="grid_run.py",
        description="Write job scripts, and an sbatch file for SLURM, for a named sweep.",
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--grid", required=True, metavar="GRID", help=GRID_HELP)
    parser.add_argument(
        "--run_name",
        required=True,
        metavar="RUN_NAME",
        help="the sweep: a function of that file (see: grid_run.py list)",
    )
    parser.add_argument(
        "--prefix", default="exp", help="scripts are jobs/PREFIX_0.sh, jobs/PREFIX_1.sh, ... (default: exp)"
    )
    parser.add_argument(
        "--cluster", default="slurm", help="slurm: scripts and an sbatch file; local: scripts only (default: slurm)"
    )
    parser.add_argument(
        "--cluster_args",
        default="",
        metavar="N[,RANKS[,PARTITION]]",
        help="number of scripts, torch.distributed ranks per experiment, SLURM partition (default: one script per "
        "experiment, 1 rank)",
    )
    parser.add_argument("--run0_id", type=int, default=0, metavar="I", help="number of the first script (default: 0)")
    parser.add_argument("--max_running", type=int, metavar="N", help="at most N scripts at once (default: no cap)")
    parser.add_argument("--submit", action="store_true", help="hand the sbatch file to sbatch")
    parser.add_argument("--gpus", type=int, metavar="N", help="GPUs of one experiment (default: one per rank; 0: none)")
    add_resources(parser, "resources of one experiment", without=("nodes", "ranks", "partition", "gpus", "gpu_type"))
    add_sweep_options(parser)
    return parser


def _cluster_args(text: str, num_experiments: int) -> tuple[int, int, str | None]:
    """The parts (scripts, ranks, partition) of ``38,1,p100``; the later ones may be left out."""
    parts = [part.strip() for part in text.split(",")] if text else []
    numbers = parts[:2]
    if len(parts) > 3 or not all(part.isdecimal() and int(part) > 0 for part in numbers):
        raise ValueError(
            f"--cluster_args {text}: must be N[,RANKS[,PARTITION]] with whole numbers above 0, as in 38,1,p100"
        )
    if len(parts) == 3 and not re.fullmatch(r"[\w.-]+", parts[2]):
        raise ValueError(f"--cluster_args {text}: {parts[2]!r} is no name of a partition")
    return (
        int(parts[0]) if parts else num_experiments,
        int(parts[1]) if len(parts) > 1 else 1,
        parts[2] if len(parts) > 2 else None,
    )


def _check_write(options: argparse.Namespace) -> None:
    from nuq.settings import unknown

    if options.cluster not in CLUSTERS:
        raise unknown("cluster", options.cluster, list(CLUSTERS))
    if not re.fullmatch(r"[A-Za-z0-9_][\w.-]*", options.prefix):
        raise ValueError(
            f"--prefix {options.prefix!r}: use letters, digits, '_', '-' and '.'; it becomes part of file names"
        )
    for name, low in (("run0_id", 0), ("max_running", 1), ("gpus", 0), ("cpus", 1)):
        value = getattr(options, name)
        if value is not None and value < low:
            raise ValueError(f"--{name} {value}: must be at least {low}")
    if options.cluster == "local" and options.submit:
        raise ValueError(
            "--submit needs --cluster slurm; `python grid_run.py run GRID RUN_NAME` runs a sweep on this machine"
        )


def write(argv: Sequence[str], root: Path, epilog: str = "") -> int:
    """Write the job scripts, run folders and the sbatch file of a sweep; with --submit, hand it over as `submit` does.

    A plan of one array, in which every experiment of the sweep is, whatever its state, and no site has a say.
    """
    options = write_parser(epilog).parse_args(argv)
    _check_write(options)
    from grid.engine.slurm import sbatch_command, sbatch_script
    from grid.engine.states.chunk_submission import hand_over, only_one
    from grid.engine.states.runs import check_folder, prepare, runs_of, sign
    from grid.engine.submission import writing
    from grid.engine.sweeps.experiments import plugins_of

    if options.submit:
        sbatch_command.check_sbatch()
    sweep, experiments = experiments_of(options)
    sweep.check_read()
    check_folder(sweep, root)
    if waiting := next((one for one in experiments if one.after), None):
        raise ValueError(
            f"{sweep.title}, point {waiting.label!r}: waits for other runs, and what this command line writes "
            f"cannot: use `plan` and `submit`"
        )
    runs = runs_of(experiments, root)
    item = _submission(options, sweep, runs)
    (chunk,) = item.chunks
    if options.cluster == "slurm":
        writing.sbatch_text(item, chunk, root, sbatch_script.NO_SITE)  # whatever it refuses
    with only_one(root, item.folder) if options.submit else contextlib.nullcontext():
        if options.submit:
            _check_queue(runs, root)
        _check_prefix(options.prefix, root)
        sign(sweep, root)
        prepare(runs)
        writing.write_scripts(item, chunk, root)
        print(f"{sweep.title}: {count(len(runs), 'experiment')}{aliases(sweep, experiments)}")
        print(f"wrote runs/{item.folder}/*/ (config.yaml, run.sh)")
        _tell_scripts(chunk, len(runs), options.cluster_args)
        if options.cluster == "local":
            return 0
        if options.submit:
            item = writing.pinned(item, root, plugins_of(experiments))
        path = writing.write_sbatch(item, chunk, root, sbatch_script.NO_SITE)
        print(f"wrote {path.relative_to(root)} (array {sbatch_script.array_spec(chunk.indices, chunk.cap)})")
        if chunk.indices[-1] > sbatch_script.LARGEST_INDEX:
            print(
                f"hint: many clusters refuse array indices above {sbatch_script.LARGEST_INDEX} (MaxArraySize); fewer "
                f"scripts hold the same experiments"
            )
        if not options.submit:
            print(f"next: sbatch {path.relative_to(root)}")
            return 0
        item.save(root)
        submit = functools.partial(sbatch_command.submit, job_name=item.job_name(chunk))
        hand_over(item, chunk, root, lambda now, part: path, submit, lambda part: print(f"submitted job {part.job_id}"))
    return 0


def _submission(options: argparse.Namespace, sweep: Sweep, runs: Sequence[Run]) -> Submission:
    """The original line as the submission of one array."""
    from grid.engine.states.ledger import Chunk, Submission, new_id
    from grid.engine.states.runs import signature
    from grid.engine.submission.plan import deal
    from settings.resources import Resources

    scripts, ranks, partition = _cluster_args(options.cluster_args, len(runs))
    chunk = Chunk(
        options.prefix,
        dataclasses.asdict(Resources(ranks=ranks, partition=partition, **resources_of(options))),
        deal([run.run_dir for run in runs], scripts),
        options.max_running,
        first=options.run0_id,
        scripts=f"jobs/{options.prefix}",
    )
    folder, owner = runs[0].experiment.folder, signature(sweep, runs[0].root)
    return Submission(folder, new_id(time.time()), sweep.title, {"digest": "", "path": ""}, 1, [chunk], owner=owner)


def _tell_scripts(chunk: Chunk, num_runs: int, cluster_args: str) -> None:
    names = [f"{chunk.scripts}_{index}.sh" for index in chunk.indices]
    print(f"wrote {names[0]} .. {names[-1]}")
    if len(names) > num_runs:
        enough = ",".join([str(num_runs), *cluster_args.split(",")[1:]])
        print(
            f"hint: {len(names) - num_runs} scripts are empty, {names[num_runs]} and on: the sweep has "
            f"{count(num_runs, 'experiment')}, and the original too writes as many scripts as it is told; "
            f"--cluster_args {enough} would do"
        )


def _check_queue(runs: Sequence[Run], root: Path) -> None:
    """Raise ValueError where one of the runs is in the queue or alive: nothing is submitted twice."""
    from grid.engine.states import evidence, ledger

    folder = runs[0].experiment.folder
    evidence.settle(ledger.read_all(root, folder), root)
    view = evidence.of(runs, root, max_age_s=0)
    taken = [state for state in view.states.values() if state.word != "done" and not state.may_start]
    if taken:
        jobs = (
            ", ".join(sorted({state.element.partition("_")[0] for state in taken if state.element}))
            or "another process"
        )
        raise ValueError(
            f"{count(len(taken), 'run')} of this sweep {'is' if len(taken) == 1 else 'are'} queued or running already "
            f"({taken[0].word}; job {jobs}): nothing was submitted; `python grid_run.py cancel GRID RUN_NAME` takes "
            "them out of the queue"
        )


def _check_prefix(prefix: str, root: Path) -> None:
    """Raise ValueError where scripts of this prefix are in the queue: they must not change under it."""
    from grid.engine.states import evidence, ledger

    for path in sorted((root / "jobs" / "sweeps").glob(f"*/*/{ledger.RECORD}")):
        item = ledger.read(path)
        chunks = [chunk for chunk in item.chunks if chunk.scripts == f"jobs/{prefix}" and chunk.is_settled]
        runs = [run for chunk in chunks for run in chunk.runs]
        if not runs:
            continue
        view = evidence.look(runs, [item.folder], root)
        ids = {chunk.job_id for chunk in chunks}
        alive = [
            state
            for state in view.states.values()
            if not state.may_start and state.element.partition("_")[0] in ids and state.word != "done"
        ]
        if alive:
            raise ValueError(
                f"--prefix {prefix}: job {alive[0].element.partition('_')[0]} of {item.title} still runs "
                f"jobs/{prefix}_*.sh ({alive[0].word}); choose another prefix, or wait for it"
            )
