"""The original command line: job scripts, and an sbatch file for SLURM, for a named sweep."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from pathlib import Path

from grid.commands.options import GRID_HELP, add_sweep_options, aliases, count, experiments_of

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
    parser.add_argument("--run_name", required=True, metavar="RUN_NAME", help="the sweep: a function of that file (see: grid_run.py list)")
    parser.add_argument("--prefix", default="exp", help="scripts are jobs/PREFIX_0.sh, jobs/PREFIX_1.sh, ... (default: exp)")
    parser.add_argument("--cluster", default="slurm", help="slurm: scripts and an sbatch file; local: scripts only (default: slurm)")
    parser.add_argument(
        "--cluster_args",
        default="",
        metavar="N[,RANKS[,PARTITION]]",
        help="number of scripts, torch.distributed ranks per experiment, SLURM partition (default: one script per experiment, 1 rank)",
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
    """(scripts, ranks, partition) of ``38,1,p100``; the later ones may be left out."""
    parts = [part.strip() for part in text.split(",")] if text else []
    numbers = parts[:2]
    if len(parts) > 3 or not all(part.isdecimal() and int(part) > 0 for part in numbers):
        raise ValueError(f"--cluster_args {text}: must be N[,RANKS[,PARTITION]] with whole numbers above 0, as in 38,1,p100")
    if len(parts) == 3 and not re.fullmatch(r"[\w.-]+", parts[2]):
        raise ValueError(f"--cluster_args {text}: {parts[2]!r} is no name of a partition")
    return int(parts[0]) if parts else num_experiments, int(parts[1]) if len(parts) > 1 else 1, parts[2] if len(parts) > 2 else None


def _check_write(options: argparse.Namespace) -> None:
    from nuq.registry import unknown

    if options.cluster not in CLUSTERS:
        raise unknown("cluster", options.cluster, list(CLUSTERS))
    if not re.fullmatch(r"[A-Za-z0-9_][\w.-]*", options.prefix):
        raise ValueError(f"--prefix {options.prefix!r}: use letters, digits, '_', '-' and '.'; it becomes part of file names")
    for name, low in (("run0_id", 0), ("max_running", 1), ("gpus", 0), ("cpus", 1)):
        value = getattr(options, name)
        if value is not None and value < low:
            raise ValueError(f"--{name} {value}: must be at least {low}")
    if options.cluster == "local" and options.submit:
        raise ValueError("--submit needs --cluster slurm; `python grid_run.py run GRID RUN_NAME` runs a sweep on this machine")


def write(argv: Sequence[str], root: Path, epilog: str = "") -> int:
    """Job scripts, run folders and the sbatch file of a sweep."""
    options = write_parser(epilog).parse_args(argv)
    _check_write(options)
    from grid.engine import slurm
    from grid.engine.plan import deal
    from grid.engine.runs import prepare, runs_of
    from grid.engine.script import from_script, job_script
    from grid.engine.state import write_text

    if options.submit:
        slurm.check_sbatch()
    sweep, experiments = experiments_of(options)
    scripts, ranks, partition = _cluster_args(options.cluster_args, len(experiments))
    runs = runs_of(experiments, root)
    for run in runs:
        prepare(run)
    (root / "jobs" / "logs").mkdir(parents=True, exist_ok=True)
    first, last = options.run0_id, options.run0_id + scripts - 1
    for number, share in enumerate(deal(runs, scripts), start=first):
        text = job_script(sweep.title, [run.run_dir for run in share], from_script(1), ranks)
        write_text(root / "jobs" / f"{options.prefix}_{number}.sh", text, executable=True)
    print(f"{sweep.title}: {count(len(experiments), 'experiment')}{aliases(sweep, experiments)}")
    print(f"wrote runs/{experiments[0].folder}/*/ (config.yaml, run.sh)")
    print(f"wrote jobs/{options.prefix}_{first}.sh .. jobs/{options.prefix}_{last}.sh")
    if scripts > len(experiments):
        enough = ",".join([str(len(experiments)), *options.cluster_args.split(",")[1:]])
        print(f"hint: {scripts - len(experiments)} scripts are empty; --cluster_args {enough} would do")
    if options.cluster == "slurm":
        _write_sbatch(options, root, scripts, ranks, partition)
    return 0


def _write_sbatch(options: argparse.Namespace, root: Path, scripts: int, ranks: int, partition: str | None) -> None:
    from grid.engine import slurm
    from grid.engine.state import write_text

    names = ("gpus", "cpus", "mem", "time", "account", "qos", "constraint", "exclude")
    resources = slurm.Resources(ranks=ranks, partition=partition, **{name: getattr(options, name) for name in names})
    path = root / "jobs" / f"{options.prefix}_slurm.sbatch"
    write_text(path, slurm.sbatch_text(options.prefix, root, options.run0_id, scripts, resources, options.max_running))
    print(f"wrote {path.relative_to(root)} (array {slurm.array_spec(options.run0_id, scripts, options.max_running)})")
    if options.run0_id + scripts - 1 > slurm.LARGEST_INDEX:
        print(
            f"hint: many clusters refuse array indices above {slurm.LARGEST_INDEX} (MaxArraySize); fewer scripts hold the same experiments"
        )
    if options.submit:
        print(f"submitted job {slurm.submit(path)}")
    else:
        print(f"next: sbatch {path.relative_to(root)}")
