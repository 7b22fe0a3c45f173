"""The differences of two runs: their settings, code, versions and machines; and their results side by side."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from files.plain import Unreadable, read_yaml
from grid.engine.states.record_values import data_told, number
from grid.engine.states.run_files import RunFolder
from grid.engine.states.state import Damaged
from settings.sections import as_set

ABSENT = "(no such setting)"
RESULTS = {"loss": "loss", "Vloss": "Vloss", "Vacc": "Vacc", "bits per coordinate": "comm/bits_per_coordinate"}
Facts = Mapping[str, Mapping[str, Any]]  # section -> name -> value


@dataclass(frozen=True)
class Comparison:
    """What two runs have that differs, by section and name, and the results of both."""

    different: Mapping[str, Mapping[str, tuple[Any, Any]]]
    results: Mapping[str, tuple[Any, Any]]


def compare(first: Path, second: Path) -> Comparison:
    """The comparison of the runs in two folders; ValueError where one holds no run, or they are one."""
    folders = [first, second]
    for folder in folders:
        _check(folder)
    if first.resolve() == second.resolve():
        raise ValueError(f"RUN {first} and {second}: both are the same folder; give two runs")
    one, two = (_facts(folder) for folder in folders)
    missing = {"settings": ABSENT}
    different = {
        section: {
            name: pair
            for name in sorted({**one[section], **two[section]})
            if (pair := tuple(facts[section].get(name, missing.get(section)) for facts in (one, two)))[0] != pair[1]
        }
        for section in one
        if section != "results"
    }
    return Comparison(different, {name: (value, two["results"][name]) for name, value in one["results"].items()})


def _check(folder: Path) -> None:
    """Raise ValueError where there is no run in the folder."""
    if not folder.is_dir():
        beside = [path.name for path in folder.parent.iterdir()] if folder.parent.is_dir() else []
        near = difflib.get_close_matches(folder.name, beside, n=1)
        hint = f"; did you mean {folder.parent / near[0]}?" if near else ""
        raise ValueError(f"RUN {folder}: no such folder{hint} (a run is named by its folder, runs/SWEEP/NAME)")
    if not (RunFolder(folder).config.exists() or RunFolder(folder).status.exists()):
        raise ValueError(
            f"RUN {folder}: holds no run, for it has neither config.yaml nor status.json (a run is named by its "
            f"folder, runs/SWEEP/NAME)"
        )


def _facts(folder: Path) -> Facts:
    """What a run folder tells, by section; ValueError where a file of it cannot be read."""
    run = RunFolder(folder)
    try:
        config = read_yaml(run.config)
    except FileNotFoundError:
        config = {}
    except Unreadable as error:
        raise ValueError(f"{run.config} {error}") from error
    if not isinstance(config, Mapping):
        raise ValueError(f"{run.config} holds no settings")
    record = run.record()
    if isinstance(record, Damaged):
        raise ValueError(f"{folder}: {record.reason}")
    record = record or {}
    machine, metrics = _mapping(record.get("machine")), _mapping(record.get("metrics"))
    commit = str(machine.get("commit") or "")[:12]
    state = run.state()
    return {
        "settings": {name: value for name, value in as_set(config).items() if name != "run_dir"},
        "code": _recorded({
            "commit": f"{commit} with changes" if commit and machine.get("dirty") else commit,
            "snapshot": str(record.get("code") or "")[:12],
        }),
        "versions": _recorded({"Python": machine.get("python"), "PyTorch": machine.get("torch")}),
        "machine": _recorded({
            "host": record.get("host"),
            "device": record.get("device"),
            "CPU": machine.get("cpu"),
            "cores": machine.get("cores"),
            "threads": record.get("threads"),
            "GPU": (machine.get("gpu") or "none") if machine else "",
            "data": data_told(record.get("data")),
        }),
        "results": {
            "state": state.word,
            "step": state.step,
            **{name: number(metrics[tag]) if tag in metrics else None for name, tag in RESULTS.items()},
            "seconds": round(state.seconds, 1),
        },
    }  # fmt: skip


def _recorded(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values that a run did record."""
    return {name: value for name, value in values.items() if value not in (None, "")}


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
