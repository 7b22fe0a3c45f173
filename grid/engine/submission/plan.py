"""The plan of a submission: the runs of a sweep, what each needs, and what would be done with them.

A plan is made of values alone, so that it can be shown, kept, and compared with the one that is made when it is
applied.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from files.aligned import some
from grid.engine.scripts import snapshot
from grid.engine.states.ledger import ANY_TEXT, RUN_PATH, Chunk, asked
from grid.engine.states.runs import Run
from grid.engine.states.state import State
from grid.engine.sweeps.experiments import Settings
from nuq.settings import named, setting
from settings.resources import Resources
from settings.sections import as_set, dotted

Item = TypeVar("Item")
# runs in these states are started; `retry` starts the failed ones
FRESH = {"new", "lost", "preempted", "checkpointed", "cancelled"}


@dataclass(frozen=True)
class Planned:
    """One run that a submission would hand over."""

    run_dir: str
    label: str
    word: str  # the word of its state
    resources: Mapping[str, Any]
    after: Sequence[str] = ()  # the run folders, planned too, that have to be done first


@dataclass(frozen=True)
class Cancelled:
    """A run in the queue whose experiment the sweep no longer has."""

    run_dir: str
    element: str  # SLURM's name of the array element
    alone: bool  # no other run of that script is wanted


def _asked_by_each(runs: Any) -> Any:
    for resources in named(runs).values():
        asked(resources)
    return runs


@dataclass(frozen=True)
class Essence:
    """The essence of a plan: it has to be the same when the plan is applied."""

    runs: Mapping[str, Mapping[str, Any]] = setting(
        dataclasses.MISSING, "resources by run folder", pattern=RUN_PATH, parse=_asked_by_each
    )
    cancel: Sequence[str] = setting(dataclasses.MISSING, "run folders", pattern=ANY_TEXT)
    code: str = setting(dataclasses.MISSING, "digest", pattern=ANY_TEXT)
    site: str = setting(dataclasses.MISSING, "digest", pattern=ANY_TEXT)
    files: Mapping[str, str] = setting({}, "marks of the code's files; older code kept none", pattern=ANY_TEXT)


@dataclass(frozen=True)
class Plan:
    """The actions of one submission; ``options`` are those of the command line that made it."""

    id: str
    title: str
    folder: str
    options: Mapping[str, Any]
    code: Mapping[str, Any]
    submit: Sequence[Planned]
    cancel: Sequence[Cancelled] = ()
    chunks: Sequence[Chunk] = ()
    site: str = ""  # a digest of the cluster's profile
    files: Mapping[str, str] = dataclasses.field(default_factory=dict)  # the files of the code, with their marks

    def essence(self) -> dict[str, Any]:
        """The essence of the plan as plain values."""
        made = Essence(
            {item.run_dir: item.resources for item in self.submit},
            sorted(item.run_dir for item in self.cancel),
            self.code.get("digest", ""),
            self.site,
            dict(self.files),
        )
        return dict(vars(made))


def differences(reviewed: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """The differences of a plan's essence from the reviewed one, in words; empty where there are none."""
    found = []
    if reviewed["code"] != now["code"]:
        names = snapshot.changed(reviewed["files"], now["files"]) if reviewed.get("files") else []
        found.append(f"the code has changed since{f' ({some(names)})' if names else ''}")
    if reviewed["site"] != now["site"]:
        found.append("the site's profile has changed since")
    for word, runs in (
        ("no longer to be submitted", [run for run in reviewed["runs"] if run not in now["runs"]]),
        ("new", [run for run in now["runs"] if run not in reviewed["runs"]]),
    ):
        if runs:
            found.append(f"{len(runs)} {word} ({some(_short(runs))})")
    both = [run for run in now["runs"] if run in reviewed["runs"] and reviewed["runs"][run] != now["runs"][run]]
    if both:
        found.append(f"other resources for {len(both)} ({some(_short(both))})")
    if reviewed["cancel"] != now["cancel"]:
        found.append(f"{len(now['cancel'])} to cancel, {len(reviewed['cancel'])} were")
    return found


def _short(runs: Sequence[str]) -> list[str]:
    return [Path(run).name for run in runs]


