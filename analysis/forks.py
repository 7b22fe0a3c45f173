"""Branches: forks beside the runs that they left, on the same minibatches, so that they are compared seed by seed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.special import stdtrit

from analysis.groups.aggregate import CONFIDENCE, runs_to_use, wide
from analysis.groups.seed_groups import SeedGroup, begun, groups
from analysis.logs.load import Logs, number
from analysis.logs.parents import AT, RUN
from analysis.tables.paired import Difference, difference


@dataclass(frozen=True)
class Branch:
    """A seed group of forks, and the runs that they left.

    ours, theirs: values of one tag, steps down, forks across, at the steps after ``at`` that all have.  num_forks: with
    those that are left out, because they have not finished where others have, or have no such values in both runs.
    """

    seed_group: SeedGroup
    at: int
    num_forks: int
    parents: tuple[str, ...]
    ours: pd.DataFrame
    theirs: pd.DataFrame

    @property
    def final(self) -> Difference:
        """Fork minus parent at the last common step: the mean over seeds, with its paired 95 % interval."""
        return difference(self.ours.iloc[-1].to_numpy(), self.theirs.iloc[-1].to_numpy())

    @property
    def unpaired_half_width(self) -> float:
        """The half-width of that interval, had forks and parents other seeds (Welch); NaN for fewer than two."""
        return welch(self.ours.iloc[-1].to_numpy(float), self.theirs.iloc[-1].to_numpy(float))


def welch(ours: np.ndarray, theirs: np.ndarray) -> float:
    """The half-width of the 95 % interval of the difference of two means (Welch, 1947); NaN for fewer than two each."""
    if min(len(ours), len(theirs)) < 2:
        return np.nan
    parts = np.array([values.var(ddof=1) / len(values) for values in (ours, theirs)])
    if not parts.sum():
        return 0.0
    freedom = parts.sum() ** 2 / (parts**2 / (np.array([len(ours), len(theirs)]) - 1)).sum()
    return float(stdtrit(freedom, (1 + CONFIDENCE) / 2) * np.sqrt(parts.sum()))


def branches(logs: Logs, seed_groups: tuple[SeedGroup, ...], tag: str) -> list[Branch] | str:
    """The forks among seed groups whose parents are among these logs; a sentence where there are none."""
    settings = logs.settings
    if RUN not in settings:
        return "no run is a fork of another"
    found = []
    for seed_group in seed_groups:
        parents = {run: Path(str(settings[RUN][run])).name for run in runs_to_use(logs, seed_group)}
        runs = [run for run, parent in parents.items() if parent in settings.index]
        if not runs or not (at := int(number(settings[AT].to_dict()[runs[0]]))):
            continue
        ours, theirs = (wide(logs, tag, names) for names in (runs, [parents[run] for run in runs]))
        theirs.columns = ours.columns
        steps = [step for step in ours.index.intersection(theirs.index) if step > at]
        there = ours.loc[steps].notna() & theirs.loc[steps].notna()
        runs = [run for run in runs if there[run].any()]
        both = there.index[there[runs].all(axis=1)]
        if runs and len(both):
            at_both = (ours.loc[both, runs], theirs.loc[both, runs])
            found.append(Branch(seed_group, at, len(seed_group.runs), tuple(parents[run] for run in runs), *at_both))
    return found or f"no fork has {tag} at a step at which the run that it left has it, too"


def with_left(chosen: Logs, every: Logs) -> Logs:
    """The chosen ones of some runs, and those that their forks left, which are compared with them."""
    if RUN not in chosen.settings:
        return chosen
    parents = {Path(str(folder)).name for folder in chosen.settings[RUN].dropna()}
    names = [run for run in every.settings.index if run in parents or run in chosen.settings.index]
    return replace(every.keep(names), notes=chosen.notes)


def unfinished(logs: Logs) -> list[str]:
    """A sentence for each seed group of forks on those that have not finished: seed, state and step.

    Forks that failed before they logged anything, in settings that no other run has, are told by their methods.
    """
    if RUN not in logs.settings:
        return []
    in_figures = [(each.label, each.runs) for group in groups(logs) for each in group.seed_groups]
    others = logs.settings.drop(begun(logs).settings.index)
    told = []
    for label, names in [*in_figures, *others.groupby("method.name").groups.items()]:
        runs = [run for run in names if isinstance(logs.settings[RUN][run], str)]
        status = logs.status.loc[runs].fillna({"step": 0}).assign(seed=logs.settings.loc[runs, "seed"])
        ends = [
            f"seed {row['seed']:g} ({row['state'] or 'unknown'} at step {row['step']:g} of {row['steps']:g})"
            for row in status.to_dict("records")
            if not row["complete"]
        ]
        if ends:
            told.append(f"{label}: not finished: {', '.join(ends)}")
    return told
