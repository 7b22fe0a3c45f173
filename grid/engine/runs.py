"""The run of each experiment: its folder, and what is written into it before it starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import args
from grid.engine.plain_files import Unreadable, read_yaml
from grid.engine.script import from_script, run_script
from grid.engine.state import RunFolder, State, write_text
from grid.engine.sweep import Experiment, Sweep, load, parse_seeds

RUNS = "runs"


@dataclass(frozen=True)
class Run:
    """An experiment and the folder where it is kept."""

    experiment: Experiment
    folder: RunFolder
    run_dir: str  # the folder as seen from the checkout

    def state(self) -> State:
        """The state from the run's own files alone."""
        return self.folder.state()


def named(family: str, run_name: str, seeds: str | None = None, overrides: Sequence[str] = ()) -> tuple[Sweep, list[Experiment]]:
    """The sweep of these names with these seeds and settings (as main.py takes them), and its experiments."""
    sweep = load(family, run_name, parse_seeds(seeds) if seeds else None)
    if overrides:
        settings = args.parse_overrides(list(overrides))
        for text in overrides:
            if text.partition("=")[0].strip() not in settings:
                raise ValueError(f"--set {text}: must be one value; several values make another sweep (seeds: --seeds)")
        sweep = sweep.override(settings)
    return sweep, sweep.experiments()


def runs_of(experiments: Sequence[Experiment], root: Path) -> list[Run]:
    """The run of each experiment, below ``root``."""
    places = [f"{RUNS}/{item.folder}/{item.name}" for item in experiments]
    return [Run(item, RunFolder(root / place), place) for item, place in zip(experiments, places, strict=True)]


def prepare(run: Run) -> None:
    """Create the run folder with its configuration and script.  What a run already wrote about itself stays."""
    import yaml

    run.folder.path.mkdir(parents=True, exist_ok=True)
    config: dict[str, Any] = {**run.experiment.config, "run_dir": run.run_dir}
    if not run.folder.status.exists():
        dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
        _write_if_changed(run.folder.config, yaml.dump(config, Dumper=dumper, sort_keys=False))
    _write_if_changed(run.folder.script, run_script(run.experiment, run.run_dir, from_script(3)), executable=True)


def _write_if_changed(path: Path, text: str, *, executable: bool = False) -> None:
    if not path.is_file() or path.read_bytes() != text.encode():
        write_text(path, text, executable=executable)


def left_over(experiments: Sequence[Experiment], root: Path) -> list[Path]:
    """Run folders of this sweep that belong to none of its experiments: settings have changed since, or others wrote them."""
    names = {item.name for item in experiments}
    folders = {item.folder for item in experiments}
    return sorted(
        found.parent for folder in folders for found in (root / RUNS / folder).glob("*/config.yaml") if found.parent.name not in names
    )


def read_config(folder: Path) -> dict[str, Any] | None:
    """The configuration kept in a run folder; None where it cannot be read."""
    try:
        config = read_yaml(folder / "config.yaml")
    except (OSError, Unreadable):
        return None
    return config if isinstance(config, dict) else None
