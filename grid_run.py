"""From a named sweep to job scripts, a SLURM array, local runs and their states.

The original command writes job scripts and an sbatch file; the subcommands look at sweeps and run them here.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from grid.engine.runs import Run
    from grid.engine.sweep import Experiment, Sweep

ROOT = Path(__file__).absolute().parent  # unresolved: a cluster may know the checkout by a link only
CLUSTERS = ("slurm", "local")
# The paper's tasks as bash files: pjobs/<name>.sh -> (family, run name).
TASKS = {
    "mnist": ("nuq", "mnist"),
    "resnet8": ("nuq", "cifar10_full_resnet8"),
    "resnet32": ("nuq", "cifar10_full_resnet32"),
    "resnet110": ("nuq", "cifar10_full_resnet110"),
    "imagenet_half": ("nuq", "imagenet_half"),
    "imagenet_full": ("nuq", "imagenet_full"),
    "abl_bucket_size": ("abl", "bucket_size"),
    "abl_bucket_size_trained": ("abl", "bucket_size_trained"),
    "abl_bits": ("abl", "bits"),
    "abl_interval": ("abl", "interval"),
}
EPILOG = """subcommands (each has --help):
  list                         every sweep with its number of experiments
  show GRID RUN_NAME [NAME]    the experiments as a table; one experiment's settings and script
  run GRID RUN_NAME [NAME]     run what is missing on this machine, in slots
  dry-run GRID RUN_NAME [NAME] a handful of steps of one experiment, and what the whole run would cost
  status GRID RUN_NAME         the state of every experiment
  pjobs                        write the paper's tasks to pjobs/ as ready bash files

examples:
  python grid_run.py --prefix exp --cluster slurm --run_name cifar10_full_resnet32 --grid nuq --cluster_args 38,1,p100
  python grid_run.py run demo demo
"""


def write_parser() -> argparse.ArgumentParser:
    """The original command's options, and what the resources of a script add to them."""
    parser = argparse.ArgumentParser(
        prog="grid_run.py",
        description="Write job scripts, and an sbatch file for SLURM, for a named sweep.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--grid", required=True, metavar="GRID", help="family of sweeps: nuq is grid/nuq.py; or the path of a file of your own"
    )
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
    _add_sweep_options(parser)
    return parser


def _add_sweep_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seeds", metavar="N|A,B,..", help="a count (3 is 1,2,3) or a list of seeds (default: the sweep's own)")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        dest="overrides",
        help="a setting for every experiment, as main.py takes it (data_dir=/data); may be repeated",
    )


def _command_parser(name: str, what: str, *, one: str | None = None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"grid_run.py {name}", description=what)
    parser.add_argument("grid", metavar="GRID", help="family of sweeps: nuq is grid/nuq.py; or the path of a file of your own")
    parser.add_argument("run_name", metavar="RUN_NAME", help="the sweep: a function of that file")
    if one:
        parser.add_argument("name", metavar="NAME", nargs="?", help=f"one experiment, by number, label or run name (default: {one})")
    _add_sweep_options(parser)
    return parser


# --- reading the command line -------------------------------------------------------------------------------------


def _experiments(options: argparse.Namespace) -> tuple[Sweep, list[Experiment]]:
    from args import parse_overrides
    from grid.engine.sweep import load, parse_seeds

    sweep = load(options.grid, options.run_name, parse_seeds(options.seeds) if options.seeds else None)
    if options.overrides:
        settings = parse_overrides(options.overrides)
        for text in options.overrides:
            if text.partition("=")[0].strip() not in settings:
                raise ValueError(f"--set {text}: must be one value; several values make another sweep (seeds: --seeds)")
        sweep = sweep.override(settings)
    return sweep, sweep.experiments()


def _runs(options: argparse.Namespace, root: Path) -> list[Run]:
    from grid.engine.runs import runs_of
    from grid.engine.sweep import find

    _, experiments = _experiments(options)
    name = getattr(options, "name", None)
    return runs_of(experiments if name is None else [find(experiments, name)], root)


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


# --- commands -----------------------------------------------------------------------------------------------------


