"""The subcommand that takes runs out of the queue: cancel."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from grid.commands.options import add_consent, as_planned, command_parser, consent, count, runs_named


def cancel(argv: Sequence[str], root: Path) -> int:
    """Take runs out of the queue."""
    parser = command_parser(
        "cancel", "Cancel queued and running jobs of a sweep, or of one experiment.", one="all of the sweep"
    )
    add_consent(parser)
    parser.add_argument("--pending", action="store_true", help="only what has not begun")
    parsed = parser.parse_args(argv)
    from grid.engine.states import chunk_submission, evidence, ledger
    from grid.engine.states.runs import others
    from grid.engine.sweep import load

    whole = parsed.name is None and parsed.seeds is None and not parsed.overrides
    as_planned(parsed, root)
    runs = runs_named(parsed, root)
    folder = runs[0].experiment.folder
    with chunk_submission.only_one(root, folder):
        evidence.settle(ledger.read_all(root, folder), root)
        view = evidence.of(runs, root, max_age_s=0)
        words = ("pending",) if parsed.pending else ("pending", "running")
        if view.answer is not None and not view.answer.reachable:
            raise ValueError(f"nothing was cancelled, for what is queued is not known: {view.answer.error}")
        known = {**view.states, **view.others}
        sweep = load(parsed.grid, parsed.run_name)
        beside = others(sweep, root)  # those of other files may have its title, too
        foreign = {
            run
            for item in view.submissions
            for chunk in item.chunks
            for run in chunk.runs
            if item.title != sweep.title or item.owner in beside
        }
        # the whole sweep is also what was submitted of it with other seeds or settings, and nothing of another sweep
        own = {run: state for run, state in known.items() if run not in foreign} if whole else view.states
        elements = {state.element for run, state in own.items() if state.element and state.word in words}
        if not elements:
            print("nothing to cancel")
            return 0
        touched = [run for run, state in known.items() if state.element in elements and state.word in words]
        if consent(
            f"Cancel {count(len(elements), 'script')} with {count(len(touched), 'unfinished run')}?", parsed.yes
        ):
            evidence.recall(sorted(elements), folder, root, view.answer)
            # `status` shows no look of before
            evidence.of(runs, root, max_age_s=0)
            print(f"cancelled {count(len(elements), 'script')}")
    return 0
