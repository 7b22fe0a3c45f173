"""The selection of runs by their settings, never by their names."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import yaml

from analysis.groups.seed_groups import seed_groups, short_name, shown, title
from analysis.logs.load import Logs
from nuq.registry import METHODS
from nuq.settings import declared, unknown


def setting_named(name: str, legal: Sequence[str]) -> str:
    """The full name of a setting: itself, or a group (``method`` is ``method.name``), or the end of only one name."""
    if name in legal:
        return name
    if f"{name}.name" in legal:
        return f"{name}.name"
    ends = [item for item in legal if item.rpartition(".")[2] == name]
    if len(ends) == 1:
        return ends[0]
    if ends:
        raise ValueError(f"setting {name!r} is ambiguous: {', '.join(sorted(ends))}")
    if any(name.removeprefix("method.") in declared(entry.settings) for entry in METHODS.values()):
        raise ValueError(f"setting {name!r}: no method of these runs reads it")
    short = [short_name(item) for item in legal]
    raise unknown("setting", name, [item if short.count(short_name(item)) > 1 else short_name(item) for item in legal])


def select(logs: Logs, conditions: Sequence[str]) -> Logs:
    """The runs whose settings fulfil every ``name=value`` or ``name=value,value`` (any of them).

    A condition on a method's setting leaves the runs of methods that do not have it (SuperSGD has no bits).  A note
    tells of a value that no run has; ValueError where no run has any.
    """
    runs, notes = logs.settings, list(logs.notes)
    for condition in conditions:
        name, _, text = condition.partition("=")
        parts = [part.strip() for part in text.split(",")]
        if not name or "" in parts:
            example = "name=value or name=value,value, as in method=alq,amq bits=3"
            raise ValueError(f"condition {condition!r}: must be {example}{_rows_of(condition, runs)}")
        setting = setting_named(name, list(logs.settings.columns))
        column = runs[setting]
        have = column.map(shown)
        wanted = {part: {part, shown(_parsed(part))} for part in ([text] if text in set(have) else parts)}
        chosen = have.isin([value for values in wanted.values() for value in values])
        there = ", ".join(sorted({shown(value) for value in column.dropna()})) or "none that read this setting"
        if len(runs) and chosen.to_numpy().sum() == 0:
            raise ValueError(f"no run with {condition} (there are: {there}){_meant(name, parts, set(have))}")
        lost = [part for part, values in wanted.items() if values.isdisjoint(have)]
        if len(runs) and lost:
            notes.append(f"no run with {name}={','.join(lost)} (there are: {there})")
        may_have = [_may_have(setting, method) for method in runs["method.name"]]
        runs = runs.loc[chosen | ~np.array(may_have, bool)]
    return replace(logs.keep(runs.index), notes=tuple(notes))


def _may_have(setting: str, method: Any) -> bool:
    """Whether runs of a method may have a setting; those of one that METHODS does not know may have any."""
    section, _, short = setting.partition(".")
    is_own = section == "method" and short != "name"
    return not is_own or method not in METHODS or short in declared(METHODS[method].settings)


def _rows_of(label: str, runs: pd.DataFrame) -> str:
    """The conditions that choose the rows of a label, or of a method's name in labels, in words; empty for no such."""
    rows = [row for row in seed_groups(runs) if label in (row.label, row.label.partition(" (")[0])]
    settings = [{"method": row.method, **row.differs} for row in rows]
    found = "; ".join(" ".join(f"{name}={shown(value)}" for name, value in one.items()) for one in settings)
    return f"; {len(rows)} row{'s have' if len(rows) > 1 else ' has'} this label: {found}" if rows else ""


def _meant(name: str, parts: Sequence[str], there: Collection[str]) -> str:
    """A question where a value is the name of a method in figures (``ALQ-N``), and the runs have that method."""
    methods = {title(value): value for value in there if value in METHODS}
    meant = [methods.get(part, part) for part in parts]
    return f"; did you mean {name}={','.join(meant)}?" if meant != parts else ""


def _parsed(text: str) -> Any:
    """A value as config.yaml would hold it; YAML takes 1e-3 for a word, people do not."""
    with contextlib.suppress(ValueError):
        return float(text)
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError:
        return text
    return tuple(value) if isinstance(value, list) else value
