"""The command line of a family of cases, ``python -m benchmarks.FAMILY CASE``, and how figures are printed.

A case is a module with ``options(parser)``, which adds its options, and ``run(chosen)``, which measures and returns the
figures.  They are printed as one line for each innermost object, and, as the last line, as one JSON object.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

SPREADS = ({"median", "low", "high"}, {"mean", "low", "high"})


def main(family: str, cases: Mapping[str, Any], arguments: Sequence[str] | None = None) -> None:
    """Run one case.

    A ValueError or RuntimeError, such as that of a network that cannot be made, ends in one sentence.
    """
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{family}")
    words = parser.add_subparsers(dest="case", required=True, metavar="CASE")
    for name, case in cases.items():
        told = (case.__doc__ or "").replace("%", "%%")
        how = {"help": told.splitlines()[0], "formatter_class": argparse.RawDescriptionHelpFormatter}
        case.options(words.add_parser(name, description=told, **how))
    chosen = parser.parse_args(arguments)
    try:
        figures = cases[chosen.case].run(chosen)
    except (ValueError, RuntimeError) as error:
        raise SystemExit(f"benchmarks.{family} {chosen.case}: {error}") from error
    print(*lines(figures), json.dumps(figures), sep="\n")


def lines(figures: Mapping[str, Any], *path: str) -> Iterator[str]:
    """A line for each innermost object: the names that lead to it, and its values."""
    inner: dict[str, Mapping[str, Any]] = {}
    own = []
    for name, value in figures.items():
        if isinstance(value, Mapping) and value.keys() not in SPREADS:
            inner[str(name)] = value
        elif isinstance(value, list) and value and isinstance(value[0], Mapping):
            inner |= {f"{name} {number}": each for number, each in enumerate(value)}
        else:
            own.append(f"{name} {_shown(value)}")
    if own:
        yield f"{', '.join(path)}: {'; '.join(own)}" if path else "; ".join(own)
    for name, value in inner.items():
        yield from lines(value, *path, name)


def _shown(value: Any) -> str:
    if isinstance(value, Mapping):
        middle, low, high = map(_shown, value.values())
        return f"{middle} ({low} to {high})"
    if isinstance(value, list | tuple):
        return " ".join(map(_shown, value)) or "none"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
