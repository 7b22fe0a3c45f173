"""Values from files that others wrote, read without running or importing anything."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

import yaml

from files.plain import check_yaml

_BASE: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_PYTHON = "tag:yaml.org,2002:python/"


def literal(text: str) -> Any:
    """The number, truth value or None that the text spells; the text itself where it spells none."""
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text
    return value if isinstance(value, int | float | bool | None) else text


class _Loader(_BASE):
    """A loader that knows the tags below, and takes the plain content of any other."""


def plain_yaml(text: str) -> Any:
    """The content of YAML that may hold Python objects, as Lightning writes it; ValueError for what is no YAML.

    A class or function becomes its dotted name, an object its attributes, a call (how enumerations are kept) its
    arguments.
    """
    check_yaml(text)
    try:
        return yaml.load(text, _Loader)  # _Loader builds plain values only
    except (yaml.YAMLError, RecursionError, TypeError) as error:
        raise ValueError(f"no YAML: {type(error).__name__}") from error


def _plain(loader: Any, suffix: str, node: yaml.Node) -> Any:
    if isinstance(node, yaml.MappingNode):
        return _mapping(loader, node)
    if isinstance(node, yaml.SequenceNode):
        return _sequence(loader, node)
    return suffix.partition(":")[2] if suffix.startswith("name:") else loader.construct_scalar(node)


def _mapping(loader: Any, node: yaml.MappingNode) -> Iterator[dict[Any, Any]]:
    """A mapping, built in two steps so that an object may refer to itself."""
    found: dict[Any, Any] = {}
    yield found
    found.update(loader.construct_mapping(node))


def _sequence(loader: Any, node: yaml.SequenceNode) -> Iterator[list[Any]]:
    found: list[Any] = []
    yield found
    found.extend(loader.construct_sequence(node))


_Loader.add_multi_constructor(_PYTHON, _plain)
_Loader.add_multi_constructor("!", _plain)
