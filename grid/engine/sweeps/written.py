"""Sweeps that a command line writes out: ``--sweep method=qsgd,alq method.bits=2,3 data=digits``.

Like every sweep it has two names: GRID in the place of its family, and its words in the place of its function.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import args
from grid.engine.sweeps.experiments import Sweep
from grid.engine.sweeps.points import Point, kept, parsed, point, product, where_read
from settings import run_identity
from settings.overrides import to_override

GRID = "--sweep"
NAME = "--name"
FOLDER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
LONGEST = 60  # characters of the readable part of a name


@dataclass(frozen=True)
class Written(Sweep):
    """A sweep of a command line; its folder of runs is ``name``."""

    name: str = ""

    @property
    def title(self) -> str:
        return f"{GRID} {' '.join(self.run_name.split())}"

    @property
    def home(self) -> str:
        return self.name


def run_name(words: Sequence[str], name: str | None = None) -> str:
    """The words in the place of RUN_NAME, as a shell takes them: the same for the same settings in whatever order.

    name: that of ``--name``.  ValueError for a word that is no setting or gives one again, and for a name that is none.
    """
    values: dict[str, list[Any]] = {}
    for word in words:
        if "=" not in word:
            raise ValueError(
                f"{GRID} {shlex.quote(word)}: must be a setting, as in {GRID} method=qsgd,alq (an experiment's NAME "
                f"comes before {GRID}, or after another option)"
            )
        setting, found = parsed(word)
        if setting in values:
            raise ValueError(f"{GRID}: {setting} is given twice; write all its values in one word, {setting}=A,B")
        values[setting] = found
    if name is not None and not FOLDER.fullmatch(name):
        raise ValueError(
            f"{NAME} {name!r}: must be one name of letters, digits, '.', '_' and '-'; it is a folder of runs/"
        )
    groups = [setting for setting in args.GROUPS if setting in values]
    ordered = [*groups, *sorted(values.keys() - set(groups))]
    return shlex.join([*(to_override(one, *values[one]) for one in ordered), *([NAME, name] if name else [])])


def load(text: str) -> Written:
    """The sweep of words as ``run_name`` gives them: the product of all their values.

    A method's setting is kept for the methods that read it.
    """
    words = shlex.split(text)
    name = words[-1] if NAME in words else ""
    values = dict(map(parsed, words[:-2] if name else words))
    name = name or _derived(values, text)
    points = [_labelled(item, values) for item in product(*(_axis(one, found) for one, found in values.items()))]
    return Written(
        points,
        grid=GRID,
        run_name=text,
        name=name,
        doc=f"the runs lie in runs/{name} (python -m analysis report {name})",
    )


def _axis(setting: str, values: Sequence[Any]) -> list[Point]:
    """The points of a setting, without labels."""
    make = where_read if setting.startswith("method.") else lambda given: point("", given)
    return [make({setting: value}) for value in values]


def _labelled(item: Point, values: Mapping[str, Sequence[Any]]) -> Point:
    """The point with a label of those settings that it reads and that have several values.

    A method is not among them: its title stands before the label.
    """
    telling = {name: value for name, value in kept(item).items() if name != "method" and len(values[name]) > 1}
    return replace(item, label=" ".join(f"{name.rpartition('.')[2]}={value}" for name, value in telling.items()))


def _derived(values: Mapping[str, Sequence[Any]], text: str) -> str:
    """A name such as ``qsgd-alq_bits-2-3-0a1b2c3d``: the settings with several values, or all settings, and a hash."""
    telling = {setting: found for setting, found in values.items() if len(found) > 1} or values
    parts = [
        "-".join([*([] if setting in args.GROUPS else [setting.rpartition(".")[2]]), *map(str, found)])
        for setting, found in telling.items()
    ]
    readable = "_".join(re.sub(r"[^A-Za-z0-9.]+", "-", part).strip("-.") for part in parts)
    return f"{readable[:LONGEST].strip('-_.')}-{run_identity.digits(text)[:8]}"
