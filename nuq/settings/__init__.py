"""Settings as data: one dataclass for each method and section, each default with its reason and its legal range.

Imports ``nuq.registry``, which lists these dataclasses, and no torch.

``setting`` declares a field, ``declared`` reads the declarations, ``check`` completes values and holds them against
them, ``read`` makes a record of a mapping that somebody wrote, ``unknown`` words the error for a name in no table.
"""

from __future__ import annotations

import copy
import dataclasses
import difflib
import functools
import math
import re
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from typing import Any, Literal, NamedTuple

FROM_ONE = range(1, 2**63)  # for ``read_if``: switched on by any number that is not zero
TEXT = (r"(?s).+", "text, and not empty")  # a ``pattern``
_NO_RULE: Mapping[str, Any] = types.MappingProxyType({})


class Unless(NamedTuple):
    """The value with which a setting does not count for the identity: that of runs older than it, or its default."""

    value: Any


def setting(
    default: Any,
    reason: str,
    *,
    low: float | None = None,
    high: float | None = None,
    choices: tuple[str | int, ...] | None = None,
    items: int = 0,
    identity: bool | Literal["unless default"] | Unless = True,
    read_if: tuple[str, Any] | None = None,
    pattern: tuple[str, str] | None = None,
    must: str = "",
    parse: Callable[[Any], Any] | None = None,
) -> Any:
    """A dataclass field with its reason, its legal range or choices, and whether it can change a result.

    items: the fewest that a list has.  identity: "unless default" for one that is younger than runs with its default,
    which therefore must never move, ``Unless`` where it has moved.  read_if: (another setting, its value, a tuple or a
    range of them) without which this one has no effect: it then is the default, or what older runs have.  pattern:
    (regular expression, the same in words) of a text, of each text of a list, or of the names of a mapping; a number is
    no such text.  must: type and range in words, where the checker's own do not say it all.  parse: makes the value of
    what is given, or says in a ValueError what is wrong.
    """
    metadata: dict[str, Any] = {"reason": reason, "low": low, "high": high, "choices": choices}
    metadata |= {"items": items, "identity": Unless(default) if identity == "unless default" else identity}
    metadata["read_if"] = read_if
    metadata |= {"pattern": pattern, "must": must, "parse": parse}
    if isinstance(default, list | dict):
        return field(default_factory=lambda: copy.copy(default), metadata=metadata)
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


class Declared(NamedTuple):
    """A field of a settings dataclass: its type, its default, and what its ``setting`` says."""

    type: Any
    default: Any
    rule: Mapping[str, Any]


@functools.cache
def declared(settings: type) -> dict[str, Declared]:
    """The settings of a dataclass by name; fields that are no ``setting``, such as sections of their own, are none."""
    types = typing.get_type_hints(settings)
    fields = [item for item in dataclasses.fields(settings) if item.metadata]
    return {item.name: Declared(types[item.name], _default(item), item.metadata) for item in fields}


def _default(item: dataclasses.Field[Any]) -> Any:
    return item.default if item.default_factory is dataclasses.MISSING else item.default_factory()


def converted(value: Any, annotation: Any, shown: str, rule: Mapping[str, Any] = _NO_RULE) -> Any:
    """The value as its annotated type (ints as floats, numbers as str, tuples as lists); ValueError for all else.

    A dataclass is read from a mapping of its fields.  rule: the field's metadata.
    """
    if annotation is Any or type(value) is annotation:
        return value
    origin, parts = _form(annotation)
    if types.NoneType in parts:
        return value if type(value) in parts else converted(value, parts[0], shown, rule)
    if origin in (list, tuple, Sequence) and isinstance(value, list | tuple):
        made = [item if type(item) is parts[0] else converted(item, parts[0], shown, rule) for item in value]
        if origin is not tuple:
            return made
        if parts[-1] is Ellipsis or len(parts) == len(made):
            return tuple(made)
    if dataclasses.is_dataclass(annotation):
        return read(typing.cast(type, annotation), value, shown)
    if origin is Mapping:
        return {key: converted(item, parts[1], f"{shown}.{key}", rule) for key, item in named(value, shown).items()}
    is_text = annotation is str and rule.get("pattern")
    if annotation in (float, str) and isinstance(value, int | float) and not isinstance(value, bool) and not is_text:
        with suppress(OverflowError):  # a whole number that no float holds
            return annotation(value)
    if is_text:
        must = "be text; quote it"
    elif rule.get("must"):
        must = rule["must"]
    elif origin is tuple and isinstance(value, list | tuple):
        must = f"be a list of {len(parts)}, not of {len(value)}"
    elif origin in (tuple, Sequence):
        must = f"be a list, as in [{value if isinstance(value, str) else 'a'}, ...]"
    else:
        must = f"be of type {annotation if isinstance(annotation, types.GenericAlias) else annotation.__name__}"
    raise ValueError(f"{shown}={value!r:.999}: must {must}")


@functools.cache
def _form(annotation: Any) -> tuple[Any, tuple[Any, ...]]:
    return typing.get_origin(annotation), typing.get_args(annotation)


