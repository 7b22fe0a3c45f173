"""The selection of runs by their settings, never by their names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pandas as pd

from analysis.groups.seed_groups import seed_groups, title
from analysis.logs.load import Logs
from settings.conditions import chosen, shown


def select(logs: Logs, conditions: Sequence[str]) -> Logs:
    """The runs whose settings fulfil every condition, with the notes of ``settings.conditions.chosen``."""
    runs = logs.settings
    rows = lambda label, kept: _rows_of(label, runs.iloc[kept])  # noqa: E731
    column = lambda name: runs[name].tolist()  # noqa: E731
    kept, notes = chosen(conditions, list(runs.columns), column, title=title, rows_of=rows)
    return replace(logs.keep(runs.index.take(kept)), notes=(*logs.notes, *notes))


def _rows_of(label: str, runs: pd.DataFrame) -> str:
    """The conditions that choose the rows of a label, or of a method's name in labels, in words; empty for no such."""
    rows = [row for row in seed_groups(runs) if label in (row.label, row.label.partition(" (")[0])]
    settings = [{"method": row.method, **row.differs} for row in rows]
    found = "; ".join(" ".join(f"{name}={shown(value)}" for name, value in one.items()) for one in settings)
    return f"; {len(rows)} row{'s have' if len(rows) > 1 else ' has'} this label: {found}" if rows else ""
