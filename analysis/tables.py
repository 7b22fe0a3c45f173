"""The result table of a sweep: one row per method and setting, as text, CSV and LaTeX."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from rich import box
from rich.table import Table

from analysis import published
from analysis.aggregate import Estimate, best, estimate, final, geometric_mean, late
from analysis.cells import Cell, cells
from analysis.load import Logs

LEGEND = (
    "+-: 95 % interval (t) of the mean over seeds; seeds: complete runs, of all where some are not; bits: per coordinate, "
    "measured from the messages; MB: sent by one worker; variance: of the gradient estimate relative to SuperSGD's on the same "
    "minibatches, last quarter of the measurements."
)


@dataclass(frozen=True)
class Column:
    """``read`` gives the numbers of a row; ``digits`` after the point in text."""

    name: str  # in CSV, with its unit
    heading: str  # in text and LaTeX
    digits: int
    read: Callable[[Logs, Cell, list[str]], Estimate | float]
    interval: bool = False


def _mean(tag: str, scale: float = 1.0) -> Callable[[Logs, Cell, list[str]], float]:
    return lambda logs, _, runs: scale * estimate(final(logs, tag, runs)).mean


def _seconds(logs: Logs, _: Cell, runs: list[str]) -> float:
    return estimate(logs.status.loc[runs, "seconds"]).mean


def _relative_variance(logs: Logs, _: Cell, runs: list[str]) -> float:
    return geometric_mean(late(logs, "est_var / super_var", runs))


COLUMNS = (
    Column("final_accuracy_percent", "final acc. %", 2, lambda logs, _, runs: estimate(final(logs, "Vacc", runs)), interval=True),
    Column("best_accuracy_percent", "best acc. %", 2, lambda logs, _, runs: estimate(best(logs, "Vacc", runs)), interval=True),
    Column("final_validation_loss", "val. loss", 4, _mean("Vloss")),
    Column("bits_per_coordinate", "bits", 3, _mean("comm/bits_per_coordinate")),
    Column("sent_per_worker_mb", "MB sent", 2, _mean("comm/bytes", 1e-6)),
    Column("relative_variance", "variance", 2, _relative_variance),
    Column("seconds", "seconds", 0, _seconds),
)


def table(logs: Logs) -> pd.DataFrame:
    """Numbers of every cell: method, label, complete, runs, then the columns (an interval beside its mean, NaN for one seed).

    Only complete runs count; a cell without any has NaN throughout.
    """
    rows = []
    of_sweep = cells(logs.settings)
    for cell in of_sweep:
        runs = [run for run in cell.runs if bool(logs.status.loc[run, "complete"])]
        row: dict[str, object] = {"method": cell.method, "label": cell.label, "complete": len(runs), "runs": len(cell.runs)}
        for column in COLUMNS:
            value = column.read(logs, cell, runs)
            if isinstance(value, Estimate):
                row |= {column.name: value.mean, f"{column.name}_pm": value.half_width, f"{column.name}_n": value.n}
            else:
                row[column.name] = value
        rows.append(row | _published(logs, cell))
    return pd.DataFrame(rows)


def _published(logs: Logs, cell: Cell) -> dict[str, float]:
    """The paper's values for the same method, where the sweep is one of the paper's."""
    found = {}
    accuracy = published.ACCURACY.get(logs.sweep)
    if accuracy:
        found["published_accuracy_percent"] = accuracy.get(cell.method, np.nan)
    settings = logs.settings.loc[cell.runs[0]]
    variance = published.RELATIVE_VARIANCE.get((str(settings.get("data.name")), str(settings.get("model.name"))))
    if variance and settings.get("trajectory") == "sgd":
        found["published_relative_variance"] = variance.get(cell.method, np.nan)
    return found


# --- text ---------------------------------------------------------------------------------------------------------

_EXTRA = (
    Column("published_accuracy_percent", "paper acc. %", 2, lambda *_: np.nan),
    Column("published_relative_variance", "paper variance", 1, lambda *_: np.nan),
)


def _text_cells(found: pd.DataFrame, plus_minus: str, missing: str) -> tuple[list[str], list[list[str]]]:
    """Headings and rows as text; columns without any number are left out."""
    there = [column for column in (*COLUMNS, *_EXTRA) if column.name in found and list(found[column.name].dropna())]
    rows = []
    for _, row in found.iterrows():
        seeds = str(row["complete"]) if row["complete"] == row["runs"] else f"{row['complete']} of {row['runs']}"
        rows.append([str(row["label"]), seeds, *(_text(row, column, plus_minus, missing) for column in there)])
    return ["method", "seeds", *(column.heading for column in there)], rows


def _text(row: pd.Series, column: Column, plus_minus: str, missing: str) -> str:
    value = float(row[column.name])
    if not np.isfinite(value):
        return missing
    digits = column.digits if abs(value) < 1000 else 0
    text = f"{value:.{digits}f}"
    if column.interval:
        half_width, n = float(row[f"{column.name}_pm"]), int(row[f"{column.name}_n"])
        text += f" {plus_minus} {half_width:.{digits}f}" if np.isfinite(half_width) else f" (n={n})"
    return text


def text(found: pd.DataFrame) -> str:
    """Aligned columns for a terminal or a file."""
    headings, rows = _text_cells(found, "+-", "-")
    widths = [max(len(row[k]) for row in [headings, *rows]) for k in range(len(headings))]

    def line(row: list[str]) -> str:
        parts = [row[0].ljust(widths[0]), *(item.rjust(width) for item, width in zip(row[1:], widths[1:], strict=True))]
        return "  ".join(parts).rstrip()

    return "\n".join([line(headings), "  ".join("-" * width for width in widths), *map(line, rows)])


def rich_table(found: pd.DataFrame, sweep: str) -> Table:
    """The same for a terminal, with rich."""
    headings, rows = _text_cells(found, "\N{PLUS-MINUS SIGN}", "-")
    shown = Table(title=sweep, box=box.SIMPLE_HEAD, title_justify="left")
    for index, heading in enumerate(headings):
        shown.add_column(heading, justify="right" if index else "left", no_wrap=index > 0)
    for row in rows:
        shown.add_row(*row)
    return shown


_LATEX = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "_": r"\_",
    "%": r"\%",
    "&": r"\&",
    "#": r"\#",
    "$": r"\$",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
}


def latex_escaped(words: str) -> str:
    """Text in which every character that LaTeX would act on stands for itself."""
    return "".join(_LATEX.get(character, character) for character in words)


def latex(found: pd.DataFrame) -> str:
    """A tabular of the booktabs package."""
    mark = "\N{PLUS-MINUS SIGN}"
    headings, rows = _text_cells(found, mark, "--")

    def line(row: list[str]) -> str:
        return " & ".join(latex_escaped(item).replace(mark, r"$\pm$") for item in row) + r" \\"

    body = [r"\toprule", line(headings), r"\midrule", *map(line, rows), r"\bottomrule"]
    spec = "l" + "r" * (len(headings) - 1)
    return "\n".join(["% needs \\usepackage{booktabs}", f"\\begin{{tabular}}{{{spec}}}", *body, r"\end{tabular}", ""])


def write(found: pd.DataFrame, folder: Path) -> list[Path]:
    """``table.csv`` and ``table.tex``, each written aside first."""
    folder.mkdir(parents=True, exist_ok=True)
    stream = io.StringIO()
    found.to_csv(stream, index=False)
    paths = []
    for name, content in (("table.csv", stream.getvalue()), ("table.tex", latex(found))):
        path, aside = folder / name, folder / f".{name}.tmp"
        aside.write_text(content)
        os.replace(aside, path)
        paths.append(path)
    return paths
