"""Ended runs kept in the repository, so that a sweep of many hours goes on where another machine left it.

What is kept of a run is what its result needs: configuration, status and logged scalars, in ``results/`` under the
names that the run has below ``runs/``.  Runs that diverged have ended, too.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

from grid.engine.states.run_files import RunFolder
from grid.engine.states.runs import Run

RESULTS = "results"
ENDED = ("done", "diverged")
_SCALARS = "events.out.tfevents.*"
_NEEDED = ("config.yaml", _SCALARS, "status.json")  # the last one says that all is there
_BEGUN = ("status.json", "checkpoint*", _SCALARS)  # files of a run that has begun here


def place(run: Run) -> Path:
    """The folder where an ended run is kept."""
    return run.root / RESULTS / run.experiment.folder / run.experiment.name


def restore(runs: Iterable[Run]) -> tuple[int, list[Path]]:
    """Copy what is kept of runs that have not begun here to where they would be.

    Returns their number, and the folders that are kept and not whole.
    """
    absent = [run for run in runs if place(run).is_dir() and not _any(run.folder.path, _BEGUN)]
    whole = [run for run in absent if _is_whole(place(run))]
    for run in whole:
        shutil.copytree(place(run), run.folder.path, dirs_exist_ok=True)
    return len(whole), [place(run) for run in absent if run not in whole]


def keep(run: Run) -> bool:
    """Copy what is needed of a run to where it is kept, if it has ended; whether there was something to copy."""
    to = place(run)
    if not _is_whole(run.folder.path) or _is_whole(to):
        return False
    shutil.rmtree(to, ignore_errors=True)  # what is not whole
    to.mkdir(parents=True)
    for pattern in _NEEDED:
        for path in run.folder.path.glob(pattern):
            shutil.copyfile(path, to / path.name)
    return True


def _any(folder: Path, patterns: Iterable[str]) -> bool:
    return any(any(folder.glob(pattern)) for pattern in patterns)


def _is_whole(folder: Path) -> bool:
    """Whether a folder has all that is needed of a run that has ended."""
    return all(_any(folder, [pattern]) for pattern in _NEEDED) and RunFolder(folder).state().word in ENDED
