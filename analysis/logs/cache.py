"""A cache of the logs of a sweep, so that only runs whose files have changed are read again.

It lies in ``<runs>/.cache/<sweep>.sweep``, or below $XDG_CACHE_HOME where that cannot be written: parts
(``analysis.logs.parts``) and an index. The index holds of each run the sizes and times of the files it was read from,
its settings and status, and where its rows are. Everything is JSON or plain arrays, written aside and renamed; parts
are never changed, so that readers of an older index are not disturbed; whatever does not fit together counts as not
there.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import shutil
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

from analysis.logs import parts
from files import atomic

_VERSION = 4  # version of the index, and of what the reader makes of a file
_INDEX = "index.json"
_KINDS = ("scalars", "settings", "status")
_MOST_PARTS = 8
_OLD_S = 86400.0  # an older file that nobody refers to was left by a process that died
_PART_NAME = re.compile(r"[0-9a-f]{16}")


@dataclass(frozen=True)
class Seen:
    """A piece of a run that was read: the files it came from, the result, and the notes about it."""

    of: Any  # names, sizes and times of the files; None: read it anew next time
    content: Any
    notes: list[str]


@dataclass(frozen=True)
class Entry:
    """A run as it was read: rows, settings and status."""

    scalars: Seen  # content: what was passed over, as sentences under "remarks"
    settings: Seen
    status: Seen
    part: parts.Part = field(compare=False)
    run: int  # its number in the part
    kept_in: str | None = None  # the name of the part, where it lies in the cache


def place(runs: Path, sweep: str) -> Path | None:
    """A writable folder for the cache of this sweep; None where there is none."""
    name = f"{quote(sweep, safe='')}.sweep"
    home = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    elsewhere = home / "nuq-analysis" / hashlib.sha256(os.fsencode(runs.absolute())).hexdigest()[:16]
    for folder in (runs / ".cache" / name, elsewhere / name):
        with suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                return folder
    return None


def read(folder: Path, reader: str) -> dict[str, Entry]:
    """The entries of the cache by run; ``reader`` names what else the rows depend on and must be as it was."""
    try:
        index = json.loads((folder / _INDEX).read_text())
        if index["version"] != _VERSION or index["reader"] != reader:
            return {}
        records = index["runs"].items()
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}
    found: dict[str, Entry] = {}
    opened: dict[str, parts.Part | None] = {}
    for name, record in records:
        with suppress(KeyError, TypeError, ValueError):
            part, number = record["part"], record["run"]
            if part not in opened:
                opened[part] = parts.opened(folder, part) if _PART_NAME.fullmatch(part) else None
            kept = opened[part]
            seen = {kind: Seen(*record[kind]) for kind in _KINDS}
            sound = all(isinstance(of.content, dict | None) and isinstance(of.notes, list) for of in seen.values())
            if kept is not None and sound and 0 <= number < kept.num_runs:
                found[name] = Entry(**seen, part=kept, run=number, kept_in=part)
    return found


def write(folder: Path, reader: str, entries: Mapping[str, Entry], before: Mapping[str, Entry]) -> dict[str, Entry]:
    """Keep ``entries``; the parts of ``before``, the cache as it was read, are used again.

    Returns the entries with their rows in the cache.  Raises OSError where nothing can be written.
    """
    fresh = [name for name, entry in entries.items() if entry.kept_in is None]
    here = {entry.kept_in: entry.part for entry in entries.values() if entry.kept_in is not None}
    num_rows = {name: _num_rows(entry) for name, entry in entries.items()}
    num_fresh, total = sum(num_rows[name] for name in fresh), sum(num_rows.values())
    kept = sum(len(part.step) for part in here.values())
    if num_fresh > total / 4 or len(here) >= _MOST_PARTS or kept + num_fresh > 1.5 * total:
        fresh, here = list(entries), {}
    result = dict(entries)
    new = secrets.token_hex(8)
    if fresh:
        try:
            parts.write(folder, new, [(entries[name].part, entries[name].run) for name in fresh])
        except OSError:
            parts.remove(folder, new)
            raise
        part = parts.opened(folder, new, verify=False)
        if part is None:
            raise OSError(f"{folder}: a part that was just written cannot be read")
        for number, name in enumerate(fresh):
            result[name] = replace(entries[name], part=part, run=number, kept_in=new)
    runs = {name: _record(entry) for name, entry in result.items()}
    atomic.write_text(folder / _INDEX, json.dumps({"version": _VERSION, "reader": reader, "runs": runs}))
    used = {entry.kept_in for entry in result.values()}
    _tidy(folder, used, {entry.kept_in for entry in before.values()} - used)
    return result


def _num_rows(entry: Entry) -> int:
    return int(entry.part.row_edges[entry.run + 1] - entry.part.row_edges[entry.run])


def _record(entry: Entry) -> dict[str, Any]:
    seen: dict[str, Seen] = {kind: getattr(entry, kind) for kind in _KINDS}
    record: dict[str, Any] = {kind: [each.of, each.content, each.notes] for kind, each in seen.items()}
    return {**record, "part": entry.kept_in, "run": entry.run}


def _tidy(folder: Path, used: set[str | None], replaced: set[str | None]) -> None:
    """Delete the parts that this index has replaced, and whatever processes that died have left."""
    with suppress(OSError):
        for name in replaced:
            parts.remove(folder, str(name))
        for path in folder.iterdir():
            if (
                path.name != _INDEX
                and path.name.partition(".")[0] not in used
                and time.time() - path.stat().st_mtime > _OLD_S
            ):
                shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
