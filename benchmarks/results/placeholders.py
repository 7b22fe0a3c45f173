"""The text that a template and the values of a result file give.

A placeholder is ``{PATH}``, ``{PATH:FORM}`` or ``{PATH*FACTOR:FORM}``:

- PATH: names and positions joined by points, such as ``figures.help.median``; a name with other characters than
  letters, digits, ``_`` and ``-`` stands in double quotes.
- FORM: how many significant digits (``3``), how many after the point (``.1``), or a comma for whole numbers, and what
  follows the number as it is, the blank included (``3 s``, ``2x``).  Without a FORM the value is a text, some texts
  or a whole number.  Numbers below one have no zero before the point, and thousands are set apart: .18, 3,400.
- A value with ``median`` (or ``mean``), ``low`` and ``high``, or a list of these three, is written with its spread:
  ``.18 s (.14-.18)``.

A line ``@rows NAME = LABEL; NAME = LABEL`` repeats the line after it for each NAME: there ``$`` is the NAME in a path
and ``{label}`` the LABEL (or the NAME where none is given).  A line ``@let WORD = PATH`` lets paths below begin with
WORD.
``{{`` and ``}}`` are braces.
"""

from __future__ import annotations

import math
import re
from collections import ChainMap
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

PLACEHOLDER = re.compile(r"\{\{|\}\}|\{([^{}]*)\}")
_NAME = re.compile(r'"[^"]+"|[\w$-]+')
_PATH = rf"(?:{_NAME.pattern})(?:\.(?:{_NAME.pattern}))*"
_PARTS = re.compile(rf"(?P<path>{_PATH})(?:\*(?P<factor>[\d.e+-]+))?(?::(?P<form>.+))?")
_FORM = re.compile(r"(?:(?P<significant>[1-9])|\.(?P<decimals>\d)|(?P<whole>,))(?P<unit>.*)")
_LET = re.compile(rf"@let (?P<word>\w+) = (?P<path>{_PATH})")
_ROWS = re.compile(r"@rows (?P<names>\S.*)")
_MOST_NAMES = 12  # that an error lists
_SMALLEST = 1e-4  # smaller numbers are written with an exponent


class Wrong(ValueError):
    """What is wrong with a template or with the values that it asks for, in words."""


def filled(template: str, values: dict[str, Any], own: Mapping[str, str]) -> str:
    """The template's text with its placeholders replaced by ``values``, or by the texts of ``own``.

    Raises Wrong for a placeholder that cannot be read, and where the values lack what it names.
    """
    lines: list[str] = []
    names: dict[str, Any] = {}
    for line, row in _lines(template):
        if line.startswith("@"):
            found = _LET.fullmatch(line)
            if not found:
                raise Wrong(f"{line!r}: must be '@let WORD = PATH', or '@rows NAME = LABEL; ...' and a line to repeat")
            names[found["word"]] = looked_up(ChainMap(names, values), found["path"])
            continue
        known = {**own, "label": row[1]} if row else own
        replaced = partial(_replaced, row=row[0] if row else "$", own=known, values=ChainMap(names, values))
        lines.append(PLACEHOLDER.sub(replaced, line))
    return "\n".join(lines)


def literal(template: str) -> str:
    """The template's own words: without placeholders, and without the lines that repeat others or name paths."""
    return PLACEHOLDER.sub("", "\n".join(line for line in template.splitlines() if not line.startswith("@")))


def _lines(template: str) -> Iterator[tuple[str, tuple[str, str] | None]]:
    """Each line of the text, and the name and label of the row that it is (None: of no row)."""
    lines = iter(template.splitlines())
    for line in lines:
        found = _ROWS.fullmatch(line)
        repeated = next(lines, None) if found else None
        if not found or repeated is None:
            yield line, None
            continue
        for entry in found["names"].split(";"):
            name, _, label = (part.strip() for part in entry.partition(" = "))
            yield repeated, (name, label or name)


def _replaced(found: re.Match[str], row: str, own: Mapping[str, str], values: Any) -> str:
    words = found[1]
    if words is None:
        return found[0][0]
    if words in own:
        return own[words]
    parts = _PARTS.fullmatch(words)
    if not parts:
        raise Wrong(f"{{{words}}}: must be {{PATH}}, {{PATH:FORM}} or {{PATH*FACTOR:FORM}}")
    try:
        return _written(looked_up(values, parts["path"], row), parts["form"], float(parts["factor"] or 1))
    except Wrong as error:
        raise Wrong(f"{{{words}}}: {error}") from error


def looked_up(values: Any, path: str, row: str = "$") -> Any:
    """The value at a path, in which ``$`` stands for the name of a row.

    Raises Wrong, with the names that there are, where there is none.
    """
    value = values
    for name in _NAME.findall(path):
        plain = row if name == "$" else name.strip('"')
        try:
            value = value[int(plain)] if isinstance(value, list) else value[plain]
        except (KeyError, IndexError, ValueError, TypeError) as error:
            raise Wrong(f"there is no {plain!r} of {path!r} ({_names(value)})") from error
    return value


def _names(value: Any) -> str:
    """What can be looked up in a value, in words."""
    if isinstance(value, Mapping):
        names = [str(name) for name in value]
        more = f", and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
        return f"there are {', '.join(names[:_MOST_NAMES])}{more}"
    return f"a list of {len(value)}" if isinstance(value, list) else f"the value there is {value!r}"


def _written(value: Any, form: str | None, factor: float) -> str:
    """A text, a number, or a number with its spread."""
    if form is None:
        if isinstance(value, list) and all(isinstance(one, str) for one in value):
            return ", ".join(value) or "none"
        if factor != 1 or isinstance(value, bool) or not isinstance(value, str | int):
            raise Wrong(f"a FORM is missing, which says how {value!r} is written")
        return value if isinstance(value, str) else f"{value:,}"
    found = _FORM.fullmatch(form)
    if not found:
        raise Wrong(f"the FORM {form!r} must begin with a digit, with a point and a digit, or with a comma")
    if (spread := _spread(value)) is not None:
        middle, low, high = (_number(one, found, factor) for one in spread)
        return f"{middle}{found['unit']} ({low}{' to ' if low.startswith('-') else '-'}{high})"
    return _number(value, found, factor) + found["unit"]


def _spread(value: Any) -> tuple[Any, Any, Any] | None:
    """The middle and the ends of a number with its spread; None for anything else."""
    if isinstance(value, list) and len(value) == 3:
        return value[0], value[1], value[2]
    if isinstance(value, Mapping) and {"low", "high"} <= value.keys() and value.keys() & {"median", "mean"}:
        return value["median" if "median" in value else "mean"], value["low"], value["high"]
    return None


def _number(value: Any, form: re.Match[str], factor: float) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise Wrong(f"{value!r} is no finite number")
    number = value * factor
    if form["whole"]:
        return f"{number:,.0f}"
    if form["decimals"]:
        return without_zero(f"{number:,.{form['decimals']}f}")
    digits = int(form["significant"])
    rounded = float(f"{number:.{digits - 1}e}")
    if rounded == 0:
        return "0"
    exponent = math.floor(math.log10(abs(rounded)))
    if abs(rounded) < _SMALLEST:
        return f"{number / 10.0**exponent:.{digits - 1}f}e{exponent}"
    return without_zero(f"{rounded:,.{max(0, digits - 1 - exponent)}f}")


def without_zero(number: str) -> str:
    """A number without the zero before its point: .18 for 0.18."""
    return re.sub(r"^(-?)0(?=\.\d)", r"\1", number)