def named(values: Any, where: str = "", legal: Mapping[str, Any] | list[str] | None = None) -> Mapping[str, Any]:
    """The mapping of (``legal``) names that somebody wrote; ValueError for all else, in which ``where`` names it."""
    before = f"{where}: " if where else ""
    if not isinstance(values, Mapping):
        raise ValueError(f"{before}must be a mapping (key: value), not {values!r:.999}")
    for key in values:
        if not isinstance(key, str):
            raise ValueError(f"{before}key {key!r} must be text; quote it")
        if legal and key not in legal:
            raise ValueError(f"{before}{unknown('key', key, legal)}")
    return values


def read(settings: type, values: Any, where: str = "") -> Any:
    """A record of a dataclass from a mapping that somebody wrote and ``where`` names; None is an empty one.

    ValueError as ``check``, and for a name that is no field.
    """
    values = named({} if values is None else values, where, declared(settings))
    return settings(**check(settings, values, f"{where}." if where else ""))


def check(settings: type, given: Mapping[str, Any], where: str = "") -> dict[str, Any]:
    """All values of a dataclass: those that are given, as the fields' types (``converted``), and the other defaults.

    ValueError where a value is not of its type, or outside the range or choices of its ``setting``, or missing where
    there is no default.  The default itself is legal.
    """
    fields = declared(settings)
    values = {name: _made(given.get(name, of.default), of, where + name) for name, of in fields.items()}
    for field_name, (_, default, rule) in fields.items():
        name, value = f"{where}{field_name}", values[field_name]
        if not _is_read(rule, values):
            unread = (*of_older_runs(rule), default)[0]
            if field_name not in given:
                values[field_name] = value = unread
            elif value != unread and value in (rule.get("choices") or [value]):
                other, needed = rule["read_if"]
                if isinstance(needed, range):
                    legal = f">={needed.start}" if needed.stop == FROM_ONE.stop else f"={needed.start} to {needed[-1]}"
                else:
                    legal = "=" + " or ".join(map(repr, needed if isinstance(needed, tuple) else (needed,)))
                raise ValueError(
                    f"{name}={value!r}: has no effect with {where}{other}={values[other]!r}; it is read with "
                    f"{other}{legal} only"
                )
        if given.get(field_name, default) is default:
            continue
        if rule.get("choices") and value not in rule["choices"]:
            raise ValueError(f"{name}={value!r}: must be one of {', '.join(map(str, rule['choices']))}")
        if rule.get("items") and len(value) < rule["items"]:
            raise ValueError(f"{name}={value!r}: must have at least {rule['items']} value{'s' * (rule['items'] > 1)}")
        form, words = (rule.get("pattern") if value != default else None) or ("", "")
        is_legal = re.compile(form).fullmatch
        for part in _parts(value):
            if not isinstance(part, str):
                if must := _exceeded(part, rule):
                    raise ValueError(f"{name}={value!r:.999}: must {must}")
            elif form and not is_legal(part):
                raise ValueError(f"{name}={part!r}: must be {words}")
    return values


def _is_read(rule: Mapping[str, Any], values: Mapping[str, Any]) -> bool:
    """Whether the other values let a setting have an effect."""
    other, needed = rule.get("read_if") or ("", ())
    return not other or values[other] in (needed if isinstance(needed, tuple | range) else (needed,))


def of_older_runs(rule: Mapping[str, Any]) -> tuple[Any, ...]:
    """The value that a setting has in runs older than it, where there are any."""
    return rule["identity"] if isinstance(rule.get("identity"), Unless) else ()


def _made(value: Any, of: Declared, shown: str) -> Any:
    """A value as its field's type; the default as it is, and a list or mapping as one of its own."""
    if value is dataclasses.MISSING:
        raise ValueError(f"{shown}: must be given")
    if value is of.default:
        return copy.copy(value) if isinstance(value, list | dict) else value
    if of.rule.get("parse") and value is not None:
        try:
            value = of.rule["parse"](value)
        except ValueError as error:
            raise ValueError(f"{shown}: {error}") from error
    return converted(value, of.type, shown, of.rule)


def _parts(value: Any) -> Iterator[str | int | float]:
    """The texts and numbers of a value that may be a list, or a mapping by such names."""
    waiting = [value]
    while waiting:
        part = waiting.pop()
        if isinstance(part, str):
            yield part
        elif isinstance(part, list | tuple | Mapping):
            waiting += list(part)[::-1]
        elif isinstance(part, int | float) and not isinstance(part, bool):
            yield part


def _exceeded(number: float, rule: Mapping[str, Any]) -> str:
    """The part of a rule that a number breaks, in words; empty for a legal one."""
    if isinstance(number, int) and not abs(number) < 2**63:
        return "be below 2^63"
    if not math.isfinite(number):
        return rule.get("must") or "be finite"
    if rule.get("low") is not None and not number >= rule["low"]:
        return rule.get("must") or f"be at least {rule['low']}"
    if rule.get("high") is not None and not number <= rule["high"]:
        return rule.get("must") or f"be at most {rule['high']}"
    return ""
