"""What to do with a sweep: its run folders with their states, and shares for job scripts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import yaml

from grid.engine.script import from_script, run_script
from grid.engine.state import RunFolder, State, write_text
from grid.engine.sweep import Experiment

RUNS = "runs"
Item = TypeVar("Item")


@dataclass(frozen=True)
class Run:
    """An experiment and the folder where it is kept."""

    experiment: Experiment
    folder: RunFolder
    run_dir: str  # the folder as seen from the checkout

    def state(self) -> State:
        return self.folder.state()


def runs_of(experiments: Sequence[Experiment], root: Path) -> list[Run]:
    """The run of each experiment, below ``root``."""
    places = [f"{RUNS}/{item.folder}/{item.name}" for item in experiments]
    return [Run(item, RunFolder(root / place), place) for item, place in zip(experiments, places, strict=True)]


def prepare(run: Run) -> None:
    """Create the run folder with its configuration and script.  What a run already wrote about itself stays."""
    run.folder.path.mkdir(parents=True, exist_ok=True)
    config: dict[str, Any] = {**run.experiment.config, "run_dir": run.run_dir}
    if not run.folder.status.exists():
        _write_if_changed(run.folder.config, yaml.safe_dump(config, sort_keys=False))
    _write_if_changed(run.folder.script, run_script(run.experiment, run.run_dir, from_script(3)), executable=True)


def _write_if_changed(path: Path, text: str, *, executable: bool = False) -> None:
    if not path.is_file() or path.read_text() != text:
        write_text(path, text, executable=executable)


def left_over(experiments: Sequence[Experiment], root: Path) -> list[str]:
    """Names of run folders of this sweep that belong to none of its experiments: settings have changed since."""
    names = {item.name for item in experiments}
    folders = {item.folder for item in experiments}
    return sorted(
        found.parent.name for folder in folders for found in (root / RUNS / folder).glob("*/config.yaml") if found.parent.name not in names
    )


def deal(items: Sequence[Item], num_shares: int) -> list[list[Item]]:
    """Round-robin: share i gets items i, i + num_shares, ..."""
    return [list(items[start::num_shares]) for start in range(num_shares)]
