"""The subcommand that compares two runs: diff."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from files.tables import add_json, as_json
from grid.commands.options import Parser, clipped, table

if TYPE_CHECKING:
    from grid.engine.states.comparison import Comparison

VALUE_CHARACTERS = 60


def diff(argv: Sequence[str], root: Path) -> int:
    """Print what differs between two runs, and the results of both."""
    del root
    parser = Parser(
        prog="grid_run.py diff",
        description="What differs between two runs: settings, code, versions, machine; and the last results of both.",
    )
    parser.add_argument("runs", metavar="RUN", nargs=2, help="the folder of a run: runs/SWEEP/NAME")
    add_json(parser)
    parsed = parser.parse_args(argv)
    from grid.engine.states.comparison import compare

    first, second = map(Path, parsed.runs)
    found = compare(first, second)
    if parsed.json:
        print(as_json({"runs": parsed.runs, "different": found.different, "results": found.results}))
        return 0
    print(f"FIRST   {first}\nSECOND  {second}\n")
    table(("", "", "FIRST", "SECOND", "CHANGE"), list(_rows(found)))
    return 0


def _rows(found: Comparison) -> Iterator[tuple[str, ...]]:
    """The lines of the table; the name of a section stands in its first one."""
    for section, pairs in [*found.different.items(), ("results", found.results)]:
        if not pairs:
            yield section, "(no difference is recorded)", "", "", ""
        for number, (name, (one, two)) in enumerate(pairs.items()):
            change = section == "results" and all(isinstance(value, int | float) for value in (one, two))
            yield (
                *(section if number == 0 else "", name, _shown(one), _shown(two)),
                f"{two - one:+.4g}" if change and two != one else "",
            )


def _shown(value: Any) -> str:
    """A value as a cell."""
    if value is None:
        return "(not recorded)"
    return f"{value:.6g}" if isinstance(value, float) else clipped(str(value), VALUE_CHARACTERS)
