"""Tables for other programs: rows of named values as CSV, JSON, Parquet or LaTeX, and the JSON that commands print."""

from __future__ import annotations

import argparse
import csv
import io
import json
import math
import sys
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, redirect_stdout
from pathlib import Path
from typing import Any

FORMATS = {"csv": "csv", "json": "json", "parquet": "parquet", "latex": "tex"}  # with the ending of a file's name
Row = Mapping[str, Any]
_LATEX = str.maketrans(
    {
        **{character: f"\\{character}" for character in "{}_%&#$"},
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
    }
)


def check_formats(forms: Collection[str]) -> None:
    """Raise ValueError where one of these cannot be written here, for a command to call before its work."""
    if "parquet" in forms:
        try:
            import pyarrow.parquet  # noqa: F401  # pyright: ignore[reportMissingImports]
        except ImportError:
            raise ValueError(
                "format 'parquet' needs pyarrow, which is not installed: pip install '.[parquet]'"
            ) from None


def encoded(rows: Sequence[Row], form: str, columns: Sequence[str] | None = None) -> bytes:
    """The rows in one of FORMATS; a row may lack values.

    ``columns``: their order (default: that of the rows).  Truth values, lists and None are cells of JSON in CSV and
    LaTeX, where what is missing is an empty cell.  JSON and Parquet have null for both, and every row has every name; a
    column of several kinds is text in Parquet.
    Raises ValueError where Parquet is wanted and pyarrow is not installed.
    """
    names = list(dict.fromkeys(name for row in rows for name in row)) if columns is None else list(columns)
    if form == "json":
        return (as_json([{name: row.get(name) for name in names} for row in rows]) + "\n").encode()
    if form == "parquet":
        return _parquet(rows, names)
    cells = [[_cell(row[name]) if name in row else "" for name in names] for row in rows]
    if form == "latex":
        lines = [[latex_escaped(str(cell)) for cell in line] for line in [names, *cells]]
        return tabular(lines[0], lines[1:]).encode(errors="surrogateescape")
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([names, *cells])
    return text.getvalue().encode(errors="surrogateescape")


def _cell(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, list | tuple | bool) or value is None else value


def _parquet(rows: Sequence[Row], names: Sequence[str]) -> bytes:
    check_formats(["parquet"])
    import pyarrow  # pyright: ignore[reportMissingImports]  # an extra
    import pyarrow.parquet  # pyright: ignore[reportMissingImports]

    columns = {}
    for name in names:
        values = [row.get(name) for row in rows]
        try:
            columns[name] = pyarrow.array(values)
        except (pyarrow.ArrowInvalid, pyarrow.ArrowTypeError):
            columns[name] = pyarrow.array([None if value is None else str(_cell(value)) for value in values])
    sink = pyarrow.BufferOutputStream()
    pyarrow.parquet.write_table(pyarrow.table(columns), sink)
    return sink.getvalue().to_pybytes()


def written_csv(rows: Sequence[Row], path: Path | None) -> list[Path]:
    """Write a table as CSV where a path is asked for; returns what was written."""
    if path is None:
        return []
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(encoded(rows, "csv"))
    return [path]


# --- LaTeX --------------------------------------------------------------------------------------------------------


def latex_escaped(words: str) -> str:
    """A text in which every character that LaTeX would act on stands for itself."""
    return words.translate(_LATEX)


def tabular(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A tabular of the booktabs package, from cells that are LaTeX already."""
    head, *body = [" & ".join(row) + r" \\" for row in [headings, *rows]]
    begin = ["% needs \\usepackage{booktabs}", f"\\begin{{tabular}}{{l{'r' * (len(headings) - 1)}}}"]
    return "\n".join([*begin, r"\toprule", head, r"\midrule", *body, r"\bottomrule", r"\end{tabular}", ""])


# --- JSON ---------------------------------------------------------------------------------------------------------


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add the option --json, which every command that lists something has."""
    parser.add_argument("--json", action="store_true", help="print one JSON document instead, for other programs")


def beside_json(as_json: bool) -> AbstractContextManager[Any]:
    """While ``as_json``, send what is said to people to standard error: standard output is the document alone."""
    return redirect_stdout(sys.stderr) if as_json else nullcontext()


def as_json(value: Any) -> str:
    """A value as strict JSON: numbers that are not finite are null, what JSON does not know is its text."""
    return json.dumps(_strict(value), indent=1)


def _strict(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(name): _strict(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_strict(item) for item in value]
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    return value if isinstance(value, str | int | None) else str(value)
