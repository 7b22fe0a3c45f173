"""The run folders that are no longer part of a sweep: which they are, why, and how they are put away."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import itertools
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from files import plain
from grid.engine.states import evidence
from grid.engine.states.evidence import View
from grid.engine.states.run_files import RunFolder
from grid.engine.states.runs import RUNS, check_signed, left_over, named, other_seeds, others, read_config, runs_of
from grid.engine.states.state import State
from grid.engine.submission import planning
from grid.engine.submission.plan import moved_defaults
from grid.engine.sweeps.experiments import Experiment, Sweep
from grid.engine.sweeps.families import load
from nuq.settings import plugins
from settings import run_identity

ARCHIVE = Path(RUNS) / ".archive"  # a name with a dot: no command takes it for a sweep
EVALUATOR = "evaluator"  # the folder of a run that a process locks which evaluates the run
_DELETED = ".{}.deleted"  # the name of a run folder while it is being deleted


@dataclass(frozen=True)
class Left:
    """A run folder that no experiment of its sweep has."""

    run_dir: str  # as seen from the checkout
    state: State
    size_bytes: int
    why: str  # it is no longer part of the sweep
    alone: str  # why it is left alone; empty where it may be put away
    is_known: bool  # whether it is known that it is no longer part


def folders_left(
    sweep: Sweep, experiments: Sequence[Experiment], root: Path, *, any_seed: bool
) -> tuple[list[Left], View]:
    """The folders that ``unclaimed`` gives, and what is known of their runs.

    ValueError where it is not known which sweeps have runs in the folder.
    """
    folder = experiments[0].folder
    before = planning.reviewed(root, folder)
    if paths := unclaimed(sweep, experiments, root, any_seed=any_seed):
        check_signed(sweep, root)
    beside = other_seeds(sweep, experiments, root)
    run_dirs = [f"{RUNS}/{folder}/{path.name}" for path in paths]
    view = evidence.look(run_dirs, [folder], root, max_age_s=0)
    waiting = {
        run
        for item in view.submissions
        if before is not None and item.id == before.id
        for chunk in item.left
        for run in chunk.runs
    }
    reasons = _reasons([*experiments, *beside], paths, root)
    reasons |= {item.name: f"seed {item.seed} left the sweep" for item in beside}
    queued = {
        run for run, state in {**view.others, **view.states}.items() if not (state.word == "done" or state.may_start)
    }
    awaited = _awaited(queued | waiting, folder, root)
    found = []
    for path, run in zip(paths, run_dirs, strict=True):
        why, alone = reasons[path.name], _alone(path, run, view)
        if absent := _plugins_missing([path]):
            why, alone = f"not known without its plug-in {', '.join(absent)}", f"give {_imports(absent)}"
        if run in awaited:
            alone = alone or "a queued run waits for it"
        if run in waiting:
            alone = "the last plan still hands it over: submit"
        found.append(Left(run, view.states[run], _size_bytes(path), why, alone, is_known=not absent))
    return found, view


def unclaimed(sweep: Sweep, experiments: Sequence[Experiment], root: Path, *, any_seed: bool = True) -> list[Path]:
    """The folders in that of the sweep's runs which belong to no sweep.

    A folder belongs to one of ``experiments``, to the sweep with its own seeds, to the last plan, or to another sweep
    that was started in the same folder; to another sweep with any seed, to this one with any seed where ``any_seed``
    is true.  ValueError where one of them cannot be read.
    """
    folder = experiments[0].folder
    family = sweep.file or sweep.grid
    own = load(family, sweep.run_name)
    parts: list[tuple[Sweep, Sequence[Experiment]]] = [(sweep, experiments), (own, own.experiments())]
    names = of_others(sweep, root)
    if (before := planning.reviewed(root, folder)) is not None:
        of = before.options
        with _blamed(f"the last plan of {RUNS}/{folder} can no longer be made", "make the plan again"):
            made = named(of.file or of.grid, of.run_name, of.seeds, of.overrides)
        if before.is_of(family, sweep.run_name):
            parts.append(made)
        else:
            names |= _names(*made, root)
    for of, wanted in parts:
        names |= _names(of, wanted, root, any_seed=any_seed)
    return [path for path in left_over(experiments, root) if path.name not in names]


def of_others(sweep: Sweep, root: Path) -> set[str]:
    """The names of the runs, with any seed, of the other sweeps that were started in the sweep's folder.

    ValueError where one of them cannot be read.
    """
    names: set[str] = set()
    for line in others(sweep, root, with_gone=True):
        owner, _, run_name = line.rpartition(": ")
        remedy = f"if it is gone, take its line out of {RUNS}/{sweep.home}/.sweeps"
        with _blamed(f"{RUNS}/{sweep.home} is also the folder of {line}, which cannot be read", remedy):
            names |= _names(*named(str(root / owner) if owner.endswith(".py") else owner, run_name), root)
    return names


def _names(sweep: Sweep, experiments: Sequence[Experiment], root: Path, *, any_seed: bool = True) -> set[str]:
    """The names of the experiments, and where ``any_seed`` is true of those with other seeds that have run folders."""
    further = other_seeds(sweep, experiments, root) if any_seed else []
    return {item.name for item in [*experiments, *further]}


@contextlib.contextmanager
def plugins_told(folder: str, root: Path) -> Iterator[None]:
    """ValueErrors inside, with a sentence on the plug-ins that runs in the folder used and that are not imported."""
    try:
        yield
    except ValueError as error:
        absent = _plugins_missing([config.parent for config in (root / RUNS / folder).glob("[!.]*/config.yaml")])
        if not absent:
            raise
        used = f"runs in {RUNS}/{folder} used {', '.join(absent)}, not imported here"
        raise ValueError(f"{error}; {used}: give {_imports(absent)}") from error


def _plugins_missing(paths: Sequence[Path]) -> list[str]:
    """The plug-ins that runs name and that are not imported, as ``name==version``."""
    given = [(read_config(path) or {}).get("plugins") for path in paths]
    return plugins.missing(sorted({str(text) for texts in given if isinstance(texts, list) for text in texts}))


def _imports(texts: Sequence[str]) -> str:
    """The words that import plug-ins."""
    return " ".join(dict.fromkeys(f"{plugins.OPTION} {text.partition('==')[0]}" for text in texts))


@contextlib.contextmanager
def _blamed(what: str, remedy: str) -> Iterator[None]:
    """ValueErrors inside, as a sentence on why nothing can be pruned."""
    try:
        yield
    except (ValueError, OSError) as error:
        raise ValueError(f"{what} ({error}), so which runs have left is not known: {remedy}") from error


def _alone(path: Path, run: str, view: View) -> str:
    """The reason why a run folder must be left alone; empty where nothing in it can be alive."""
    state = view.states[run]
    if not run_identity.NAME.fullmatch(path.name):
        return "its name is not one that a sweep gives"
    if path.is_symlink():
        return "it is a link"
    if not (state.word == "done" or state.may_start):
        return f"it may be alive ({state.reason or state.word})"
    if state.element and any(
        other.element == state.element and other.word in ("pending", "running", "unknown")
        for other in [*view.states.values(), *view.others.values()]
    ):
        return f"its script {state.element} has other runs to do"
    with held(path) as is_free:
        return "" if is_free else "another process has it"


def _awaited(queued: Iterable[str], folder: str, root: Path) -> set[str]:
    """The runs of a folder that others wait for (``after``) or begin with, as the scripts of those say."""
    found: set[str] = set()
    for run in queued:
        with contextlib.suppress(OSError, plain.Unreadable):
            names = re.findall(rf"{RUNS}/{re.escape(folder)}/[\w.-]+", plain.read_text(RunFolder(root / run).script))
            found.update(name for name in names if name != run)
    return found


def _reasons(experiments: Sequence[Experiment], paths: Sequence[Path], root: Path) -> dict[str, str]:
    """The reasons why folders are no longer part of the sweep, by their names."""
    configs = {path.name: read_config(path) for path in paths}
    moved, gone = moved_defaults(
        runs_of(experiments, root), {name: config for name, config in configs.items() if config is not None}
    )
    found = {name: "its config.yaml cannot be read" for name, config in configs.items() if config is None}
    found |= dict.fromkeys(gone, "its settings left the sweep")
    changes: dict[str, list[str]] = {}
    for item in moved:
        for name in item.runs:
            changes.setdefault(name, []).append(f"{item.name} from {item.old} to {item.new}")
    found |= {name: f"defaults moved: {', '.join(words)}" for name, words in changes.items()}
    return {path.name: found.get(path.name, "it was named by older code") for path in paths}


def _size_bytes(folder: Path) -> int:
    """The bytes in a folder's files."""
    found = 0
    for place, _, files in os.walk(folder):
        for name in files:
            with contextlib.suppress(OSError):  # a file that vanishes meanwhile
                found += os.lstat(os.path.join(place, name)).st_size
    return found


