"""Completion of the words of main.py in a shell, from the tables that ``--help`` reads: settings and their values.

This module imports neither torch nor Hydra: a person waits for it at each key.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

from args import DEFAULTS, GROUPS, SECTIONS, Config
from files import completion
from nuq.settings import declared
from settings.command_line import MODES, Evaluation


def settings(prefix: str, given: Iterable[str]) -> dict[str, str]:
    """The settings (``method=``) or values (``method=alq``) that begin so, with their reasons.

    given: the other words, of which ``method=topk`` decides whose settings ``method.*`` are.  After a comma, the next
    value of a sweep (``-m method=alq,amq``).
    """
    chosen = _chosen(given)
    choices = {group: (tuple(options), f"default: {DEFAULTS[group]}") for group, options in GROUPS.items()}
    choices |= _declared(Config, "")
    for section, schema in SECTIONS.items():
        choices |= _declared(schema, f"{section}.")
    for group, options in GROUPS.items():
        if schema := options.get(chosen.get(group, DEFAULTS[group])):
            choices |= _declared(schema, f"{group}.")
    return _beginning(prefix, choices, chosen)


def words(prefix: str, given: Iterable[str]) -> dict[str, str]:
    """The words that ``main.py`` takes: ``mode=``, and the settings of this mode."""
    given = list(given)
    chosen = _chosen(given)
    found = _beginning(prefix, {"mode": (MODES, "what main.py does; default: train")}, chosen)
    if chosen.get("mode") == "evaluate":
        return found | _beginning(prefix, _declared(Evaluation, ""), chosen)
    return found | settings(prefix, given)


def _chosen(given: Iterable[str]) -> dict[str, str]:
    return {name: value for name, equals, value in (word.partition("=") for word in given) if equals}


def _declared(schema: type, before: str) -> dict[str, tuple[tuple[str, ...], str]]:
    """The settings of a dataclass with their legal values, as far as these can be listed, and their reasons."""
    return {
        f"{before}{name}": (_values(kind, rule), rule["reason"]) for name, (kind, _, rule) in declared(schema).items()
    }


def _values(kind: Any, rule: Mapping[str, Any]) -> tuple[str, ...]:
    return ("true", "false") if kind is bool else tuple(map(str, rule["choices"] or ()))


def _beginning(
    prefix: str, choices: Mapping[str, tuple[tuple[str, ...], str]], chosen: Mapping[str, str]
) -> dict[str, str]:
    name, equals, value = prefix.partition("=")
    if not equals:
        return {
            f"{key}=": reason for key, (_, reason) in choices.items() if key.startswith(prefix) and key not in chosen
        }
    values, reason = choices.get(name, ((), ""))
    before, comma, last = value.rpartition(",")
    begun = [f"{name}={before}{comma}{choice}" for choice in values if choice.startswith(last)]
    return dict.fromkeys(begun, reason)


def parser() -> argparse.ArgumentParser:
    """The flags of ``main.py`` that are Hydra's and mean something here, and the words."""
    made = argparse.ArgumentParser(prog="main.py", add_help=False)
    made.add_argument("-h", "--help", action="store_true", help="every setting with its default and the reason for it")
    made.add_argument("-c", "--cfg", choices=("job", "hydra", "all"), help="show the settings and run nothing")
    made.add_argument("--resolve", action="store_true", help="with --cfg: with what stands for ${...}")
    made.add_argument("-m", "--multirun", action="store_true", help="one run after another, of all values with commas")
    made.add_argument(
        "--import", metavar="PACKAGE", help="a package of your own that adds methods, data sets or models"
    )
    made.add_argument("overrides", nargs="*")
    return made


def answer() -> NoReturn:
    """Tell the shell what may follow in the line of ``main.py``, and end the process."""
    before = completion.words_before()
    skip = len(before) - (before[-1:] in (["--cfg"], ["-c"]))  # argparse alone would take no words after a flag
    completion.answer(parser(), {"overrides": lambda prefix, _: words(prefix, before)}, skip)
