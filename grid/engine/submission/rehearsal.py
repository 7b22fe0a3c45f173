"""Checks before anything is queued or started.

Each combination of model, data and method is built once, and the data have to be those of earlier runs.

``train.rehearsal`` knows how things are built and data read.  A process of its own runs it, for nothing here imports
torch.  A checkout without it rehearses nothing.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from files.aligned import some
from grid.engine.slurm.site import Site
from grid.engine.states.record_values import data_told
from grid.engine.states.runs import Run
from grid.engine.states.state import State
from settings.data import is_on_disk

LIMIT_S = 60.0  # the limit for all combinations; one takes some .1 s, importing torch 2 s
FEW = 3  # at most this many labels stand for all
MODULE = Path("train") / "rehearsal.py"
Config = Mapping[str, Any]


@dataclass(frozen=True)
class Rehearsal:
    """The reasons why runs would not start, or would not mean what the others mean, and what could not be looked at."""

    problems: Sequence[str] = ()
    notes: Sequence[str] = ()


def rehearse(
    start: Sequence[Run], runs: Sequence[Run], states: Mapping[str, State], root: Path, site: Site | None = None
) -> Rehearsal:
    """The reasons against starting these runs, found in a process of its own.

    start: those of ``runs`` that are to be started; states: of all, by run folder.
    """
    if not (root / MODULE).exists():
        return Rehearsal()
    left = _left_without_a_checkpoint(start, runs, states)
    places = {run.run_dir: data_place(run, site or Site()) for run in runs}
    combinations: dict[str, list[Run]] = {}
    for run in start:
        combinations.setdefault(_combination(run), []).append(run)
    earlier: dict[str, list[Run]] = {}  # runs that have made steps on data of files
    for run in runs:
        state = states[run.run_dir]
        if (
            state.data
            and (state.word == "done" or state.step)
            and is_on_disk(run.experiment.config)
            and places[run.run_dir]
        ):
            earlier.setdefault(_data(run.experiment.config, places[run.run_dir]), []).append(run)
    if not combinations and not earlier:
        return Rehearsal()
    parts = [f"building {_number(len(combinations), 'combination')} of model, data and method"] if combinations else []
    parts += [f"reading {_number(len(earlier), 'data set')} that runs were made on"] if earlier else []
    print(f"first {', '.join(parts)}: this takes some seconds", flush=True)
    try:
        answer = _ask(
            [found[0] for found in combinations.values()], [found[0] for found in earlier.values()], places, root
        )
    except _Silent as error:
        return Rehearsal(left, [f"nothing was built beforehand, nor were the data looked at: {error}"])
    refused: dict[str, list[Run]] = {}
    for why, found in zip(answer["refused"], combinations.values(), strict=True):
        if why:
            refused.setdefault(why, []).extend(found)
    problems = [
        *left,
        *(f"{_some(found)} would end before the first step: {why}" for why, found in refused.items()),
    ]
    for here, found in zip(answer["data"], earlier.values(), strict=True):
        problems += _of_other_data(data_told(here), found, states, places)
    untried = sum(why is None for why in answer["refused"])
    few = (
        f"{untried} of {len(combinations)} combinations of model, data and method were not built beforehand: that "
        f"takes {LIMIT_S:.0f} s"
    )
    return Rehearsal(problems, [few] if untried else [])


def data_place(run: Run, site: Site) -> str:
    """The folder in which the data sets of a run lie, as the run will see it; empty where only the job knows."""
    given, config = dict(site.environment).get("NUQ_DATA"), run.experiment.config
    place = config["data_dir"] if "data_dir" in run.experiment.settings or given is None else os.path.expandvars(given)
    return "" if "$" in place else place


def mixed(runs: Iterable[Run], states: Mapping[str, State]) -> list[str]:
    """A sentence for each data set of which these runs have seen several versions."""
    seen: dict[str, dict[str, int]] = {}
    for run in runs:
        if which := states[run.run_dir].data:
            counts = seen.setdefault(_data(run.experiment.config, ""), {})
            counts[which] = counts.get(which, 0) + 1
    return [
        f"not comparable: {json.loads(key)[0]['name']} was not the same for all: "
        + ", ".join(f"{count} run{'s' * (count > 1)} on {which}" for which, count in counts.items())
        for key, counts in seen.items()
        if len(counts) > 1
    ]


def _left_without_a_checkpoint(start: Sequence[Run], runs: Sequence[Run], states: Mapping[str, State]) -> list[str]:
    """Sentences on forks that leave runs at a step of which these, done before they had forks, keep no checkpoint."""
    known = {run.run_dir: run for run in runs}
    found: dict[int, list[tuple[Run, Run]]] = {}  # by step, the fork and what it leaves
    for fork in start:
        folder, at = (fork.experiment.config["fork"][name] for name in ("run", "at"))
        if (left := known.get(folder)) is None or states[folder].word != "done":
            continue
        if at != left.experiment.config["steps"] and not (left.folder.path / f"checkpoint-{at}.pt").exists():
            found.setdefault(at, []).append((fork, left))
    return [
        f"{_some([fork for fork, _ in pairs])} would find no checkpoint of step {at}, as what they leave is done and "
        f"ran without checkpoint_at=[{at}]: move these run folders away to make them anew "
        f"({some([*dict.fromkeys(left.run_dir for _, left in pairs)])})"
        for at, pairs in found.items()
    ]


def _of_other_data(here: str, runs: Sequence[Run], states: Mapping[str, State], places: Mapping[str, str]) -> list[str]:
    """Sentences on runs that were made on other data than lie here; none where no data lie here."""
    others: dict[str, list[Run]] = {}
    for run in runs:
        if here and states[run.run_dir].data != here:
            others.setdefault(states[run.run_dir].data, []).append(run)
    way_out = (
        "name the folder that they were made on (--set data_dir=..., NUQ_DATA), or move their run folders away to "
        "make them anew"
    )
    return [
        f"{_some(found)} made steps on other data: data={found[0].experiment.config['data']['name']} had the "
        f"fingerprint {which}, and in {places[found[0].run_dir]} lies {here}: {way_out}"
        for which, found in others.items()
    ]


def _some(runs: Sequence[Run]) -> str:
    labels = list(dict.fromkeys(run.experiment.label for run in runs))
    return f"{len(runs)} run{'s' * (len(runs) > 1)} ({', '.join(labels[:FEW])}{', ...' * (len(labels) > FEW)})"


def _number(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number > 1)}"


def _data(config: Config, place: str) -> str:
    """A key of what decides which data set a run sees: runs that differ in it cannot be compared."""
    return json.dumps([config["data"], config["stand_in"], place], sort_keys=True)


def _combination(run: Run) -> str:
    """A key of the settings that can decide about shapes, among those that the sweep sets.

    It has all settings of data and model, and of the others the words; rates, bits and seeds decide about no shape, nor
    do the weights of a run that waits for others, which may be still to come.
    """
    settings = dict(run.experiment.settings)
    if run.after:
        settings.pop("model.weights_file", None)
        settings.pop("fork.run", None)
    return repr(
        [
            (name, value)
            for name, value in settings.items()
            if name.startswith(("data", "model")) or type(value) not in (int, float)
        ]
    )


def _without_weights(run: Run) -> Config:
    """The configuration of a run; one that waits for others may have its weights of them, which are still to come."""
    config = run.experiment.config
    return {**config, "model": {**config["model"], "weights_file": ""}} if run.after else config


# --- the other process --------------------------------------------------------------------------------------------


class _Silent(Exception):
    """The error that the other process gave no answer, in words."""


def _ask(build: Sequence[Run], look_at: Sequence[Run], places: Mapping[str, str], root: Path) -> dict[str, list[Any]]:
    def configs(runs: Sequence[Run]) -> list[dict[str, Any]]:
        return [{**_without_weights(run), "data_dir": places[run.run_dir]} for run in runs]

    request = {"build": configs(build), "data": configs(look_at), "limit_s": LIMIT_S}
    command = [os.environ.get("NUQ_PYTHON", sys.executable), "-m", ".".join(MODULE.with_suffix("").parts)]
    try:
        done = subprocess.run(
            command, cwd=root, input=json.dumps(request), capture_output=True, text=True, errors="replace", check=False
        )
        if done.returncode == 0:
            return json.loads(done.stdout)
    except (OSError, ValueError) as error:
        raise _Silent(str(error)) from error
    raise _Silent((done.stderr.strip().splitlines() or ["the process that was to do it ended without a word"])[-1])
