"""The result table of a sweep: one row per method and setting, as numbers, text, CSV and LaTeX."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich import box
from rich.table import Table

from analysis import published
from analysis.groups.aggregate import Estimate, estimate, geometric_mean
from analysis.groups.seed_groups import RATE, SeedGroup, begun, of_the_method, seed_groups, without_chosen_rate
from analysis.logs.load import Logs
from analysis.results import of_complete_runs
from analysis.tables.columns import COLUMNS, PAGE, WIDTH, Column, column_named, left_out, legend, shown_columns, written
from analysis.tables.paired import difference, holm, partners
from files.aligned import aligned
from files.atomic import aside
from files.escaped import escaped
from files.tables import FORMATS, encoded, latex_escaped, tabular
from settings.conditions import shown

__all__ = ["COLUMNS", "arranged", "cells", "latex", "left_out", "legend", "rich_table", "table", "text", "write"]

_PLUS_MINUS = "+-"
_ENOUGH_TO_ORDER = 4
_MEANS = {  # columns that are plain means, and what of each run
    "final_validation_loss": "loss",
    "bits_per_coordinate": "bits",
    "compression_ratio": "ratio",
    "sent_per_worker_mb": "sent_mb",
    "steps_per_s": "steps_per_s",
    "images_per_s": "images_per_s",
    "seconds": "seconds",
}


# --- numbers ------------------------------------------------------------------------------------------------------


def table(logs: Logs) -> pd.DataFrame:
    """The numbers of every seed group: method, label, its runs, the columns, then the settings that differ.

    Means have their interval's half-width (``_pm``, NaN for one seed) and number of values or pairs (``_n``) beside
    them. Only complete runs count (``complete`` of all ``runs``; ``diverged`` are among the others); a seed group
    without any has NaN throughout.  ``attrs``: ``notes``, sentences on what is compared; ``settings``, the names of
    those settings.
    """
    every, logs = logs, begun(logs)
    complete = logs.status["complete"].to_numpy(bool)
    diverged = (logs.status["state"] == "diverged").to_numpy(bool)
    place = {str(run): index for index, run in enumerate(logs.settings.index)}
    values = {name: of_run.to_numpy(float) for name, of_run in of_complete_runs(logs).items()}
    # on SGD's all are equal
    of_pairs = without_chosen_rate(logs.settings)
    partner = partners(of_pairs.loc[complete & (of_pairs["trajectory"] != "sgd").to_numpy()])
    baseline = np.full(len(place), np.nan)
    for run, other in partner.dropna().items():
        baseline[place[str(run)]] = values["final"][place[other]]
    of_sweep = seed_groups(logs.settings)
    differing = sorted({name for seed_group in of_sweep for name in seed_group.differs})
    firsts = logs.settings.loc[[seed_group.runs[0] for seed_group in of_sweep]].to_dict("records")
    rows = []
    for seed_group, settings in zip(of_sweep, firsts, strict=True):
        places = [place[run] for run in seed_group.runs]
        own = {name: of_run[places] for name, of_run in values.items()}
        final, compared = estimate(own["final"]), difference(own["final"], baseline[places])
        row: dict[str, Any] = {
            "method": seed_group.method,
            "label": seed_group.label,
            "complete": int(complete[places].sum()),
            "runs": len(places),
            "diverged": int(diverged[places].sum()),
        }
        row |= _with_interval("final_accuracy_percent", final)
        row |= _with_interval("best_accuracy_percent", estimate(own["best"]))
        row |= _with_interval("final_correlation", estimate(own["correlation"]))
        row |= _with_interval("difference_percent", compared) | {"p_value": compared.p}
        row |= {name: estimate(own[short]).mean for name, short in _MEANS.items()}
        row |= _relative_variance(own["variance"], own["variance_high"])
        row |= _published(logs.sweep, seed_group, settings, final.mean)
        rows.append(row | {str(name): _plain(settings[name]) for name in differing})
    found = pd.DataFrame(rows)
    if rows:
        found["p_value"] = holm(found["p_value"].to_numpy(float))
    one_task = all(of_the_method(name) or name == RATE for name in differing)
    order = _variance_order(rows, firsts) if one_task else ()
    notes = (*_notes(logs), *order, *_left_out(every, logs))
    found.attrs |= {"notes": notes, "settings": tuple(differing)}
    return found


def _with_interval(name: str, found: Estimate) -> dict[str, float]:
    return {name: found.mean, f"{name}_pm": found.half_width, f"{name}_n": found.n}


def _relative_variance(values: np.ndarray, high: np.ndarray) -> dict[str, float]:
    """The geometric mean, and the ends of its interval by the measurements' own errors, shared out among runs."""
    known = np.isfinite(values) & (values > 0)
    mean, errors = geometric_mean(values), np.log(high[known] / values[known])
    width = float(np.exp(np.sqrt(np.square(errors).sum()) / len(errors))) if len(errors) else np.nan
    return {"relative_variance": mean, "relative_variance_low": mean / width, "relative_variance_high": mean * width}


