"""Layers with a method of their own: an ordered list of ``PATTERN = METHOD key=value ...``.  Imports no torch.

::

    ["*conv1* = topk ratio=0.01", "*norm* = supersgd", "fc = qsgd bits=4 scope=model"]

PATTERN is a glob (``*``, ``?``, ``[abc]``) that is held against a parameter's full name (``layer1.0.conv1.weight``) and
against the modules that it lies in (``layer1``, ``layer1.0``, ``layer1.0.conv1``); ``*`` matches dots, too. The first
pattern of the list that matches a parameter gives it its METHOD, a name of METHODS, with these settings and the
method's defaults (but for ``rounding``, which is ``stochastic`` unless the line says otherwise). Parameters that none
matches take the method that is set beside the list. With scope=model the parameters of one line are one vector, whether
they are neighbours or not.
"""

from __future__ import annotations

import fnmatch
import re
import typing
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nuq.registry import METHODS, legal_formats, method
from nuq.settings import check, declared, of_older_runs, unknown

FORM = "'PATTERN = METHOD key=value ...', as in '*norm* = supersgd' or 'layer1.* = topk ratio=0.01'"
_METHOD = r"(?P<method>[^\s=]+)(?P<rest>(\s+[^\s=]+=(\[[^\]]*\]|[^\s=]+))*)\s*"
_LINE = re.compile(r"\s*(?P<pattern>[^\s=]+)\s*=\s*" + _METHOD)
_FORMAT = re.compile(r"\s*" + _METHOD)
_PAIR = re.compile(r"([^\s=]+)=(\[[^\]]*\]|\S+)")
_MOST_NAMES = 60  # of a model's parameters that an error lists


@dataclass(frozen=True)
class Layer:
    """One line of the list.  settings: an instance of the method's dataclass; text: the line as it was given."""

    text: str
    pattern: str
    method: str
    settings: Any

    @property
    def vector_name(self) -> str:
        """The name of the one vector of scope=model; no parameter has such a name."""
        return f"model ({self.pattern})"

    def matches(self, name: str) -> bool:
        """Whether the pattern is met by a parameter's name or by a module's that it lies in."""
        words = name.split(".")
        return any(fnmatch.fnmatchcase(".".join(words[:count]), self.pattern) for count in range(len(words), 0, -1))


def parsed(lines: Sequence[str], defaults: Mapping[str, Any] | None = None, *, beside: str = "") -> list[Layer]:
    """The lines of a list.  defaults: where they are not the schemas' own; beside: the method of all other parameters.

    ValueError for what is not of the form, for a method or a setting that does not exist, for a value of another type
    or out of range, and for methods that send one worker's gradient alone, which go with no other.
    """
    made = [_layer(text, f"layers[{number}]", defaults or {}) for number, text in enumerate(listed(lines))]
    if made and beside and method(beside).single_worker:
        raise ValueError(
            f"layers={list(lines)!r}: has no effect with method={beside}, which sends one worker's gradient alone"
        )
    return made


def listed(lines: Any) -> list[Any]:
    """The lines as a list; ValueError for one line alone, or none."""
    if isinstance(lines, str) or not isinstance(lines, Sequence):
        raise ValueError(f"layers={lines!r}: must be a list of lines, each of the form {FORM}")
    return list(lines)


def _layer(text: str, where: str, defaults: Mapping[str, Any]) -> Layer:
    line = _LINE.fullmatch(text) if isinstance(text, str) else None
    if line is None:
        raise ValueError(f"{where}={text!r}: must be of the form {FORM}")
    name = line["method"]
    try:
        entry = method(name)
    except ValueError as error:
        raise ValueError(f"{where}={text!r}: {error}") from None
    if entry.single_worker:
        raise ValueError(
            f"{where}={text!r}: {name} sends one worker's gradient alone, which goes with no other; choose supersgd"
        )
    return Layer(text, line["pattern"], name, _settings(name, line["rest"], where, text, defaults))


