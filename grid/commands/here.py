"""The subcommand that runs a sweep on this machine: run."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from grid.commands.options import again, command_parser, experiments_of, runs_named, tell_folder

if TYPE_CHECKING:
    from grid.engine.states.runs import Run


def run(argv: Sequence[str], root: Path) -> int:
    """Run the missing experiments of a sweep on this machine."""
    parser = command_parser(
        "run", "Run what is missing of a sweep on this machine. Done runs are skipped, stopped ones go on.", some="all"
    )
    parser.add_argument(
        "--slots", type=int, metavar="N", help="runs at once (default: as many as cores and GPUs allow)"
    )
    options = parser.parse_args(argv)
    from grid.engine.local import kept
    from grid.engine.local.machine import check_slots
    from grid.engine.local.slots import run_with_progress
    from grid.engine.states.runs import sign
    from grid.engine.sweep import load

    check_slots(options.slots)
    experiments_of(options)[0].check_read()
    runs = runs_named(options, root)
    sweep = load(options.grid, options.run_name)
    tell_folder(sweep)
    if sweep.keep:
        number, damaged = kept.restore(runs)
        if number:
            print(f"{number} runs were made elsewhere and are kept in {kept.RESULTS}/{runs[0].experiment.folder}")
        for folder in damaged:
            print(f"{folder.relative_to(root)} is not whole: that run is made anew")
    left = {**_diverged(runs, options), **in_the_queue(runs, root)}
    check(runs, left, root)
    sign(sweep, root)
    for run in runs if sweep.keep else ():  # of a runner that was killed
        kept.keep(run)
    return run_with_progress(runs, options.slots, left, kept.keep if sweep.keep else None).exit_code


def check(runs: Sequence[Run], busy: Collection[str], root: Path) -> None:
    """Raise ValueError where runs would end before their first step, or where earlier runs were made on other data."""
    from grid.engine.submission.rehearsal import rehearse

    states = {run.run_dir: run.state() for run in runs}
    start = [run for run in runs if states[run.run_dir].may_start and run.run_dir not in busy]
    found = rehearse(start, runs, states, root)
    for note in found.notes:
        print(f"note: {note}")
    if found.problems:
        raise ValueError("nothing was started: " + "; ".join(found.problems))


def _diverged(runs: Sequence[Run], options: argparse.Namespace) -> dict[str, str]:
    """The reasons why runs that diverge each time are not started again, by run folder; ``retry`` skips them, too."""
    retry = f"{again('retry', options.grid, options.run_name)} --here --kind non_finite"
    return {
        run.run_dir: f"it diverged, and would again ({retry} starts it all the same)"
        for run in runs
        if run.state().word == "diverged"
    }


def in_the_queue(runs: Sequence[Run], root: Path) -> dict[str, str]:
    """The reasons why runs are not to be started here, by run folder: SLURM is to run them, or may be running them."""
    from grid.engine.states import evidence, ledger

    if not ledger.folder_of(root, runs[0].experiment.folder).is_dir():
        return {}
    view = evidence.of(runs, root, max_age_s=0)
    return {
        run: f"{state.word}: {state.reason or f'job {state.element}'}"
        for run, state in view.states.items()
        if not state.may_start
    }
