"""The run of each experiment: its folder, and the files that are written into it before it starts."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from files import plain
from files.atomic import write_text
from files.plain import Unreadable, read_yaml
from grid.engine.scripts.script import from_script, run_script
from grid.engine.states import folder_lock
from grid.engine.states.run_files import RunFolder
from grid.engine.states.state import State
from grid.engine.sweeps import written
from grid.engine.sweeps.experiments import Experiment, Sweep
from grid.engine.sweeps.families import load, parse_seeds
from settings import command_line, run_identity

RUNS = "runs"
SIGNED = ".sweeps"  # the file beside the runs with a line for each sweep that was started there
_OLDER = "(runs that were here before this list)"  # its line where it was begun beside runs of unknown sweeps


@dataclass(frozen=True)
class Run:
    """An experiment and the folder where it is kept."""

    experiment: Experiment
    root: Path  # the checkout
    run_dir: str  # the folder as seen from there

    @property
    def after(self) -> dict[str, str]:
        """The folders of the runs that it waits for, as seen from the checkout, with their labels."""
        return {f"{RUNS}/{self.experiment.folder}/{name}": label for name, label in self.experiment.after.items()}

    @property
    def folder(self) -> RunFolder:
        return RunFolder(self.root / self.run_dir)

    def state(self) -> State:
        """The state from the run's own files alone."""
        return self.folder.state()


def named(
    family: str, run_name: str, seeds: str | None = None, overrides: Sequence[str] = ()
) -> tuple[Sweep, list[Experiment]]:
    """The sweep of these names with these seeds and settings (in main.py's grammar), and its experiments."""
    sweep = load(family, run_name, parse_seeds(seeds) if seeds else None)
    if overrides:
        for text in overrides:
            if command_line.parsed(text).is_sweep_override():
                raise ValueError(f"--set {text}: must be one value; several values make another sweep (seeds: --seeds)")
        sweep = sweep.override(command_line.parse_overrides(overrides))
    return sweep, sweep.experiments()


def runs_of(experiments: Sequence[Experiment], root: Path) -> list[Run]:
    """The run of each experiment, below ``root``."""
    return [Run(item, root, f"{RUNS}/{item.folder}/{item.name}") for item in experiments]


def prepare(runs: Iterable[Run]) -> None:
    """Create the run folders with their configurations and scripts. The files that a run wrote about itself stay."""
    texts: dict[str, str] = {}
    for run in runs:
        folder = run.folder
        folder.path.mkdir(parents=True, exist_ok=True)
        if not folder.status.exists():
            _write_if_changed(folder.config, _yaml({**run.experiment.config, "run_dir": run.run_dir}, texts))
        _write_if_changed(folder.script, run_script(run.experiment, run.run_dir, from_script(3)), executable=True)


def _yaml(config: Mapping[str, Any], texts: dict[str, str]) -> str:
    """The configuration as YAML; ``texts`` keeps the text of parts that are equal in most of thousands of runs."""
    import yaml

    parts = []
    for item in config.items():
        key = repr(item)
        if key not in texts:
            texts[key] = yaml.dump(dict([item]), Dumper=getattr(yaml, "CSafeDumper", yaml.SafeDumper), sort_keys=False)
        parts.append(texts[key])
    return "".join(parts)


# --- whose folder it is -------------------------------------------------------------------------------------------


def sign(sweep: Sweep, root: Path) -> None:
    """Note in the folder of runs that the runs of this sweep are in it.

    The first note says, too, where other runs are there already: nobody knows of which sweeps they are.
    """
    path = root / RUNS / sweep.home / SIGNED
    path.parent.mkdir(parents=True, exist_ok=True)
    with folder_lock.alone(root / RUNS):  # two sweeps may be started in one folder at the same time
        lines = _lines(sweep.home, root)
        if (own := signature(sweep, root)) not in lines:
            experiments = [] if lines else sweep.experiments()
            if not lines and left_over([*experiments, *other_seeds(sweep, experiments, root)], root):
                lines = [_OLDER]
            write_text(path, "".join(f"{line}\n" for line in [*lines, own]))


def check_signed(sweep: Sweep, root: Path) -> None:
    """Raise ValueError where the sweeps whose runs are in this one's folder are not all known."""
    lines, own = _lines(sweep.home, root), signature(sweep, root)
    odd = [line for line in lines if not line.rpartition(": ")[0]]
    if odd or not {own, f"{sweep.file}: {sweep.run_name}"}.intersection(lines):
        path = f"{RUNS}/{sweep.home}/{SIGNED}"
        what = f"has the line {odd[0]!r}" if odd else f"does not name this sweep ({own})" if lines else "is missing"
        remedy = f"write a line there for each sweep that has runs in the folder, this one's being {own!r}"
        raise ValueError(
            f"{path}, which lists the sweeps of the folder, {what}, so which runs have left is not known: {remedy}"
            f"{', and take that line out' * bool(odd)}"
        )


