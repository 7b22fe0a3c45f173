"""Settings as data: one dataclass for each method and section, each default with its reason and its legal range.

Imports ``nuq.registry``, which lists these dataclasses, and no torch.

``setting`` declares a field, ``check`` holds values against the declarations, ``unknown`` words the error for a name
that is in no table.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import math
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, Literal

FROM_ONE = range(1, 2**63)  # for ``read_if``: switched on by any number that is not zero


def setting(
    default: Any,
    reason: str,
    *,
    low: float | None = None,
    high: float | None = None,
    choices: tuple[str | int, ...] | None = None,
    items: int = 0,
    identity: bool | Literal["unless default"] = True,
    read_if: tuple[str, Any] | None = None,
) -> Any:
    """A dataclass field with its reason, its legal range or choices, and whether it can change a result.

    items: the fewest that a list has.  identity: "unless default" for one that is younger than runs with its default,
    which therefore must never move.  read_if: (another setting, its value, a tuple or a range of them) without which
    this one has no effect: legal is the default.
    """
    metadata: dict[str, Any] = {"reason": reason, "low": low, "high": high, "choices": choices}
    metadata |= {"items": items, "identity": identity, "read_if": read_if}
    if isinstance(default, list):
        return field(default_factory=lambda: list(default), metadata=metadata)
    return field(default=default, metadata=metadata)


def unknown(kind: str, name: object, legal: Mapping[str, Any] | list[str], meant: Sequence[str] = ()) -> ValueError:
    """The error for a name that is in no table: the value, the nearest match (or what is ``meant``), the choices."""
    names = sorted(legal)
    close = difflib.get_close_matches(str(name), names, n=5)
    near = meant or sorted(close, key=lambda match: _num_edits(str(name), match))[:1]
    hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else ""
    return ValueError(f"unknown {kind} {str(name)!r}{hint} (legal: {', '.join(names) or 'none'})")


def _num_edits(name: str, match: str) -> int:
    """Characters to replace, insert or delete: ``alg`` is nearer to ``alq`` than to ``alq_g``, which has all of it."""
    codes = difflib.SequenceMatcher(None, match, name).get_opcodes()
    return sum(max(high - low, last - first) for word, low, high, first, last in codes if word != "equal")


@functools.cache
def types_of(settings: type) -> dict[str, Any]:
    """The type of every field of a dataclass."""
    return typing.get_type_hints(settings)


def converted(value: Any, annotation: Any, shown: str) -> Any:
    """The value as its annotated type (ints as floats, numbers as str, tuples as lists); ValueError for all else."""
    origin = typing.get_origin(annotation)
    if origin is list and isinstance(value, list | tuple):
        return [converted(item, typing.get_args(annotation)[0], shown) for item in value]
    if annotation is float and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if annotation is str and isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    if origin is None and type(value) is annotation:
        return value
    name = str(annotation) if isinstance(annotation, types.GenericAlias) else annotation.__name__
    raise ValueError(f"{shown}={value!r}: must be of type {name}")


def typed(settings: type, values: Mapping[str, Any], where: str = "") -> dict[str, Any]:
    """Values of some fields of a dataclass as the fields' types (``converted``)."""
    return {name: converted(value, types_of(settings)[name], f"{where}{name}") for name, value in values.items()}


def check(settings: type, values: Mapping[str, Any], where: str) -> None:
    """Raise ValueError where a value is not of its type, or outside the range or choices of its ``setting``."""
    declared = [item for item in dataclasses.fields(settings) if item.metadata]
    typed(settings, {item.name: values[item.name] for item in declared}, where)
    for item in declared:
        rule, value = item.metadata, values[item.name]
        shown = f"{where}{item.name}={value!r}"
        default = item.default if item.default_factory is dataclasses.MISSING else item.default_factory()
        if rule.get("choices") and value not in rule["choices"]:
            raise ValueError(f"{shown}: must be one of {', '.join(map(str, rule['choices']))}")
        if rule.get("read_if") and value != default:
            other, needed = rule["read_if"]
            readers = needed if isinstance(needed, tuple | range) else (needed,)
            if values[other] not in readers:
                if isinstance(needed, range):
                    legal = f">={needed.start}" if needed == FROM_ONE else f"={needed.start} to {needed[-1]}"
                else:
                    legal = "=" + " or ".join(map(repr, readers))
                raise ValueError(
                    f"{shown}: has no effect with {where}{other}={values[other]!r}; it is read with {other}{legal} only"
                )
        if rule.get("items") and len(value) < rule["items"]:
            raise ValueError(f"{shown}: must have at least {rule['items']} value{'s' * (rule['items'] > 1)}")
        for number in value if isinstance(value, list | tuple) else [value]:
            if isinstance(number, str | bool):
                continue
            if not math.isfinite(number):
                raise ValueError(f"{shown}: must be finite")
            if isinstance(number, int) and not abs(number) < 2**63:
                raise ValueError(f"{shown}: must be below 2^63")
            if rule.get("low") is not None and not number >= rule["low"]:
                raise ValueError(f"{shown}: must be at least {rule['low']}")
            if rule.get("high") is not None and not number <= rule["high"]:
                raise ValueError(f"{shown}: must be at most {rule['high']}")
