"""Methods in words: what each claims, and its settings with their defaults, legal values and reasons."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable
from typing import Any

from nuq import functional, outer
from nuq.exchange.hook import settings as hook_settings
from nuq.registry import METHODS
from nuq.settings import Declared, declared, unknown
from nuq.settings.exchange import Exchange, Hook, HookExchange
from nuq.settings.feedback import Feedback, HookFeedback
from nuq.settings.fsdp import Fsdp, FsdpWeights
from nuq.settings.outer import Outer, OuterExchange

# what else each entry point takes, by the prefix of its names, and its defaults that are not the settings' own
ENTRIES: dict[str, tuple[list[tuple[str, type]], dict[str, Any]]] = {
    "main.py": ([("exchange.", Exchange), ("feedback.", Feedback)], {}),
    "hook": ([("", HookExchange), ("", Hook), ("", HookFeedback)], hook_settings.OTHER_DEFAULTS),
    "all_reduce": ([("", Exchange)], functional.AUTO),
    "compress_fsdp": ([("", Fsdp)], {}),
    "compress_fsdp_weights": ([("", FsdpWeights)], {}),
    "OuterLoop": ([("", OuterExchange), ("", Outer)], outer.OTHER_DEFAULTS),
}


def describe(method: str, entry: str = "main.py") -> str:
    """What a method is, for people to read: title, claims, and a paragraph for each setting.

    ``print(nuq.describe("topk", "hook"))``.  entry: the entry point whose settings and defaults are told, as they
    differ: main.py, hook (``CompressionState``), all_reduce, compress_fsdp, compress_fsdp_weights or OuterLoop.
    ValueError for a name that METHODS does not have, and for another entry.
    """
    if method not in METHODS:
        raise unknown("method", method, METHODS)
    if entry not in ENTRIES:
        raise unknown("entry", entry, ENTRIES)
    others, defaults = ENTRIES[entry]
    lines = [f"{METHODS[method].title} (method={method!r})", "", *(f"- {claim}" for claim in claims(method)), ""]
    lines.append(f"Settings, with the defaults of {entry} (entry={'|'.join(ENTRIES)}):")
    for prefix, schema in [("", METHODS[method].settings), *others]:
        for name, of in declared(schema).items():
            setting = f"{prefix}{name}={shown(defaults.get(name, of.default))} ({legal(of)})"
            lines.append(textwrap.fill(setting, 120, subsequent_indent="    ", break_on_hyphens=False))
            lines.append(textwrap.fill(of.rule["reason"], 110, initial_indent="    ", subsequent_indent="    "))
    return "\n".join(lines).rstrip()


def claims(method: str) -> list[str]:
    """The claims of the table of methods with the default settings, a sentence each."""
    entry = METHODS[method]
    made = entry.load()(entry.settings())
    length = f"{made.message_bytes(10**6):,} bytes for a vector of a million coordinates"
    lines = [
        "Unbiased: the mean over all random numbers of what a message decodes to is the vector itself."
        if entry.unbiased
        else "Biased: the mean of what its messages decode to is not the vector itself.",
        "Contractive: what a message leaves out is never longer than the vector, `|x - C(x)|^2 <= |x|^2`."
        if entry.contractive
        else "Not contractive: the error of a message may be longer than the vector.",
        "Deterministic: the same vector gives the same bytes."
        if entry.deterministic
        else "Random: what it draws follows from seed, step, worker and parameter alone.",
    ]
    if entry.unbiased and entry.deterministic:
        lines = ["Exact: a message decodes to the vector itself."]
    lines.append(f"Length: {length}." if made.exact_bytes else f"Length: it depends on the vector; at most {length}.")
    if entry.adaptive:
        lines.append("Adaptive: its levels follow the gradients (`update_at`, `update_every`).")
    if entry.stateful:
        lines.append("Stateful: what it sends depends on what it sent before.")
    if entry.single_worker:
        lines.append("The first worker's gradient alone is used.")
    return lines


def shown(value: Any) -> str:
    """A setting's value as a command line has it."""
    return value if isinstance(value, str) else json.dumps(value)


def legal(of: Declared, code: Callable[[str], str] = str) -> str:
    """The legal values of a setting in words, as its declaration has them; ``code`` marks what would be typed."""
    rule = of.rule
    if rule["choices"]:
        words = ", ".join(code(shown(choice)) for choice in rule["choices"])
    elif of.type is bool:
        words = f"{code('true')}, {code('false')}"
    elif rule["low"] is not None and rule["high"] is not None:
        words = f"{rule['low']} to {rule['high']}"
    elif rule["low"] is not None:
        words = f"from {rule['low']}"
    else:
        words = getattr(of.type, "__name__", str(of.type))
    if rule["read_if"]:
        other, needed = rule["read_if"]
        if isinstance(needed, range):
            values = [f"{code(other)} from {needed.start}"]
        else:
            values = [code(f"{other}={shown(value)}") for value in (needed if isinstance(needed, tuple) else (needed,))]
        words += f"; read with {' or '.join(values)}"
    return words
