"""What can be known to go wrong before anything is submitted: data, disk, permissions, and SLURM's own opinion."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import task_settings
from grid.engine import slurm
from grid.engine.plan import Plan
from grid.engine.rehearsal import data_place
from grid.engine.resources import Resources, seconds
from grid.engine.runs import Run
from grid.engine.site import Site

FREE_BYTES = 200 * 2**20  # beside what the runs are expected to write
RUN_BYTES = 20 * 2**20  # of a run without a finished sibling: checkpoint, log and events of the small models


def problems(
    plan: Plan, runs: Sequence[Run], root: Path, site: Site, test_only: Callable[[Path], None] | None, text: Callable[[str], str]
) -> list[str]:
    """One sentence for each thing that would make the plan's runs fail; empty where nothing is known to.

    ``text(name of a chunk)`` is its sbatch text and ``test_only`` shows it to SLURM (None: there is no SLURM here).
    """
    wanted = {item.run_dir for item in plan.submit}
    chosen = [run for run in runs if run.run_dir in wanted]
    found = [*_too_short(plan, site), *_data(chosen, root, site), *_folders(chosen, root), *_disk(chosen, runs, root)]
    if test_only is not None and not found:
        found += _opinions(plan, test_only, text)
    return found


def _too_short(plan: Plan, site: Site) -> list[str]:
    """Time limits within the warning: such a job is warned as it starts, requeued, warned again, and gets nowhere."""
    asked = dict.fromkeys(time for chunk in plan.chunks if (time := chunk.resources.get("time")))
    return [
        f"time={time} is {seconds(time)} s, and jobs are warned signal_s={site.signal_s} s before their time limit: it must be longer "
        "than that; ask for more time, or set a smaller signal_s in the site's file"
        for time in asked
        if seconds(time) <= site.signal_s
    ]


def _data(runs: Iterable[Run], root: Path, site: Site) -> list[str]:
    """Data sets that are read from files and are not there."""
    found: dict[str, str] = {}
    looked: set[tuple[str, str]] = set()
    for run in runs:
        config = run.experiment.config
        name = config["data"]["name"]
        if not issubclass(task_settings.DATA[name], task_settings.OnDisk) or config["stand_in"] or config["data"].get("download"):
            continue
        place = data_place(run, site)
        if not place or (name, place) in looked:  # known only inside the job, or asked before
            continue
        looked.add((name, place))
        folder = root / place
        if not folder.is_dir() or not any(_belongs(entry.name, name) for entry in folder.iterdir()):
            found[f"{name} {place}"] = (
                f"data={name}: {place} holds no {name} (name the folder with --set data_dir=..., NUQ_DATA or the site's environment)"
            )
    return list(found.values())


def _belongs(entry: str, name: str) -> bool:
    """Whether a file or folder of this name can be of the data set: cifar10, cifar-10-batches-py, CIFAR10.tar.gz, aclImdb."""
    return re.sub(r"[^a-z0-9]", "", entry.lower()).removeprefix("acl").startswith(name)


def _folders(runs: Sequence[Run], root: Path) -> list[str]:
    """Folders that cannot be written, among them other users' runs."""
    found = []
    for place in dict.fromkeys([root / "jobs", *(run.folder.path.parent for run in runs)]):
        nearest = next(path for path in (place, *place.parents) if path.exists())
        if not os.access(nearest, os.W_OK | os.X_OK):
            found.append(f"{nearest} cannot be written ({_owner(nearest)}): runs and job scripts are kept there")
    for run in runs:
        if run.folder.path.exists() and not os.access(run.folder.path, os.W_OK | os.X_OK):
            found.append(f"{run.run_dir} cannot be written ({_owner(run.folder.path)}): another user's run of the same settings is there")
    return found[:5] + ([f"... and {len(found) - 5} more such folders"] if len(found) > 5 else [])


def _owner(path: Path) -> str:
    try:
        return f"it belongs to {path.owner()}"
    except (KeyError, OSError):
        return "it belongs to somebody else"


def _disk(chosen: Sequence[Run], runs: Sequence[Run], root: Path) -> list[str]:
    """Too little space for what the runs will write, as their finished siblings did."""
    sizes = [_size(run.folder.path) for run in runs if (run.folder.path / "checkpoint.pt").exists()][:20]
    each = max(sizes, default=RUN_BYTES)
    need = FREE_BYTES + each * len(chosen)
    usage = shutil.disk_usage(next(path for path in (root / "runs", root) if path.exists()))
    if usage.free < need:
        gb = 2**30
        return [
            f"the disk of {root / 'runs'} has {usage.free / gb:.1f} GB left, and {len(chosen)} runs of about {each / gb:.2f} GB need "
            f"{need / gb:.1f} GB: make room, or submit fewer"
        ]
    return []


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir() if path.is_file())


def _opinions(plan: Plan, test_only: Callable[[Path], None], text: Callable[[str], str]) -> list[str]:
    """What SLURM says to one array of each resource shape, without running it."""
    found = []
    shapes = {str(sorted(chunk.resources.items())): chunk for chunk in plan.chunks}
    with tempfile.TemporaryDirectory() as folder:
        for chunk in shapes.values():
            path = Path(folder) / f"{chunk.name}.sbatch"
            path.write_text(text(chunk.name))
            asked = Resources(**chunk.resources)
            if asked.time and (words := slurm.too_long(asked.partition, seconds(asked.time))):
                found.append(words)
            try:
                test_only(path)
            except ValueError as error:
                words = " ".join(f"{name}={value}" for name, value in chunk.resources.items() if value is not None)
                found.append(f"{str(error).replace(str(path), 'a script of ' + chunk.name)} (asked for: {words})")
            except slurm.Unreachable as error:
                return [*found, f"SLURM was asked for its opinion and does not answer: {error}"]
    return found