def write(argv: Sequence[str], root: Path) -> int:
    """Job scripts, run folders and the sbatch file of a sweep."""
    options = write_parser().parse_args(argv)
    _check_write(options)
    from grid.engine import slurm
    from grid.engine.plan import deal
    from grid.engine.runs import prepare, runs_of
    from grid.engine.script import from_script, job_script
    from grid.engine.state import write_text

    if options.submit:
        slurm.check_sbatch()
    sweep, experiments = _experiments(options)
    scripts, ranks, partition = _cluster_args(options.cluster_args, len(experiments))
    runs = runs_of(experiments, root)
    for run in runs:
        prepare(run)
    (root / "jobs" / "logs").mkdir(parents=True, exist_ok=True)
    first, last = options.run0_id, options.run0_id + scripts - 1
    for number, share in enumerate(deal(runs, scripts), start=first):
        text = job_script(sweep.title, [run.run_dir for run in share], from_script(1), ranks)
        write_text(root / "jobs" / f"{options.prefix}_{number}.sh", text, executable=True)
    print(f"{sweep.title}: {_count(len(experiments), 'experiment')}{_aliases(sweep, experiments)}")
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


def list_sweeps(argv: Sequence[str], root: Path) -> int:
    """Every sweep of grid/, with its number of experiments."""
    del root
    parser = argparse.ArgumentParser(prog="grid_run.py list", description="Every sweep, with its number of experiments.")
    parser.add_argument("grid", metavar="GRID", nargs="?", help="only this family, or a file of your own (default: all of grid/)")
    options = parser.parse_args(argv)
    from grid.engine.sweep import families, load, load_family

    rows = []
    for family in [options.grid] if options.grid else families():
        for run_name in load_family(family):
            sweep = load(family, run_name)
            experiments = sweep.experiments()
            count = f"{len(experiments)}" if sweep.num_points == len(experiments) else f"{len(experiments)} of {sweep.num_points}"
            rows.append((family, run_name, count, sweep.doc.partition("\n")[0]))
    _table(("GRID", "RUN_NAME", "EXPERIMENTS", "WHAT"), rows)
    return 0


def show(argv: Sequence[str], root: Path) -> int:
    """The experiments of a sweep, or everything about one of them."""
    options = _command_parser(
        "show", "The experiments of a sweep; with NAME, one's settings and script.", one="all, as a table"
    ).parse_args(argv)
    from grid.engine.script import chosen, from_script, run_script

    sweep, experiments = _experiments(options)
    if options.name is None:
        print(f"{sweep.title}: {sweep.doc}\n")
        settings = [item.settings for item in experiments]
        shared = {key: value for key, value in settings[0].items() if all(other.get(key) == value for other in settings)}
        print("shared by all: " + " ".join(f"{key}={value}".replace(", ", ",") for key, value in shared.items()) + "\n")
        rows = []
        for number, item in enumerate(experiments, start=1):
            own = " ".join(text for text in chosen(item, "") if text.partition("=")[0] not in {*shared, "run_dir"})
            rows.append((str(number), "; also: ".join([item.label, *item.aliases]), str(item.seed), own, item.name))
        _table(("#", "LABEL", "SEED", "SETTINGS", "RUN"), rows)
        print(f"\n{_count(len(experiments), 'experiment')}{_aliases(sweep, experiments)}")
        return 0
    import yaml

    (run,) = _runs(options, root)
    item = run.experiment
    print(f"# {item.label}{''.join(f'; also: {label}' for label in item.aliases)}\n# {run.run_dir}/config.yaml")
    print(yaml.safe_dump({**item.config, "run_dir": run.run_dir}, sort_keys=False))
    print(f"# {run.run_dir}/run.sh")
    print(run_script(item, run.run_dir, from_script(3)), end="")
    return 0


def run(argv: Sequence[str], root: Path) -> int:
    """Run what is missing of a sweep on this machine."""
    parser = _command_parser("run", "Run what is missing of a sweep on this machine. Done runs are skipped, stopped ones go on.", one="all")
    parser.add_argument("--slots", type=int, metavar="N", help="runs at once (default: one per GPU, else one per core)")
    options = parser.parse_args(argv)
    if options.slots is not None and options.slots < 1:
        raise ValueError(f"--slots {options.slots}: must be at least 1")
    from grid.engine.local import default_slots, run_with_progress

    return run_with_progress(_runs(options, root), options.slots or default_slots()).exit_code


