"""The subcommands that put runs into the queue: plan, submit, retry."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from files.tables import add_json, as_json, beside_json
from grid.commands.cancelling import cancel_unwanted
from grid.commands.options import (
    add_consent,
    add_ignore,
    add_queue_options,
    again,
    as_planned,
    command_parser,
    consent,
    count,
    options_of,
    runs_named,
    words_of,
)
from grid.commands.report import doubts, show_plan

if TYPE_CHECKING:
    from grid.engine.states.ledger import Chunk, Submission
    from grid.engine.submission.planning import Made, Options, Reviewed
    from grid.engine.submission.preflight import Finding
    from grid.engine.submission.retry import Bounds

WAITS = 75  # exit code: something waits for room, and the same command goes on with it


# --- plan ---------------------------------------------------------------------------------------------------------


def plan(argv: Sequence[str], root: Path) -> int:
    """Show what a submission would do, and keep it as the reviewed plan."""
    parser = command_parser(
        "plan",
        "What `submit` would do with a sweep: new, done, running, failed and changed runs, the arrays, and the hours "
        "left.",
    )
    add_queue_options(parser)
    parser.add_argument(
        "--scripts", action="store_true", help="also write the exact scripts that submit would use, and say where"
    )
    add_json(parser)
    parsed = parser.parse_args(argv)
    from grid.engine.submission import planning

    with beside_json(parsed.json):
        made = planning.make(options_of(parsed), root, max_age_s=0)
        made.sweep.check_read()
        found = _planned(made, parsed.scripts, root)
    if parsed.json:
        whole = made.plan
        states = {run: state.word for run, state in made.view.states.items()}
        print(as_json({
            "sweep": whole.title, "code": whole.code, "states": states, "problems": found,
            "submit": [item.run_dir for item in whole.submit],
            "cancel": [dataclasses.asdict(item) for item in whole.cancel],
            "arrays": [dataclasses.asdict(chunk) for chunk in whole.chunks],
        }))  # fmt: skip
    return 1 if found else 0


def _planned(made: Made, with_scripts: bool, root: Path) -> list[str]:
    """Show a plan, check it, and keep it as the reviewed one; returns what forbids submitting it."""
    from grid.engine.submission import planning, waves

    show_plan(made, root)
    found = planning.check(made, root)
    problems = _told(found)
    for text in problems:
        print(f"problem: {text}")
    if made.plan.submit and planning.slurm_is_here():
        wanted = waves.scripts(made.plan.chunks)
        if (room := waves.room(made.site, root, wanted)) is not None and room.scripts < wanted:
            print(
                f"note: submit hands over {room.scripts} of {wanted} scripts now ({room.why}), and the rest when it "
                f"is called again"
            )
    if with_scripts and made.plan.submit:
        _write_scripts(made, root)
    planning.keep(made, found, root)
    if (made.plan.submit or made.plan.cancel) and not problems:
        grid, run_name = made.options.grid, made.options.run_name
        if planning.slurm_is_here():
            print(f"\nnext: {again('submit', grid, run_name)}")
        else:
            here = f"{again('run', grid, run_name)} {words_of(made.options)}".rstrip()
            print(f"\nsubmit needs sbatch, which is not here; on this machine: {here}")
    return problems


def _told(found: Sequence[Finding]) -> list[str]:
    """The reasons that forbid submitting the plan; the other results of the checks are printed."""
    for item in found:
        if not item.forbids:
            print(f"note: {item.text}")
    return [item.text for item in found if item.forbids]


def _write_scripts(made: Made, root: Path) -> None:
    from grid.engine.submission import planning, writing

    item = planning.submission_of(made)
    for chunk in item.chunks:
        path = writing.write_chunk(item, chunk, root, made.site)
        first = item.script(root, chunk, chunk.first).name
        print(f"wrote {path.relative_to(root)} and {count(len(chunk.elements), 'script')} {first} .. beside it")


# --- submit -------------------------------------------------------------------------------------------------------


def submit(argv: Sequence[str], root: Path) -> int:
    """Apply exactly the reviewed plan."""
    parser = command_parser(
        "submit",
        "Submit what `plan` showed: exactly that, or nothing. An interrupted submission goes on.",
        sweep_options=False,
    )
    parser.takes_a_plan = True
    add_consent(parser)
    add_ignore(parser)
    parsed = parser.parse_args(argv)
    from grid.engine.slurm import sbatch_command
    from grid.engine.states import chunk_submission, evidence, ledger
    from grid.engine.states.runs import named
    from grid.engine.submission import planning
    from grid.engine.submission.plan import differences

    _, experiments = named(parsed.grid, parsed.run_name)
    sbatch_command.check_sbatch()
    folder = experiments[0].folder
    with chunk_submission.only_one(root, folder):
        before = planning.reviewed(root, folder)
        if before is None or not before.is_of(parsed.grid, parsed.run_name):
            raise ValueError(
                f"no plan of {parsed.grid} {parsed.run_name} has been reviewed: "
                f"{again('plan', parsed.grid, parsed.run_name)}"
            )
        known = evidence.settle(ledger.read_all(root, folder), root)
        if begun := [item for item in known if item.id == before.id]:
            return _go_on(begun[0], before.options, root)
        options = dataclasses.replace(before.options, ignore=[*before.options.ignore, *parsed.ignore])
        made = planning.make(options, root, max_age_s=0)
        if found := differences(vars(before.essence), made.plan.essence()):
            look = again("plan", parsed.grid, parsed.run_name)
            raise ValueError(
                f"things are not as they were when the plan was made: {'; '.join([*found, *doubts(made.view)])}. "
                f"Nothing was submitted; look again: {look}"
            )
        made = dataclasses.replace(made, plan=dataclasses.replace(made.plan, id=before.id))
        if not made.plan.submit and not made.plan.cancel:
            print("; ".join(["nothing to submit", *doubts(made.view)]))
            return 0
        if found := _told(planning.check(made, root, is_built=before.is_built)):
            raise ValueError("nothing was submitted: " + "; ".join(found))
        if made.plan.cancel and not cancel_unwanted(made, parsed.yes, root):
            print("nothing was cancelled and nothing submitted")
            return 1
        if made.plan.submit:
            return _report(*planning.apply(made, root, _note), made.options)
    return 0


def _go_on(item: Submission, options: Options, root: Path) -> int:
    """Finish the reviewed plan, which was begun before, or say that it is finished."""
    from grid.engine.slurm.site_yaml import load_site
    from grid.engine.states import evidence
    from grid.engine.submission import planning, waves

    if item.is_complete:
        if made := _stopped(item, options, root):
            if found := _told(planning.check(made, root)):
                raise ValueError("nothing was submitted: " + "; ".join(found))
            return _report(*planning.apply(made, root, _note), made.options)
        jobs = ", ".join(chunk.job_id for chunk in item.chunks)
        print(f"submitted already, as {jobs}; to see what is new: {again('plan', options.grid, options.run_name)}")
        return 0
    left = item.left
    view = evidence.look([run for chunk in left for run in chunk.runs], [item.folder], root, max_age_s=0)
    if alive := planning.not_startable(item, view):
        some = ", ".join(Path(run).name for run in alive[:3])
        raise ValueError(
            f"{len(alive)} of the runs that were still to be submitted are alive or done meanwhile ({some}): plan again"
        )
    _renew_scripts([run for chunk in left for run in chunk.runs], options, root)
    item = planning.released(item, view)
    print(f"going on with {item.id}: {len(left)} of {count(len(item.chunks), 'array')} left")
    return _report(*waves.hand_over(item, load_site(options.site), root, _note), options)


def _renew_scripts(run_dirs: Sequence[str], options: Options, root: Path) -> None:
    """Write each run.sh again that does not read NUQ_NPROC: today's job scripts name the ranks by it alone.

    ValueError where such a run has left the sweep.
    """
    from grid.engine.states.run_files import RunFolder
    from grid.engine.states.runs import named, prepare, runs_of

    scripts = {name: RunFolder(root / name).script for name in run_dirs}
    earlier = {name for name, path in scripts.items() if not path.is_file() or "NUQ_NPROC" not in path.read_text()}
    if not earlier:
        return
    _, experiments = named(options.file or options.grid, options.run_name, options.seeds, options.overrides)
    runs = [run for run in runs_of(experiments, root) if run.run_dir in earlier]
    if gone := sorted(earlier - {run.run_dir for run in runs}):
        raise ValueError(
            f"{gone[0]}/run.sh: is missing, or was written by earlier code and would start one rank alone; the run has "
            f"left the sweep: {again('plan', options.grid, options.run_name)}"
        )
    prepare(runs)


def _stopped(item: Submission, options: Options, root: Path) -> Made | None:
    """The plan to go on with runs of a submission that stopped at a checkpoint, which SLURM does not queue again.

    None where there are none.  ValueError where they would go on with other code than was reviewed.
    """
    from grid.engine.states import evidence
    from grid.engine.submission import planning
    from grid.engine.submission.retry import STOPPED, choose

    view = evidence.look([run for chunk in item.chunks for run in chunk.runs], [item.folder], root, max_age_s=0)
    if not any(state.word in STOPPED and state.may_start for state in view.states.values()):
        return None
    made = planning.make(options, root)
    chosen, lines = choose(made, root, kinds=sorted(STOPPED))
    if not chosen:
        return None
    if made.plan.code["digest"] != item.code["digest"]:
        look = again("plan", options.grid, options.run_name)
        raise ValueError(f"{count(len(chosen), 'run')} stopped at a checkpoint, and the code has changed since: {look}")
    print("\n".join(lines))
    return planning.make(dataclasses.replace(options, retry=chosen), root)


def _note(chunk: Chunk) -> None:
    print(
        f"submitted job {chunk.job_id}: {count(len(chunk.elements), 'script')}, {count(len(chunk.runs), 'run')}",
        flush=True,
    )


def _report(item: Submission, why: str, options: Options) -> int:
    """Print what was handed over, and what waits for room and why; returns the exit code."""
    from grid.engine.submission.waves import scripts

    print(
        f"the jobs run the snapshot {item.code['path']}; watch them: {again('status', options.grid, options.run_name)}"
    )
    if not why:
        return 0
    print(
        f"{scripts(item.left)} of {count(scripts(item.chunks), 'script')} wait for room ({why}): run the same command "
        f"again to go on"
    )
    return WAITS


# --- retry --------------------------------------------------------------------------------------------------------


def retry(argv: Sequence[str], root: Path) -> int:
    """Submit failed runs again; each kind of failure gets the resources that it needs."""
    parser = command_parser(
        "retry",
        "Submit failed runs again: with more time or memory, or on other nodes, as their failure asks for.",
        some="all that failed",
    )
    add_queue_options(parser)
    add_consent(parser)
    parser.add_argument(
        "--kind",
        action="append",
        default=[],
        metavar="KIND",
        help="only failures of this kind (see: failures); may be repeated",
    )
    parser.add_argument(
        "--code",
        action="store_true",
        help="also what fails again unless the code or its settings change: bugs, bad settings, CUDA memory, "
        "non-finite",
    )
    parser.add_argument(
        "--factor", type=float, default=2.0, metavar="X", help="so many times the time or the memory (default: 2)"
    )
    parser.add_argument(
        "--auto",
        action="store_true",
        help="only what more time, more memory, another node or another try may mend, within these bounds:",
    )
    of_site = "(default: its partition's, by the site's profile)"
    parser.add_argument("--max_time", metavar="T", help=f"with --auto: the most time that a run may get {of_site}")
    parser.add_argument("--max_mem", metavar="M", help=f"with --auto: the most memory that a run may get {of_site}")
    parser.add_argument(
        "--max_attempts",
        type=int,
        metavar="N",
        help="with --auto: how often a run may be started, the first time counted (default: 4)",
    )
    parser.add_argument("--here", action="store_true", help="run them on this machine instead")
    parser.add_argument(
        "--slots", type=int, metavar="N", help="with --here: runs at once (default: as many as cores and GPUs allow)"
    )
    parsed = parser.parse_args(argv)
    from grid.engine.local.machine import check_slots
    from grid.engine.slurm import sbatch_command
    from grid.engine.states import chunk_submission, evidence, ledger
    from grid.engine.submission import planning
    from grid.engine.submission.retry import choose

    check_slots(parsed.slots)
    bounds = _bounds(parsed)
    as_planned(parsed, root, needs_plan=True)
    options = options_of(parsed)
    runs = runs_named(parsed, root)
    folder, meant = runs[0].experiment.folder, {run.run_dir for run in runs}
    if not parsed.here:
        sbatch_command.check_sbatch()
    with chunk_submission.only_one(root, folder):
        evidence.settle(ledger.read_all(root, folder), root)
        options = _inherited(options, planning.reviewed(root, folder))
        made = planning.make(options, root, max_age_s=0)
        made = dataclasses.replace(made, runs=[run for run in made.runs if run.run_dir in meant])
        chosen, lines = choose(
            made, root, kinds=parsed.kind, with_code=parsed.code, factor=parsed.factor, bounds=bounds
        )
        for line in [*lines, *doubts(made.view)]:
            print(line)
        if not chosen:
            print("nothing to retry")
            return 0
        if not consent(f"Start {count(len(chosen), 'run')} again?", parsed.yes):
            return 0
        if not parsed.here:
            made = planning.make(dataclasses.replace(options, retry=chosen), root)
            if not made.plan.submit:
                print("nothing to retry: they came to life meanwhile")
                return 0
            if found := _told(planning.check(made, root)):
                raise ValueError("nothing was submitted: " + "; ".join(found))
            return _report(*planning.apply(made, root, _note), made.options)
    from grid.commands.here import check
    from grid.engine.local.slots import run_with_progress

    here = [run for run in made.runs if run.run_dir in chosen and made.view.states[run.run_dir].may_start]
    check(here, (), root)
    return run_with_progress(here, parsed.slots).exit_code


def _bounds(parsed: argparse.Namespace) -> Bounds | None:
    """The bounds of --auto; None without it."""
    from grid.engine.submission.retry import Bounds

    given = {
        name: value for name in ("max_time", "max_mem", "max_attempts") if (value := getattr(parsed, name)) is not None
    }
    if parsed.auto and parsed.here:
        raise ValueError("--auto --here: time and memory are asked of SLURM alone: leave out one of them")
    if parsed.auto and (parsed.time or parsed.mem):
        raise ValueError("--auto: what a run gets follows from its failure: leave out --time and --mem")
    if given and not parsed.auto:
        name, value = next(iter(given.items()))
        raise ValueError(f"--{name} {value}: is a bound of --auto, which is not given")
    return Bounds(**given) if parsed.auto else None


def _inherited(options: Options, before: Reviewed | None) -> Options:
    """The site, cap and packing of the sweep's last plan, where the command line says nothing of them."""
    if before is None:
        return options
    names = ("site", "per_script", "parallel", "max_running", "ignore")
    default = type(options)("", "", ignore=[])
    unsaid = [name for name in names if getattr(options, name) == getattr(default, name)]
    return dataclasses.replace(options, **{name: getattr(before.options, name) for name in unsaid})
