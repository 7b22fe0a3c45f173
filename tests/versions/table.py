"""Results of the matrix: one JSON file, and the table in the docs that it gives."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.versions import environment
from tests.versions.environment import ROOT
from tests.versions.rows import ROWS

RESULTS = ROOT / "results" / "versions.json"
DOCUMENT = ROOT / "docs" / "versions.md"
BEGIN, END = "<!-- what follows is written by `make test-versions` -->", "<!-- written until here -->"


@dataclass(frozen=True)
class Result:
    """One row, as it was run on ``date``; ``reason`` says why it was not run, or did not get as far as the tests."""

    name: str
    date: str
    python: str
    torch: str
    numpy: str = ""
    scipy: str = ""
    jaxtyping: str = ""
    triton: str = ""
    installer: str = ""
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: float = 0.0
    rehearsal: str = ""  # of the steps for a GPU: how it ended, where the row has one
    run: bool = True
    reason: str = ""

    @property
    def bad(self) -> bool:
        return bool(
            self.run
            and (self.failed or self.reason or not self.passed or self.rehearsal.startswith(environment.FAILED))
        )


def load(file: Path = RESULTS) -> list[Result]:
    return [Result(**record) for record in json.loads(file.read_text())] if file.exists() else []


def merged(before: Sequence[Result], new: Result) -> list[Result]:
    """The results with ``new`` in the place of the older result of its row, in the order of ROWS; "not run here"
    replaces none.
    """
    by_name = {result.name: result for result in before}
    if new.run or new.name not in by_name:
        by_name[new.name] = new
    return [by_name[row.name] for row in ROWS if row.name in by_name]


def save(results: Sequence[Result], file: Path = RESULTS) -> None:
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps([asdict(result) for result in results], indent=1) + "\n")


def table(results: Sequence[Result]) -> str:
    """The matrix in Markdown, one line a row."""
    columns = ["row", "date", "Python", "torch", "Triton", "numpy", "scipy", "jaxtyping", "by"]
    columns += ["passed", "failed", "skipped", "seconds", "rehearsal"]
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    for each in results:
        asked = [each.name, each.date, each.python, each.torch, each.triton]
        asked += [each.numpy, each.scipy, each.jaxtyping, each.installer]
        counts = [f"{each.passed:,}", str(each.failed), str(each.skipped), f"{each.seconds:.0f}", each.rehearsal or "-"]
        if each.reason:
            why = each.reason.splitlines()[0].replace("|", "/")
            counts = [f"failed: {why}" if each.run else f"not run here: {why}", "", "", "", ""]
        lines.append("| " + " | ".join(cell or "-" for cell in asked) + " | " + " | ".join(counts) + " |")
    return "\n".join(lines)


def written(document: str, results: Sequence[Result]) -> str:
    """The document with the table of these results between its marks."""
    before, found, rest = document.partition(BEGIN)
    _, ended, after = rest.partition(END)
    assert found and ended, f"{DOCUMENT.name} has no place for the table"
    return f"{before}{BEGIN}\n\n{table(results)}\n\n{END}{after}"
