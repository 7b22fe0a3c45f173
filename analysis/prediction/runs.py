"""The time to a target that logged runs would take over other links, with other numbers of workers and other H.

A run of W steps to the target takes, with w workers and an exchange every H steps::

    W compute_s + updates of levels + W / H (codec_s + wire_s) + W latency_s

W is a multiple of H: a target that the runs reach within a round of H steps is reached at its end.

Computation, encoding, decoding and bytes are the run's own (``analysis.run_costs``); wire_s is that of the cost model
(``nuq.prediction.steps.Costs.wire``), in which the bandwidth and the latency are those asked about and the rates of the
processor at the network are the profile's; fragments of a model pay it one by one.  The last term is of the losses,
which the workers tell each other at every step.  Nothing overlaps; what ``exchange.overlap`` hides is not known.

The steps to the target are those of the runs with the asked H and number of workers.  Where there are none, they are
those of the runs with the nearest ones, which is an assumption: the loss differs.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

import args
from analysis import axes
from analysis.groups.aggregate import best, runs_to_use
from analysis.groups.seed_groups import SeedGroup, groups, of_the_method, seed_groups
from analysis.logs.load import Logs, load
from analysis.logs.parents import RUN
from analysis.run_costs import ALONE, KNOWN, POWER, RING, RunCosts, costs
from analysis.time_to_accuracy import LOSS, TAG, Target, first_at
from files.aligned import some
from nuq.prediction.rates import Profile
from nuq.prediction.steps import Costs, Network
from nuq.settings import declared
from settings.conditions import shown

WORKERS, EVERY, OVERLAP = "workers", "exchange.local_steps", "exchange.overlap"
BASELINES = ("bf16", "supersgd")  # the methods in full precision, the first of which a speed-up is over
ELSEWHERE = "*"  # marks a time whose steps are those of runs with another H or number of workers
NEEDED = ("comm/bytes", "time/step_s")
_OF_ROUNDS = [  # settings that runs with H = 1 do not read
    f"exchange.{name}"
    for name, one in declared(args.SECTIONS["exchange"]).items()
    if one.rule["read_if"] and one.rule["read_if"][0] in ("local_steps", "overlap")
]


@dataclass(frozen=True)
class Setup:
    """A number of workers, each with a link of so many bit/s to the others, and H, the steps of a round."""

    workers: int
    every: int
    bandwidth: float


@dataclass(frozen=True)
class Setups:
    """The numbers of workers, the H and the bandwidths that were asked about."""

    workers: Sequence[int]
    every: Sequence[int]
    bandwidths: Sequence[float]

    def __iter__(self) -> Iterator[Setup]:
        return itertools.starmap(Setup, itertools.product(self.workers, self.every, self.bandwidths))


@dataclass(frozen=True)
class Answer:
    """The time of a method to the target; seconds and steps are means over its runs, NaN unless all of them get there.

    of: the H and the number of workers of these runs.
    """

    seconds: float
    steps: float
    num_reached: int
    num_runs: int
    of: tuple[int, int]


@dataclass(frozen=True)
class Way:
    """A method with its settings, whatever H and the number of workers; runs: by these two."""

    seed_group: SeedGroup
    runs: Mapping[tuple[int, int], tuple[str, ...]]

    def nearest(self, setup: Setup) -> tuple[int, int]:
        """The H and the number of workers of the runs nearest to the asked ones, by ratio, H before workers."""
        every, workers = setup.every, setup.workers
        return min(self.runs, key=lambda has: (abs(math.log(has[0] / every)), abs(math.log(has[1] / workers))))


@dataclass(frozen=True)
class RunQuestion:
    """A question to runs: everything but the setup.

    tag: of the target, ``Vacc`` or ``Vloss``.  costs, steps, sent: of each run; steps to the target (NaN where it never
    gets there), and the bytes in ``comm/bytes`` up to it.  profile: latency, and the rates of a processor at its link.
    """

    ways: tuple[Way, ...]
    target: Target
    tag: str
    costs: Mapping[str, RunCosts]
    steps: Mapping[str, float]
    sent: Mapping[str, float]
    profile: Profile

    @property
    def workers(self) -> list[int]:
        """The numbers of workers that the runs have."""
        return sorted({workers for way in self.ways for _, workers in way.runs})

    @property
    def every(self) -> list[int]:
        """The H that the runs have."""
        return sorted({every for way in self.ways for every, _ in way.runs})

    @property
    def goal(self) -> str:
        """The target in words."""
        value = self.target.percent
        return f"a validation loss of {value:g}" if self.tag == LOSS else f"{value:.2f} % validation accuracy"

    def answer(self, way: Way, setup: Setup) -> Answer:
        """The time of one method to the target."""
        of = way.nearest(setup)
        steps = [self.steps[run] for run in way.runs[of]]
        seconds = [
            seconds_of(self.costs[run], step, self.sent[run], setup, self.profile)
            for run, step in zip(way.runs[of], steps, strict=True)
        ]
        return Answer(float(np.mean(seconds)), float(np.mean(steps)), int(np.isfinite(steps).sum()), len(steps), of)

    def exchanges(self, way: Way) -> bool:
        """Whether the workers of a method exchange anything: SGD has one, which the links do not matter to."""
        return any(self.costs[run].collective != ALONE for runs in way.runs.values() for run in runs)

    def is_dense(self, way: Way) -> bool:
        """Whether a method sends plain numbers, which a ring adds up: BF16 with entropy coding does not."""
        return all(self.costs[run].collective == RING for runs in way.runs.values() for run in runs)

    @property
    def baseline(self) -> str:
        """The first of BASELINES that the runs have, sent as plain numbers; empty where they have none."""
        there = [way.seed_group.method for way in self.ways if self.is_dense(way)]
        return next((name for name in BASELINES if name in there), "")

    def answers(self, setup: Setup) -> tuple[list[Answer], float]:
        """The times of all ways, and that of the baseline, the quickest of its settings (NaN for none)."""
        found = [self.answer(way, setup) for way in self.ways]
        own = [
            one.seconds
            for one, way in zip(found, self.ways, strict=True)
            if way.seed_group.method == self.baseline and self.is_dense(way)
        ]
        return found, min((seconds for seconds in own if math.isfinite(seconds)), default=math.nan)


def seconds_of(own: RunCosts, steps: float, sent: float, setup: Setup, profile: Profile) -> float:
    """The seconds of so many steps of a run, up to which ``comm/bytes`` is ``sent``, in whole rounds; NaN for NaN."""
    rounds = float(np.ceil(steps / setup.every))
    taken = rounds * setup.every
    computed = taken * own.compute_s + float(own.update_s(np.array([taken]))[0]) + rounds * own.codec_s(setup.workers)
    if own.collective == ALONE or not steps > 0:
        return computed
    parts = min(own.fragments, setup.every)
    size = own.copies(setup.workers) * sent * own.every / steps / parts  # of an exchange
    costs_of_link = Costs(profile, Network(setup.workers, setup.bandwidth))
    wire = costs_of_link.wire(size, 0.0, size, setup.workers - 1, own.rounds(setup.workers))
    return computed + rounds * parts * wire.seconds + taken * profile.latency_s


# --- reading ------------------------------------------------------------------------------------------------------


def read(folders: Sequence[Path]) -> Logs:
    """The runs in these folders: a sweep's, or runs of one sweep.

    FileNotFoundError for a folder that is none or has no runs, ValueError for runs of several sweeps.
    """
    for folder in folders:
        if not folder.is_dir():
            raise FileNotFoundError(f"no folder {str(folder)!r}: RUN is the folder of a run, or of a sweep")
    folders = [folder.resolve() for folder in folders]
    if len(folders) == 1 and not _is_run(folders[0]):
        logs = load(folders[0].parent, folders[0].name)
        if not len(logs.settings):
            raise FileNotFoundError(f"{str(folders[0])!r} has no runs: RUN is the folder of a run, or of a sweep")
        return logs
    if no_runs := [folder for folder in folders if not _is_run(folder)]:
        raise ValueError(f"{str(no_runs[0])!r}: of several RUN each is the folder of a run, with its config.yaml")
    if len(sweeps := dict.fromkeys(folder.parent for folder in folders)) > 1:
        raise ValueError(f"runs of {' and '.join(str(sweep) for sweep in [*sweeps][:2])}: must be of one sweep")
    (sweep,), names = sweeps, {folder.name for folder in folders}
    logs = load(sweep.parent, sweep.name).keep(names)
    return replace(logs, notes=tuple(told for told in logs.notes if told.partition(":")[0] in names))


def _is_run(folder: Path) -> bool:
    return (folder / "config.yaml").is_file()


def without_forks(logs: Logs) -> Logs:
    """The runs that are no forks, with a note where there are some; ValueError where all are.

    The steps of a fork to a target are its parent's and its own, each with other settings.
    """
    if RUN not in logs.settings:
        return logs
    whole = [str(run) for run, parent in logs.settings[RUN].items() if not isinstance(parent, str) or not parent]
    if not whole:
        raise ValueError("all of these runs are forks, whose steps to a target are not of one setting: give whole runs")
    if not (num_forks := len(logs.settings) - len(whole)):
        return logs
    told = "1 fork is left out: its" if num_forks == 1 else f"{num_forks} forks are left out: their"
    told += " steps to a target are not of one setting"
    return replace(logs.keep(whole), notes=(*logs.notes, told))


def question(logs: Logs, target: str | None, profile: Profile) -> RunQuestion:
    """The question to these runs; ValueError in one sentence where they cannot answer one.

    target: a validation accuracy in percent, or ``loss=`` with a validation loss; by default the accuracy that the
    least good run reaches.
    """
    settings = _comparable(logs)
    of_runs, ways = costs(logs), []
    for seed_group, parts in _joined(seed_groups(settings.drop(columns=[EVERY, WORKERS], errors="ignore"))):
        used = [run for part in parts for run in runs_to_use(logs, part)]
        _check(logs, used, of_runs)
        places: dict[tuple[int, int], list[str]] = {}
        for run in used:
            places.setdefault((of_runs[run].every, int(logs.settings.loc[run].to_dict()[WORKERS])), []).append(run)
        if places:
            label = _with_coding(_with_overlap(seed_group.label, settings.loc[used]), settings.loc[used])
            runs_of = {place: tuple(runs) for place, runs in places.items()}
            ways.append(Way(replace(seed_group, label=label), runs_of))
    runs = [*dict.fromkeys(run for way in ways for group in way.runs.values() for run in group)]
    tag, goal = _target(logs, runs, target)
    steps = {str(run): float(step) for run, step in first_at(logs, runs, goal.percent, "step", tag).items()}
    sent = {run: float(axes.positions(logs, "bytes", [run], [step]).iloc[0, 0]) for run, step in steps.items()}
    return RunQuestion(tuple(ways), goal, tag, of_runs, steps, sent, profile)


def _joined(found: Sequence[SeedGroup]) -> list[tuple[SeedGroup, list[SeedGroup]]]:
    """Each seed group with those whose runs are its own, too; only in settings of rounds do they differ.

    Runs with H = 1 read no such setting, and belong to every group of rounds that is like them in the others.
    """

    def others(one: SeedGroup) -> tuple[str, dict[str, str]]:
        return one.method, {name: shown(value) for name, value in one.differs.items() if name not in _OF_ROUNDS}

    in_rounds = [one for one in found if not one.differs.keys().isdisjoint(_OF_ROUNDS)]
    joined = []
    for one in found:
        alike = [other for other in found if others(other) == others(one)]
        if one in in_rounds:
            joined.append((one, [one, *(other for other in alike if other not in in_rounds)]))
        elif alike == [one]:
            joined.append((one, alike))
    return joined


def _with_overlap(label: str, settings: pd.DataFrame) -> str:
    """The label of runs with these settings; it names their overlap, which no prediction counts."""
    steps = max(settings[OVERLAP].dropna().tolist(), default=0) if OVERLAP in settings else 0
    return f"{label}, overlap {steps:g}" if steps > 0 and "overlap" not in label else label


def _with_coding(label: str, settings: pd.DataFrame) -> str:
    """The label of runs with these settings; for BF16 it names entropy coding, with which it is no plain sum."""
    rows = settings.to_dict("records")
    coded = all(row["method.name"] == "bf16" and row.get("method.coding") == "rans" for row in rows)
    return f"{label}, rANS" if coded and "rans" not in label else label


def _comparable(logs: Logs) -> pd.DataFrame:
    """The settings of the trained runs; ValueError where they have no accuracy in common."""
    trained = [group for group in groups(logs) if group.trajectory == "method"]
    if not trained:
        raise ValueError(f"sweep {logs.sweep!r} has no trained runs with settings and logs")
    differing = {name for group in trained for name in group.differs if name != WORKERS and not of_the_method(name)}
    if differing:
        have = {name: [shown(of.differs[name]) for of in trained if name in of.differs] for name in sorted(differing)}
        told = [f"{name}: {some([*dict.fromkeys(values)])}" for name, values in have.items()]
        raise ValueError(f"the runs have no accuracy in common ({'; '.join(told)}): keep one with --where")
    names = {run for group in trained for run in group.logs.settings.index}
    settings = logs.settings.loc[[run in names for run in logs.settings.index]].copy()
    settings[EVERY] = settings[EVERY].fillna(1) if EVERY in settings else 1
    for name in _OF_ROUNDS:
        if name in settings:
            settings[name] = settings[name].where(settings[EVERY] > 1)
    return settings


def _check(logs: Logs, runs: Sequence[str], of_runs: Mapping[str, RunCosts]) -> None:
    """Raise ValueError for a run without the logs that a prediction needs, or with a collective that it lacks."""
    for run in runs:
        for tag in NEEDED:
            if run not in logs.of_tag(tag).columns:
                needed = " and ".join(NEEDED)
                raise ValueError(f"run {run!r} has not logged {tag}; a prediction needs {needed} of each run")
        if run not in of_runs:
            raise ValueError(f"run {run!r} does not tell its number of workers, which a prediction needs")
        if (collective := of_runs[run].collective) not in (*KNOWN, RING, POWER, ALONE):
            legal = ", ".join(KNOWN)
            raise ValueError(f"run {run!r} has exchange.collective={collective}: must be one of {legal} (or auto) here")


def _target(logs: Logs, runs: Sequence[str], asked: str | None) -> tuple[str, Target]:
    if asked is None:
        reached = best(logs, TAG, list(runs))
        if not np.isfinite(reached).all():
            raise ValueError("not every run has logged a validation accuracy: give --target loss=VALUE")
        return TAG, Target(float(reached.min()), "what the least good run reaches")
    name, _, value = asked.rpartition("=")
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if name not in ("", "loss") or not math.isfinite(number) or not (name or 0 <= number <= 100):
        raise ValueError(f"--target {asked!r}: must be an accuracy of 0 to 100 percent, or a loss, as in loss=1.5")
    tag = LOSS if name else TAG
    if tag not in logs.tags:
        raise ValueError(f"--target {asked}: no run has logged {tag}")
    return tag, Target(number)
