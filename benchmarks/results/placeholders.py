"""The text that a template and the values of a result file give.

Templates are Jinja2's.  ``{{ help|digits(2, " s") }}`` writes a number with so many significant digits and what follows
it, the blank included; ``decimals`` counts the digits after the point; ``times=100`` multiplies first.

- Numbers below one have no zero before the point, and thousands are set apart: .18, 3,400.
- A value with ``median`` (or ``mean``), ``low`` and ``high``, or a list of these three, is written with its spread:
  ``.18 s (.14-.18)``.
- Without ``digits`` or ``decimals`` a value is a text, some texts or a whole number.
- ``measured()`` is the sentence with commit, date and hardware, and ``file`` all that the result file holds.
"""

from __future__ import annotations

import math
import re
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, TemplateError, TemplateSyntaxError

TEMPLATES = Path(__file__).with_name("templates")
_SMALLEST = 1e-4  # smaller numbers are written with an exponent


class _Language(Environment):
    def getattr(self, obj: Any, attribute: str) -> Any:
        """``figures.items`` is the figure of that name, not what Python calls so."""
        return self.getitem(obj, attribute)


def filled(template: str, values: Mapping[str, Any], own: Mapping[str, Any]) -> str:
    """The template's text with ``values`` and ``own`` in it, without line breaks at its ends.

    Raises ValueError, with the line, for a template that cannot be read and for one that asks for what is not there.
    """
    try:
        return LANGUAGE.from_string(template).render({**values, **own}).strip("\n")
    except TemplateSyntaxError as error:
        raise ValueError(f"line {error.lineno}: {error.message}") from error
    except (TemplateError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        files = {"<template>": "line", **{str(path): f"{path.name} line" for path in TEMPLATES.rglob("*")}}
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename in files]
        where = ", ".join(f"{files[frame.filename]} {frame.lineno}" for frame in frames)
        raise ValueError(f"{where}: {type(error).__name__}: {error}") from error


def literal(template: str) -> str:
    """The template's own words, without what Jinja puts in their place."""
    return "".join(text for _, kind, text in LANGUAGE.lex(template) if kind == "data")


def _text(value: Any) -> str:
    """A value that no filter has written."""
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        return ", ".join(value) or "none"
    if isinstance(value, StrictUndefined):
        return str(value)  # which raises
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise ValueError(f"digits or decimals is missing, which says how {value!r} is written")
    return value if isinstance(value, str) else f"{value:,}"


def digits(value: Any, count: int, unit: str = "", times: float = 1) -> str:
    """A number, or one with its spread, with so many significant digits."""

    def form(number: float) -> str:
        rounded = float(f"{number:.{count - 1}e}")
        exponent = math.floor(math.log10(abs(rounded))) if rounded else 0
        if rounded and abs(rounded) < _SMALLEST:
            return f"{number / 10.0**exponent:.{count - 1}f}e{exponent}"
        return f"{rounded:,.{max(0, count - 1 - exponent)}f}" if rounded else "0"

    return _written(value, form, unit, times)


def decimals(value: Any, count: int, unit: str = "", times: float = 1) -> str:
    """A number, or one with its spread, with so many digits after the point."""
    return _written(value, lambda number: f"{number:,.{count}f}", unit, times)


def _written(value: Any, form: Callable[[float], str], unit: str, times: float) -> str:
    def one(number: Any) -> str:
        if isinstance(number, StrictUndefined):
            str(number)  # which raises
        if isinstance(number, bool) or not isinstance(number, int | float) or not math.isfinite(number):
            raise ValueError(f"{number!r} is no finite number")
        return re.sub(r"^(-?)0(?=\.\d)", r"\1", form(number * times))

    if isinstance(value, Mapping) and {"low", "high"} <= value.keys() and value.keys() & {"median", "mean"}:
        value = [value["median" if "median" in value else "mean"], value["low"], value["high"]]
    if isinstance(value, list) and len(value) == 3:
        middle, low, high = map(one, value)
        return f"{middle}{unit} ({low}{' to ' if low.startswith('-') else '-'}{high})"
    return one(value) + unit


LANGUAGE = _Language(
    loader=FileSystemLoader(TEMPLATES),
    autoescape=False,  # it is Markdown
    finalize=_text,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
LANGUAGE.filters |= {"digits": digits, "decimals": decimals}
