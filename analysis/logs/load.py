"""The runs of a sweep as tables: what they logged, how they were set and how they ended."""

from __future__ import annotations

import difflib
import hashlib
import json
import tempfile
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import args
from analysis.logs import cache as kept
from analysis.logs import foreign, parts, reading
from analysis.logs.cache import Entry, Seen
from analysis.logs.discovery import CONFIG, STATUS, Run, find
from analysis.logs.parents import no_result_names, with_parents
from analysis.logs.rows import Rows, rows
from files.plain import Unreadable, checked, read_json, read_yaml
from nuq.registry import METHODS
from nuq.settings import declared, of_older_runs
from settings.sections import dotted

_JUST_NOW_NS = 10**9  # two changes so close may leave a file with the same time


@dataclass(frozen=True)
class Logs:
    """A sweep that has been read, as tables.

    ``scalars``: run, tag (both categorical), attempt, step, wall_time, value; one row per run, tag and step, in this
    order.  ``attempt`` counts the event files of the run: which of them a row came from.  ``settings``: one row per
    run, one column per setting, dotted names (``method.bits``); NaN where a run does not read it.  ``status``: one row
    per run: state, step, steps, seconds, logged, complete (a run that is done and yet not complete has a damaged log
    that ends early).  ``notes``: what the reader should know (damage, runs without logs), a sentence each.
    """

    sweep: str
    folder: Path
    rows: Rows
    settings: pd.DataFrame
    status: pd.DataFrame
    notes: tuple[str, ...]

    @property
    def scalars(self) -> pd.DataFrame:
        """The table of all rows; for a tag or two, ``of_tag`` and ``of_tags`` do not look at the others."""
        return self.rows.frame

    @property
    def tags(self) -> tuple[str, ...]:
        """The tags that these runs logged, sorted."""
        return self.rows.tags

    @property
    def complete(self) -> list[str]:
        """The names of the complete runs."""
        return list(self.status.index[self.status["complete"].to_numpy(bool)])

    def of_tag(self, tag: str) -> pd.DataFrame:
        """The values of a tag, kept for the next call: steps down, runs across (with any), non-finite ones absent."""
        return self.rows.of_tag(tag)

    def of_tags(self, *tags: str) -> pd.DataFrame:
        """The rows of ``scalars`` that have these tags."""
        return self.rows.only(tags).frame

    def keep(self, runs: Iterable[str]) -> Logs:
        """The sweep with only these runs."""
        wanted = set(runs)
        names = [run for run in self.settings.index if run in wanted]
        return replace(
            self, rows=self.rows.keep(names), settings=self.settings.loc[names], status=self.status.loc[names]
        )


def sweeps(runs: Path) -> list[str]:
    """The sweeps under a folder of runs."""
    folders = [path for path in runs.iterdir() if path.is_dir()] if runs.is_dir() else []
    return sorted(path.name for path in folders if not path.name.startswith("."))


