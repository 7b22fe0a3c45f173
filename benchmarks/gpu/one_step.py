"""One step of ``benchmarks/gpu/run``: its commands one after another, each within its own limit, and its record."""

from __future__ import annotations

import json
import math
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.gpu import processes
from benchmarks.gpu.steps import Command

ROOT = Path(__file__).parents[2]
LAST_LINES, TAIL_BYTES = 12, 4 << 20

Record = dict[str, Any]


# --- what a command said ---


def _number(text: str) -> float | str:
    """A number of JSON; it is a text where it is beyond all floats, since Infinity is no JSON."""
    value = float(text)
    return value if math.isfinite(value) else text


def _object(line: str) -> Record | None:
    """The JSON object on a line; NaN and Infinity in it become texts."""
    if line.lstrip().startswith("{"):
        with suppress(ValueError, RecursionError):
            found = json.loads(line, parse_constant=str, parse_float=_number)
            return found if isinstance(found, dict) else None
    return None


def told(log: Path, start: int, *, failed: bool) -> Record:
    """The output of a command from ``start`` on.

    ``result`` is the last line that is a JSON object; ``last_lines`` are there where no line is one, or it failed.
    """
    with log.open("rb") as file:
        file.seek(max(start, log.stat().st_size - TAIL_BYTES))
        lines = [line for line in file.read().decode(errors="replace").splitlines() if line.strip()]
    result = next((found for line in reversed(lines) if (found := _object(line)) is not None), None)
    record: Record = {} if result is None else {"result": result}
    return record | ({"last_lines": [line[:500] for line in lines[-LAST_LINES:]]} if failed or result is None else {})


# --- its commands ---


def limits(commands: Sequence[Command], limit_s: float) -> list[float]:
    """The limit of each command in seconds, where all of them together have ``limit_s``."""
    share = limit_s / sum(command.limit_s for command in commands)
    return [share * command.limit_s for command in commands]


def _carried_out(words: Sequence[str], log: Path, limit_s: float, environment: Mapping[str, str]) -> Record:
    """The record of one command."""
    one: Record = {"command": " ".join(words), "limit_s": round(limit_s, 1)}
    began = time.monotonic()
    with log.open("ab", buffering=0) as file:
        file.write(f"$ python {one['command']}\n".encode())
        start = file.seek(0, os.SEEK_END)
        try:
            ended = processes.run([sys.executable, *words], file, limit_s=limit_s, folder=ROOT, environment=environment)
        except KeyboardInterrupt:
            one |= {
                "seconds": round(time.monotonic() - began, 2),
                "exit_code": None,
                "timed_out": False,
                "interrupted": True,
            }
            return one | told(log, start, failed=True)
    one |= {"seconds": round(ended.seconds, 2), "exit_code": ended.exit_code, "timed_out": ended.timed_out}
    if ended.left:
        one["processes_that_did_not_end"] = ended.left
    return one | told(log, start, failed=ended.exit_code != 0)


def carry_out(
    name: str,
    commands: Sequence[Command],
    log: Path,
    limit_s: float,
    environment: Mapping[str, str],
    save: Callable[[Record], None],
) -> Record:
    """The record of a step.

    save: takes it before the first command and after each, so that one that kills us all costs only itself.
    """
    began, ends = time.monotonic(), list[Record]()
    date, its_limits = datetime.now(UTC).isoformat(timespec="seconds"), limits(commands, limit_s)
    log.write_bytes(b"")

    def record(*, unfinished: bool) -> Record:
        failed = [one for one in ends if one["exit_code"] != 0]
        return {
            "step": name,
            "date": date,
            "limit_s": round(limit_s, 1),
            "seconds": round(time.monotonic() - began, 2),
            "exit_code": failed[0]["exit_code"] if failed else None if unfinished else 0,
            "timed_out": any(one["timed_out"] for one in ends),
            "failed": bool(failed),
            "interrupted": any("interrupted" in one for one in ends),
            "unfinished": unfinished,
            "commands": ends,
        }

    for number, command in enumerate(commands):
        save(record(unfinished=True))
        left = limit_s - (time.monotonic() - began) - sum(its_limits[number + 1 :])
        ends.append(_carried_out(command.within(left), log, left, environment))
        if "interrupted" in ends[-1]:
            break
    found = record(unfinished=False)
    save(found)
    return found


# --- in words ---


def sentence(record: Mapping[str, Any]) -> str:
    """One line that says how a step ended."""
    name, seconds = record["step"], record["seconds"]
    if record["interrupted"]:
        return f"{name}: interrupted after {seconds:.0f} s"
    if not record["failed"]:
        return f"{name}: done in {seconds:.0f} s"
    bad = [one for one in record["commands"] if one["exit_code"] != 0]
    all_of_them = "" if len(record["commands"]) == 1 else f", {len(bad)} of {len(record['commands'])} commands"
    how = f"{_how(bad[0])} after {bad[0]['seconds']:.0f} s (python {bad[0]['command'][:80]})"
    return f"{name}: FAILED{all_of_them}, {how}; see {name}.log"


def _how(one: Record) -> str:
    """The words that say how a failed command ended."""
    if one["timed_out"]:
        return f"killed at its limit of {one['limit_s']:.0f} s"
    if one["exit_code"] >= 0:
        return f"exit code {one['exit_code']}"
    with suppress(ValueError):
        return f"killed by {signal.Signals(-one['exit_code']).name}"
    return f"killed by signal {-one['exit_code']}"