def _plain(value: object) -> object:
    return shown(value) if isinstance(value, bool | tuple) else value


def _published(sweep: str, seed_group: SeedGroup, settings: Mapping[str, Any], final: float) -> dict[str, float]:
    """The paper's values for the same method, where the sweep is one of the paper's, and our distance from them."""
    accuracy = published.accuracy(sweep, settings)
    variance = published.relative_variance(settings)
    found: dict[str, float] = {}
    if accuracy is not None:
        found["published_accuracy_percent"] = accuracy.get(seed_group.method, np.nan)
        found["difference_from_published_percent"] = final - found["published_accuracy_percent"]
    if variance is not None:
        found["published_relative_variance"] = variance.get(seed_group.method, np.nan)
    return found


def _notes(logs: Logs) -> tuple[str, ...]:
    """A sentence where the runs of one of the paper's sweeps are shorter or longer than the paper's."""
    steps = logs.status["steps"].dropna()
    theirs = published.STEPS.get(logs.sweep)
    others = sorted({int(count) for count in steps} - {theirs})
    if theirs is None or not others:
        return ()
    return (f"The paper trains for {theirs} steps; these runs for {', '.join(map(str, others))}.",)


def _variance_order(rows: Sequence[Mapping[str, Any]], firsts: Sequence[Mapping[Any, Any]]) -> tuple[str, ...]:
    """A sentence on how far the variances (geometric means of rows) have the order that the paper measured."""
    ours: dict[str, list[float]] = {}
    for row, settings in zip(rows, firsts, strict=True):
        if np.isfinite(row["relative_variance"]) and published.has_variance(settings):
            ours.setdefault(row["method"], []).append(row["relative_variance"])
    if len(ours) < _ENOUGH_TO_ORDER:
        return ()
    from scipy.stats import kendalltau  # half a second

    pairs = [(geometric_mean(np.array(values)), published.VARIANCES[method]) for method, values in ours.items()]
    tau, p = kendalltau(*zip(*pairs, strict=True))
    return (
        f"Order of the variances of {len(pairs)} methods as published, against {published.VARIANCES_MODEL}'s in the "
        f"paper: Kendall's tau {tau:.2f} (p {p:.3f}).",
    )


def _left_out(every: Logs, logs: Logs) -> list[str]:
    """A sentence on the runs that have no row."""
    number = len(every.settings) - len(logs.settings)
    s, it, its, has = ("", "it", "its", "has") if number == 1 else ("s", "they", "their", "have")
    what = f"failed before {it} logged anything, in settings of {its} own, and {has} no row."
    return [f"{number} run{s} {what}"] if number else []


def arranged(found: pd.DataFrame, by: str, *, descending: bool = False) -> pd.DataFrame:
    """The rows in the order of a column (its name or short name), a setting, or ``method``: the methods' own order.

    Rows without a value come last.  Any other name raises ValueError with the legal names.
    """
    if by == "method":
        return found.iloc[::-1] if descending else found
    others = found.attrs.get("settings", ())
    name = by if by in others else column_named(by, ("method", *others)).name
    if name not in found:
        return found
    values = found[name].tolist()
    there = [index for index, value in enumerate(values) if not pd.isna(value)]
    there.sort(key=lambda index: _rank(values[index]), reverse=descending)
    return found.iloc[[*there, *(index for index, value in enumerate(values) if pd.isna(value))]]


