"""The runs of a sweep as tables: what they logged, how they were set, how they ended."""

from __future__ import annotations

import dataclasses
import difflib
import functools
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml

import args
from analysis import events

_YAML = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_ATTEMPT = re.compile(r"\.a(\d+)$")


@dataclass(frozen=True)
class Logs:
    """A sweep, read.

    ``scalars``: run, tag (both categorical), step, wall_time, value; one row per run, tag and step, in step order.
    ``settings``: one row per run, one column per setting, dotted names (``method.bits``); NaN where a run does not read it.
    ``status``: one row per run: state, step, steps, seconds, complete, logged.
    ``notes``: what the reader should know (damage, runs without logs), a sentence each.
    """

    sweep: str
    scalars: pd.DataFrame
    settings: pd.DataFrame
    status: pd.DataFrame
    notes: tuple[str, ...]

    @functools.cached_property
    def _tables(self) -> dict[str, pd.DataFrame]:
        return {}

    def of_tag(self, tag: str) -> pd.DataFrame:
        """One tag: steps down, runs across (those that logged it); non-finite values are absent.  Kept for the next call."""
        if tag not in self._tables:
            scalars = self.scalars
            known = tag in scalars["tag"].cat.categories
            rows = scalars[(scalars["tag"] == tag) & np.isfinite(scalars["value"])] if known else scalars.iloc[:0]
            rows = rows.assign(run=rows["run"].astype(object))
            self._tables[tag] = rows.pivot(index="step", columns="run", values="value")
        return self._tables[tag]

    def keep(self, runs: Iterable[str]) -> Logs:
        """Only these runs."""
        wanted = set(runs)
        kept = [run for run in self.settings.index if run in wanted]
        scalars = self.scalars.loc[self.scalars["run"].isin(kept)]
        return replace(self, scalars=scalars, settings=self.settings.loc[kept], status=self.status.loc[kept])

    def joined(self, *names: str) -> pd.DataFrame:
        """``scalars`` with these settings as columns."""
        return self.scalars.merge(self.settings[list(names)], left_on="run", right_index=True)


def sweeps(runs: Path) -> list[str]:
    """The sweeps under a folder of runs."""
    return sorted(path.name for path in runs.iterdir() if path.is_dir()) if runs.is_dir() else []


