"""Checks of what can be known to go wrong before a submission: data, disk, permissions, and SLURM's own opinion."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from files import plain
from files.atomic import write_text
from grid.engine.slurm import sbatch_command
from grid.engine.slurm.scheduler_cache import Full, Unreachable
from grid.engine.slurm.site import Site
from grid.engine.states.ledger import folder_of
from grid.engine.states.runs import Run
from grid.engine.states.state import State
from grid.engine.submission.plan import Plan
from grid.engine.submission.rehearsal import data_place, rehearse
from nuq.settings import unknown
from settings.data import DATA, is_on_disk
from settings.resources import Resources, seconds

# the checks that --ignore takes; each may be wrong about somebody's cluster
CHECKS = ("time", "data", "folders", "disk", "opinion", "build")
FREE_BYTES = 200 * 2**20  # free space wanted beside what the runs are expected to write
# left for each run: worth a word where nothing tells what they need; small models leave as much
LITTLE_BYTES = 20 * 2**20
SIBLINGS = 20  # at most this many finished runs are measured
MEASURED = "dry_run.json"  # the results of `dry-run`, beside the submissions of the sweep


class Finding(NamedTuple):
    """A sentence of one of the checks; where ``forbids`` is true, nothing is to be submitted."""

    check: str
    text: str
    forbids: bool = True

    def with_way_out(self) -> Finding:
        """The finding with the option that goes on all the same, where something is forbidden."""
        option = f"--ignore {self.check}"
        known = not self.forbids or option in self.text
        return self if known else self._replace(text=f"{self.text} ({option} goes on all the same)")


def known(names: Sequence[str]) -> Sequence[str]:
    """The names of checks; ValueError for one that is none."""
    for name in names:
        if name not in CHECKS:
            raise unknown("check", name, list(CHECKS))
    return names


def rehearsed(
    start: Sequence[Run], runs: Sequence[Run], states: Mapping[str, State], root: Path, site: Site
) -> list[Finding]:
    """The findings of the check ``build`` (see ``rehearse``)."""
    found = rehearse(start, runs, states, root, site)
    return [
        *(Finding("build", text) for text in found.problems),
        *(Finding("build", text, forbids=False) for text in found.notes),
    ]


def findings(
    plan: Plan,
    runs: Sequence[Run],
    root: Path,
    site: Site,
    test_only: Callable[[Path], None] | None,
    text: Callable[[str], str],
    ignored: Collection[str],
) -> list[Finding]:
    """Findings on what will make the plan's runs fail, and on what could not be looked at; empty where there are none.

    ``text(name of a chunk)`` is its sbatch text and ``test_only`` shows it to SLURM (None: there is no SLURM here).
    """
    wanted = {item.run_dir for item in plan.submit}
    chosen = [run for run in runs if run.run_dir in wanted]
    checks: dict[str, Callable[[], Iterable[str | Finding]]] = {
        "time": lambda: _too_short(plan, site),
        "data": lambda: _data(chosen, root, site),
        "folders": lambda: _folders(chosen, root),
        "disk": lambda: _disk(plan, chosen, runs, root),
    }
    said = [(name, item) for name, look in checks.items() if name not in ignored for item in look()]
    found = [item if isinstance(item, Finding) else Finding(name, item) for name, item in said]
    if test_only is not None and "opinion" not in ignored and not any(item.forbids for item in found):
        found += _opinions(plan, test_only, text)
    return found


def _too_short(plan: Plan, site: Site) -> list[str]:
    """Time limits that are within the warning.

    Such a job is warned as it starts, requeued, warned again, and gets nowhere.
    """
    asked = dict.fromkeys(time for chunk in plan.chunks if (time := chunk.resources.get("time")))
    return [
        f"time={time} is {seconds(time)} s, and jobs are warned signal_s={site.signal_s} s before their time limit: "
        "it must be longer than that; ask for more time, or set a smaller signal_s in the site's file"
        for time in asked
        if seconds(time) <= site.signal_s
    ]


def _data(runs: Iterable[Run], root: Path, site: Site) -> list[str]:
    """Data sets that are read from files and are not there."""
    needed: dict[tuple[str, ...], None] = {}
    for run in runs:
        config, place = run.experiment.config, data_place(run, site)
        data = config["data"]
        if place and is_on_disk(config) and not data.get("download"):  # without a place: known only inside the job
            files = (where.format(**data) for where in DATA[data["name"]].places)
            needed[data["name"], place, *files] = None
    absent = (
        f"data={name}: {place} holds no {name} (name the folder with --set data_dir=..., NUQ_DATA or the "
        f"site's environment)"
        for name, place, *files in needed
        if not any((root / place / file).exists() for file in files)
    )
    return list(dict.fromkeys(absent))


def _folders(runs: Sequence[Run], root: Path) -> list[str]:
    """Folders that cannot be written, among them other users' runs."""
    found = []
    for place in dict.fromkeys([root / "jobs", *(run.folder.path.parent for run in runs)]):
        nearest = next(path for path in (place, *place.parents) if path.exists())
        if not os.access(nearest, os.W_OK | os.X_OK):
            found.append(f"{nearest} cannot be written ({_owner(nearest)}): runs and job scripts are kept there")
    for run in runs:
        if run.folder.path.exists() and not os.access(run.folder.path, os.W_OK | os.X_OK):
            found.append(
                f"{run.run_dir} cannot be written ({_owner(run.folder.path)}): another user's run of the same "
                f"settings is there"
            )
    return found[:5] + ([f"... and {len(found) - 5} more such folders"] if len(found) > 5 else [])


