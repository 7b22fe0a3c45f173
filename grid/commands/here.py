"""Running a sweep on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from grid.commands.options import command_parser, runs_named


def run(argv: Sequence[str], root: Path) -> int:
    """Run what is missing of a sweep on this machine."""
    parser = command_parser("run", "Run what is missing of a sweep on this machine. Done runs are skipped, stopped ones go on.", one="all")
    parser.add_argument("--slots", type=int, metavar="N", help="runs at once (default: one per GPU, else one per core)")
    options = parser.parse_args(argv)
    if options.slots is not None and options.slots < 1:
        raise ValueError(f"--slots {options.slots}: must be at least 1")
    from grid.engine.local import default_slots, run_with_progress

    return run_with_progress(runs_named(options, root), options.slots or default_slots()).exit_code