@contextlib.contextmanager
def held(path: Path) -> Iterator[bool]:
    """Hold a run folder as main.py does, and yield whether nobody else has it, has started it, or evaluates it.

    Where the file system keeps no locks, nobody seems to have it, and the states alone tell.
    """
    with contextlib.ExitStack() as stack:
        for place in (path, path / EVALUATOR, RunFolder(path).log):
            try:
                lock = os.open(place, os.O_RDONLY | os.O_NONBLOCK)
            except OSError:
                continue
            stack.callback(os.close, lock)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
                return
            except OSError:
                pass
        yield True


# --- putting away -------------------------------------------------------------------------------------------------


def archive_of(items: Sequence[Left], folder: str, root: Path) -> Path:
    """The place for run folders in ARCHIVE: that of the sweep's ``folder``, or a numbered one beside it.

    It is the first that holds none of them yet, so that each is a sweep without doubles for ``analysis``.
    """
    further = (f"{folder}+{number}" for number in itertools.count(2))  # no sweep is named with a plus
    names = [Path(item.run_dir).name for item in items]
    places = (ARCHIVE / name for name in itertools.chain([folder], further))
    return next(place for place in places if not any((root / place / name).exists() for name in names))


def archive(items: Sequence[Left], place: Path, root: Path) -> list[Left]:
    """Move run folders to ``place``, under the names that they have; returns those that were moved."""
    return [item for item in items if _moved(root / item.run_dir, root / place / Path(item.run_dir).name)]


