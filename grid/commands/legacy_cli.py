"""The original command line: job scripts, and an sbatch file for SLURM, for a named sweep."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from grid.commands.options import GRID_HELP, add_sweep_options, aliases, count, experiments_of

if TYPE_CHECKING:
    from grid.engine.states.runs import Run
    from grid.engine.sweep import Sweep
    from grid.engine.sweeps.resources import Resources

CLUSTERS = ("slurm", "local")


def write_parser(epilog: str = "") -> argparse.ArgumentParser:
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
    resources = parser.add_argument_group("resources of one script")
    resources.add_argument("--gpus", type=int, metavar="N", help="GPUs (default: one per rank; 0: none)")
    resources.add_argument("--cpus", type=int, default=3, metavar="N", help="cores per rank (default: 3)")
    resources.add_argument("--mem", default="18GB", help="memory (default: 18GB)")
    resources.add_argument("--time", help="time limit as SLURM takes it, such as 12:00:00 (default: the partition's)")
    resources.add_argument("--account", help="SLURM account (default: your own)")
    resources.add_argument("--qos", help="SLURM quality of service")
    resources.add_argument("--constraint", help="node features")
    resources.add_argument("--exclude", help="nodes to avoid")
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
    """Job scripts, run folders and the sbatch file of a sweep."""
    options = write_parser(epilog).parse_args(argv)
    _check_write(options)
    from grid.engine.slurm import sbatch_command, sbatch_script
    from grid.engine.states.chunk_submission import only_one
    from grid.engine.states.runs import runs_of

    if options.submit:
        sbatch_command.check_sbatch()
    sweep, experiments = experiments_of(options)
    scripts, ranks, partition = _cluster_args(options.cluster_args, len(experiments))
    resources = _resources(options, ranks, partition)
    if options.cluster == "slurm":
        # whatever it refuses
        sbatch_script.sbatch_text(options.prefix, root, options.run0_id, scripts, resources, options.max_running)
    runs = runs_of(experiments, root)
    if not options.submit:
        _check_prefix(options.prefix, root)
        _write_scripts(options, root, sweep, runs, scripts, ranks)
        if options.cluster == "slurm":
            path = _write_sbatch(options, root, scripts, resources)
            print(f"next: sbatch {path.relative_to(root)}")
        return 0
    with only_one(root, experiments[0].folder):
        _check_queue(runs, root)
        _check_prefix(options.prefix, root)
        shares = _write_scripts(options, root, sweep, runs, scripts, ranks)
        _submit(options, root, sweep, shares, resources)
    return 0


def _write_scripts(
    options: argparse.Namespace, root: Path, sweep: Sweep, runs: Sequence[Run], scripts: int, ranks: int
) -> list[list[str]]:
    """The run folders and the job scripts; the runs of each script."""
    from files.atomic import write_text
    from grid.engine.scripts.script import from_script, job_script
    from grid.engine.states.runs import prepare, shared, sign
    from grid.engine.submission.plan import deal

    for line in shared(sweep, root):
        print(line)
    sign(sweep, root)
    prepare(runs)
    (root / "jobs" / "logs").mkdir(parents=True, exist_ok=True)
    first, last = options.run0_id, options.run0_id + scripts - 1
    shares = [[run.run_dir for run in share] for share in deal(runs, scripts)]
    for number, share in enumerate(shares, start=first):
        text = job_script(sweep.title, share, from_script(1), ranks)
        write_text(root / "jobs" / f"{options.prefix}_{number}.sh", text, executable=True)
    experiments = [run.experiment for run in runs]
    print(f"{sweep.title}: {count(len(runs), 'experiment')}{aliases(sweep, experiments)}")
    print(f"wrote runs/{experiments[0].folder}/*/ (config.yaml, run.sh)")
    print(f"wrote jobs/{options.prefix}_{first}.sh .. jobs/{options.prefix}_{last}.sh")
    if scripts > len(runs):
        enough = ",".join([str(len(runs)), *options.cluster_args.split(",")[1:]])
        print(
            f"hint: {scripts - len(runs)} scripts are empty, jobs/{options.prefix}_{first + len(runs)}.sh and on: the "
            f"sweep has {count(len(runs), 'experiment')}, and the original too writes as many scripts as it is told; "
            f"--cluster_args {enough} would do"
        )
    return shares


def _resources(options: argparse.Namespace, ranks: int, partition: str | None) -> Resources:
    from grid.engine.sweeps.resources import Resources

    names = ("gpus", "cpus", "mem", "time", "account", "qos", "constraint", "exclude")
    return Resources(ranks=ranks, partition=partition, **{name: getattr(options, name) for name in names})


def _write_sbatch(options: argparse.Namespace, root: Path, scripts: int, resources: Resources, code: str = "") -> Path:
    from files.atomic import write_text
    from grid.engine.slurm import sbatch_script

    path = root / "jobs" / f"{options.prefix}_slurm.sbatch"
    write_text(
        path,
        sbatch_script.sbatch_text(
            options.prefix, root, options.run0_id, scripts, resources, options.max_running, code=code
        ),
    )
    print(
        f"wrote {path.relative_to(root)} (array "
        f"{sbatch_script.array_spec(options.run0_id, scripts, options.max_running)})"
    )
    if options.run0_id + scripts - 1 > sbatch_script.LARGEST_INDEX:
        print(
            f"hint: many clusters refuse array indices above {sbatch_script.LARGEST_INDEX} (MaxArraySize); fewer "
            f"scripts "
            f"hold the same experiments"
        )
    return path


# --- submitting ---------------------------------------------------------------------------------------------------


def _check_queue(runs: Sequence[Run], root: Path) -> None:
    """Raise ValueError where one of the runs is in the queue or alive: nothing is submitted twice."""
    from grid.engine.states import evidence, ledger

    folder = runs[0].experiment.folder
    evidence.settle(ledger.read_all(root, folder), root)
    view = evidence.look([run.run_dir for run in runs], [folder], root, max_age_s=0)
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
        runs = [run for chunk in chunks for element in chunk.elements for run in element]
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


def _submit(
    options: argparse.Namespace, root: Path, sweep: Sweep, shares: Sequence[Sequence[str]], resources: Resources
) -> None:
    """Hand the sbatch file over, and write down which element runs what."""
    import dataclasses
    import time

    from grid.engine.scripts import snapshot
    from grid.engine.slurm import sbatch_command
    from grid.engine.states import chunk_submission, ledger

    code, pinned = snapshot.snapshot(root)
    path = _write_sbatch(options, root, len(shares), resources, pinned)
    chunk = ledger.Chunk(
        options.prefix,
        dataclasses.asdict(resources),
        shares,
        options.max_running,
        first=options.run0_id,
        scripts=f"jobs/{options.prefix}",
    )
    folder = sweep.folder or sweep.run_name
    item = ledger.Submission(
        folder, ledger.new_id(time.time()), sweep.title, {**dataclasses.asdict(code), "path": pinned}, 1, [chunk]
    )
    item.save(root)
    item = chunk_submission.hand_over(
        item, root, lambda now, part: path, lambda file: sbatch_command.submit(file, item.job_name(chunk))
    )
    print(f"submitted job {item.chunks[0].job_id}")
