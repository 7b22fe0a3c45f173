"""Ended runs kept in the repository, so that a sweep of many hours goes on where another machine left it.

What is kept of a run is what its result needs: configuration, status and logged scalars, in ``results/`` under the
names that the run has below ``runs/``.  Runs that diverged have ended, too.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from grid.engine.states.runs import Run

RESULTS = "results"
ENDED = ("done", "diverged")
_NEEDED = ("config.yaml", "status.json", "events.out.tfevents.*")


def place(run: Run) -> Path:
    """The folder where an ended run is kept."""
    return run.root / RESULTS / run.experiment.folder / run.experiment.name


def restore(runs: Iterable[Run]) -> int:
    """Copy what is kept of runs that this machine does not have to where they would be; the number of them."""
    return sum(_copied(place(run), run.folder.path) for run in runs if not run.folder.status.exists())


def keep(runs: Iterable[Run]) -> int:
    """Copy what is needed of runs that have ended and are not kept yet; the number of them."""
    return sum(_copied(run.folder.path, place(run)) for run in runs if run.state().word in ENDED)


def _copied(source: Path, to: Path) -> bool:
    """Whether there was something to copy.  It appears as a whole, or joins what the folder has."""
    found = [path for pattern in _NEEDED for path in sorted(source.glob(pattern))]
    if not found or (to / "status.json").exists():
        return False
    to.mkdir(parents=True, exist_ok=True)
    for path in (path for path in found if path.name != "status.json"):
        shutil.copyfile(path, to / path.name)
    partly = to / f".status.{os.getpid()}"  # the status says that all is there: it comes last
    shutil.copyfile(source / "status.json", partly)
    partly.replace(to / "status.json")
    return True
