"""The file ``report.html``, written from loaded logs: which sections the page has."""

from __future__ import annotations

import shlex
import time
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from analysis.figures import means_of
from analysis.logs.load import Logs
from analysis.report import interactive, page, pictures, provenance, runs
from analysis.report.page import Section
from analysis.report.run_table import run_table
from analysis.report.sections import counted, failures, notes, origin, results, settings, states, summary
from analysis.tables import result_table
from files.atomic import write_text

NAME = "report.html"
BUDGET_BYTES = 9_500_000
_SCRIPT_BYTES = 1_400_000  # size of Bokeh's script


@dataclass(frozen=True)
class How:
    """The form of a report.

    It holds the figures' width, the most figures (0: all; None: by the number of groups), the conditions, and the
    seconds between reloads.
    """

    width: str = "column"
    most_figures: int | None = None
    conditions: tuple[str, ...] = ()
    every_s: float | None = None


def write(logs: Logs, folder: Path, how: How | None = None) -> Path:
    """Write the report of these runs; it is written aside first, so that a browser never sees half of it."""
    folder.mkdir(parents=True, exist_ok=True)
    text = report(logs, folder, how or How())
    path = folder / NAME
    write_text(path, text.encode(errors="backslashreplace").decode())  # names of folders may be no UTF-8
    return path


def report(logs: Logs, folder: Path, how: How) -> str:
    """The HTML of the page, for a file in ``folder`` (links to runs are relative to it)."""
    now = time.time()
    of_runs = runs.of(logs, now)
    has_methods = bool(len(logs.settings["method.name"].dropna()))
    can_draw = has_methods and bool(logs.tags)
    found = result_table.table(logs) if can_draw else pd.DataFrame()
    means = means_of(logs) if can_draw else []
    curves = interactive.curves(means)
    made = [Section("summary", "Summary", summary(logs, of_runs, found)), Section("results", "Results", results(found))]
    if curves:
        made.append(Section("curves", "Curves", page.curves(curves)))
    before_figures = len(made)
    made.append(
        Section(
            "runs",
            "Runs",
            run_table(logs, of_runs, folder) if len(logs.settings) else page.paragraph("There are no runs."),
        )
    )
    if of_runs.failures:
        made.append(Section("failures", "Failures", failures(of_runs)))
    made += [Section("settings", "Settings", settings(logs)), Section("notes", "Notes on the logs", notes(logs))]
    made.append(Section("provenance", "Provenance", origin(logs, of_runs, how.conditions)))
    figures = page.paragraph("There is nothing to draw: no run has both settings and logs.")
    if can_draw:
        room = (
            BUDGET_BYTES
            - sum(len(part.content.encode(errors="backslashreplace")) for part in made)
            - _SCRIPT_BYTES * bool(curves)
        )
        drawn = pictures.draw(logs, width=how.width, most=how.most_figures, budget_bytes=max(0, room), means=means)
        command = shlex.join(
            [
                "python",
                "-m",
                "analysis",
                "figures",
                logs.sweep,
                *(["--where", *how.conditions] if how.conditions else []),
            ]
        )
        figures = page.pictures(drawn, f"{command} draws all of them.")
    made.insert(before_figures, Section("figures", "Figures", figures))
    chosen = f" with {' '.join(how.conditions)}" if how.conditions else ""
    lead = f"{counted(len(logs.settings), 'run')}{chosen}: {states(of_runs)}"
    footer = f"Made {provenance.day(now)} by python -m analysis report, from {provenance.of_this_checkout()}."
    return page.page(logs.sweep, lead, made, footer=footer, with_curves=bool(curves), every_s=how.every_s)
