"""Conditions on settings, ``name=value,value``, by which ``--where`` chooses runs; and values as texts."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Collection, Sequence
from typing import Any

from nuq.registry import METHODS
from nuq.settings import declared, unknown


def shown(value: Any) -> str:
    """A setting's value as text: the form in which values are compared and printed."""
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, tuple | list):
        return f"[{','.join(shown(item) for item in value)}]"
    return str(value).lower() if isinstance(value, bool) else str(value)


def short_name(name: str) -> str:
    """A setting's name without its section: ``bits`` of ``method.bits``, ``method`` of ``method.name``."""
    return name.removesuffix(".name").rpartition(".")[2]


def absent(value: Any) -> bool:
    """Whether a run does not read the setting that has this value."""
    return value is None or (isinstance(value, float) and math.isnan(value))


def _of_registry(method: str) -> str:
    return METHODS[method].title


def chosen(
    conditions: Sequence[str],
    names: Sequence[str],
    column: Callable[[str], Sequence[Any]],
    *,
    title: Callable[[str], str] = _of_registry,
    rows_of: Callable[[str, Sequence[int]], str] = lambda label, kept: "",
) -> tuple[list[int], list[str]]:
    """The numbers of the runs whose settings fulfil every ``name=value`` or ``name=value,value`` (any), and notes.

    names, column: the settings, in dotted names, and what the runs have of one.  title: a method's name in labels.
    rows_of: what is to be said of a label that was given in the place of a condition.

    A condition on a method's setting leaves the runs of methods that do not have it (SuperSGD has no bits).  A note
    tells of a value that no run has; ValueError where no run has any.
    """
    methods = column("method.name")
    kept, notes = list(range(len(methods))), []
    for condition in conditions:
        name, _, text = condition.partition("=")
        parts = [part.strip() for part in text.split(",")]
        if not name or "" in parts:
            example = "name=value or name=value,value, as in method=alq,amq bits=3"
            raise ValueError(f"condition {condition!r}: must be {example}{rows_of(condition, kept)}")
        setting = _setting(name, names)
        values = column(setting)
        have = {number: shown(values[number]) for number in kept}
        all_had = set(have.values())
        wanted = {part: {part, shown(_parsed(part))} for part in ([text] if text in all_had else parts)}
        fulfilled = {number for number, had in have.items() if any(had in forms for forms in wanted.values())}
        there = ", ".join(sorted({have[number] for number in kept if not absent(values[number])}))
        there = there or "none that read this setting"
        if kept and not fulfilled:
            raise ValueError(f"no run with {condition} (there are: {there}){_meant(name, parts, all_had, title)}")
        lost = [part for part, forms in wanted.items() if forms.isdisjoint(all_had)]
        if kept and lost:
            notes.append(f"no run with {name}={','.join(lost)} (there are: {there})")
        kept = [number for number in kept if number in fulfilled or not _may_have(setting, methods[number])]
    return kept, notes


def _setting(name: str, legal: Sequence[str]) -> str:
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


def _may_have(setting: str, method: Any) -> bool:
    """Whether runs of a method may have a setting; those of one that METHODS does not know may have any."""
    section, _, short = setting.partition(".")
    is_own = section == "method" and short != "name"
    return not is_own or method not in METHODS or short in declared(METHODS[method].settings)


def _meant(name: str, parts: Sequence[str], there: Collection[str], title: Callable[[str], str]) -> str:
    """A question where a value is the name of a method in figures (``ALQ-N``), and the runs have that method."""
    methods = {title(value): value for value in there if value in METHODS}
    meant = [methods.get(part, part) for part in parts]
    return f"; did you mean {name}={','.join(meant)}?" if meant != parts else ""


def _parsed(text: str) -> Any:
    """A value as the configuration would hold it: ``3.0`` is 3, ``1e-3`` .001, ``True`` true, ``null`` nothing."""
    with contextlib.suppress(ValueError):
        return float(text)
    return {"true": True, "false": False, "null": None}.get(text.lower(), text)
