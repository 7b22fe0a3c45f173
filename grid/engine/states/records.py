"""Checks of our own files when they are read again: they lie where anybody may edit them.

A file holds the values of a dataclass.  Each has to be of its field's type, and to keep the rules beside it:
``Annotated[int, must("at least 1", ...)]``.
"""

from __future__ import annotations

import dataclasses
import re
import types
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

from grid.engine.sweeps.resources import Resources

T = TypeVar("T")


def must(words: str, holds: Callable[[Any], object]) -> Callable[[str, Any], None]:
    """The rule for which ``holds`` is true, in words."""

    def rule(name: str, value: Any) -> None:
        if not holds(value):
            raise ValueError(f"{name}={str(value)[:60]!r} must be {words}")

    return rule


def _is_below(folder: str, path: str) -> bool:
    parts = PurePosixPath(path).parts
    return len(parts) > 1 and parts[0] == folder and ".." not in parts and "\0" not in path


# a name of a submission, array or folder: a part of file names
Name = Annotated[str, must("letters, digits, '_', '-' and '.'", re.compile(r"\w[\w.-]*").fullmatch)]
Positive = Annotated[int, must("at least 1", lambda value: value >= 1)]
Index = Annotated[int, must("at least 0", lambda value: value >= 0)]
Moment = Annotated[float, must("seconds since 1970", lambda value: 0 <= value < 1e12)]
RunPath = Annotated[str, must("a path below runs/", lambda value: _is_below("runs", value))]
JobsPath = Annotated[str, must("a path below jobs/, or empty", lambda value: not value or _is_below("jobs", value))]
Asked = Annotated[
    Mapping[str, Any], lambda name, value: Resources().merged(value)
]  # an experiment's resources, or some


def made(kind: type[T], given: object) -> T:
    """The dataclass ``kind`` with the given values; ValueError where one is missing, unknown, or breaks a rule.

    ``version``, by which later code may know a file of today, counts as none.
    """
    values = {name: value for name, value in checked(dict, given, kind.__name__).items() if name != "version"}
    fields = {item.name: item for item in dataclasses.fields(kind)}  # type: ignore[arg-type]
    for name in values:
        if name not in fields:
            raise ValueError(f"{name}: there is no such value (there are {', '.join(fields)})")
    for name, item in fields.items():
        if name not in values and item.default is item.default_factory is dataclasses.MISSING:
            raise ValueError(f"{name}: there is no such value, and there must be")
    hints = get_type_hints(kind, include_extras=True)
    return kind(**{name: checked(hints[name], value, name) for name, value in values.items()})


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
    if origin is Mapping:
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
