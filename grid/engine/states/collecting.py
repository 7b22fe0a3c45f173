"""One tidy row per run: settings, state, latest measurements, time and place.

The rows are for analysis, a spreadsheet, or `diff`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from grid.engine.states.evidence import View
from grid.engine.states.runs import Run
from settings.sections import as_set


def state_of(run: Run, view: View) -> dict[str, Any]:
    """What is known of a run: run, label, state, reason, step, steps, seconds, attempts, job, code."""
    state = view.states[run.run_dir]
    return {
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


def rows_of(runs: Sequence[Run], view: View) -> tuple[list[str], list[dict[str, Any]]]:
    """The columns of the table and its rows, one for each run, which lack the values that it does not have.

    Columns: those of ``state_of``; then one ``metric.<name>`` for each of its latest measurements, and one
    ``setting.<name>`` for every setting in its dotted form.
    """
    rows = []
    for run in runs:
        settings = {f"setting.{name}": value for name, value in as_set(run.experiment.config).items()}
        metrics = {f"metric.{name}": value for name, value in view.states[run.run_dir].metrics.items()}
        rows.append({**state_of(run, view), **settings, **metrics})
    columns = dict.fromkeys(name for row in rows for name in row)
    return sorted(columns, key=lambda name: (name.startswith("setting."), name.startswith("metric."))), rows
