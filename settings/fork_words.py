"""``main.py fork=FOLDER at=STEP ...``: the words of a run and of what its fork changes, as words of settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from args import GROUPS
from settings.command_line import parsed
from settings.overrides import to_override
from settings.resolving import resolve
from settings.sections import as_set

_NOT_INHERITED = ("run_dir", "checkpoint_at", "fork.run", "fork.at")


def spelled_out(words: Sequence[str], read_config: Callable[[Path], Mapping[str, Any]]) -> list[str]:
    """The words with ``fork.run``, ``fork.at`` and that run's settings, in the place of ``fork=FOLDER at=STEP``.

    Words without ``fork=`` are returned as they are.  Of a group for which another choice is given (``method=qsgd``)
    nothing is taken from the run.  read_config: gives the full configuration of a folder.  ValueError for one without a
    step, for several folders, and as ``read_config``.
    """
    folders = [word for word in words if word.startswith("fork=")]
    if not folders:
        return list(words)
    folder = parsed(folders[0]).value()
    if len(folders) > 1 or not isinstance(folder, str) or not folder:
        raise ValueError(f"{' '.join(folders)}: must be the folder of one run, as in fork=runs/main/NAME")
    steps = [word.removeprefix("at=") for word in words if word.startswith("at=")]
    if not steps:
        raise ValueError(f"{folders[0]}: give the step of its checkpoint, too, as in at=500")
    others = [word for word in words if not word.startswith(("fork=", "at="))]
    config = read_config(Path(folder))
    given = {parsed(word).key_or_group: word.partition("=")[2] for word in others}
    own = {name: value for name, value in as_set(config).items() if name not in _NOT_INHERITED}
    groups = {name: own[name] for name in GROUPS}
    usual = as_set(resolve(groups))
    changed = tuple(f"{name}." for name, value in groups.items() if given.get(name, value) != value)
    taken = {
        name: value
        for name, value in own.items()
        if name not in given and not name.startswith(changed) and (name in GROUPS or value != usual.get(name))
    }
    inherited = [to_override(name, value) for name, value in taken.items()]
    forked = [to_override("fork.run", str(Path(folder))), *(f"fork.at={step}" for step in steps)]
    return [*inherited, *forked, *others]
