"""The settings of ``args`` on the command line: what ``python main.py --help`` prints, and Hydra's store.  Imports no torch."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import field
from typing import Any


def help_text(config: type, sections: Mapping[str, type], groups: Mapping[str, Mapping[str, type]], defaults: Mapping[str, str]) -> str:
    """The settings of ``config``, of its sections, and of every choice of its groups; each schema is a dataclass of settings."""
    lines = [
        "Train one experiment.",
        "",
        "  python main.py method=alq method.bits=3 data=cifar10 model=resnet8 workers=4 seed=1",
        "  torchrun --nproc-per-node=4 main.py method=alq workers=4     the same experiment in four real processes",
        "  torchrun --nproc-per-node=4 main.py method=alq exchange.collective=two_stage     with less to send per process",
        "",
        "Settings (name=default, legal range, reason):",
        *_lines(config, ""),
    ]
    for section, schema in sections.items():
        lines += ["", f"{section}: {schema.__doc__}", *_lines(schema, f"{section}.")]
    for group, options in groups.items():
        lines += ["", f"{group}={defaults[group]}  [one of {', '.join(options)}]"]
        by_schema: dict[type, list[str]] = {}
        for name, schema in options.items():
            by_schema.setdefault(schema, []).append(name)
        for schema, names in by_schema.items():
            lines += [f" {group}={'|'.join(names)}", *(_lines(schema, f"{group}.") or ["      no settings"])]
    lines += ["", "Exit codes: 0 finished; 75 checkpointed on a signal, please requeue; 2 bad settings or data; 3 diverged; other: crash."]
    return "\n".join(lines)


def _lines(schema: type, prefix: str) -> list[str]:
    lines = []
    for item in dataclasses.fields(schema):
        if not item.metadata:
            continue
        default = item.default if item.default is not dataclasses.MISSING else item.default_factory()  # type: ignore[misc]
        shown = json.dumps(default) if not isinstance(default, str) else default or "''"
        rule = [f"one of {'|'.join(map(str, item.metadata['choices']))}"] if item.metadata["choices"] else []
        rule += [f">= {item.metadata['low']}"] if item.metadata["low"] is not None else []
        rule += [f"<= {item.metadata['high']}"] if item.metadata["high"] is not None else []
        note = f"  [{', '.join(rule)}]" if rule else ""
        lines.append(f"  {prefix}{item.name}={shown}{note}\n      {item.metadata['reason']}")
    return lines


def register(config: type, groups: Mapping[str, Mapping[str, type]], defaults: Mapping[str, str], help_shown: str) -> None:
    """Hand every settings dataclass to Hydra's ConfigStore, under the primary config ``experiment``."""
    from hydra.core.config_store import ConfigStore

    store = ConfigStore.instance()
    for group, options in groups.items():
        for name, schema in options.items():
            named = dataclasses.make_dataclass(f"{group}_{name}", [("name", str, field(default=name))], bases=(schema,))
            store.store(group=group, name=name, node=named)
    chosen = [(group, Any, field(default=None)) for group in groups]
    store.store(name="settings", node=dataclasses.make_dataclass("Settings", chosen, bases=(config,)))
    order = ["settings", *({group: name} for group, name in defaults.items()), "_self_"]
    quiet = [{"override hydra/job_logging": "none"}, {"override hydra/hydra_logging": "none"}]
    hydra_settings: dict[str, Any] = {"run": {"dir": "."}, "sweep": {"dir": ".", "subdir": "."}, "output_subdir": None}
    hydra_settings |= {"job": {"chdir": False}, "help": {"template": help_shown.replace("$", "$$")}}
    store.store(name="experiment", node={"defaults": [*order, *quiet], "hydra": hydra_settings})
