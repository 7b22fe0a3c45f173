"""The table of all runs, which page.js sorts and filters."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from markupsafe import Markup

from analysis.logs.load import Logs
from analysis.report.page import part
from analysis.report.runs import RESULTS, Runs, differing, results, shared
from settings.conditions import short_name, shown


@dataclass(frozen=True)
class _Column:
    """A column: its name in conditions, its heading, and a text for each run."""

    name: str
    heading: str
    is_number: bool = False
    is_own: bool = False  # a setting of single methods, hidden at first
    texts: Sequence[str] = ()

    @property
    def classes(self) -> str:
        return " ".join(["number"] * self.is_number + ["own"] * self.is_own)


def run_table(logs: Logs, runs: Runs, page_folder: Path) -> Markup:
    """The table of runs: state, step, settings that differ, results, and a link to the run's folder from the page's."""
    main, own = differing(logs.settings)
    names, found = [*main, *own], results(logs)
    columns = []
    for name in names:
        values = [None if value != value else value for value in logs.settings[name].tolist()]
        texts = ["" if value is None else shown(value) for value in values]
        is_number = all(isinstance(value, int | float | None) and not isinstance(value, bool) for value in values)
        columns.append(_Column(name, _short(name, names), is_number, name in own, texts))
    for result in (result for result in RESULTS if result.of in found):
        texts = [f"{value:.{result.digits}f}" if value == value else "" for value in found[result.of].tolist()]
        columns.append(_Column(result.name, result.heading, True, texts=texts))
    below = os.path.relpath(logs.folder, page_folder)
    names_of_runs = list(map(str, logs.settings.index))
    links = [quote(os.fsencode(f"{below}/{run}")) for run in names_of_runs]
    rows = [(run, link, runs.states[run]) for run, link in zip(names_of_runs, links, strict=True)]
    of_all = json.dumps(shared(logs.settings), ensure_ascii=False)
    heads = [_Column("run", "run"), _Column("state", "state"), _Column("step", "step", True)]
    return part("runs", heads, columns, rows, own, of_all)


def _short(name: str, names: Sequence[str]) -> str:
    """The last part of a setting's name, with its group where two settings end alike."""
    last = short_name(name)
    alone = [*map(short_name, names)].count(last) == 1
    return last.replace("_", " ") if alone else name