def delete(items: Sequence[Left], root: Path) -> list[Left]:
    """Delete run folders; returns those that were deleted.

    A folder is renamed first, so that no half of a run is ever taken for a run.
    """
    gone = []
    for item in items:
        path = root / item.run_dir
        place = path.with_name(_DELETED.format(path.name))
        if _moved(path, place):
            shutil.rmtree(place)
            gone.append(item)
    return gone


def half_deleted(folder: str, root: Path) -> list[Path]:
    """What interrupted deletions have left in a folder of runs."""
    return sorted((root / RUNS / folder).glob(_DELETED.format("*")))


def tidy(paths: Sequence[Path]) -> None:
    """Delete what ``half_deleted`` gave, before any further run of the same name is deleted."""
    for path in paths:
        shutil.rmtree(path)


def _moved(path: Path, place: Path) -> bool:
    """Rename a run folder, unless another process has taken it meanwhile; whether it was renamed."""
    with held(path) as is_free:
        if is_free:
            place.parent.mkdir(parents=True, exist_ok=True)
            try:
                os.rename(path, place)
            except OSError as error:
                if error.errno != errno.EXDEV:
                    raise
                raise ValueError(
                    f"{path} lies on another file system than {place.parent}: make that a link to a folder beside it"
                ) from error
        return is_free
