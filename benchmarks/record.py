"""Measure what pages quote, and keep it: ``python -m benchmarks.record [NAME ...]`` (``make results NAME=NAME``).

A name's command runs in a process of its own; its last line, one JSON object, becomes the figures of
``results/NAME.json``, with the command, commit, date, hardware and seconds.  A sweep is run, or goes on, and its result
table is kept, with the commits and the hardware that its runs noted.  A command that fails leaves the file as it was.
Without a name the measurements are listed.  ``python -m benchmarks.pages`` then writes the pages.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.results import result_file
from benchmarks.results.measurements import MEASUREMENTS, Benchmark, Sweep, chosen, missing
from files.aligned import aligned
from files.plain import read_json

DIGITS = 6  # of the numbers of a sweep's table


class Failed(Exception):
    """Why nothing was kept, in one sentence."""


def record(name: str, measurement: Benchmark | Sweep, root: Path = result_file.ROOT) -> Path:
    """Measure, and write the file of a name.

    Raises Failed, and leaves the file as it was, where the machine lacks what is needed, a command fails, or its output
    is not what it must be; ValueError where there is no commit to name.
    """
    if lacking := missing(measurement, root):
        raise Failed(f"it needs {' and '.join(lacking)}, which is not here")
    before, began = result_file.commit(root), time.perf_counter()
    *first, last = measurement.commands
    for number, command in enumerate(first):
        _run(command, root, shown=True, codes=(0, 1) if number == 0 else (0,))  # 1: runs diverged, or are missing
    output = _run(last, root, shown=isinstance(measurement, Benchmark))
    seconds = time.perf_counter() - began
    if isinstance(measurement, Sweep):
        figures = rows_of(output, measurement.num_seeds)
        told = {**_of_runs(root / measurement.runs / measurement.folder), "figures": figures}
    else:
        now = result_file.commit(root)
        same = before if now == before else before.removesuffix(result_file.DIRTY) + result_file.DIRTY
        told = {"commit": same, "date": result_file.today(), **result_file.hardware()}
        told |= {"seconds": round(seconds, 1), "figures": last_object(output)}
    pictures = {picture: _copied(root / drawn, root / picture) for picture, drawn in measurement.pictures.items()}
    values = {"command": "; ".join(measurement.commands), **told}
    return result_file.write(name, values | ({"pictures": pictures} if pictures else {}), root)


def _run(command: str, root: Path, *, shown: bool, codes: Sequence[int] = (0,)) -> str:
    """The standard output of a command, which is also printed as it comes where ``shown``.

    Raises Failed where it ends with none of the exit ``codes``.
    """
    words = [sys.executable if word == "python" else word for word in shlex.split(command)]
    print(f"$ {command}", flush=True)
    environment = os.environ | {"PYTHONUNBUFFERED": "1"}
    lines = []
    with subprocess.Popen(
        words, cwd=root, env=environment, stdout=subprocess.PIPE, text=True, errors="replace"
    ) as process:
        assert process.stdout
        for line in process.stdout:
            lines.append(line)
            if shown:
                print(line, end="", flush=True)
    if process.returncode not in codes:
        raise Failed(f"{command}: ended with {process.returncode}")
    return "".join(lines)


def last_object(output: str) -> dict[str, Any]:
    """The JSON object of the last line that is not empty; Failed where it is none."""
    lines = output.rstrip().splitlines()
    try:
        value = json.loads(lines[-1]) if lines else None
    except ValueError:
        value = None
    if not isinstance(value, dict) or not value:
        raise Failed(f"the last line must be one JSON object, the figures, and is {lines[-1][:80] if lines else ''!r}")
    return value


# --- sweeps -------------------------------------------------------------------------------------------------------


def rows_of(output: str, num_seeds: int) -> dict[str, Any]:
    """The rows of a result table by their labels, without what a row lacks, and the table's notes.

    Raises Failed where two rows have one label, or where runs are missing that have not diverged.
    """
    table = json.loads(output)
    rows: dict[str, Any] = {}
    for row in table["rows"]:
        ended = row["complete"] + row["diverged"]
        if ended < num_seeds or row["label"] in rows:
            why = "is there twice" if row["label"] in rows else f"has {ended} of {num_seeds} runs"
            raise Failed(f"the row {row['label']!r} of the sweep's table {why}")
        rows[row["label"]] = {key: _short(value) for key, value in row.items() if value is not None}
    return {"rows": rows, "notes": table["notes"]}


def _short(value: Any) -> Any:
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


def _of_runs(folder: Path) -> dict[str, Any]:
    """Commits, date, hardware and seconds of a sweep's runs, which may be of other days and machines than this one.

    Raises Failed where a run has noted none.
    """
    records = [read_json(path, any_number=True) for path in sorted(folder.glob("*/status.json"))]
    try:
        commits = [
            (one["machine"]["commit"][:12] or "not noted") + one["machine"]["dirty"] * result_file.DIRTY
            for one in records
        ]
        machines = [f"{one['machine']['cpu']}, {one['machine']['cores']} cores, {one['device']}" for one in records]
        versions = [one["machine"]["torch"] for one in records]
        last, seconds = max(one["end"] for one in records), sum(one["seconds"] for one in records)
    except (KeyError, TypeError, ValueError) as error:
        raise Failed(f"{folder}: a run without its commit, machine or end ({error!r}), or no run") from error
    told = {"commit": commits, "hardware": machines, "torch": versions}
    date = datetime.fromtimestamp(last, UTC).date().isoformat()
    return {name: ", ".join(sorted(set(values))) for name, values in told.items()} | {
        "date": date,
        "seconds": round(seconds, 1),
    }


def _copied(drawn: Path, picture: Path) -> str:
    """Put a picture where the pages show it; returns its digest."""
    try:
        shutil.copyfile(drawn, picture)
    except OSError as error:
        raise Failed(f"the picture {drawn} was not drawn: {error.strerror}") from error
    return result_file.digest(picture)


# --- the command --------------------------------------------------------------------------------------------------


def listing(root: Path = result_file.ROOT) -> str:
    """Every measurement with its file's date, commit and seconds, or a guess how long it takes, and what it needs."""
    rows = [["name", "measured", "commit", "takes", "needs", "what it answers"]]
    for name, measurement in MEASUREMENTS.items():
        told = ["-", "-", f"some {measurement.minutes:g} min"]
        if result_file.path_of(name, root).is_file():
            values = result_file.read(name, root)
            took = f"{values['seconds']:.0f} s" if values.get("seconds") else told[-1]
            told = [str(values.get("date")), str(values.get("commit")), took]
        rows.append([name, *told, ", ".join(measurement.needs), measurement.about])
    return aligned(rows, words=len(rows[0]))


def main(words: Sequence[str] | None = None) -> int:
    """Run the command; its exit code is 1 where something was not measured, 2 for a name that does not exist."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.record", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="what to measure, one after another (none: the list)")
    names = parser.parse_args(words).names
    try:
        measurements = {name: chosen(name) for name in names}
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if not names:
        print(listing())
    failed = 0
    for name, measurement in measurements.items():
        try:
            print(f"wrote {record(name, measurement).relative_to(result_file.ROOT)}")
        except (Failed, ValueError) as error:
            print(f"error: {name}: {error}; results/{name}.json is as it was", file=sys.stderr)
            failed += 1
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
