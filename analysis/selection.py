"""The selection of runs by their settings, never by their names."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import yaml

from analysis.logs.load import Logs
from analysis.seed_groups import short_name, shown
from nuq.settings import unknown


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
    short = [short_name(item) for item in legal]
    raise unknown("setting", name, [item if short.count(short_name(item)) > 1 else short_name(item) for item in legal])


def select(logs: Logs, conditions: Sequence[str]) -> Logs:
    """The runs whose settings fulfil every ``name=value`` or ``name=value,value`` (any of them)."""
    runs = logs.settings
    for condition in conditions:
        name, sign, text = condition.partition("=")
        if not sign or not name or not text:
            example = "name=value or name=value,value, as in method=alq,amq bits=3"
            raise ValueError(f"condition {condition!r}: must be {example}")
        column = runs[setting_named(name, list(logs.settings.columns))]
        have = column.map(shown)
        wanted = {text} if text in set(have) else {part.strip() for part in text.split(",")}
        wanted |= {shown(_parsed(part)) for part in list(wanted)}
        chosen = have.isin(list(wanted))
        if len(runs) and chosen.to_numpy().sum() == 0:
            there = ", ".join(sorted({shown(value) for value in column.dropna()})) or "none that read this setting"
            raise ValueError(f"no run with {condition} (there are: {there})")
        runs = runs.loc[chosen]
    return logs.keep(runs.index)


def _parsed(text: str) -> Any:
    """A value as config.yaml would hold it; YAML takes 1e-3 for a word, people do not."""
    with contextlib.suppress(ValueError):
        return float(text)
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError:
        return text
    return tuple(value) if isinstance(value, list) else value
