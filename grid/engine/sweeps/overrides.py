"""An experiment as words for main.py, in Hydra's grammar."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

import args
from grid.engine.sweeps.experiments import Experiment
from settings import run_identity
from settings.sections import as_set

_PLAIN = re.compile(r"[A-Za-z_/][A-Za-z0-9_./-]*\Z")
_RESERVED = {"true", "false", "null", "none", "inf", "nan", "yes", "no", "on", "off"}


def to_override(name: str, *values: Any) -> str:
    """The override ``name=value`` in Hydra's grammar; parsing gives the value back, whatever characters it holds.

    Several values are an axis, ``name=a,b``.
    """
    return f"{name}={','.join(map(_value, values))}"


def _value(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case int():
            return str(value)
        case float():
            return repr(value) if math.isfinite(value) else str(value)
        case list() | tuple():
            return f"[{','.join(_value(item) for item in value)}]"
        case str():
            return value if _PLAIN.match(value) and value.lower() not in _RESERVED else _quoted(value)
        case _:
            raise ValueError(f"{value!r}: a setting must be a number, a text, a truth value, None or a list of these")


def _quoted(text: str) -> str:
    """The text in single quotes, with OmegaConf's escape of ``${``."""
    from hydra.core.override_parser.types import Quote, QuotedString

    text = re.sub(r"(\\*)\$\{", lambda found: found[1] * 2 + "\\${", text)
    return QuotedString(text, Quote.single).with_quotes()


def pinned(experiment: Experiment, run_dir: str) -> list[str]:
    """Overrides that state every setting that can change a result, so that a default moved later changes nothing.

    Settings that cannot change a result appear only where the sweep sets them: ``NUQ_DATA`` and the like stay in force.
    """
    result = as_set(run_identity.result_settings(experiment.config))
    return _overrides({**experiment.settings, **result, "run_dir": run_dir})


def chosen(experiment: Experiment, run_dir: str) -> list[str]:
    """Overrides that state only what the sweep sets: shorter, and true as long as the defaults stay."""
    return _overrides({**experiment.settings, "run_dir": run_dir})


def _overrides(settings: Mapping[str, Any]) -> list[str]:
    """The overrides with groups first and run_dir last."""
    groups = [name for name in args.GROUPS if name in settings]
    others = [name for name in settings if name not in args.GROUPS and name != "run_dir"]
    return [to_override(name, settings[name]) for name in [*groups, *others, "run_dir"]]
