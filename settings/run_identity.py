"""The identity of a run: a hash of all settings that can change its results, and the names made from it."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from args import GROUPS, SECTIONS, Config
from nuq.settings import Unless, declared
from settings.fork import Fork
from settings.sections import dotted, methods_of


def counting(schema: type, values: Mapping[str, Any]) -> dict[str, Any]:
    """The values that make the identity.

    Left out are those that cannot change a result, and what runs older than a setting have (``Unless``).  Of the run
    that a fork leaves there is what it is, wherever it lies (``parent_run``).
    """
    fields = declared(schema)

    def counts(key: str, value: Any) -> bool:
        rule = fields[key].rule["identity"] if key in fields else True
        return value != rule.value if isinstance(rule, Unless) else rule

    counted = {key: value for key, value in values.items() if counts(key, value)}
    return counted | {"run": parent_run(counted["run"])} if schema is Fork and "run" in counted else counted


def parent_run(folder: str) -> str:
    """What says which run a fork leaves: its folder from the last ``runs`` on, else a run's name, else the whole path.

    So a fork is the same one from wherever it is started, and in a checkout that was moved.
    """
    path = Path(os.path.normpath(folder))
    if "runs" in path.parts:
        return "/".join(path.parts[-1 - path.parts[::-1].index("runs") :])
    return path.name if NAME.fullmatch(path.name) else str(path)


@functools.cache
def _younger() -> dict[str, Mapping[str, Any]]:
    """The sections in which nothing counts by default: configurations older than one of them do without it."""
    return {part: {} for part, schema in SECTIONS.items() if not counting(schema, vars(schema()))}


def result_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration without the settings that cannot change a result: the identity is made of it.

    A section in which nothing counts is left out; it may be missing, as it is in configurations older than it.
    """
    schemas = SECTIONS | {group: options[config[group]["name"]] for group, options in GROUPS.items()}
    whole = {**_younger(), **config}
    parts = {part: counting(schema, whole[part]) for part, schema in schemas.items()}
    return {key: value for key, value in {**counting(Config, config), **parts}.items() if value != {}}


def identity(config: Mapping[str, Any]) -> str:
    """14 hexadecimal digits (56 bits) of SHA-256 over the canonical JSON of ``result_settings``."""
    return digits(canonical(result_settings(config)))


def differing(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """The settings that can change a result and differ, with both values: ``steps=3, not 4``.

    Of a group whose choice differs (``method``) that is all.
    """
    first, second = (dotted(result_settings(config)) for config in (one, other))
    names = [name for name in {**first, **second} if canonical(first.get(name)) != canonical(second.get(name))]
    groups = tuple(name.removesuffix("name") for name in names if name.endswith(".name"))
    told = [name for name in names if name.endswith(".name") or not name.startswith(groups)]
    return [
        f"{name.removesuffix('.name')}={first.get(name, 'unset')}, not {second.get(name, 'unset')}" for name in told
    ]


def canonical(value: Any) -> str:
    """A value as JSON: names in order, no spaces."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def joined(texts: Mapping[str, str]) -> str:
    """A canonical JSON object, made from the texts of its values."""
    return "{" + ",".join(f'"{name}":{texts[name]}' for name in sorted(texts)) + "}"


def digits(text: str) -> str:
    """The first 14 hexadecimal digits of the text's SHA-256."""
    return hashlib.sha256(text.encode()).hexdigest()[:14]


def run_name(config: Mapping[str, Any], known: str = "") -> str:
    """The name of a run folder: a readable part, then the identity (``known`` where it is given).

    An example is ``alq-3b-resnet8-cifar10-s1-0123456789abcd``.

    With layers of other methods: ``alq-3b+topk+supersgd-resnet8-...``.
    """
    bits = f"-{config['method']['bits']}b" if "bits" in config["method"] else ""
    others = "".join(f"+{name}" for name in dict.fromkeys(methods_of(config)[1:]))
    parts = (
        f"{config['method']['name']}{bits}{others}-{config['model']['name']}-{config['data']['name']}-s{config['seed']}"
    )
    return f"{parts}-{known or identity(config)}"


ALONE = "main"  # the folder below runs/ of runs that main.py starts by itself, without a sweep
NAME = re.compile(r".+-s(?P<seed>\d+)-[0-9a-f]{14}")  # the names that ``run_name`` makes


def default_run_dir(config: Mapping[str, Any]) -> str:
    """The folder of a run: ``run_dir``, or its name under ``runs/main``."""
    return config["run_dir"] or os.path.join("runs", ALONE, run_name(config))
