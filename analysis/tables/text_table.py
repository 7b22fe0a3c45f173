"""Published results beside ours: our runs by their row of the table, our estimates, and those as text."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from analysis.groups.aggregate import estimate
from analysis.logs.load import load
from analysis.results import of_complete_runs

MISSING = "-"


def by_row(runs: Path, sweep: str, row_of: Callable[[dict[Any, Any]], Any]) -> dict[Any, pd.DataFrame]:
    """The results of a sweep's complete runs by the row that their settings tell; those with an empty one are left out.

    ``score`` is the final accuracy, or else the correlation.
    """
    if not (runs / sweep).is_dir():
        return {}
    logs = load(runs, sweep)
    rows = [row_of(settings) for settings in logs.settings.to_dict("records")]
    found = of_complete_runs(logs)
    found["score"] = found["final"].fillna(found["correlation"])
    return {row: found.loc[[own == row for own in rows]] for row in dict.fromkeys(filter(None, rows))}


def add_columns(
    table: pd.DataFrame, name: str, published: Mapping[Any, float], ours: Mapping[Any, pd.DataFrame], what: str
) -> None:
    """Add the published numbers by row, and of this result of our runs mean, half-width and number; NaN without."""
    estimates = [estimate(ours[row][what].to_numpy(float) if row in ours else np.empty(0)) for row in published]
    table[f"{name} paper"] = list(published.values())
    table[f"{name} ours"] = [each.mean for each in estimates]
    table[f"{name} ours_pm"] = [each.half_width for each in estimates]
    table[f"{name} ours_n"] = [each.n for each in estimates]


def written(row: Mapping[Any, Any], name: str, digits: int = 2) -> str:
    """Our number in a row as text, such as ``76.50 +- 6.35 (n=2)``; a dash where we have no run."""
    mean, half_width, n = (row[f"{name} {what}"] for what in ("ours", "ours_pm", "ours_n"))
    if not n:
        return MISSING
    interval = f" +- {half_width:.{digits}f}" if np.isfinite(half_width) else ""
    return f"{mean:.{digits}f}{interval} (n={n})"
