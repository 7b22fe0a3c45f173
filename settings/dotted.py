"""Configurations under dotted names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def dotted(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested values by their dotted names: ``{"method": {"name": "alq"}}`` is ``{"method.name": "alq"}``."""
    flat: dict[str, Any] = {}
    for key, value in config.items():
        flat |= dotted(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return flat


def as_set(config: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted names as a user sets them: a group's choice has the group's own name, ``{"method": "alq"}``."""
    return {name.removesuffix(".name"): value for name, value in dotted(config).items()}
