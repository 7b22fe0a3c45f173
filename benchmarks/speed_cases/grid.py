"""The waiting time that the orchestrator causes, and its calls of the scheduler.

10,000 experiments with all their settings are expanded to configurations and identities; a baseline, Hydra's own
``compose``, does a sample of the same rows in the same run, in turns (its time is scaled up).  2,000 runs in two
resource shapes are planned, submitted and looked at, with stand-ins for SLURM's commands that answer at once and note
that they were called: the time is that of our code.  100,000 runs are planned and 20,000 submitted, each once and in a
process of its own, whose peak of memory is shown; the disk is said to have room for them.  The figures are medians over
the turns, with the smallest and the largest.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import grid_run
from benchmarks.timing import in_turns, print_rows, seconds, summary
from grid.engine.states import ledger
from grid.engine.states.runs import runs_of
from grid.engine.sweeps.families import load
from settings import command_line, resolving

ROOT = Path(__file__).parents[2]
GENERATED = ("runs", "jobs", "figures", "data", ".venv", ".git")  # of the checkout itself: train/data is code
MAX_ARRAY_SIZE = 1001
SAMPLE = 40  # rows that Hydra composes
FAMILY = """
from grid.engine.sweep import Sweep, axis, point, product

TASK = point(data="digits", model="cnn", workers=4)
METHODS = [point(name.upper(), method=name) for name in ("alq", "alq_n", "amq", "qsgd", "nuqsgd")]

def ten_thousand() -> Sweep:
    '''Five methods, five widths, eight bucket sizes, five rates, ten seeds.'''
    sizes = axis("method.bucket_size", [64 * 2**i for i in range(8)])
    axes = [axis("method.bits", range(2, 7)), sizes, axis("optim.lr", [.01, .02, .05, .1, .2])]
    return Sweep(product(TASK, METHODS, *axes), seeds=range(1, 11))

def hundred_thousand() -> Sweep:
    '''The same with a hundred seeds.'''
    return Sweep(ten_thousand().points, seeds=range(1, 101), resources={"gpus": 0})

def every_other() -> Sweep:
    '''A hundred thousand points of one seed: each with settings of its own.'''
    points = product(ten_thousand().points, axis("optim.momentum", [0.005 * i for i in range(100)]))
    return Sweep(points, seeds=(1,), resources={"gpus": 0})

def twenty_thousand() -> Sweep:
    '''The same with twenty seeds.'''
    return Sweep(ten_thousand().points, seeds=range(1, 21), resources={"gpus": 0})

def two_thousand() -> Sweep:
    '''2,000 runs in two resource shapes.'''
    bits, buckets = axis("method.bits", range(2, 7)), axis("method.bucket_size", [512, 8192])
    axes = [bits, buckets, axis("optim.lr", [.01, .02, .05, .1])]
    needs = lambda config: {"gpus": 0, "time": "4:00:00" if config["method"]["bits"] == 6 else "1:00:00"}
    return Sweep(product(TASK, METHODS, *axes), seeds=range(1, 11), resources=needs, folder="two_thousand")
"""
# One command of grid_run.py; then its peak of memory in MB.
MEASURED = """
import pathlib, resource, shutil, sys, types
import grid_run
shutil.disk_usage = lambda path: types.SimpleNamespace(total=2**50, used=0, free=2**50)
code = grid_run.main(sys.argv[2:], pathlib.Path(sys.argv[1]))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
sys.exit(code)
"""
# Each command notes that it was called; sbatch counts its jobs, squeue prints the file `queue` beside it.
STAND_IN = """#!/bin/sh
here={folder}
echo "$(basename "$0") $*" >>"$here/calls"
case "$(basename "$0") $*" in
  sbatch*--test-only*) ;;
  sbatch*) id=$(($(cat "$here/last") + 1)); echo $id >"$here/last"; echo $id ;;
  squeue*) cat "$here/queue" ;;
  scontrol*config*) printf '%s = %s\\n' {limits} AccountingStorageType accounting_storage/none ClusterName bench ;;
