"""Errors of grid_run.py's command lines, in an empty checkout or one with a sweep of two runs."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shlex
import sys
import time
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import grid_run
from grid.engine.states import ledger
from grid.engine.states.runs import prepare, runs_of
from grid.engine.submission import rehearsal
from grid.engine.sweeps.families import load
from tests.errors.rows import Row, cli
from tests.grid import fake
from tests.grid.slurm_answers import CONFIG, Commands

SWEEP = """from grid.engine.sweep import Sweep, after, axis, point, product, union

def tiny() -> Sweep:
    return Sweep(product(point("QSGD", method="qsgd", steps=7), axis("method.bits", [2, 3])), folder="tiny")

def waits() -> Sweep:
    return Sweep(union(point("a", method="qsgd"), product(point("b", method="trn"), after("a"))))
"""


def _nothing(folder: Path) -> None: ...


def grid(line: str, given: str = "", before: Callable[[Path], object] = _nothing) -> Row:
    """A command line, in a folder with the file of sweeps and an empty checkout; ``before`` is done there first.

    given: what is wrong, where the line alone does not tell.
    """
    command, *words = shlex.split(line)
    name = "grid_run.py" if command.startswith("-") else f"grid_run.py {command}"

    def make(folder: Path) -> int:
        if not (folder / "mine.py").exists():
            (folder / "mine.py").write_text(SWEEP)
        before(folder)
        with mock.patch.object(sys, "stdin", io.StringIO()):
            return grid_run.main([command, *words], folder / "checkout")

    return cli(name, given or line.removeprefix(command).strip() or "-", make)


def tiny(line: str, given: str = "", before: Callable[[Path], object] = _nothing) -> Row:
    """A command line of the sweep ``tiny``."""
    command, _, options = line.partition(" ")
    return grid(f"{command} mine.py tiny {options}".strip(), given or options, before)


def original(options: str, given: str = "", before: Callable[[Path], object] = _nothing) -> Row:
    """The original command line of the sweep ``tiny``."""
    return grid(f"--grid mine.py --run_name tiny {options}", given or options, before)


def queue(line: str, given: str = "", before: Callable[[Path, Commands], object] = lambda folder, slurm: None) -> Row:
    """A command line where SLURM's commands are."""
    one = original(line) if line.startswith("-") else tiny(line, line.partition(" ")[2] or "-")

    def make(folder: Path) -> object:
        path = f"{folder / 'bin'}:{os.environ['PATH']}"
        with mock.patch.dict(os.environ, {"PATH": path, "NUQ_LAG_S": "0"}):
            (folder / "mine.py").write_text(SWEEP)
            before(folder, _slurm(folder))
            return one.make(folder)

    return cli(one.call, given or one.given, make)


def _slurm(folder: Path) -> Commands:
    """Stand-ins for SLURM's commands, below the folder: an empty queue that takes job 4711."""
    (folder / "bin").mkdir()
    commands = Commands(folder / "bin")
    commands.say("sbatch", "4711\n")
    commands.say("scontrol", CONFIG)
    for name in ("squeue", "sacct", "scancel", "sinfo"):
        commands.say(name, "")
    return commands


def _quiet(folder: Path, *words: str) -> None:
    """A command of the sweep ``tiny`` that succeeds."""
    with contextlib.redirect_stdout(io.StringIO()):
        assert grid_run.main([words[0], "mine.py", "tiny", *words[1:]], folder / "checkout") == 0


def _planned(folder: Path, slurm: Commands) -> None:
    fake.checkout(folder / "checkout")
    _quiet(folder, "plan")


def _submitted(folder: Path, slurm: Commands) -> None:
    _planned(folder, slurm)
    _quiet(folder, "submit")
    _queued(folder, slurm)


def _queued(folder: Path, slurm: Commands) -> None:
    """Both scripts of the submission wait in the queue."""
    (item,) = ledger.read_all(folder / "checkout", "tiny")
    name, now = item.job_name(item.chunks[0]), f"{time.time():.0f}"
    jobs = [f"4711_{index}|PENDING|{now}|N/A|N/A||Priority\x1f{name}\x1fx\n" for index in (0, 1)]
    slurm.say("squeue", "".join(jobs))


def _edited(folder: Path, slurm: Commands) -> None:
    _planned(folder, slurm)
    (folder / "checkout/main.py").write_text("print(2)")


def _refusing(folder: Path, slurm: Commands) -> None:
    _planned(folder, slurm)
    slurm.say("sbatch", "", 1, "sbatch: error: invalid partition specified: gpu")


def _silent(folder: Path, slurm: Commands) -> None:
    _submitted(folder, slurm)
    slurm.say("squeue", "", 1, "slurm_load_jobs error: Unable to contact slurm controller (connect failure)")


def _written_by_the_original(folder: Path, slurm: Commands) -> None:
    fake.checkout(folder / "checkout")
    with contextlib.redirect_stdout(io.StringIO()):
        assert grid_run.main(["--grid", "mine.py", "--run_name", "tiny", "--submit"], folder / "checkout") == 0
    _queued(folder, slurm)


def _half_submitted(folder: Path, slurm: Commands) -> None:
    """SLURM would take the array, and then refuses it."""
    _planned(folder, slurm)
    (slurm.folder / "sbatch").write_text("#!/bin/sh\n[ $1 = --test-only ] || { echo 'no room' >&2; exit 1; }\n")
    with contextlib.redirect_stderr(io.StringIO()):
        grid_run.main(["submit", "mine.py", "tiny"], folder / "checkout")


def _done_meanwhile(folder: Path, slurm: Commands) -> None:
    _half_submitted(folder, slurm)
    _ended(folder, "done", 0)


