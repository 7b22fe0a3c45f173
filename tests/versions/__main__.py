"""Run the matrix: ``python -m tests.versions [--only NAME ...] [--list]`` (``make test-versions``).

It takes several GB and minutes a row.  Each row gets a temporary environment, the project's wheel by pip or uv with the
row's versions, and the library's tests on it; that of a machine with a GPU rehearses its steps too.  A row that fails
stops no other.  ``results/versions.json`` and the table in ``docs/versions.md`` are written after each.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.versions import environment, table
from tests.versions.rows import FILES, ROWS, Row
from tests.versions.table import Result


def outcome(row: Row, wheel: Path, tree: Path) -> tuple[Result, str]:
    """The outcome of the row, and what the tests that failed printed."""
    asked: dict[str, Any] = {"name": row.name, "date": datetime.now(UTC).date().isoformat(), "installer": row.installer}
    asked |= {"python": row.python, "torch": row.torch, "numpy": row.numpy, "scipy": row.scipy}
    python = environment.interpreter(row.python)
    if python is None:
        return Result(**asked, run=False, reason=f"no python{row.python} on the PATH or of pyenv"), ""
    with tempfile.TemporaryDirectory(prefix="versions-") as name:
        folder = Path(name)
        try:
            installed = environment.create(python, folder / "environment")
            environment.install(installed, row.installer, [*row.requirements(), *environment.tools(), wheel], folder)
            (tests := folder / "tests-only").mkdir()
            environment.tests_only(tree, tests)
            asked |= environment.versions(installed, tests)
            counts = environment.test(installed, tests, FILES)
            if row.rehearsed_with:
                with_it = (row.python, row.rehearsed_with, tree, folder)
                asked["rehearsal"] = environment.rehearse(installed, *with_it)
        except environment.StepError as error:
            return Result(**asked, reason=str(error)), str(error)
        asked |= {"passed": counts.passed, "failed": counts.failed, "skipped": counts.skipped}
        return Result(**asked, seconds=round(counts.seconds, 1)), counts.told


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.versions", description="Run the matrix of versions.")
    names = [row.name for row in ROWS]
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=names, help="these rows, in this order")
    parser.add_argument("--list", action="store_true", help="show the matrix and run nothing")
    options = parser.parse_args(words)
    by_name = {row.name: row for row in ROWS}
    rows = [by_name[name] for name in options.only or by_name]
    if options.list:
        for row in rows:
            print(f"{row.name:<24} Python {row.python}  {row.installer:<4} {' '.join(row.requirements())}")
        return 0
    bad = 0
    with tempfile.TemporaryDirectory(prefix="versions-") as name:
        (tree := Path(name, "tree")).mkdir()
        _, wheel = environment.build(environment.sources(tree), Path(name, "dist"))
        for row in rows:
            result, told = outcome(row, wheel, tree)
            print(told, table.table([result]), sep="\n" if told else "", flush=True)
            bad += result.bad
            results = table.merged(table.load(), result)
            table.save(results)
            table.DOCUMENT.write_text(table.written(table.DOCUMENT.read_text(), results))
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