esac
"""


def expansion(family: Path, turns: int) -> dict[str, list[float]]:
    """The seconds for 10,000 experiments, and Hydra's for as many, scaled up from a sample."""
    from hydra import compose, initialize

    from grid.engine.scripts.script import chosen

    command_line.register()
    words = [chosen(item, "") for item in load(str(family), "ten_thousand").experiments()[:: 10000 // SAMPLE]]
    with initialize(version_base="1.3", config_path=None):
        measures = {
            "ours": lambda: seconds(lambda: [item.name for item in load(str(family), "ten_thousand").experiments()]),
            "baseline": lambda: (
                seconds(lambda: [compose("experiment", overrides=line) for line in words]) * 10000 / len(words)
            ),
        }
        return in_turns(measures, turns, warm_up=0)


def process_s(*words: str) -> float:
    """The seconds of Python with these arguments, as a whole process."""
    return seconds(lambda: subprocess.run([sys.executable, *words], cwd=ROOT, check=True, capture_output=True))


def starts(turns: int) -> dict[str, list[float]]:
    """The seconds of ``--help`` and ``list``."""
    return in_turns({word: partial(process_s, "grid_run.py", word) for word in ("--help", "list")}, turns, warm_up=0)


def stand_ins(folder: Path) -> None:
    """Write stand-ins for SLURM's commands, first on PATH."""
    for name in ("sbatch", "squeue", "scontrol", "sacct", "scancel"):
        path = folder / name
        path.write_text(STAND_IN.format(folder=folder, limits=f"MaxArraySize {MAX_ARRAY_SIZE} MaxJobCount 100000"))
        path.chmod(0o755)
    (folder / "last").write_text("100")
    os.environ["PATH"] = f"{folder}{os.pathsep}{os.environ['PATH']}"


def calls(folder: Path, name: str, without: str = "\0") -> int:
    """The number of times a command was called since the last look."""
    path = folder / "calls"
    lines = path.read_text().splitlines() if path.exists() else []
    return sum(1 for line in lines if line.startswith(f"{name} ") and without not in line)


def quietly(words: list[str], root: Path) -> None:
    """Run a command of grid_run.py; its output is shown only where it fails."""
    text = io.StringIO()
    with contextlib.redirect_stdout(text), contextlib.redirect_stderr(text):
        code = grid_run.main(words, root)
    if code:
        raise RuntimeError(f"grid_run.py {' '.join(words)}: exit code {code}\n{text.getvalue()}")


def history(root: Path, family: Path, bench: Path) -> None:
    """Write a history for the submitted runs: of every ten, six are done, one failed, one runs, two wait."""
    runs = runs_of(load(str(family), "two_thousand").experiments(), root)
    claims = ledger.claims(ledger.read_all(root, "two_thousand"), root)
    queue, now = [], time.time()
    for number, run in enumerate(runs):
        element = claims[run.run_dir].element or ""
        job, _, index = element.partition("_")
        word = ("done", "done", "done", "done", "done", "done", "failed", "running", "", "")[number % 10]
        if word in ("", "running"):
            queue.append(
                f"{element}|{'RUNNING' if word else 'PENDING'}|{now - 90:.0f}|{now - 60:.0f}|N/A|"
                f"{'n1' if word else ''}|{'None' if word else 'Priority'}"
            )
        if word:
            slurm = {"SLURM_JOB_ID": job, "SLURM_ARRAY_JOB_ID": job, "SLURM_ARRAY_TASK_ID": index}
            record: dict[str, Any] = {
                "state": word,
                "attempt": 1,
                "host": socket.gethostname(),
                "pid": os.getpid(),
                "slurm": slurm,
                "start": now - 50,
            }
            record |= {
                "heartbeat": now,
                "step": 500,
                "steps": 1000,
                "seconds": 50.0,
                "exit_code": None,
                "failure": None,
            }
            run.folder.status.write_text(json.dumps(record, indent=1))
    (bench / "queue").write_text("\n".join(queue) + "\n")


def checkout(folder: Path) -> tuple[Path, Path]:
    """The folders (of the stand-ins, of a copy of this checkout without what is generated)."""
    bench, root = folder / "bin", folder / "checkout"
    bench.mkdir()

    def generated(place: str, names: list[str]) -> set[str]:
        return {name for name in names if name == "__pycache__" or (name in GENERATED and Path(place) == ROOT)}

    shutil.copytree(ROOT, root, ignore=generated, symlinks=True)
    (root / "jobs").mkdir()
    (bench / "queue").write_text("")
    stand_ins(bench)
    return bench, root


def large(family: Path) -> dict[str, Any]:
    """The seconds and peaks of memory of whole processes that plan 100,000 runs and submit 20,000."""
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        _, root = checkout(Path(folder))

        def measured(command: str, sweep: str, name: str) -> None:
            words = [sys.executable, "-c", MEASURED, str(root), command, str(family), sweep]
            started = time.perf_counter()
            done = subprocess.run(words, cwd=ROOT, check=True, capture_output=True, text=True, errors="replace")
            figures[f"{name}_s"] = round(time.perf_counter() - started, 3)
            figures[f"{name}_peak_mb"] = int(done.stdout.splitlines()[-1])

        measured("plan", "hundred_thousand", "plan_100000")
        measured("plan", "every_other", "plan_100000_points")
        measured("plan", "twenty_thousand", "plan_20000")
        measured("submit", "twenty_thousand", "submit_20000")
    return figures


def submitting(family: Path, turns: int) -> dict[str, Any]:
    """The figures of planning, submitting and looking at 2,000 runs."""
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        bench, root = checkout(Path(folder))
        name = [str(family), "two_thousand"]
        figures["plan_2000_s"] = round(seconds(lambda: quietly(["plan", *name, "--max_running", "50"], root)), 3)
        figures["submit_2000_s"] = round(seconds(lambda: quietly(["submit", *name], root)), 3)
        figures["submit_2000_sbatch_calls"] = calls(bench, "sbatch", without="--test-only")
        chunks = [chunk for item in ledger.read_all(root, "two_thousand") for chunk in item.chunks]
        figures["shapes"] = len({json.dumps(chunk.resources, sort_keys=True) for chunk in chunks})
        figures["chunks"] = len(chunks)
        history(root, family, bench)
        timed, queries = [], []
        program = "import sys, pathlib, grid_run; sys.exit(grid_run.main(sys.argv[2:], pathlib.Path(sys.argv[1])))"
        for _ in range(turns):
            (bench / "calls").unlink(missing_ok=True)
            (root / "jobs" / "scheduler.json").unlink(missing_ok=True)
            timed.append(process_s("-c", program, str(root), "status", *name))
            queries.append(calls(bench, "squeue") + calls(bench, "sacct") + calls(bench, "scontrol"))
        figures["status_2000_runs"] = summary(timed)
        figures["status_2000_runs_queries"] = max(queries)
    return figures


def figures(turns: int) -> dict[str, Any]:
    """The seconds, calls and peaks of memory of the commands."""
    with tempfile.TemporaryDirectory() as folder:
        family = Path(folder) / "bench_family.py"
        family.write_text(FAMILY)
        expanded, started = expansion(family, turns), starts(turns)
        ratios = [their / own for their, own in zip(expanded["baseline"], expanded["ours"], strict=True)]
        found = {
            "expand_10000": summary(expanded["ours"]),
            "hydra_compose_10000": summary(expanded["baseline"]),
            "help": summary(started["--help"]),
            "list": summary(started["list"]),
            "expand_speedup_over_hydra": summary(ratios),
            **submitting(family, turns),
            **large(family),
        }
    print_rows("", {name: {"": value} for name, value in found.items()})
    last = {f"{name}_s": found[name]["median"] for name in ("expand_10000", "help", "list", "status_2000_runs")}
    last |= {name: found[name] for name in ("shapes", "chunks", "status_2000_runs_queries")}
    last |= {name: value for name, value in found.items() if name.startswith(("plan_", "submit_"))}
    settings = sum(len(part) if isinstance(part, dict) else 1 for part in resolving.resolve({}).values())
    return {**last, "settings_per_experiment": settings, "figures": found}