def _rank(value: Any) -> tuple[bool, float, str]:
    number = isinstance(value, int | float)
    return (not number, float(value) if number else 0.0, str(value))


# --- text ---------------------------------------------------------------------------------------------------------


def cells(
    found: pd.DataFrame, there: Sequence[Column], plus_minus: str, missing: str
) -> tuple[list[str], list[list[str]]]:
    """The headings and rows as text."""
    rows = []
    for row in found.to_dict("records"):
        seeds = str(row["complete"]) if row["complete"] == row["runs"] else f"{row['complete']} of {row['runs']}"
        rows.append([str(row["label"]), seeds, *(written(row, column, plus_minus, missing) for column in there)])
    return ["method", "seeds", *(column.heading for column in there)], rows


def text(found: pd.DataFrame, columns: Sequence[str] | None = None, width: int = WIDTH) -> str:
    """The table in aligned columns: those named, else those with data that fit into ``width`` characters."""
    headings, rows = cells(found, shown_columns(found, columns, width), _PLUS_MINUS, "-")
    return aligned([headings, *rows], ruled=True)


def rich_table(found: pd.DataFrame, sweep: str, columns: Sequence[str] | None = None, width: int = WIDTH) -> Table:
    """The table with rich, for a terminal of so many characters."""
    chosen = shown_columns(found, columns, width)
    headings, rows = cells(found, chosen, "\N{PLUS-MINUS SIGN}", "-")
    edges: dict[str, Any] = {"box": box.SIMPLE_HEAD, "padding": (0, 1, 0, 0), "pad_edge": False, "show_edge": False}
    made = Table(title=escaped(sweep), title_justify="left", **edges)
    for index, heading in enumerate(headings):
        made.add_column(escaped(heading), justify="right" if index else "left", no_wrap=index > 0)
    for row in rows:
        made.add_row(*map(escaped, row))
    return made


# --- files ---------------------------------------------------------------------------------------------------------


def _number(words: str) -> str:
    """A number in mathematics, so that its minus is one: ``-0.28 +- 1.05 (n=2)`` as ``$-0.28 \\pm 1.05$ (n=2)``."""
    value, space, pairs = words.partition(" (")
    if not any(character.isdigit() for character in value) or "of" in value:
        return words
    return f"${value.replace(_PLUS_MINUS, chr(92) + 'pm')}${space}{pairs}"


def latex(found: pd.DataFrame, columns: Sequence[str] | None = None) -> str:
    """The table as a tabular of the booktabs package: the columns named, else those with data that fit a page."""
    headings, rows = cells(found, shown_columns(found, columns, PAGE), _PLUS_MINUS, "--")
    body = [[latex_escaped(row[0]), row[1], *map(_number, row[2:])] for row in rows]
    return tabular([latex_escaped(heading) for heading in headings], body)


def records(found: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows as names and values, None for those that are missing."""
    rows = found.to_dict("records")
    return [{str(name): None if pd.isna(value) else value for name, value in row.items()} for row in rows]


def write(
    found: pd.DataFrame, folder: Path, columns: Sequence[str] | None = None, forms: Sequence[str] = ("csv", "latex")
) -> list[Path]:
    """Write the table in each of these ``files.tables.FORMATS``, aside first.

    ``table.tex`` is for people and has the columns named; the others have all numbers.  Raises ValueError for Parquet
    without pyarrow.
    """
    rows = [{name: value for name, value in row.items() if value is not None} for row in records(found)]
    names = list(map(str, found.columns))
    made = {form: encoded(rows, form, names) for form in forms if form != "latex"}
    if "latex" in forms:
        made["latex"] = latex(found, columns).encode(errors="surrogateescape")
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for form, content in made.items():
        paths.append(folder / f"table.{FORMATS[form]}")
        with aside(paths[-1]) as place:
            place.write_bytes(content)
    return paths
