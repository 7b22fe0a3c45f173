"""A plan in readable form: its code, its runs, and what SLURM would make of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grid.commands.options import again, count, table

if TYPE_CHECKING:
    from grid.engine.states.ledger import Chunk
    from grid.engine.submission.planning import Made


def _show(made: Made, root: Path) -> None:
    """The plan as a table and sentences."""
    from grid.commands.report import changes, counted, doubts, drifted, hours

    plan = made.plan
    print(f"{plan.title}: {count(len(made.runs), 'experiment')}; code {_code(plan.code)}")
    for line in made.sweep.duplicates():
        print(f"  {line}")
    words = Counter(state.word for state in made.view.states.values())
    submit = {item.run_dir for item in plan.submit}
    rows = []
    for word, number in sorted(words.items()):
        chosen = sum(1 for run, state in made.view.states.items() if state.word == word and run in submit)
        rows.append((word, str(number), str(chosen) if chosen else "", counted(made.view, word)))
    table(("STATE", "RUNS", "SUBMIT", ""), rows)
    for line in [*changes(made, root), *drifted(made, root), *hours(made), *doubts(made.view)]:
        print(line)
    if plan.chunks:
        print()
        table(
            ("ARRAY", "SCRIPTS", "RUNS", "AT ONCE", "AFTER", "EACH SCRIPT ASKS FOR"),
            [_row(made, chunk) for chunk in plan.chunks],
        )
    for item in plan.cancel:
        print(f"to cancel: {item.element}, {Path(item.run_dir).name}: no longer in the sweep")
    if not plan.submit:
        failed = words["failed"] + words["diverged"]
        print(
            "nothing to submit"
            + (f"; {failed} failed: {again('failures', made.options.grid, made.options.run_name)}" if failed else "")
        )


def _code(code: Mapping[str, Any]) -> str:
    commit = f"commit {code['commit'][:10]}{' with changes' if code['dirty'] else ''}, " if code["commit"] else ""
    return f"{commit}snapshot {code['digest'][:12]}"


def _row(made: Made, chunk: Chunk) -> tuple[str, ...]:
    from settings.resources import Resources

    asked = Resources(**chunk.resources)
    parallel = made.options.parallel
    words = [f"{asked.nodes} nodes" if asked.nodes > 1 else "", f"{asked.ranks} ranks" if asked.ranks > 1 else ""]
    words += [
        f"{asked.gpus_for(parallel)} GPUs",
        f"{asked.cpus_for(parallel)} cores",
        asked.mem_for(parallel),
        asked.time or "the default time",
    ]
    words += [
        f"{name}={value}"
        for name in ("partition", "account", "qos", "constraint", "exclude")
        if (value := getattr(asked, name))
    ]
    after = ", ".join(name for _, name in chunk.after)
    return (
        chunk.name,
        str(len(chunk.elements)),
        str(len(chunk.runs)),
        str(chunk.cap or ""),
        after,
        ", ".join(word for word in words if word),
    )