def _owner(path: Path) -> str:
    try:
        return f"it belongs to {path.owner()}"
    except (KeyError, OSError):
        return "it belongs to somebody else"


def _disk(plan: Plan, chosen: Sequence[Run], runs: Sequence[Run], root: Path) -> list[Finding]:
    """A finding where there is too little space for what the runs will write.

    The estimate is what finished siblings wrote, of the same model where there are any, or the dry run.
    """
    place = next(path for path in (root / "runs", root) if path.exists())
    free = shutil.disk_usage(place).free
    sizes: dict[str, int] = {}
    finished = (run for run in runs if (run.folder.path / "checkpoint.pt").exists() and run.state().word == "done")
    for run in itertools.islice(finished, SIBLINGS):
        sizes[_model(run)] = max(sizes.get(_model(run), 0), _size(run.folder.path))
    by = "as finished siblings took"
    if not sizes and (measured := read_measured(root, plan.folder)):
        sizes, by = measured, "as the dry run measured"
    if not sizes:
        if free >= FREE_BYTES + LITTLE_BYTES * len(chosen):
            return []
        words = (
            f"{_gb(free)} left for {len(chosen)} runs; what they need is not known before one is done, or dry-run "
            f"has tried one"
        )
        return [Finding("disk", f"the disk of {place} has {words}", forbids=False)]
    most = max(sizes.values())
    need = FREE_BYTES + sum(sizes.get(_model(run), most) - _size(run.folder.path) for run in chosen)
    if free >= need:
        return []
    words = f"{_gb(free)} left, and {len(chosen)} runs of up to {_gb(most)} need {_gb(need)}, {by}"
    return [Finding("disk", f"the disk of {place} has {words}: make room, submit fewer, or --ignore disk")]


def _model(run: Run) -> str:
    return str(run.experiment.config["model"]["name"])


def _gb(size: int) -> str:
    return f"{size / 1e9:.2g} GB" if size < 1e10 else f"{size / 1e9:.0f} GB"


def _size(folder: Path) -> int:
    """The bytes of all files below a folder; files that come and go meanwhile count as nothing."""
    total = 0
    for path, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(path, name)).st_size
    return total


def read_measured(root: Path, folder: str) -> dict[str, int]:
    """The bytes of a run of each model, as ``dry-run`` measured; empty where it did not, or its file is damaged."""
    try:
        values = json.loads(plain.read_bytes(folder_of(root, folder) / MEASURED))
    except (OSError, ValueError, RecursionError):
        return {}
    values = values if isinstance(values, dict) else {}
    return {name: size for name, size in values.items() if isinstance(size, int) and 0 < size < 1 << 50}


def keep_measured(run: Run, size: int, root: Path) -> None:
    """Write down how many bytes a dry run of this run's model left."""
    place = folder_of(root, run.experiment.folder)
    place.mkdir(parents=True, exist_ok=True)
    write_text(place / MEASURED, json.dumps({**read_measured(root, run.experiment.folder), _model(run): size}))


def _opinions(plan: Plan, test_only: Callable[[Path], None], text: Callable[[str], str]) -> list[Finding]:
    """SLURM's opinion on one script of each resource shape, asked without running it.

    It says of nodes that are down or drained that there are none such; a job that waits for them is accepted all the
    same.
    """
    found = []
    shapes = {str(sorted(chunk.resources.items())): chunk for chunk in plan.chunks}
    with tempfile.TemporaryDirectory() as folder:
        for chunk in shapes.values():
            path = Path(folder) / f"{chunk.name}.sbatch"
            path.write_text(text(chunk.name))
            asked = Resources(**chunk.resources)
            if asked.time and (words := sbatch_command.too_long(asked.partition, seconds(asked.time))):
                found.append(Finding("opinion", words))
            try:
                test_only(path)
            except (sbatch_command.TooMany, Full):  # a matter of waiting, which submit tells
                continue
            except ValueError as error:
                words = " ".join(f"{name}={value}" for name, value in chunk.resources.items() if value is not None)
                said = f"{str(error).replace(str(path), 'a script of ' + chunk.name)} (asked for: {words})"
                off = (
                    sbatch_command.nodes_off(asked, plan.options["parallel"]) if sbatch_command.NO_NODES in said else ""
                )
                found.append(
                    Finding("opinion", f"{said}; {off}, for which it would wait" if off else said, forbids=not off)
                )
            except Unreachable as error:
                words = str(error).replace(str(path), f"a script of {chunk.name}")
                return [*found, Finding("opinion", f"SLURM was asked for its opinion and does not answer: {words}")]
    return found
