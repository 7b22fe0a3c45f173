"""The sections of a report, each as HTML."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

import numpy as np
import pandas as pd

from analysis.logs.load import Logs
from analysis.report import page, provenance
from analysis.report.page import escape
from analysis.report.runs import Runs, differing, shared
from analysis.seed_groups import method_order, shown, title
from analysis.tables import columns

_PAGE_WIDE = 10_000  # characters: the page scrolls, so no column of the result table is left out
_NOTES = 40  # notes of loading; a thousand of one kind tell no more


def counted(count: int, word: str) -> str:
    """A number of things as text: ``1 run``, ``2 runs``."""
    return f"{count} {word}{'s' * (count != 1)}"


def states(of_runs: Runs) -> str:
    """The states of the runs as text: ``28 done, 2 failed``."""
    return ", ".join(f"{count} {word}" for word, count in of_runs.counts().items())


def summary(logs: Logs, of_runs: Runs, found: pd.DataFrame) -> str:
    """The states of the runs, and the few numbers that matter."""
    there = sorted(map(str, logs.settings["method.name"].dropna().unique()), key=method_order)
    methods = [title(name) for name in there]
    cards = {"runs": (str(len(logs.settings)), states(of_runs))}
    cards["methods"] = (str(len(methods)), ", ".join(methods))
    seeds = sorted({shown(seed) for seed in logs.settings["seed"].dropna()})
    cards["seeds"] = (str(len(seeds)), ", ".join(seeds[:8]) + ", .." * (len(seeds) > 8))
    for name, heading in (
        ("final_accuracy_percent", "highest final accuracy"),
        ("best_accuracy_percent", "highest accuracy on the way"),
    ):
        if name in found and np.isfinite(found[name].to_numpy(float)).any():
            row = found.loc[found[name].astype(float).idxmax()]
            interval = f" \N{PLUS-MINUS SIGN} {row[f'{name}_pm']:.2f}" if np.isfinite(float(row[f"{name}_pm"])) else ""
            cards[heading] = (
                f"{row[name]:.2f} %",
                f"{row['label']}{interval}, {counted(int(row[f'{name}_n']), 'seed')}",
            )
    for kind, value in provenance.hours(of_runs).items():
        cards[kind] = (provenance.shown_hours(value), "of all runs together")
    return page.states_bar(of_runs.counts()) + page.cards(cards)


def results(found: pd.DataFrame) -> str:
    """The result table, with all its columns."""
    if not len(found):
        return page.paragraph("There are no results: no run has both settings and logs.")
    there = columns.shown_columns(found, None, _PAGE_WIDE)
    rows = []
    for row in found.to_dict("records"):
        seeds = str(row["complete"]) if row["complete"] == row["runs"] else f"{row['complete']} of {row['runs']}"
        rows.append(
            [str(row["label"]), seeds, *(columns.written(row, column, "\N{PLUS-MINUS SIGN}", "") for column in there)]
        )
    headings = ["method", "seeds", *(column.heading for column in there)]
    legend = columns.legend(found, width=_PAGE_WIDE).replace("+-", "\N{PLUS-MINUS SIGN}")
    return page.table(headings, rows, [False, *([True] * (len(headings) - 1))]) + page.paragraph(legend, "legend")


def failures(of_runs: Runs) -> str:
    """Failed runs by kind and signature, each with an example."""
    rows = [[group.kind, str(group.count), group.signature, group.example, group.line] for group in of_runs.failures]
    total = sum(group.count for group in of_runs.failures)
    intro = (
        f"{counted(total, 'run')} ended otherwise than planned, in {len(rows)} class{'es' * (len(rows) != 1)} of "
        f"kind and signature."
    )
    return page.paragraph(intro) + page.table(["kind", "runs", "signature", "example", "its own words"], rows,
                                              [False, True, False, False, False], wrapped=(2, 3, 4))  # fmt: skip


def settings(logs: Logs) -> str:
    """The settings that differ between runs, and those that they share."""
    main, own = differing(logs.settings)
    rows = []
    for name in [*main, *own]:
        texts = logs.settings[name].dropna().map(shown)
        values = [f"{value} ({count})" for value, count in texts.value_counts(sort=False).items()]
        listed = ", ".join(values[:12]) + f" and {len(values) - 12} more" * (len(values) > 12)
        rows.append([name, str(len(values)), listed, "" if len(texts) == len(logs.settings) else f"{len(texts)} runs"])
    same = shared(logs.settings)
    headings, numbers = ["setting", "values", "with the number of runs", "read by"], [False, True, False, False]
    differ = page.table(headings, rows, numbers, wrapped=(2,)) if rows else page.paragraph("All runs are set alike.")
    shares = page.folded(
        "shared", f"{counted(len(same), 'setting')} with one value in all runs that read them", page.facts(same, "code")
    )
    return f"<h3>What differs between runs</h3>{differ}{shares if same else ''}"


def notes(logs: Logs) -> str:
    """The notes from loading the logs."""
    if not logs.notes:
        return page.paragraph("All logs were read without damage.")
    more = [f"and {len(logs.notes) - _NOTES} more"] if len(logs.notes) > _NOTES else []
    return page.items([*logs.notes[:_NOTES], *more])


def origin(logs: Logs, of_runs: Runs, conditions: Sequence[str]) -> str:
    """The origin of the numbers, and the commands that make them again."""
    values = {
        **provenance.facts(of_runs),
        "logs": str(logs.folder.resolve()),
        "report by": provenance.of_this_checkout(),
    }
    where = "".join(f" {part}" for part in (["--where", *map(shlex.quote, conditions)] if conditions else []))
    lines = provenance.commands(logs.sweep, logs.folder.parent, of_runs, where)
    return f"{page.facts(values)}<h3>To make it again</h3><pre>{escape(chr(10).join(lines))}</pre>"
