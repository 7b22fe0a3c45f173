"""Configurations under dotted names, their sections as instances of dataclasses, and values derived from several."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from nuq.registry import METHODS, method
from nuq.settings import declared, of_older_runs
from nuq.settings import layers as layer_list
from nuq.settings.feedback import memory_kinds


def dotted(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested values by their dotted names: ``{"method": {"name": "alq"}}`` is ``{"method.name": "alq"}``."""
    flat: dict[str, Any] = {}
    for key, value in config.items():
        flat |= dotted(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return flat


def as_set(config: Mapping[str, Any]) -> dict[str, Any]:
    """The dotted names of a run's configuration as a user sets them: a group's choice is ``{"method": "alq"}``.

    What a configuration lacks that is older than a setting of its method is what such runs have.
    """
    given = {name.removesuffix(".name"): value for name, value in dotted(config).items()}
    entry = METHODS.get(str(given.get("method")))
    fields = declared(entry.settings).items() if entry else ()
    return {f"method.{name}": value for name, of in fields for value in of_older_runs(of.rule)} | given


def named_method(config: Mapping[str, Any]) -> Any:
    """The settings dataclass instance of the configuration's method."""
    values = {key: value for key, value in config["method"].items() if key != "name"}
    return method(config["method"]["name"]).settings(**values)


def momentum_acts_in_workers(config: Mapping[str, Any]) -> bool:
    """Whether the optimizer's momentum is applied before the compression (momentum correction), in any layer."""
    return config["trajectory"] == "method" and "momentum" in memory_kinds(
        config["feedback"]["kind"], methods_of(config)
    )


def momentum_in_workers_of(config: Mapping[str, Any], names: Iterable[str]) -> list[bool]:
    """Whether momentum acts before the compression, for each parameter by its name.

    ValueError for a pattern of ``layers`` that matches none.
    """
    if not config["layers"] or not momentum_acts_in_workers(config) or config["feedback"]["kind"] != "auto":
        return [momentum_acts_in_workers(config) for _ in names]
    methods = methods_of(config)
    return [
        method(methods[number]).feedback == "momentum"
        for number in layer_list.matched(named_layers(config), names).values()
    ]


def named_layers(config: Mapping[str, Any]) -> list[layer_list.Layer]:
    """The layers of the configuration that have a method of their own."""
    return layer_list.parsed(config["layers"], beside=config["method"]["name"])


def methods_of(config: Mapping[str, Any]) -> list[str]:
    """The method, followed by those of the layers that have one of their own."""
    return [config["method"]["name"], *(layer.method for layer in layer_list.parsed(config.get("layers", ())))]
