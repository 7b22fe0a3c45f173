"""The ways out of the queue: the subcommand cancel, and what a plan no longer wants."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from grid.commands.options import add_consent, as_planned, command_parser, consent, count, runs_named

if TYPE_CHECKING:
    from grid.engine.submission.planning import Made


def cancel(argv: Sequence[str], root: Path) -> int:
    """Take runs out of the queue."""
    parser = command_parser(
        "cancel", "Cancel queued and running jobs of a sweep, or of some experiments.", some="all of the sweep"
    )
    add_consent(parser)
    parser.add_argument("--pending", action="store_true", help="only what has not begun")
    parsed = parser.parse_args(argv)
    from grid.engine.slurm.scheduler_cache import WAITING
    from grid.engine.states import chunk_submission, evidence, ledger
    from grid.engine.states.runs import others
    from grid.engine.sweep import load

    whole = not (parsed.names or parsed.where or parsed.overrides) and parsed.seeds is None
    as_planned(parsed, root)
    runs = runs_named(parsed, root)
    folder = runs[0].experiment.folder
    with chunk_submission.only_one(root, folder):
        evidence.settle(ledger.read_all(root, folder), root)
        view = evidence.of(runs, root, max_age_s=0)
        if view.answer is not None and not view.answer.reachable:
            raise ValueError(f"nothing was cancelled, for what is queued is not known: {view.answer.error}")
        sweep = load(parsed.grid, parsed.run_name)
        beside = others(sweep, root)  # those of other files may have its title, too

        def is_meant(task: evidence.Task) -> bool:
            # the whole sweep is also what was submitted of it with other seeds or settings; nothing of another sweep
            is_own = task.submission.title == sweep.title and task.submission.owner not in beside
            return is_own if whole else any(run in view.states for run in task.runs)

        tasks = {task.element: task for task in view.queue if is_meant(task) and not task.recalled}
        by_hand = {  # jobs that nobody wrote down
            state.element: job
            for run, state in view.states.items()
            if state.word in ("pending", "running") and (job := view.jobs.get(run)) and run not in view.claims
        }
        queued = {**by_hand, **{element: task.job for element, task in tasks.items()}}
        elements = sorted(element for element, job in queued.items() if not parsed.pending or job.word in WAITING)
        if not elements:
            print("nothing to cancel")
            return 0
        known = {**view.states, **view.others}
        touched = {
            run
            for run, state in known.items()
            if state.word in ("pending", "running", "unknown") and state.element in elements
        }
        if consent(
            f"Cancel {count(len(elements), 'script')} with {count(len(touched), 'unfinished run')}?", parsed.yes
        ):
            gone = evidence.recall(elements, folder, root, view.answer, only_waiting=parsed.pending)
            # `status` shows no look of before
            evidence.of(runs, root, max_age_s=0)
            begun = len(elements) - len(gone)
            print(f"cancelled {count(len(gone), 'script')}" + (f"; {begun} had begun meanwhile" if begun else ""))
    return 0


def cancel_unwanted(made: Made, yes: bool, root: Path) -> bool:
    """Cancel the runs that the sweep no longer has, if the user agrees; returns whether the plan may go on."""
    from grid.engine.states import evidence

    alone = sorted({item.element for item in made.plan.cancel if item.alone})
    for item in made.plan.cancel:
        if not item.alone:
            print(
                f"kept in the queue: {item.element} runs {Path(item.run_dir).name}, no longer in the sweep, and "
                f"others that are"
            )
    if not alone:
        return True
    if not consent(
        f"Cancel {count(len(alone), 'queued or running script')} of runs that the sweep no longer has?", yes
    ):
        return False
    evidence.recall(alone, made.plan.folder, root, made.view.answer)
    print(f"cancelled {', '.join(alone[:5])}{' ...' if len(alone) > 5 else ''}")
    return True
