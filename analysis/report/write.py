"""The file ``report.html``, written from loaded logs: which sections the page has."""

from __future__ import annotations

import shlex
import time
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from analysis.figures import means_of
from analysis.logs.load import Logs
from analysis.report import interactive, pictures, provenance, runs, sections
from analysis.report.page import Section, page, part
from analysis.report.run_table import run_table
from analysis.report.sections import counted
from analysis.tables import result_table
from files.atomic import write_text

NAME = "report.html"
BUDGET_BYTES = 9_500_000
_SCRIPT_BYTES = 1_400_000  # size of Bokeh's script


@dataclass(frozen=True)
class How:
    """The figures' width, the most figures (0: all; None: by the groups), the conditions, seconds between reloads."""

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
    made = [
        Section("summary", "Summary", sections.summary(logs, of_runs, found)),
        Section("results", "Results", sections.results(found)),
        *([Section("curves", "Curves", sections.curves(curves))] if curves else []),
    ]
    table = run_table(logs, of_runs, folder) if len(logs.settings) else part("paragraph", "There are no runs.")
    after_figures = [
        Section("runs", "Runs", table),
        *([Section("failures", "Failures", sections.failures(of_runs))] if of_runs.failures else []),
        Section("settings", "Settings", sections.settings(logs)),
        Section("notes", "Notes on the logs", sections.notes(logs)),
        Section("provenance", "Provenance", sections.origin(logs, of_runs, how.conditions)),
    ]
    figures = part("paragraph", "There is nothing to draw: no run has both settings and logs.")
    if can_draw:
        others = sum(len(each.content.encode(errors="backslashreplace")) for each in [*made, *after_figures])
        room = max(0, BUDGET_BYTES - others - _SCRIPT_BYTES * bool(curves))
        drawn = pictures.draw(logs, width=how.width, most=how.most_figures, budget_bytes=room, means=means)
        where = ["--where", *how.conditions] if how.conditions else []
        command = shlex.join(["python", "-m", "analysis", "figures", logs.sweep, "--all", *where])
        figures = sections.figures(drawn, f"{command} draws all of them.")
    made += [Section("figures", "Figures", figures), *after_figures]
    chosen = f" with {' '.join(how.conditions)}" if how.conditions else ""
    lead = f"{counted(len(logs.settings), 'run')}{chosen}: {sections.states(of_runs)}"
    footer = f"Made {provenance.day(now)} by python -m analysis report, from {provenance.of_this_checkout()}."
    return page(logs.sweep, lead, made, footer=footer, with_curves=bool(curves), every_s=how.every_s)
