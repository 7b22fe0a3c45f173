"""One tidy row per run: settings, state, latest measurements, time and place.

The rows are for analysis, a spreadsheet, or `diff`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from grid.engine.states.evidence import View
from grid.engine.states.runs import Run
from settings.dotted import as_set


def rows_of(runs: Sequence[Run], view: View) -> list[dict[str, Any]]:
    """The rows of the table, one for each run, all with the same columns; a value that a run does not have is empty.

    Columns: run, label, state, reason, step, steps, seconds, attempts, job, code; then one ``metric.<name>`` for each
    of its latest measurements, and one ``setting.<name>`` for every setting in its dotted form.
    """
    rows = []
    for run in runs:
        state = view.states[run.run_dir]
        row: dict[str, Any] = {
            "run": run.run_dir,
            "label": run.experiment.label,
            "state": state.word,
            "reason": " ".join(state.reason.split()),
            "step": state.step,
            "steps": state.steps,
            "seconds": round(state.seconds, 1),
            "attempts": state.attempt,
            "job": state.element,
            "code": state.code,
        }
        row.update({f"setting.{name}": _cell(value) for name, value in as_set(run.experiment.config).items()})
        row.update({f"metric.{name}": value for name, value in state.metrics.items()})
        rows.append(row)
    columns = list(dict.fromkeys(name for row in rows for name in row))
    order = sorted(columns, key=lambda name: (name.startswith("setting."), name.startswith("metric.")))
    return [{name: row.get(name, "") for name in order} for row in rows]


def _cell(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, list | bool) or value is None else value
