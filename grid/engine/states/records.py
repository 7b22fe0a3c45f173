"""Checks of our own files when they are read again: they lie where anybody may edit them.

Each function gives the value back, or raises ValueError with its name, what it is and what it must be.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping
from pathlib import PurePosixPath
from typing import Any

from grid.engine.sweeps.resources import Resources

NAME = re.compile(r"\w[\w.-]*")  # a name of a submission, array or folder: a part of file names


def text(
    values: Mapping[str, Any], name: str, pattern: re.Pattern[str] | None = None, default: str | None = None
) -> str:
    """The value as a text, which matches the pattern as a whole where there is one."""
    value = values.get(name, default)
    if not isinstance(value, str) or (pattern is not None and not pattern.fullmatch(value)):
        raise _wrong(name, value, f"text like {pattern.pattern}" if pattern else "text")
    return value


def whole(values: Mapping[str, Any], name: str, low: int, default: int | None = None) -> int:
    """The value as a whole number of at least ``low``."""
    value = values.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int) or value < low:
        raise _wrong(name, value, f"a whole number of at least {low}")
    return value


def flag(values: Mapping[str, Any], name: str, default: bool = False) -> bool:
    """The value as true or false."""
    value = values.get(name, default)
    if not isinstance(value, bool):
        raise _wrong(name, value, "true or false")
    return value


def moment(values: Mapping[str, Any], name: str) -> float:
    """The value as a time in seconds since 1970."""
    value = values.get(name, 0.0)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        raise _wrong(name, value, "seconds since 1970")
    return float(value)


def texts(values: Mapping[str, Any], name: str) -> list[str]:
    """The value as a list of texts."""
    value = values.get(name, [])
    if not isinstance(value, list) or not all(isinstance(part, str) for part in value):
        raise _wrong(name, value, "a list of texts")
    return value


def table(values: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The value as a mapping of names to values."""
    value = values.get(name)
    if not isinstance(value, dict):
        raise _wrong(name, value, "a table of names and values")
    return value


def resources(values: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The value as the resources of one experiment, or some of them."""
    value = table(values, name)
    Resources().merged(value)
    return value


def path(name: str, value: object, below: str) -> str:
    """The value as a path below a folder of the checkout, relative to that folder."""
    if isinstance(value, str) and "\0" not in value:
        parts = PurePosixPath(value).parts
        if len(parts) > 1 and parts[0] == below and ".." not in parts:
            return value
    raise _wrong(name, value, f"a path below {below}/")


def only(values: Mapping[str, Any], names: Collection[str]) -> None:
    """Raise ValueError where there are other values than these."""
    for name in values:
        if name not in names:
            raise ValueError(f"{name}: there is no such value (there are {', '.join(names)})")


def _wrong(name: str, value: object, rule: str) -> ValueError:
    return ValueError(f"{name}={str(value)[:60]!r} must be {rule}")
