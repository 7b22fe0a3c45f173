"""Settings as words for main.py, in Hydra's grammar."""

from __future__ import annotations

import math
import re
from typing import Any

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