def load(runs: Path, sweep: str, *, cache: bool = True) -> Logs:
    """All runs of ``runs/<sweep>``; FileNotFoundError with the sweeps there are where that folder does not exist.

    The content is kept (``analysis.logs.cache``) and only what has changed since is read again; ``cache=False`` reads
    all of it and keeps nothing.
    """
    folder = runs / sweep
    if sweep in ("", "..") or Path(sweep).name != sweep or not folder.is_dir():
        found = sweeps(runs)
        near = difflib.get_close_matches(sweep, found, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise FileNotFoundError(f"no sweep {sweep!r} in {runs}{hint} (found: {', '.join(found) or 'none'})")
    notes: list[str] = []
    entries = _entries(runs, sweep, find(folder, notes), notes, cache)
    names = pd.Index(list(entries), name="run", dtype=object)
    for name, entry in entries.items():
        notes += [f"{name}: {note}" for seen in (entry.settings, entry.status, entry.scalars) for note in seen.notes]
    notes += _remarks(entries)
    nameless = [name for name, entry in entries.items() if entry.settings.content is None]
    unknown = "no config.yaml, so {} settings are unknown"
    notes += _some(f"has {unknown.format('its')}", f"have {unknown.format('their')}", nameless, len(names))
    logged = rows(tuple(entries), parts.joined([(entry.part, entry.run) for entry in entries.values()]))
    notes += _in_our_units(logged, {name: entry.settings.content or {} for name, entry in entries.items()})
    silent = [name for name, count in zip(names, np.diff(logged.part.row_edges), strict=True) if not count]
    notes += _some("has logged nothing", "have logged nothing", silent, len(names))
    settings = _settings(names, entries.values())
    status = _status(names, entries.values(), settings, logged)
    return _without_copies(Logs(sweep, folder, logged, settings, status, tuple(notes)))


def _without_copies(logs: Logs) -> Logs:
    """The runs without copies, which are no further seeds: of runs that are alike in all that can change a result.

    The seed is part of that; runs whose seed is unknown are no copies.  The newest complete one stays, else the newest.
    """
    known = logs.settings.loc[logs.settings["seed"].notna()]
    counting = [name for name in known if name == "seed" or name not in no_result_names()]
    alike: dict[tuple[str, ...], list[str]] = {}
    for run, values in zip(known.index, known[counting].itertuples(index=False), strict=True):
        alike.setdefault(tuple(f"{type(value).__name__} {value}" for value in values), []).append(run)
    several = [runs for runs in alike.values() if len(runs) > 1]
    if not several:
        return logs
    newest = logs.rows.last_time()
    order = {run: (bool(logs.status.at[run, "complete"]), newest[run]) for runs in several for run in runs}
    kept = {max(runs, key=order.__getitem__): runs for runs in several}
    notes = [
        f"{', '.join(sorted(set(runs) - {best}))}: the same experiment and seed as {best}, which alone counts"
        for best, runs in kept.items()
    ]
    copies = {run for best, runs in kept.items() for run in runs if run != best}
    return replace(logs.keep(set(logs.settings.index) - copies), notes=(*logs.notes, *notes))


def _in_our_units(logged: Rows, settings: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Convert the rows of other systems' runs to our units, in place; says of which runs the log does not show how."""
    notes = []
    for name in (name for name in logged.names if "system" in settings[name]):
        own = logged.keep([name])
        inputs = foreign.inputs_per_step(settings[name], own.of_tag("loss").index.to_numpy())
        if inputs is None:
            notes.append(f"{name}: nothing in its log tells the inputs of one step, so its steps are inputs seen")
        for _, tag, _, begin, end in own.spans.tolist():
            place = slice(begin, end)
            steps, values = own.part.step[place], own.part.value[place]
            own.part.step[place], own.part.value[place] = foreign.in_our_units(
                settings[name], own.part.tags[tag], steps, values, inputs
            )
    return notes


def _some(one: str, several: str, names: Sequence[str], total: int) -> list[str]:
    if not names:
        return []
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return [f"{len(names)} of {total} runs {one if len(names) == 1 else several}: {', '.join(names[:3])}{more}"]


def _remarks(entries: Mapping[str, Entry]) -> list[str]:
    """What was passed over in sound files; runs of which the same is said share a sentence."""
    runs: dict[str, list[str]] = {}
    for name, entry in entries.items():
        for remark in (entry.scalars.content or {}).get("remarks", ()):
            runs.setdefault(remark, []).append(name)
    return [f"{names[0]}{f' and {len(names) - 1} more' if names[1:] else ''}: {why}" for why, names in runs.items()]


# --- what has changed ---------------------------------------------------------------------------------------------


def _entries(runs: Path, sweep: str, found: list[Run], notes: list[str], use_cache: bool) -> dict[str, Entry]:
    """Every run by name, from the cache where its files have not changed."""
    now = time.time_ns()
    names = foreign.TAGS
    reader = hashlib.sha256(json.dumps([names, reading.READ.pattern], sort_keys=True).encode()).hexdigest()[:16]
    place = kept.place(runs, sweep) if use_cache and found else None
    if use_cache and found and place is None:
        notes.append(f"no cache: neither {runs} nor a folder for caches can be written, so all logs are read each time")
    before = kept.read(place, reader) if place else {}
    seen: dict[str, tuple[Seen, Seen]] = {}

    def settings_and_states() -> None:
        for run in found:
            old = before.get(run.name)
            settings = _seen(run, "settings", old and old.settings, now)
            seen[run.name] = settings, _seen(run, "status", old and old.status, now)

    stale = [run for run in found if run.name not in before or before[run.name].scalars.of != _about(run, "scalars")]
    files = [_files(run, names) for run in stale]
    with ExitStack() as scratch:
        work = None
        if reading.is_large(files):
            with suppress(OSError):  # otherwise all rows are in memory
                work = Path(scratch.enter_context(tempfile.TemporaryDirectory(prefix="reading-", dir=place)))
        read = reading.read_all(files, work, settings_and_states)
        entries: dict[str, Entry] = {}
        of_stale = {run.name: result for run, result in zip(stale, read, strict=True)}
        for run in found:
            settings, status = seen[run.name]
            if result := of_stale.get(run.name):
                damage = [f"{file} {what}" for file, what in result.damage]
                scalars = Seen(_trusted(_about(run, "scalars"), now, damage), {"remarks": result.remarks}, damage)
                entries[run.name] = Entry(scalars, settings, status, result.part, result.run)
            else:
                entries[run.name] = replace(before[run.name], settings=settings, status=status)
        if place and list(entries.items()) != list(before.items()):
            try:
                return kept.write(place, reader, entries, before)
            except OSError as error:
                why = f"{place} cannot be written ({type(error).__name__})"
                notes.append(f"no cache: {why}, so all logs are read each time")
        if work:  # the rows lie in files that go with it
            part = parts.joined([(entry.part, entry.run) for entry in entries.values()])
            return {name: replace(entry, part=part, run=number) for number, (name, entry) in enumerate(entries.items())}
        return entries


def _about(run: Run, kind: str) -> list[list[Any]]:
    """The files that a part of a run depends on, with their sizes and times."""
    ours = CONFIG in run.files
    chosen = {
        "scalars": [*sorted(run.events(), key=reading.attempt), *([CONFIG] if ours else [])],
        "settings": [CONFIG] if ours else list(run.files),
        "status": [STATUS] if STATUS in run.files else [],
    }[kind]
    return [[name] if name == CONFIG and kind == "scalars" else [name, *run.files[name]] for name in chosen]


def _trusted(about: list[list[Any]], now: int, notes: list[str]) -> list[list[Any]] | None:
    """``about``; None where a file cannot be read or has just changed, so may change unseen in size and time."""
    just_now = any(len(item) > 1 and abs(now - item[2]) < _JUST_NOW_NS for item in about)
    return None if just_now or any("cannot be read" in note for note in notes) else about


def _files(run: Run, names: Mapping[str, str]) -> reading.Files:
    events = sorted(run.events(), key=reading.attempt)
    paths = [str((run.folder / name).absolute()) for name in events]
    return reading.Files(paths, sum(run.files[name][0] for name in events), {} if CONFIG in run.files else names)


# --- settings and states ------------------------------------------------------------------------------------------


def _seen(run: Run, kind: str, old: Seen | None, now: int) -> Seen:
    """The settings or status of a run; its content is None where there are none."""
    about = _about(run, kind)
    if old and old.of == about:
        return old
    notes: list[str] = []
    content = None
    if kind == "status" and about:
        content = _mapping(run.folder / STATUS, notes)
    elif kind == "settings" and CONFIG in run.files:
        content = _plain(dotted(_mapping(run.folder / CONFIG, notes)))
    elif kind == "settings":
        found = foreign.settings(run.folder)
        try:
            content = None if found is None else _plain(checked(found, finite=True))
        except Unreadable as error:
            notes.append(f"its settings cannot be read: what they stand in {error}")
    return Seen(_trusted(about, now, notes), content, notes)


def _mapping(path: Path, notes: list[str]) -> dict[str, Any]:
    """The content of a small YAML or JSON file; empty where it cannot be read, with a note."""
    try:
        content = read_json(path) if path.suffix == ".json" else read_yaml(path)
    except Unreadable as error:
        notes.append(f"{path.name} cannot be read: it {error}")
        return {}
    except OSError as error:
        notes.append(f"{path.name} cannot be read ({type(error).__name__})")
        return {}
    if not isinstance(content, dict):
        notes.append(f"{path.name} holds no table of settings")
        return {}
    return content


def _plain(value: Any) -> Any:
    """A value as JSON would give it back: a type that JSON does not know (dates) becomes text."""
    return json.loads(json.dumps(value, default=str))


def _tuples(value: Any) -> Any:
    """The value with lists turned into tuples, so that values can be compared and grouped."""
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value


def _settings(names: pd.Index, entries: Iterable[Entry]) -> pd.DataFrame:
    records = [{name: _tuples(value) for name, value in (entry.settings.content or {}).items()} for entry in entries]
    table = pd.DataFrame(records, index=names, dtype=object)
    for section, schema in args.SECTIONS.items():
        for name, value in _older(schema, section):
            if name in table:
                table[name] = table[name].where(table[name].notna(), value)
    for needed in ("method.name", "seed", "trajectory", "steps"):
        if needed not in table:
            table[needed] = np.nan
    table["method.name"] = table["method.name"].map(str, na_action="ignore")
    for method in set(table["method.name"]) & METHODS.keys():
        own = table["method.name"] == method
        for name, value in _older(METHODS[method].settings, "method"):
            if name in table:
                table[name] = table[name].where(~own | table[name].notna(), value)
    return with_parents(table)


def _older(schema: type, section: str) -> Iterator[tuple[str, Any]]:
    """The settings whose absence in an older run does not make it another experiment, each with what it had."""
    for name, of in declared(schema).items():
        yield from ((f"{section}.{name}", value) for value in of_older_runs(of.rule))


def number(value: Any) -> float:
    """A number that a setting or status holds; NaN for all else."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else np.nan


def _status(names: pd.Index, entries: Collection[Entry], settings: pd.DataFrame, logged: Rows) -> pd.DataFrame:
    """The status of each run, which says how it ended.

    A run is complete when it says so, except where a damaged log ends before the last step. A run that says nothing is
    complete when its log reaches that step, or where nobody knows how many steps there are (other systems' runs).
    """
    statuses = [entry.status.content or {} for entry in entries]
    last = logged.last_step()
    table = pd.DataFrame({"state": [str(status.get("state", "")) for status in statuses]}, index=names)
    table["logged"] = ~np.isnan(last)
    table["step"] = last
    table["steps"] = settings["steps"].map(number)
    told = [number(status.get("seconds")) for status in statuses]
    of_run = zip(names, told, strict=True)
    table["seconds"] = [logged.seconds(name) if np.isnan(value) else value for name, value in of_run]
    damaged = np.array([bool(entry.scalars.notes) for entry in entries], bool)
    reached = table["step"] >= table["steps"]
    foreign_runs = settings["system"].notna() if "system" in settings else False
    silent = (table["state"] == "") & (reached | (table["steps"].isna() & foreign_runs))
    table["complete"] = table["logged"] & ((table["state"] == "done") | silent) & (reached | ~damaged)
    return table
