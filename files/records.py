"""Checks of our own files of JSON when they are read again: they lie where anybody may edit them.

A file holds the values of a dataclass.  Each has to be of its field's type, and to keep the rules beside it:
``Annotated[int, must("at least 1", ...)]``.
"""

from __future__ import annotations

import dataclasses
import functools
import types
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")


def must(words: str, holds: Callable[[Any], object]) -> Callable[[str, Any], None]:
    """The rule for which ``holds`` is true, in words."""

    def rule(name: str, value: Any) -> None:
        if not holds(value):
            raise ValueError(f"{name}={str(value)[:60]!r} must be {words}")

    return rule


def made(kind: type[T], given: object, ignored: Collection[str] = ()) -> T:
    """The dataclass ``kind`` with the given values; ValueError where one is missing, unknown, or breaks a rule.

    Values named in ``ignored`` are left out.
    """
    values = {name: value for name, value in checked(dict, given, kind.__name__).items() if name not in ignored}
    hints, needed = _fields(kind)
    for name in values:
        if name not in hints:
            raise ValueError(f"{name}: there is no such value (there are {', '.join(hints)})")
    for name in needed:
        if name not in values:
            raise ValueError(f"{name}: there is no such value, and there must be")
    return kind(**{name: checked(hints[name], value, name) for name, value in values.items()})


@functools.cache
def _fields(kind: Any) -> tuple[dict[str, Any], list[str]]:
    """The annotations of a dataclass's fields by name, and the names of those that have no default."""
    missing = dataclasses.MISSING
    needed = [item.name for item in dataclasses.fields(kind) if item.default is item.default_factory is missing]
    return get_type_hints(kind, include_extras=True), needed


def checked(kind: Any, value: Any, name: str) -> Any:
    """The value as ``kind``, a type or an annotation; ValueError with its name where it is none."""
    return _reader(kind)(name, value)


@functools.cache
def _reader(kind: Any) -> Callable[[str, Any], Any]:
    """``checked`` for one kind: made once, for a record holds thousands of values of a kind."""
    origin, parts = get_origin(kind), get_args(kind)
    if kind is Any:
        return lambda name, value: value
    if dataclasses.is_dataclass(kind):
        return lambda name, value: made(kind, value)  # type: ignore[arg-type]
    if origin is None:
        kinds = (float, int) if kind is float else (kind,)
        return _ruled(lambda name, value: value, [must(f"of type {kind.__name__}", lambda value: type(value) in kinds)])
    if origin is tuple:
        items, readers = _reader(list), [_reader(part) for part in parts]
        items = _ruled(items, [must(f"{len(parts)} values", lambda value: len(value) == len(parts))])
        return lambda name, value: tuple(
            read(name, item) for read, item in zip(readers, items(name, value), strict=True)
        )
    first = _reader(parts[0])
    if origin is Annotated:
        return _ruled(first, parts[1:])
    if origin is Sequence:
        items = _reader(list)
        return lambda name, value: [first(name, item) for item in items(name, value)]
    if origin in (Mapping, dict):
        table, last = _reader(dict), _reader(parts[1])
        return lambda name, value: {first(name, key): last(name, item) for key, item in table(name, value).items()}
    assert origin in (types.UnionType, Union) and parts[1:] == (types.NoneType,), kind
    return lambda name, value: None if value is None else first(name, value)


def _ruled(read: Callable[[str, Any], Any], rules: Sequence[Callable[[str, Any], object]]) -> Callable[[str, Any], Any]:
    def ruled(name: str, value: Any) -> Any:
        value = read(name, value)
        for rule in rules:
            rule(name, value)
        return value

    return ruled
