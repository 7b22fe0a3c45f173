"""The columns of the result table: their names, how a number is written, and which of them fit."""

from __future__ import annotations

import textwrap
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from nuq.settings import unknown

WIDTH = 120  # characters of a table whose columns nobody has chosen
PAGE = 100  # the same in LaTeX: as much as fits a page, in \small


@dataclass(frozen=True)
class Column:
    """A quantity of the result table."""

    name: str  # its name in CSV, with its unit
    short: str  # the name to choose it by
    heading: str  # its heading in text and LaTeX
    digits: int  # digits after the point, in text
    says: str  # its meaning, for the legend
    spare: int  # where a table is too wide, the columns of largest number go first; 0 stays
    interval: bool = False


_CORRELATION = "correlation: Pearson's, of two classes Matthews'"
_DIFFERENCE = (
    "vs SuperSGD: final accuracy less SuperSGD's, paired by seed, same settings outside the method (and the rate, "
    "where each method has its own), percentage points"
)
_P = (
    "p: two-sided paired t test of it, Holm-corrected for the methods of this table, none where all differences are "
    "equal"
)
_RATIO = "ratio: bytes of float32 over those of the formats in which tensors are kept"
_VARIANCE = (
    "variance: of the gradient estimate relative to SuperSGD's on the same minibatches, last quarter of the "
    "measurements, in brackets the 95 % interval of these measurements"
)
_SPEED = "steps/s, images/s: of training, without measurements and evaluations; all workers' images"
COLUMNS = (
    Column("final_accuracy_percent", "final", "final acc. %", 2, "", 0, interval=True),
    Column("best_accuracy_percent", "best", "best acc. %", 2, "", 8, interval=True),
    Column("final_correlation", "correlation", "correlation", 4, _CORRELATION, 0, interval=True),
    Column("difference_percent", "difference", "vs SuperSGD", 2, _DIFFERENCE, 1, interval=True),
    Column("p_value", "p", "p", 3, _P, 1),
    Column("final_validation_loss", "loss", "val. loss", 4, "", 9),
    Column("bits_per_coordinate", "bits", "bits", 3, "bits: per coordinate, measured from the messages", 2),
    Column("compression_ratio", "ratio", "ratio", 2, _RATIO, 2),
    Column("sent_per_worker_mb", "sent", "MB sent", 2, "MB: sent by one worker", 5),
    Column("relative_variance", "variance", "variance", 2, _VARIANCE, 4),
    Column("steps_per_s", "speed", "steps/s", 1, _SPEED, 6),
    Column("images_per_s", "images", "images/s", 0, "", 10),
    Column("seconds", "seconds", "seconds", 1, "seconds: the whole run", 7),
    Column("published_accuracy_percent", "paper", "paper acc. %", 2, "paper: read from its curves, to +-.05", 3),
    Column("difference_from_published_percent", "from_paper", "vs paper", 2, "", 3),
    Column("published_relative_variance", "paper_variance", "paper variance", 1, "", 4),
)

_ALWAYS = (
    "+-: 95 % interval (t) of the mean over seeds, n where it has fewer values than seeds; seeds: complete runs, of "
    "all where some are not"
)


def column_named(name: str, others: Sequence[str] = ()) -> Column:
    """The column of this name or short name; ValueError with the legal short names (and ``others``)."""
    for column in COLUMNS:
        if name in (column.name, column.short):
            return column
    raise unknown("column", name, [*(column.short for column in COLUMNS), *others])


def shown_columns(found: pd.DataFrame, columns: Sequence[str] | None, width: int) -> list[Column]:
    """The columns named; else those with a number anywhere, without the most dispensable ones until the rest fits."""
    if columns is not None:
        return [column_named(name) for name in columns]
    there = _with_numbers(found)
    records = found.to_dict("records")
    widths = {
        column.name: max(map(len, [column.heading, *(written(row, column, "+-", "-") for row in records)]))
        for column in there
    }
    seeds = max([5, *(len(f"{row['complete']} of {row['runs']}") for row in records if row["complete"] != row["runs"])])
    fixed = max([6, *(len(str(row["label"])) for row in records)]) + 2 + seeds
    while fixed + sum(2 + widths[column.name] for column in there) > width and any(column.spare for column in there):
        most = max(column.spare for column in there)
        there = [column for column in there if column.spare != most]
    return there


def left_out(found: pd.DataFrame, columns: Sequence[str] | None = None, width: int = WIDTH) -> tuple[str, ...]:
    """The short names of the columns that have numbers and no room."""
    if columns is not None:
        return ()
    there = shown_columns(found, columns, width)
    return tuple(column.short for column in _with_numbers(found) if column not in there)


def _with_numbers(found: pd.DataFrame) -> list[Column]:
    return [
        column for column in COLUMNS if column.name in found and np.isfinite(found[column.name].to_numpy(float)).any()
    ]


def legend(found: pd.DataFrame, columns: Sequence[str] | None = None, width: int = WIDTH) -> str:
    """The legend of the table, in lines of ``width``: what the columns shown mean, and which others have no room."""
    without = left_out(found, columns, width)
    room = [f"No room for: {', '.join(without)}."] if without else []
    says = [column.says for column in shown_columns(found, columns, width) if column.says]
    meaning = "; ".join([_ALWAYS, *says]) + "."
    return textwrap.fill(" ".join([meaning, *found.attrs.get("notes", ()), *room]), width)


def written(row: Mapping[Hashable, Any], column: Column, plus_minus: str, missing: str) -> str:
    """A value as text, such as ``93.00 +- 8.96``.

    ``(n=2)`` follows where fewer values than complete runs count, or where one alone has no interval.
    """
    value = float(row.get(column.name, np.nan))
    if not np.isfinite(value):
        return missing
    if column.short == "p":
        return f"{value:.3f}" if value >= 0.001 else "<0.001"
    digits = column.digits if abs(value) < 1000 else 0
    small = 0 < abs(value) < 10 ** (1 - digits) and not column.interval  # two digits that count: 0.014 steps/s
    words = f"{value:#.2g}" if small else f"{value:.{digits}f}"
    words = words.removeprefix("-") if not float(words) else words  # no -0.00
    if np.isfinite(low := float(row.get(f"{column.name}_low", np.nan))):
        words += f" ({low:.{digits}f}-{float(row[f'{column.name}_high']):.{digits}f})"
    if column.interval:
        half_width, n = float(row[f"{column.name}_pm"]), int(row[f"{column.name}_n"])
        words += f" {plus_minus} {half_width:.{digits}f}" if np.isfinite(half_width) else ""
        words += f" (n={n})" if n != row["complete"] or n == 1 else ""
    return words
