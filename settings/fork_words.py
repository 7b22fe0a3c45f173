"""``main.py fork=FOLDER at=STEP ...``: the words of a run and of what its fork changes, as words of settings."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from args import GROUPS
from settings.command_line import parsed
from settings.overrides import to_override
from settings.resolving import resolve
from settings.sections import as_set

_NOT_INHERITED = ("run_dir", "checkpoint_at", "fork.run", "fork.at")


def named(
    words: Sequence[str], read_config: Callable[[Path], Mapping[str, Any]]
) -> tuple[list[str], Mapping[str, Any]]:
    """The words with ``fork.run`` and ``fork.at`` in the place of ``fork=FOLDER at=STEP``; the run's configuration.

    Words without ``fork=`` are returned as they are, with an empty configuration.  read_config: gives the full
    configuration of a folder.  ValueError where folder and step are not one each, and as ``read_config``.
    """
    folders = [word for word in words if word.startswith("fork=")]
    if not folders:
        return list(words), {}
    folder = parsed(folders[0]).value()
    if len(folders) > 1 or not isinstance(folder, str) or not folder:
        raise ValueError(f"{' '.join(folders)}: must be the folder of one run, as in fork=runs/main/NAME")
    steps = [word for word in words if word.startswith("at=")]
    if not steps:
        raise ValueError(f"{folders[0]}: give the step of its checkpoint, too, as in at=500")
    others = [word for word in words if word not in (*folders, *steps)]
    if twice := [*steps[1:], *(word for word in others if word.startswith("fork."))]:
        raise ValueError(
            f"{' '.join([folders[0], steps[0], *twice])}: a fork has one folder and one step; leave one out"
        )
    # a path that holds from any folder, as this one may be left for another before the run goes on
    forked = [to_override("fork.run", os.path.abspath(folder)), f"fork.{steps[0]}"]
    return [*forked, *others], _settings(Path(folder), others, read_config)


def with_inherited(config: Mapping[str, Any], words: Sequence[str]) -> list[str]:
    """The words of a fork, after those of the settings that it takes from the run of this configuration.

    Of a group for which another choice is given (``method=qsgd``) nothing is taken.  Words that have been through here
    come back as they are, and so do all words where the configuration is empty.
    """
    if not config:
        return list(words)
    given = {override.key_or_group: override.value() for override in map(parsed, words)}
    own = {name: value for name, value in as_set(config).items() if name not in _NOT_INHERITED}
    groups = {name: own[name] for name in GROUPS}
    usual = as_set(resolve(groups))
    changed = tuple(f"{name}." for name, value in groups.items() if given.get(name, value) != value)
    taken = {
        name: value
        for name, value in own.items()
        if name not in given and not name.startswith(changed) and (name in GROUPS or value != usual.get(name))
    }
    return [*(to_override(name, value) for name, value in taken.items()), *words]


def _settings(
    folder: Path, words: Sequence[str], read_config: Callable[[Path], Mapping[str, Any]]
) -> Mapping[str, Any]:
    """The configuration of the run that is left; where it is gone, that of the fork in ``run_dir``, which goes on."""
    try:
        return read_config(folder)
    except ValueError as error:
        own = {override.key_or_group: override.value() for override in map(parsed, words)}.get("run_dir")
        if not own:
            hint = "a fork that has begun goes on without it where its own folder is given, too, as in run_dir=FOLDER"
            raise ValueError(f"{error}; {hint}") from error
        try:
            config = read_config(Path(str(own)))
        except ValueError:
            raise error from None
        if not config["fork"]["run"]:
            raise
        return config
