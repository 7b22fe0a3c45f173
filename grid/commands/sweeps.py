"""The subcommands that look at sweeps: list, show, dry-run, and pjobs, which writes the paper's tasks as bash files."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from files.tables import add_json, as_json
from grid.commands.options import Parser, aliases, command_parser, count, experiments_of, runs_named, table
from grid.commands.report import unmeasured

if TYPE_CHECKING:
    from grid.engine.sweep import Experiment

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


def list_sweeps(argv: Sequence[str], root: Path) -> int:
    """List every sweep of grid/, with its number of experiments."""
    del root
    parser = Parser(prog="grid_run.py list", description="Every sweep, with its number of experiments.")
    parser.add_argument(
        "grid", metavar="GRID", nargs="?", help="only this family, or a file of your own (default: all of grid/)"
    )
    add_json(parser)
    options = parser.parse_args(argv)
    from grid.engine.sweeps.families import families, makers

    found, wrong = [], []
    for family in [options.grid] if options.grid else families():
        for run_name, make in makers(family, may_be_empty=not options.grid).items():  # a file may only hold points
            try:
                sweep = make()
                numbers = {"experiments": len(sweep.experiments()), "points": sweep.num_points}
            except ValueError as error:
                wrong.append(f"{run_name}() of {family} is left out: {error}")
                continue
            found.append({"grid": family, "run_name": run_name, **numbers, "summary": sweep.summary})
    if options.json:
        print(as_json(found))
    elif found:
        _show_sweeps(found)
    for line in wrong:
        print(f"grid_run.py: {line}", file=sys.stderr)
    return 2 if wrong else 0


def _show_sweeps(found: Sequence[Mapping[str, Any]]) -> None:
    rows = []
    for item in found:
        number, points = item["experiments"], item["points"]
        counted = f"{number}" if number == points else f"{number} of {points}"
        rows.append((item["grid"], item["run_name"], counted, item["summary"]))
    table(("GRID", "RUN_NAME", "EXPERIMENTS", "WHAT"), rows)


def show(argv: Sequence[str], root: Path) -> int:
    """Show the experiments of a sweep, or everything about one of them."""
    parser = command_parser(
        "show", "The experiments of a sweep; with NAME, one's settings and script.", one="all, as a table"
    )
    add_json(parser)
    options = parser.parse_args(argv)
    from grid.engine.scripts.script import chosen, from_script, run_script

    sweep, experiments = experiments_of(options)
    sweep.check_read()
    if options.name is None and options.json:
        of_all = [_known(item) for item in experiments]
        print(as_json({"sweep": sweep.title, "what": sweep.doc, "points": sweep.num_points, "experiments": of_all}))
        return 0
    if options.name is None:
        print(f"{sweep.title}: {sweep.doc}\n")
        settings = [item.settings for item in experiments]
        shared = {
            key: value for key, value in settings[0].items() if all(other.get(key) == value for other in settings)
        }
        print("shared by all: " + " ".join(f"{key}={value}".replace(", ", ",") for key, value in shared.items()) + "\n")
        rows = []
        for number, item in enumerate(experiments, start=1):
            own = " ".join(text for text in chosen(item, "") if text.partition("=")[0] not in {*shared, "run_dir"})
            rows.append((str(number), "; also: ".join([item.label, *item.aliases]), str(item.seed), own, item.name))
        table(("#", "LABEL", "SEED", "SETTINGS", "RUN"), rows)
        print(f"\n{count(len(experiments), 'experiment')}{aliases(sweep, experiments)}")
        for line in dict.fromkeys(
            f"{item.label} waits for {', '.join(dict.fromkeys(item.after.values()))}"
            for item in experiments
            if item.after
        ):
            print(line)
        for line in sweep.duplicates():
            print(f"note: {line}")
        for line in unmeasured(experiments):
            print(f"note: {line}")
        return 0
    import yaml

    run = runs_named(options, root)[0]
    item = run.experiment
    script = run_script(item, run.run_dir, from_script(3))
    if options.json:
        print(as_json({**_known(item), "run_dir": run.run_dir, "config": item.config, "script": script}))
        return 0
    print(f"# {item.label}{''.join(f'; also: {label}' for label in item.aliases)}\n# {run.run_dir}/config.yaml")
    print(yaml.safe_dump({**item.config, "run_dir": run.run_dir}, sort_keys=False))
    print(f"# {run.run_dir}/run.sh")
    print(script, end="")
    return 0


def _known(item: Experiment) -> dict[str, Any]:
    """An experiment as plain values."""
    return {name: getattr(item, name) for name in ("name", "label", "aliases", "seed", "settings", "after")}


def dry_run(argv: Sequence[str], root: Path) -> int:
    """Run a handful of steps of one experiment."""
    what = (
        "A handful of steps of one experiment through the real code, and an estimate of time, memory and bytes for "
        "the whole run."
    )
    options = command_parser("dry-run", what, one="the first of the sweep").parse_args(argv)
    import subprocess
    import tempfile

    from grid.engine.scripts.script import pinned
    from grid.engine.submission.preflight import keep_measured

    first = runs_named(options, root)[0]
    print(f"dry run of {first.experiment.label}: {first.experiment.name}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        measured = Path(folder, "measured.json")
        command = [
            os.environ.get("NUQ_PYTHON", sys.executable),
            "-m",
            "train.dry_run",
            *pinned(first.experiment, first.run_dir),
        ]
        environ = {**os.environ, "NUQ_MEASURED": str(measured)}
        code = subprocess.run(command, cwd=root, env=environ, check=False).returncode
        if measured.exists():
            keep_measured(first, round(json.loads(measured.read_text())["disk_gb"] * 1e9), root)
    return code


def task_texts() -> dict[str, str]:
    """File name -> text of every file of pjobs/."""
    from grid.engine.scripts.script import task_script
    from grid.engine.sweep import load

    sweeps = {name: load(*task) for name, task in TASKS.items()}
    return {
        f"{name}.sh": task_script(sweep.title, sweep.summary, sweep.experiments(), "python grid_run.py pjobs")
        for name, sweep in sweeps.items()
    }


def pjobs(argv: Sequence[str], root: Path) -> int:
    """Write the paper's tasks as bash files."""
    Parser(prog="grid_run.py pjobs", description="Write the paper's tasks to pjobs/ as ready bash files.").parse_args(
        argv
    )
    from files.atomic import write_text

    (root / "pjobs").mkdir(exist_ok=True)
    for name, text in task_texts().items():
        write_text(root / "pjobs" / name, text, executable=True)
        print(f"wrote pjobs/{name}")
    return 0
