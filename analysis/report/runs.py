"""The facts that the report tells of each run: state, settings where runs differ, results; and why runs failed.

States come from the runs' own files alone: no scheduler is asked, so a report can be made on any machine.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from analysis.logs.load import Logs
from analysis.results import of_runs
from grid.engine.states import triage
from grid.engine.states.judge import Record, judge
from grid.engine.states.run_files import RunFolder
from grid.engine.states.state import State
from settings.conditions import shown

_ENDED_BADLY = ("failed", "diverged", "lost", "cancelled", "preempted", "checkpointed")
_NO_SETTINGS = ("run_dir", "data_dir")  # they say where things are, not how a run was set


@dataclass(frozen=True)
class Runs:
    """Every run of a sweep at one moment: its status.json, the state that follows, the failures by class."""

    records: Mapping[str, Record]
    states: Mapping[str, State]
    failures: tuple[triage.Group, ...]

    def counts(self) -> dict[str, int]:
        """The number of runs in each state, the most frequent first."""
        return _counted(self.states)

    def record(self, run: str) -> Mapping[str, Any]:
        """The values of a run's status.json; none where it is missing or damaged."""
        found = self.records[run]
        return found if isinstance(found, Mapping) else {}


def of(logs: Logs, now: float | None = None) -> Runs:
    """The runs of loaded logs, from their folders; ``now`` in seconds since 1970."""
    now = time.time() if now is None else now
    folders = {str(run): RunFolder(logs.folder / str(run)) for run in logs.settings.index}
    records = {run: _record(folder) for run, folder in folders.items()}
    states = _states(logs, records, now)
    failures = [triage.classify(folders[run], state) for run, state in states.items() if state.word in _ENDED_BADLY]
    return Runs(records, states, tuple(triage.groups(failures)))


def _record(folder: RunFolder) -> Record:
    try:
        return folder.record()
    except NotADirectoryError:  # a run that went while we looked
        return None


def _states(logs: Logs, records: Mapping[str, Record], now: float) -> dict[str, State]:
    """The states of all runs; without status.json (other programs) the logs tell whether the last step was reached."""
    of_logs = {str(run): values for run, values in logs.status.to_dict("index").items()}
    return {
        run: _by_logs(of_logs[run]) if record is None else judge(record, None, None, None, now)
        for run, record in records.items()
    }


def _by_logs(status: Mapping[Hashable, Any]) -> State:
    step, steps, seconds = (
        0.0 if np.isnan(value := float(status[name])) else value for name in ("step", "steps", "seconds")
    )
    found = State("new", step=int(step), steps=int(steps), seconds=seconds)
    if bool(status["complete"]):
        return replace(found, word="done", reason="it has logged its last step; there is no status.json")
    return replace(found, word="unknown", reason="there is no status.json") if bool(status["logged"]) else found


def counts(logs: Logs, now: float | None = None) -> dict[str, int]:
    """The number of runs in each state, without looking into failures."""
    records = {str(run): _record(RunFolder(logs.folder / str(run))) for run in logs.settings.index}
    return _counted(_states(logs, records, time.time() if now is None else now))


def _counted(states: Mapping[str, State]) -> dict[str, int]:
    return dict(Counter(state.word for state in states.values()).most_common())


# --- settings -----------------------------------------------------------------------------------------------------


def differing(settings: pd.DataFrame) -> tuple[list[str], list[str]]:
    """The names of the settings of several values: those that a method alone does not explain, and those it does."""
    names = [str(name) for name in settings.columns if name not in (*_NO_SETTINGS, "method.name", "seed")]
    texts = {name: settings[name].dropna().map(shown) for name in names}
    varying = [name for name in names if len(texts[name].unique()) > 1]
    by_method = settings["method.name"].map(str)
    own = [name for name in varying if int(texts[name].groupby(by_method).nunique().to_numpy().max()) == 1]
    several = [name for name in ("method.name", "seed") if len(settings[name].dropna().unique()) > 1]
    return [*several, *(name for name in varying if name not in own)], own


def shared(settings: pd.DataFrame) -> dict[str, str]:
    """The settings with one value, which every run that reads them has."""
    found = {}
    for name in settings.columns:
        values = settings[name].dropna().map(shown).unique()
        if len(values) == 1 and name not in _NO_SETTINGS:
            found[str(name)] = str(values[0])
    return dict(sorted(found.items()))


# --- results ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Result:
    """A column of the run table: one of ``results.of_runs``, its heading, name in conditions, and digits."""

    of: str
    heading: str
    name: str
    digits: int


RESULTS = (
    Result("final", "final acc. %", "final_accuracy", 2),
    Result("best", "best acc. %", "best_accuracy", 2),
    Result("correlation", "correlation", "correlation", 4),
    Result("loss", "val. loss", "validation_loss", 4),
    Result("bits", "bits", "bits_per_coordinate", 3),
    Result("ratio", "ratio", "compression_ratio", 2),
    Result("sent_mb", "MB sent", "MB_sent", 2),
    Result("variance", "rel. variance", "relative_variance", 3),
    Result("variance_low", "from", "relative_variance_from", 3),
    Result("variance_high", "to", "relative_variance_to", 3),
    Result("seconds", "seconds", "seconds", 1),
)


def results(logs: Logs) -> pd.DataFrame:
    """The quantities of RESULTS that any run has; NaN where one has not."""
    found = of_runs(logs)
    found = found.where(np.isfinite(found.astype(float)))
    there = [result.of for result in RESULTS if found[result.of].notna().to_numpy().any()]
    return found.loc[:, there]