def load(runs: Path, sweep: str) -> Logs:
    """All runs of ``runs/<sweep>``; FileNotFoundError with the sweeps there are where that folder does not exist."""
    folder = runs / sweep
    if not sweep or not folder.is_dir():
        found = sweeps(runs)
        near = difflib.get_close_matches(sweep, found, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise FileNotFoundError(f"no sweep {sweep!r} in {runs}{hint} (found: {', '.join(found) or 'none'})")
    folders = sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    notes: list[str] = []
    settings = [_flat(_mapping(path / "config.yaml", notes)) for path in folders]
    statuses = [_mapping(path / "status.json", notes) for path in folders]
    names = pd.Index([path.name for path in folders], name="run", dtype=object)
    scalars = _scalars(folders, notes)
    table = pd.DataFrame(settings, index=names, dtype=object)
    for name, default in _younger().items():
        if name in table:  # older runs had the default
            table[name] = table[name].where(table[name].notna(), default)
    for needed in ("method.name", "seed", "trajectory", "steps"):
        if needed not in table:
            table[needed] = np.nan
    return Logs(sweep, scalars, table, _status(names, statuses, table, scalars), tuple(notes))


def _younger() -> dict[str, Any]:
    """Default by name of the settings that runs may be older than without being other experiments."""
    found = {f"{section}.{item.name}": item for section, schema in args.SECTIONS.items() for item in dataclasses.fields(schema)}
    return {name: item.default for name, item in found.items() if item.metadata["identity"] == "unless default"}


# --- settings and states ------------------------------------------------------------------------------------------


def _mapping(path: Path, notes: list[str]) -> dict[str, Any]:
    """A small YAML or JSON file; empty where it is missing or unreadable, with a note for what should be there."""
    try:
        text = path.read_text()
        content = json.loads(text) if path.suffix == ".json" else yaml.load(text, _YAML)
    except FileNotFoundError:
        if path.name == "config.yaml":
            notes.append(f"{path.parent.name}: no config.yaml, so its settings are unknown")
        return {}
    except (OSError, UnicodeDecodeError, json.JSONDecodeError, yaml.YAMLError) as error:
        notes.append(f"{path.parent.name}: {path.name} cannot be read ({type(error).__name__})")
        return {}
    if not isinstance(content, dict):
        notes.append(f"{path.parent.name}: {path.name} holds no table of settings")
        return {}
    return content


def _flat(nested: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Dotted names; lists become tuples, so that values can be compared and grouped."""
    flat: dict[str, Any] = {}
    for key, value in nested.items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = tuple(value) if isinstance(value, list) else value
    return flat


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else np.nan


def _status(names: pd.Index, statuses: list[dict[str, Any]], settings: pd.DataFrame, scalars: pd.DataFrame) -> pd.DataFrame:
    """How each run ended; a run without status.json is complete when it has logged its last step."""
    logged = {str(run): rows for run, rows in scalars.groupby("run", observed=True)}
    last = [float(logged[run]["step"].to_numpy().max()) if run in logged else np.nan for run in names]
    seconds = [float(np.ptp(logged[run]["wall_time"].to_numpy())) if run in logged else np.nan for run in names]
    state = [str(status.get("state", "")) for status in statuses]
    table = pd.DataFrame({"state": state}, index=names)
    table["logged"] = [run in logged for run in names]
    table["step"] = last
    table["steps"] = settings["steps"].map(_number)
    table["seconds"] = [_number(status.get("seconds")) for status in statuses]
    table["seconds"] = table["seconds"].fillna(pd.Series(seconds, index=names))
    reached = table["step"] >= table["steps"]
    table["complete"] = table["logged"] & ((table["state"] == "done") | ((table["state"] == "") & reached))
    return table


# --- scalars ------------------------------------------------------------------------------------------------------


def _attempt(path: Path) -> tuple[int, str]:
    """Sorts the event files of one run: by attempt (suffix ``.a3``), then by the time in the name."""
    match = _ATTEMPT.search(path.name)
    return (int(match[1]) if match else 0, path.name)


def merged(step: np.ndarray, file: np.ndarray) -> np.ndarray:
    """Which rows of one run stay when its files overlap: from a later file's first step on, the earlier files give way.

    ``file`` counts the event files of the run in the order they were begun.
    """
    if not len(step):
        return np.zeros(0, bool)
    first = np.full(int(file.max()) + 2, np.iinfo(np.int64).max)
    np.minimum.at(first, file, step)
    first_of_later = np.minimum.accumulate(first[::-1])[::-1][1:]
    return step < first_of_later[file]


def _scalars(folders: list[Path], notes: list[str]) -> pd.DataFrame:
    files = [sorted(path.glob("events.out.tfevents.*"), key=_attempt) for path in folders]
    paths = [path for group in files for path in group]
    read = events.read(paths)
    for index, what in sorted(read.damage.items()):
        notes.append(f"{paths[index].parent.name}: {paths[index].name} {what}")
    run_of_file = np.repeat(np.arange(len(folders)), [len(group) for group in files])
    run = run_of_file[read.file] if len(paths) else np.zeros(0, np.int64)
    stay = np.ones(len(run), bool)
    for index in np.flatnonzero(np.bincount(run_of_file, minlength=len(folders)) > 1):
        rows = np.flatnonzero(run == index)
        stay[rows] = merged(read.step[rows], read.file[rows] - np.searchsorted(run_of_file, index))
    logged = set(np.unique(run).tolist())
    silent = [path.name for index, path in enumerate(folders) if index not in logged]
    if silent:
        more = f" and {len(silent) - 3} more" if len(silent) > 3 else ""
        notes.append(f"{len(silent)} of {len(folders)} runs have logged nothing: {', '.join(silent[:3])}{more}")
    found = pd.DataFrame(
        {
            "run": pd.Categorical.from_codes(run, [path.name for path in folders]),
            "tag": pd.Categorical.from_codes(read.tag, read.tags),
            "step": read.step,
            "wall_time": read.wall_time,
            "value": read.value,
        }
    )
    key = ["run", "tag", "step"]
    return found.loc[stay].sort_values(by=key, kind="stable").drop_duplicates(key, keep="last").reset_index(drop=True)
