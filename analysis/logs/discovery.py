"""The search for the runs below a sweep's folder, and for the files that they hold."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

EVENTS = "events.out.tfevents."
EVALUATOR = "evaluator/"  # the folder in a run's own in which main.py mode=evaluate leaves its event files
CONFIG, STATUS = "config.yaml", "status.json"
DEPTH = 3


@dataclass(frozen=True)
class Run:
    """A run and its files, each with its size and time of change in ns.

    The files lie directly in the run's folder, or are its evaluator's.
    """

    name: str  # the folder as seen from the sweep's
    folder: Path
    files: dict[str, tuple[int, int]]

    def events(self) -> list[str]:
        """The names of the run's event files."""
        return [name for name in self.files if name.removeprefix(EVALUATOR).startswith(EVENTS)]


def find(sweep: Path, notes: list[str]) -> list[Run]:
    """The runs of a sweep by name: folders at most three below it that hold config.yaml, status.json or event files.

    What lies below a folder with config.yaml or status.json belongs to that run, whatever its name.
    """
    found: list[Run] = []
    folders = [("", sweep)]
    for depth in range(DEPTH + 1):
        below: list[tuple[str, Path]] = []
        for name, folder in folders:
            files, inner = _listed(folder, name, notes)
            ours = CONFIG in files or STATUS in files
            if ours and EVALUATOR[:-1] in inner:
                evaluated, _ = _listed(folder / EVALUATOR, f"{name}/{EVALUATOR[:-1]}", notes)
                files |= {f"{EVALUATOR}{file}": about for file, about in evaluated.items() if file.startswith(EVENTS)}
            if depth and (ours or any(file.startswith(EVENTS) for file in files)):
                found.append(Run(name, folder, files))
            if not (depth and ours):
                below += [(f"{name}/{item}" if name else item, folder / item) for item in inner]
        folders = below
    return sorted(found, key=lambda run: run.name)


def _listed(folder: Path, name: str, notes: list[str]) -> tuple[dict[str, tuple[int, int]], Sequence[str]]:
    """The files and folders in a folder, without those whose names begin with a dot.

    Files that vanish meanwhile are left out.
    """
    files: dict[str, tuple[int, int]] = {}
    inner: list[str] = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.startswith("."):
                    continue
                try:
                    if entry.is_dir():
                        inner.append(entry.name)
                    else:
                        about = entry.stat()
                        files[entry.name] = (about.st_size, about.st_mtime_ns)
                except OSError:
                    continue
    except FileNotFoundError:
        return {}, ()
    except OSError as error:
        notes.append(f"{name or folder.name}: this folder cannot be read ({type(error).__name__})")
    return dict(sorted(files.items())), inner