# --- arrays -------------------------------------------------------------------------------------------------------


def deal(items: Sequence[Item], num_shares: int) -> list[list[Item]]:
    """Shares of the items, dealt in turn: item i goes to share i modulo ``num_shares``."""
    return [list(items[index::num_shares]) for index in range(num_shares)]


def arrays(
    planned: Sequence[Planned],
    *,
    per_script: int = 1,
    cap: int | None = None,
    canary: bool = False,
    max_elements: int = 1000,
) -> list[Chunk]:
    """The array jobs of these runs: one per resource shape, cut into chunks of at most ``max_elements`` elements.

    With a canary, the first run of a shape is an array of its own and the rest waits for its success.  ``cap`` holds
    for everything together: it is shared out by size (a canary runs in the share of those that wait for it), and where
    there are more chunks than that, they queue up in ``cap`` lanes.

    Runs that wait for others of the plan are in arrays of their own, which start when those of the others have ended:
    each run then looks for itself whether what it waits for is done.
    """
    shapes: dict[tuple[int, str], list[Planned]] = {}
    stages: dict[str, int] = {}  # the number of runs that are waited for, one after another
    texts: dict[str, str] = {}  # written out once for thousands of runs
    for item in planned:
        key = repr(item.resources)
        if key not in texts:
            texts[key] = json.dumps(dict(item.resources), sort_keys=True)
        stages[item.run_dir] = max((stages[first] + 1 for first in item.after), default=0)
        shapes.setdefault((stages[item.run_dir], texts[key]), []).append(item)
    firsts = {item.run_dir: item.after for item in planned}
    chunks: list[Chunk] = []
    rest: list[int] = []  # positions of the chunks that share the cap
    for number, (_, runs) in enumerate(sorted(shapes.items(), key=lambda item: item[0][0])):
        first: list[tuple[str, str]] = []
        resources = dict(runs[0].resources)
        if canary and len(runs) > 1:
            alone = [[runs[0].run_dir]]
            chunks.append(Chunk(f"s{number}canary", resources, alone, after=_ends(alone, firsts, chunks)))
            first = [("afterok", chunks[-1].name)]
            runs = runs[1:]
        elements = deal([item.run_dir for item in runs], math.ceil(len(runs) / per_script))
        for part, share in enumerate(_cut(elements, max_elements)):
            rest.append(len(chunks))
            chunks.append(Chunk(f"s{number}c{part}", resources, share, after=[*first, *_ends(share, firsts, chunks)]))
    if cap is not None:
        places = rest if len(rest) <= cap else list(range(len(chunks)))
        for position, share, before in _caps([len(chunks[place].elements) for place in places], cap):
            chunk = chunks[places[position]]
            after = [*chunk.after, *([("afterany", chunks[places[before]].name)] if before is not None else [])]
            chunks[places[position]] = Chunk(chunk.name, chunk.resources, chunk.elements, share, after)
    return chunks


def _ends(
    elements: Sequence[Sequence[str]], firsts: Mapping[str, Sequence[str]], chunks: Sequence[Chunk]
) -> list[tuple[str, str]]:
    """The condition that the chunks have ended which hold what these elements' runs wait for."""
    wanted = {first for runs in elements for run in runs for first in firsts[run]}
    return [("afterany", chunk.name) for chunk in chunks if wanted and not wanted.isdisjoint(chunk.runs)]


def _cut(items: Sequence[Item], most: int) -> list[Sequence[Item]]:
    """The items in as few parts as possible, of nearly equal size, in order."""
    parts = math.ceil(len(items) / most)
    bounds = [round(len(items) * part / parts) for part in range(parts + 1)] if parts else []
    return [items[low:high] for low, high in itertools.pairwise(bounds)]


def _caps(sizes: Sequence[int], cap: int) -> list[tuple[int, int, int | None]]:
    """The division of the cap among chunks of these sizes.

    For each: position, its share of the cap, and the position that has to end first or None.
    """
    if len(sizes) > cap:
        return [(position, 1, position - cap if position >= cap else None) for position in range(len(sizes))]
    shares = [1] * len(sizes)
    for _ in range(cap - len(sizes) if sizes else 0):  # the next one to whom it brings the most
        needy = max(range(len(sizes)), key=lambda position: (sizes[position] / shares[position], -position))
        shares[needy] += 1
    return [(position, min(share, sizes[position]), None) for position, share in enumerate(shares)]