def dry_run(argv: Sequence[str], root: Path) -> int:
    """A handful of steps of one experiment."""
    what = "A handful of steps of one experiment through the real code, and an estimate of time, memory and bytes for the whole run."
    options = _command_parser("dry-run", what, one="the first of the sweep").parse_args(argv)
    from grid.engine.script import pinned

    first = _runs(options, root)[0]
    print(f"dry run of {first.experiment.label}: {first.experiment.name}", flush=True)
    command = [os.environ.get("PYTHON", sys.executable), "-m", "train.dry_run", *pinned(first.experiment, first.run_dir)]
    return subprocess.run(command, cwd=root, check=False).returncode


def status(argv: Sequence[str], root: Path) -> int:
    """The state of every experiment of a sweep."""
    options = _command_parser("status", "The state of every experiment, from its own files.").parse_args(argv)
    from collections import Counter

    from grid.engine.runs import left_over

    runs = _runs(options, root)
    states = [item.state() for item in runs]
    rows = []
    for item, state in zip(runs, states, strict=True):
        progress = f"{state.step}/{state.steps}" if state.steps else ""
        rows.append((item.experiment.label, str(item.experiment.seed), state.word, progress, item.experiment.name, state.reason))
    _table(("LABEL", "SEED", "STATE", "STEP", "RUN", ""), rows)
    print("\n" + ", ".join(f"{count} {word}" for word, count in Counter(state.word for state in states).items()))
    if old := left_over([item.experiment for item in runs], root):
        print(
            f"{_count(len(old), 'folder')} of other settings or seeds beside them: {', '.join(path.name for path in old[:5])}{' ...' if len(old) > 5 else ''}"
        )
    return 0


def task_texts() -> dict[str, str]:
    """File name -> text of every file of pjobs/."""
    from grid.engine.script import task_script
    from grid.engine.sweep import load

    sweeps = {name: load(*task) for name, task in TASKS.items()}
    return {
        f"{name}.sh": task_script(sweep.title, sweep.doc, sweep.experiments(), "python grid_run.py pjobs") for name, sweep in sweeps.items()
    }


def pjobs(argv: Sequence[str], root: Path) -> int:
    """The paper's tasks as bash files."""
    argparse.ArgumentParser(prog="grid_run.py pjobs", description="Write the paper's tasks to pjobs/ as ready bash files.").parse_args(argv)
    from grid.engine.state import write_text

    (root / "pjobs").mkdir(exist_ok=True)
    for name, text in task_texts().items():
        write_text(root / "pjobs" / name, text, executable=True)
        print(f"wrote pjobs/{name}")
    return 0


COMMANDS: dict[str, Callable[[Sequence[str], Path], int]] = {
    "list": list_sweeps,
    "show": show,
    "run": run,
    "dry-run": dry_run,
    "status": status,
    "pjobs": pjobs,
}

# --- output -------------------------------------------------------------------------------------------------------


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}{'' if number == 1 else 's'}"


def _aliases(sweep: Sweep, experiments: Sequence[Any]) -> str:
    return "" if sweep.num_points == len(experiments) else f" ({sweep.num_points} points; those that mean the same run are run once)"


def _sentence(error: Exception) -> str:
    """What is wrong, in one line; of a system error the file and the system's word for it."""
    if not isinstance(error, OSError) or error.filename is None:
        return str(error)
    if isinstance(error, NotADirectoryError | FileExistsError):
        path = Path(os.fsdecode(error.filename)).absolute()
        for place in (*path.parents[::-1], path):
            if place.exists() and not place.is_dir():
                return f"{place} is a file, and a folder of that name is needed: move it away"
    return f"{error.filename}: {error.strerror}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    widths = [max(len(row[column]) for row in [head, *rows]) for column in range(len(head))]
    for row in [head, *rows]:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def main(argv: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """Exit code: 0 fine, 1 some runs failed, 2 bad input, 130 stopped by Ctrl-C; dry-run passes on that of the run."""
    words = list(sys.argv[1:] if argv is None else argv)
    if not words:
        words = ["--help"]
    try:
        if words[0].startswith("-"):
            return write(words, root)
        if words[0] not in COMMANDS:
            from nuq.registry import unknown

            raise unknown("command", words[0], list(COMMANDS))
        return COMMANDS[words[0]](words[1:], root)
    except BrokenPipeError:  # `grid_run.py show ... | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (ValueError, OSError) as error:
        print(f"grid_run.py: {_sentence(error)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
