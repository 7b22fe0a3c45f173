"""The sections of a report, each as HTML: the values here, the markup in ``sections.html``."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from markupsafe import Markup

from analysis import axes
from analysis.groups.seed_groups import method_order, title
from analysis.logs.load import Logs
from analysis.report import provenance
from analysis.report.interactive import Curves
from analysis.report.page import packed_json, part
from analysis.report.pictures import Picture, Pictures
from analysis.report.plots import plots
from analysis.report.runs import Runs, differing, shared
from analysis.tables import columns
from analysis.tables.result_table import cells
from settings.conditions import shown

_PAGE_WIDE = 10_000  # characters: the page scrolls, so no column of the result table is left out
_OPEN_SECTIONS = 4  # sections of figures: the rest is folded
_NOTES = 40  # notes of loading; a thousand of one kind tell no more


def counted(count: int, word: str) -> str:
    """A number of things as text: ``1 run``, ``2 runs``."""
    return f"{count} {word}{'s' * (count != 1)}"


def states(of_runs: Runs) -> str:
    """The states of the runs as text: ``28 done, 2 failed``."""
    return ", ".join(f"{count} {word}" for word, count in of_runs.counts().items())


def summary(logs: Logs, of_runs: Runs, found: pd.DataFrame) -> Markup:
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
            whose = f"{row['label']}{interval}, {counted(int(row[f'{name}_n']), 'seed')}"
            cards[heading] = (f"{row[name]:.2f} %", whose)
    for kind, value in provenance.hours(of_runs).items():
        cards[kind] = (provenance.shown_hours(value), "of all runs together")
    return part("summary", of_runs.counts(), cards)


def results(found: pd.DataFrame) -> Markup:
    """The result table, with all its columns."""
    if not len(found):
        return part("paragraph", "There are no results: no run has both settings and logs.")
    there = columns.shown_columns(found, None, _PAGE_WIDE)
    legend = columns.legend(found, width=_PAGE_WIDE).replace("+-", "\N{PLUS-MINUS SIGN}")
    return part("results", *cells(found, there, "\N{PLUS-MINUS SIGN}", ""), legend)


def curves(found: Curves) -> Markup:
    """The interactive plots: three choices, two plots of which one is shown, and the data."""
    return part("curves", found.notes, packed_json({"data": found.data, "plots": plots(found.slots)}))


def figures(found: Pictures, advice: str) -> Markup:
    """All figures, section by section; curves against other axes than the step are folded away, as they show the same.

    Figures that could not be drawn stand there with the reason, and the number of those left out is told.
    """
    of_sections: dict[str, list[Picture]] = {section: [] for section in found.left_out}
    for picture in found.drawn:
        of_sections.setdefault(picture.section, []).append(picture)
    parts: list[dict[str, Any]] = []
    for section, pictures in of_sections.items():
        drawn = [picture for picture in pictures if picture.packed]
        by_axis = {axis: [item for item in drawn if axes.TITLES[axis] in item.title] for axis in axes.AXES[1:]}
        apart = {picture.name for of_axis in by_axis.values() for picture in of_axis}
        kinds = found.left_out.get(section, [])
        more = f"{counted(len(kinds), 'more figure')} of this section left out here ({_quantities(kinds)}); {advice}"
        parts.append(
            {
                "title": section[0].upper() + section[1:],
                "drawn": [picture for picture in drawn if picture.name not in apart],
                "same": [
                    (axis, f"The same {axes.TITLES[axis]} ({len(of_axis)})", of_axis)
                    for axis, of_axis in by_axis.items()
                    if of_axis
                ],
                "left_out": more if kinds else "",
                "missing": [f"{picture.name}: {picture.sentence}" for picture in pictures if picture.sentence],
            }
        )
    return part("figures", parts, _OPEN_SECTIONS)


def _quantities(kinds: Iterable[str]) -> str:
    """The kinds of figures as text: ``accuracy, est_var-bytes``, or ``est_var against step, time, epoch, bytes``."""
    of_quantity: dict[str, list[str]] = {}
    for kind in kinds:
        name, _, axis = kind.rpartition("-")
        name, axis = (name, axis) if axis in axes.AXES else (kind, "step")
        of_quantity.setdefault(name, []).append(axis)
    by_axes: dict[tuple[str, ...], list[str]] = {}
    for name, of_axes in of_quantity.items():
        by_axes.setdefault(tuple(of_axes), []).append(name)
    return "; ".join(
        ", ".join(names) + f" against {', '.join(of)}" * (of != ("step",)) for of, names in by_axes.items()
    )


def failures(of_runs: Runs) -> Markup:
    """Failed runs by kind and signature, each with an example."""
    rows = [(group.kind, group.count, group.signature, group.example, group.line) for group in of_runs.failures]
    total = sum(group.count for group in of_runs.failures)
    classes = f"in {len(rows)} class{'es' * (len(rows) != 1)} of kind and signature"
    return part("failures", f"{counted(total, 'run')} ended otherwise than planned, {classes}.", rows)


def settings(logs: Logs) -> Markup:
    """The settings that differ between runs, and those that they share."""
    main, own = differing(logs.settings)
    rows = []
    for name in [*main, *own]:
        texts = logs.settings[name].dropna().map(shown)
        values = [f"{value} ({count})" for value, count in texts.value_counts(sort=False).items()]
        listed = ", ".join(values[:12]) + f" and {len(values) - 12} more" * (len(values) > 12)
        rows.append((name, len(values), listed, "" if len(texts) == len(logs.settings) else f"{len(texts)} runs"))
    same = shared(logs.settings)
    return part("settings", rows, same, f"{counted(len(same), 'setting')} with one value in all runs that read them")


def notes(logs: Logs) -> Markup:
    """The notes from loading the logs."""
    if not logs.notes:
        return part("paragraph", "All logs were read without damage.")
    more = [f"and {len(logs.notes) - _NOTES} more"] if len(logs.notes) > _NOTES else []
    return part("items", [*logs.notes[:_NOTES], *more])


def origin(logs: Logs, of_runs: Runs, conditions: Sequence[str]) -> Markup:
    """The origin of the numbers, and the commands that make them again."""
    values = provenance.facts(of_runs)
    values |= {"logs": str(logs.folder.resolve()), "report by": provenance.of_this_checkout()}
    where = f" --where {shlex.join(conditions)}" if conditions else ""
    return part("origin", values, provenance.commands(logs.sweep, logs.folder.parent, of_runs, where))