# --- what changed -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Moved:
    """Runs made under earlier defaults: the sweep means the same, ``name`` was ``old`` and is ``new``."""

    name: str
    old: Any
    new: Any
    runs: list[str]


def moved_defaults(runs: Sequence[Run], left: Mapping[str, Settings]) -> tuple[list[Moved], list[str]]:
    """The folders that belong to no experiment: those under other defaults, and those that left the sweep.

    ``left`` maps their names to their full configurations.  A folder counts as moved where all that the sweep itself
    sets for one of its experiments is as it was.
    """
    index: dict[tuple[str, ...], dict[str, Run]] = {}
    for run in runs if left else ():
        names = tuple(sorted(run.experiment.settings))
        index.setdefault(names, {})[_values(run.experiment.config, names)] = run
    groups: dict[tuple[str, str, str], Moved] = {}
    gone = []
    for name, config in left.items():
        found = next((table[key] for names, table in index.items() if (key := _values(config, names)) in table), None)
        if found is None:
            gone.append(name)
            continue
        for moved, old, new in _differing(config, found.experiment.config):
            groups.setdefault((moved, repr(old), repr(new)), Moved(moved, old, new, [])).runs.append(name)
    return sorted(groups.values(), key=lambda item: item.name), gone


ABSENT = "(no such setting)"


def _values(config: Mapping[str, Any], names: Sequence[str]) -> str:
    values = as_set(config)
    return json.dumps([values.get(name, ABSENT) for name in names])


def _differing(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    from settings import run_identity

    try:
        before = dotted(run_identity.result_settings(old))
    except KeyError:  # of a method, model or data set that is no more
        before = dotted(old)
    after = dotted(run_identity.result_settings(new))
    names = [*after, *(name for name in before if name not in after)]
    before, after = {**as_set(old), **dotted(old), **before}, {**dotted(new), **after}
    both = [(name, before.get(name, ABSENT), after.get(name, ABSENT)) for name in names]
    return [(name, was, now) for name, was, now in both if was != now]


# --- what is left to do -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Remaining:
    """The resources that the runs that have not ended will still take."""

    seconds: float  # the time of all runs, one after another
    gpu_hours: float
    num_guessed: int  # runs without a finished sibling: not counted above


def remaining(runs: Sequence[Run], states: Mapping[str, State], resources: Mapping[str, Resources]) -> Remaining:
    """The remaining time of the runs, learned from finished siblings.

    It is the median seconds a step of those of the same model, data set, workers and method.

    Where no sibling of the method is done, those of any method count; a run without any is left out and counted.
    """
    near: dict[tuple[Any, ...], list[float]] = {}
    for run in runs:
        state = states[run.run_dir]
        if state.word == "done" and state.steps and state.seconds > 0:
            for key in _kinds(run):
                near.setdefault(key, []).append(state.seconds / state.steps)
    seconds = gpu_hours = 0.0
    num_guessed = 0
    for run in runs:
        state = states[run.run_dir]
        if state.word in ("done", "failed", "diverged"):
            continue
        rate = next((statistics.median(near[key]) for key in _kinds(run) if key in near), None)
        if rate is None:
            num_guessed += 1
            continue
        left = rate * max(run.experiment.config["steps"] - state.step, 0)
        seconds += left
        gpu_hours += left / 3600 * _gpus(resources[run.run_dir])
    return Remaining(seconds, gpu_hours, num_guessed)


def _gpus(resources: Resources) -> float:
    """The GPUs of one experiment, over all its nodes."""
    return resources.nodes * (resources.ranks_per_node if resources.gpus is None else resources.gpus)


def _kinds(run: Run) -> list[tuple[Any, ...]]:
    """The settings that a run shares with its siblings, as keys, nearest first."""
    config = run.experiment.config
    task = (config["model"]["name"], config["data"]["name"], config["workers"], config["batch_size"])
    return [(*task, config["method"]["name"]), task]


def digest(values: Any) -> str:
    """Eight hexadecimal digits that identify plain values."""
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:8]
