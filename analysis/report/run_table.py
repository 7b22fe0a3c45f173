"""The table of all runs, as HTML that page.js sorts and filters."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from analysis.logs.load import Logs
from analysis.report.page import escape
from analysis.report.runs import RESULTS, Runs, differing, results, shared
from analysis.seed_groups import shown


def run_table(logs: Logs, runs: Runs, page_folder: Path) -> str:
    """The table of runs, with a row per run: state, step, settings that differ, results.

    Each run links to its folder, as seen from the page's own.
    """
    main, own = differing(logs.settings)
    found = results(logs)
    columns: dict[str, list[str]] = {name: _texts(logs.settings[name].tolist()) for name in [*main, *own]}
    kinds = {name: "number" if _is_numeric(logs.settings[name].tolist()) else "text" for name in columns}
    there = [result for result in RESULTS if result.of in found]
    numbers = {result.name: [_written(value, result.digits) for value in found[result.of].tolist()] for result in there}
    heads = [_head("run", "run"), _head("state", "state"), _head("step", "step", "number")]
    heads += [_head(name, _short(name, list(columns)), kinds[name], name in own) for name in columns]
    heads += [_head(result.name, result.heading, "number") for result in there]
    classes = {name: " ".join(["number"] * (kinds[name] == "number") + ["own"] * (name in own)) for name in columns}
    below = os.path.relpath(logs.folder, page_folder)
    rows = []
    for index, run in enumerate(map(str, logs.settings.index)):
        state = runs.states[run]
        title = f' title="{escape(state.reason)}"' if state.reason else ""
        cells = [
            f'<th scope="row" title="{escape(run)}"><a '
            f'href="{quote(os.fsencode(f"{below}/{run}"))}/">{escape(run)}</a></th>',
            f'<td class="state {escape(state.word)}"{title}>{escape(state.word)}</td>',
            f'<td class="number">{state.step or ""}</td>',
            *(f"<td{_class(classes[name])}>{escape(texts[index])}</td>" for name, texts in columns.items()),
            *(f'<td class="number">{texts[index]}</td>' for texts in numbers.values()),
        ]
        rows.append(f"<tr>{''.join(cells)}</tr>")
    body = "\n".join(rows)
    of_all = escape(json.dumps(shared(logs.settings), ensure_ascii=False))
    return (
        f'{_tools(own)}<div class="scroll runs" tabindex="0"><table id="run-table" data-shared="{of_all}">'
        f"<thead><tr>{''.join(heads)}</tr></thead><tbody>\n{body}\n</tbody></table></div>"
    )


def _tools(own: list[str]) -> str:
    names = ", ".join(own)
    toggle = (
        f'<label title="{escape(names)}"><input type="checkbox" id="run-all"> settings of single methods</label>'
        if own
        else ""
    )
    return (
        '<div class="tools"><label>Filter <input type="search" id="run-filter" placeholder="method=alq,amq '
        'state=failed" spellcheck="false" autocomplete="off"></label><output id="run-count" '
        f'for="run-filter"></output>{toggle}</div>'
    )


def _head(name: str, heading: str, kind: str = "text", is_own: bool = False) -> str:
    classes = _class(" ".join(["number"] * (kind == "number") + ["own"] * is_own))
    return (
        f'<th scope="col" data-name="{escape(name)}" data-kind="{kind}" aria-sort="none" '
        f'title="{escape(name)}"{classes}><button type="button">{escape(heading)}</button></th>'
    )


def _class(classes: str) -> str:
    return f' class="{classes}"' if classes else ""


def _short(name: str, names: list[str]) -> str:
    """The last part of a setting's name, with its group where two settings end alike."""
    last = name.removesuffix(".name").rpartition(".")[2]
    alone = [other.removesuffix(".name").rpartition(".")[2] for other in names].count(last) == 1
    return last.replace("_", " ") if alone else name


def _texts(values: Sequence[Any]) -> list[str]:
    return ["" if _is_missing(value) else shown(value) for value in values]


def _is_missing(value: Any) -> bool:
    return value is None or value != value


def _is_numeric(values: Sequence[Any]) -> bool:
    return all(
        isinstance(value, int | float) and not isinstance(value, bool) for value in values if not _is_missing(value)
    )


def _written(value: float, digits: int) -> str:
    return f"{value:.{digits}f}" if value == value else ""