def others(sweep: Sweep, root: Path, *, with_gone: bool = False) -> list[str]:
    """The other sweeps whose runs are in this sweep's folder: ``/a/file.py: name``.

    Those whose file no longer exists are left out, unless ``with_gone`` is true.
    """
    own = {signature(sweep, root), f"{sweep.file}: {sweep.run_name}"}
    return [
        line
        for line in _lines(sweep.home, root)
        if (owner := line.rpartition(": ")[0])
        and line not in own
        and (with_gone or (root / owner).is_file() or not owner.endswith(".py"))
    ]


def check_folder(sweep: Sweep, root: Path) -> None:
    """Raise ValueError where the sweep did not name its folder itself, and another file's sweep has that folder.

    ValueError, too, where its runs lie in a folder that is named by the function alone, as all were once.
    """
    if sweep.folder:
        return
    if found := others(sweep, root):
        whose = ", ".join(found).replace(f"{written.GRID}: ", f"{written.GRID} ")
        own = f"{written.NAME} NAME" if sweep.grid == written.GRID else "Sweep(..., folder=...)"
        raise ValueError(f"runs/{sweep.home} is also the folder of {whose}: give one of them its own, {own}")
    own = f"{sweep.file}: {sweep.run_name}"
    if sweep.file and sweep.home != sweep.run_name and own in _lines(sweep.run_name, root):
        raise ValueError(
            f"runs/{sweep.run_name} holds the earlier runs of {own}, whose folder is runs/{sweep.home} now: Sweep(..., "
            f"folder={sweep.run_name!r}) goes on with them; or move that folder away"
        )


def signature(sweep: Sweep, root: Path) -> str:
    """The line of a sweep; a file within the checkout is named as seen from there, so that both may move."""
    owner = os.path.relpath(sweep.file, root.resolve()) if sweep.file else sweep.grid
    owner = sweep.file if owner.startswith("..") else owner
    return " ".join(f"{owner}: {sweep.run_name}".split())


def _lines(folder: str, root: Path) -> list[str]:
    """The lines of SIGNED in a folder of runs; ValueError where they cannot be read."""
    try:
        lines = plain.read_text(root / RUNS / folder / SIGNED).splitlines()
    except (FileNotFoundError, NotADirectoryError):
        return []
    except (OSError, Unreadable) as error:
        why = error if isinstance(error, Unreadable) else error.strerror
        raise ValueError(
            f"{RUNS}/{folder}/{SIGNED}, which lists the sweeps of the folder, cannot be read ({why}): put it back as "
            f"it was, or a file with a line for each of them (file: function)"
        ) from error
    return [line for line in lines if line.strip()]


def _write_if_changed(path: Path, text: str, *, executable: bool = False) -> None:
    if not os.path.isfile(path) or path.read_bytes() != text.encode():
        write_text(path, text, executable=executable)


def left_over(experiments: Sequence[Experiment], root: Path) -> list[Path]:
    """Run folders of this sweep that belong to none of its experiments.

    Settings have changed since, or others wrote them.
    """
    names = {item.name for item in experiments}
    folders = {item.folder for item in experiments}
    return sorted(
        found.parent
        for folder in folders
        for found in (root / RUNS / folder).glob("[!.]*/config.yaml")
        if found.parent.name not in names
    )


def other_seeds(sweep: Sweep, experiments: Sequence[Experiment], root: Path) -> list[Experiment]:
    """The sweep's experiments with further seeds, which ``run --seeds`` has started: those in names of run folders."""
    names = [run_identity.NAME.fullmatch(folder.name) for folder in left_over(experiments, root)]
    seeds = {int(name["seed"]) for name in names if name} - {item.seed for item in experiments}
    legal = sorted(seed for seed in seeds if seed < 2**63)  # as args.Config has it
    return dataclasses.replace(sweep, seeds=legal).experiments() if legal else []


def read_config(folder: Path) -> dict[str, Any] | None:
    """The configuration kept in a run folder; None where it cannot be read."""
    try:
        config = read_yaml(folder / "config.yaml")
    except (OSError, Unreadable):
        return None
    return config if isinstance(config, dict) else None
