"""What became of a sweep: states."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from grid.commands.options import command_parser, count, runs_named, table


def status(argv: Sequence[str], root: Path) -> int:
    """The state of every experiment of a sweep."""
    options = command_parser("status", "The state of every experiment, from its own files.").parse_args(argv)
    from collections import Counter

    from grid.engine.runs import left_over

    runs = runs_named(options, root)
    states = [item.state() for item in runs]
    rows = []
    for item, state in zip(runs, states, strict=True):
        progress = f"{state.step}/{state.steps}" if state.steps else ""
        rows.append((item.experiment.label, str(item.experiment.seed), state.word, progress, item.experiment.name, state.reason))
    table(("LABEL", "SEED", "STATE", "STEP", "RUN", ""), rows)
    print("\n" + ", ".join(f"{number} {word}" for word, number in Counter(state.word for state in states).items()))
    if old := left_over([item.experiment for item in runs], root):
        some = ", ".join(path.name for path in old[:5]) + (" ..." if len(old) > 5 else "")
        print(f"{count(len(old), 'folder')} of other settings or seeds beside them: {some}")
    return 0