def _without_a_script(folder: Path, slurm: Commands) -> None:
    _half_submitted(folder, slurm)
    for path in (folder / "checkout/runs/tiny").glob("qsgd-3b-*/run.sh"):
        path.unlink()
    (folder / "mine.py").write_text(SWEEP.replace("[2, 3]", "[2]"))


def _stopped(folder: Path, slurm: Commands) -> None:
    """A run stopped at its checkpoint and left the queue."""
    _submitted(folder, slurm)
    slurm.say("squeue", "")
    _ended(folder, "preempted", 75)


def _stopped_and_edited(folder: Path, slurm: Commands) -> None:
    _stopped(folder, slurm)
    (folder / "checkout/main.py").write_text("print(2)")


def _stopped_and_refused(folder: Path, slurm: Commands) -> None:
    _stopped(folder, slurm)
    slurm.say("sbatch", "", 1, "sbatch: error: invalid partition specified: gpu")


def _of_another_size(folder: Path) -> None:
    """The model cannot be built with the data."""
    _begun(folder)
    place = folder / "checkout" / rehearsal.MODULE
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(
        "import json, sys\nbuild = json.load(sys.stdin)['build']\n"
        "print(json.dumps({'refused': ['resnet8 needs 32x32'] * len(build), 'data': []}))\n"
    )


def _begun(folder: Path) -> None:
    """The folders of both runs."""
    fake.checkout(folder / "checkout")
    prepare(runs_of(load("mine.py", "tiny").experiments(), folder / "checkout"))


def _ended(folder: Path, state: str, code: int) -> None:
    """One of both runs has ended so by its own record."""
    path = min((folder / "checkout/runs/tiny").glob("qsgd*"))
    now = time.time()
    record = {"state": state, "exit_code": code, "host": "n", "pid": 1, "start": now, "heartbeat": now, "attempt": 1}
    element = {"SLURM_JOB_ID": "4711", "SLURM_ARRAY_JOB_ID": "4711", "SLURM_ARRAY_TASK_ID": "0"}
    (path / "status.json").write_text(json.dumps({**record, "step": 3, "steps": 7, "slurm": element}))


def _failed(folder: Path) -> None:
    _begun(folder)
    _ended(folder, "failed", 1)


ROWS = [
    grid("plann", "a command that is none"),
    grid("show", "without a sweep"),
    grid("plan mine.py tiny --bogus"),
    tiny("plan --gpus many"),
    tiny("plan --per_script 0"),
    tiny("plan --parallel 2"),
    tiny("plan --ignore tiem"),
    tiny("plan --set steps=1,2"),
    tiny("plan --name mine"),
    tiny("plan --sweep method=alq"),
    tiny("submit --seeds 3"),
    tiny("submit --site x.yaml"),
    tiny("submit --canary"),
    tiny("submit --time 1:00:00"),
    tiny("status --json --watch"),
    tiny("status --where method=alq"),
    tiny("logs --lines 0"),
    tiny("logs", "before any run began"),
    tiny("logs --job", before=_begun),
    tiny("collect --json --format parquet"),
    tiny("collect --format parquet --out -"),
    tiny("collect --out ."),
    tiny("collect --out mine.py/table.csv"),
    tiny("prune --json --delete"),
    queue("submit", "before a plan", lambda folder, slurm: _begun(folder)),
    queue("submit", "after the code was edited", _edited),
    queue("submit", "which SLURM refuses", _refusing),
    queue("cancel", "of queued runs, where nobody can be asked", _submitted),
    queue("cancel --yes", "where the controller does not answer", _silent),
    queue("--submit", "of queued runs", _submitted),
    queue("--prefix exp", "of scripts in the queue", _written_by_the_original),
    queue("submit", "of runs that are done meanwhile", _done_meanwhile),
    queue("submit", "of a run without a script, which has left the sweep", _without_a_script),
    queue("submit", "of a run that stopped, with edited code", _stopped_and_edited),
    queue("submit", "of a run that stopped, which SLURM refuses", _stopped_and_refused),
    tiny("run", "of a model that does not fit the data", _of_another_size),
    queue("retry --auto --here"),
    queue("retry --auto --mem 4G"),
    queue("retry --max_time 1:00:00"),
    queue("retry --auto --max_time soon"),
    queue("retry --auto --max_mem lots"),
    queue("retry --auto --max_mem ''"),
    queue("retry --max_attempts 3"),
    queue("retry --ignore dsk --kind lost"),
    queue("retry --auto --max_attempts 1"),
    queue(
        "retry --yes",
        "of a failed run, which SLURM refuses",
        lambda folder, slurm: (_failed(folder), slurm.say("sbatch", "", 1, "sbatch: error: no")),
    ),
    queue("retry", "of a failed run, where nobody can be asked", lambda folder, slurm: _failed(folder)),
    queue("retry --auto"),
    queue("retry --auto --max_time 1:00:00"),
    queue("retry --kind cancelled"),
    queue("retry --kind tired"),
    queue("retry --factor 1"),
    queue("retry --auto --max_time 1:00:00 --max_mem 4G --code"),
    tiny("run --slots 0"),
    grid("diff runs/a runs/b"),
    # the original line
    original("--cluster_args 3,x"),
    original("--cluster_args '3,1,a b'"),
    original("--cluster slrum"),
    original("--prefix a/b"),
    original("--cpus 0"),
    original("--cluster local --submit"),
    grid("--grid mine.py --run_name waits"),
]

HELD = {
    "grid/engine/submission/rehearsal.py:_ask": (
        "tests/grid/submission/test_rehearsal.py::test_what_could_not_be_built_is_no_reason_against_it"
    ),
}