def parsed_format(text: str, where: str = "format") -> tuple[str, Any]:
    """A tensor format, ``METHOD key=value ...``, as the method's name and its settings; ``fp32`` means supersgd.

    ValueError for what is not of the form, for a method that is no format, for a setting that does not exist or has no
    effect (scope, correlated rounding), or a value out of range.
    """
    form = _FORMAT.fullmatch(text) if isinstance(text, str) else None
    if form is None:
        raise ValueError(
            f"{where}={text!r}: must be of the form 'METHOD key=value ...', as in 'smaq' or 'smaq samples=16'"
        )
    name = "supersgd" if form["method"] == "fp32" else form["method"]
    legal = ["fp32", *legal_formats()]
    if name not in METHODS:
        raise ValueError(f"{where}={text!r}: {unknown('format', name, legal)}")
    if name not in legal:
        raise ValueError(f"{where}={text!r}: {name} depends on more than the tensor; legal are {', '.join(legal)}")
    if "scope" in dict(_PAIR.findall(form["rest"])):
        raise ValueError(
            f"{where}={text!r}: scope has no effect on a format, which packs each tensor on its own; leave it out"
        )
    chosen = _settings(name, form["rest"], where, text, {})
    if getattr(chosen, "rounding", "") == "correlated":
        raise ValueError(
            f"{where}={text!r}: rounding=correlated is for workers' gradients, and has no effect on a format; choose "
            "stochastic or nearest"
        )
    return name, chosen


def _settings(name: str, pairs: str, where: str, text: str, defaults: Mapping[str, Any]) -> Any:
    """An instance of a method's dataclass, from ``key=value ...``."""
    settings = method(name).settings
    fields = declared(settings)
    # a line counts for the identity as it is written, so what it leaves out is what older runs have
    values = {key: value for key, of in fields.items() for value in of_older_runs(of.rule)}
    values |= {key: value for key, value in defaults.items() if key in fields}
    given: set[str] = set()
    for key, value in _PAIR.findall(pairs):
        if key not in fields:
            raise unknown(f"setting of method={name} in {where}={text!r}:", key, fields)
        if key in given:
            raise ValueError(f"{where}={text!r}: {key} is set twice; a method has one of each")
        given.add(key)
        values[key] = _value(value, fields[key].type, f"{where}.{key}={value!r}")
    return settings(**check(settings, values, f"{where}."))


def _value(text: str, kind: Any, shown: str) -> Any:
    """A value's text as the type of its setting: 3, 0.01, true, word or [1,2]."""
    if typing.get_origin(kind) is list:
        if not (text.startswith("[") and text.endswith("]")):
            raise ValueError(f"{shown}: must be a list such as [100,2000]")
        words = [word.strip() for word in text[1:-1].split(",")]
        return [_value(word, typing.get_args(kind)[0], shown) for word in words if word or len(words) > 1]
    if kind is bool:
        if text.lower() not in ("true", "false"):
            raise ValueError(f"{shown}: must be true or false")
        return text.lower() == "true"
    try:
        return kind(text)
    except ValueError:
        raise ValueError(f"{shown}: must be of type {kind.__name__}") from None


def matched(layers: Sequence[Layer], names: Iterable[str]) -> dict[str, int]:
    """The line of every parameter, in order, from 1 on; 0 where it takes the method beside the list.

    ValueError for a pattern that no parameter is left for, with the parameters' names.
    """
    names = list(names)
    found = {name: next((number for number, layer in enumerate(layers, 1) if layer.matches(name)), 0) for name in names}
    for number, layer in enumerate(layers, 1):
        if number not in found.values():
            earlier = sorted({found[name] - 1 for name in names if layer.matches(name)})
            why = f"but for what layers[{earlier[0]}] takes before it" if earlier else "in whole or by a module's name"
            more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
            raise ValueError(
                f"layers[{number - 1}]={layer.text!r}: matches no parameter {why}; there are "
                f"{', '.join(names[:_MOST_NAMES])}{more}"
            )
    return found
