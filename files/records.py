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
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Annotated:
        value = checked(parts[0], value, name)
        for rule in parts[1:]:
            rule(name, value)
        return value
    if origin in (types.UnionType, Union):  # of something and None
        return None if value is None else checked(parts[0], value, name)
    if origin is Sequence:
        return [checked(parts[0], item, name) for item in checked(list, value, name)]
    if origin is tuple:
        must(f"{len(parts)} values", lambda items: len(items) == len(parts))(name, checked(list, value, name))
        return tuple(checked(part, item, name) for part, item in zip(parts, value, strict=True))
    if origin in (Mapping, dict):
        items = checked(dict, value, name).items()
        return {checked(parts[0], key, name): checked(parts[1], item, f"{name}.{key}") for key, item in items}
    if kind is Any:
        return value
    if dataclasses.is_dataclass(kind):
        return made(kind, value)  # type: ignore[arg-type]
    if kind is float and type(value) is int:
        return value
    must(f"of type {kind.__name__}", lambda value: type(value) is kind)(name, value)
    return value
