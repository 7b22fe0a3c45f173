"""The origin of a sweep's numbers: code, versions, machines, dates, hours; and the commands that make them again."""

from __future__ import annotations

import datetime
import importlib.metadata
import platform
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from analysis.report.runs import Runs
from grid.engine.scripts import snapshot
from grid.engine.states.record_values import data_told

ROOT = Path(__file__).parents[2]
_PACKAGES = ("numpy", "pandas", "scipy", "matplotlib", "bokeh")
NOT_RECORDED = "not recorded"
_MOST = 6  # different values of one fact that are listed


def facts(runs: Runs) -> dict[str, str]:
    """The facts that the runs themselves recorded, each with the number of runs where they differ."""
    records = [runs.record(run) for run in runs.states]
    times = [f"{shown_hours(value)} of {kind}" for kind, value in hours(runs).items()]
    machines = [_mapping(record.get("machine")) for record in records]
    return {
        "commit": _counted(machines, _commit),
        "code snapshot": _counted(records, lambda record: str(record.get("code") or "")),
        "Python": _counted(machines, lambda machine: _text(machine, "python")),
        "PyTorch": _counted(machines, lambda machine: _text(machine, "torch")),
        "CPU": _counted(machines, _cpu),
        "GPU": _counted(machines, lambda machine: _text(machine, "gpu") or ("none" if machine else "")),
        "device": _counted(records, lambda record: _text(record, "device")),
        "data": _counted(records, lambda record: data_told(record.get("data"))),
        "hosts": _counted(records, lambda record: _text(record, "host")),
        "begun": _dates(_numbers(records, "start")),
        "ended": _dates(_numbers(records, "end")),
        "training time": ", ".join(times) or NOT_RECORDED,
    }


def of_this_checkout() -> str:
    """The commit that made the report, and the versions it was made with."""
    try:
        code = snapshot.marked(ROOT)[0]
        commit = f"commit {code.commit[:12]}{', with changes of its own' * code.dirty}"
        where = commit if code.commit else f"files {code.digest[:12]}"
    except (OSError, ValueError):
        where = "unknown commit"
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in _PACKAGES)
    return f"{where}; Python {platform.python_version()}, {versions}"


def hours(runs: Runs) -> dict[str, float]:
    """The hours of computing, by kind: of CPU cores (seconds times threads) or of GPUs."""
    found = {"CPU core time": 0.0, "GPU time": 0.0}
    for record in map(runs.record, runs.states):
        is_gpu, machine = _text(record, "device").startswith("cuda"), _mapping(record.get("machine"))
        devices = _gpus(_text(machine, "gpu")) if is_gpu else _number(record.get("threads")) or 1
        found["GPU time" if is_gpu else "CPU core time"] += _number(record.get("seconds")) / 3600 * devices
    return {kind: value for kind, value in found.items() if value}


def commands(sweep: str, runs_folder: Path, runs: Runs, conditions: str) -> list[str]:
    """The commands that make the report, one run, or the checkout of the runs again."""
    commits = Counter(filter(None, (_text(_mapping(runs.record(run).get("machine")), "commit") for run in runs.states)))
    lines = [f"git checkout {commits.most_common(1)[0][0]}"] if commits else []
    lines.append("make setup")
    scripts = [path for run in runs.states if (path := runs_folder / sweep / run / "run.sh").exists()]
    lines += [f"bash {path}    # this run, and likewise every other one" for path in scripts[:1]]
    where = "" if str(runs_folder) == "runs" else f" --runs {runs_folder}"
    return [*lines, f"python -m analysis report {sweep}{where}{conditions}"]


# --- values of records, which may hold anything -------------------------------------------------------------------


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _text(values: Mapping[str, Any], name: str) -> str:
    value = values.get(name)
    return "" if value is None or value is False else str(value)


def _commit(machine: Mapping[str, Any]) -> str:
    commit = _text(machine, "commit")[:12]
    return f"{commit} with changes" if commit and machine.get("dirty") else commit


def _cpu(machine: Mapping[str, Any]) -> str:
    cpu, cores = _text(machine, "cpu"), _text(machine, "cores")
    return f"{cpu}, {cores} core{'s' * (cores != '1')}" if cpu and cores else cpu


def _counted(values: Iterable[Mapping[str, Any]], read: Callable[[Mapping[str, Any]], str]) -> str:
    """The distinct values, the most frequent first, with counts where there are several."""
    counts = Counter(read(value) or NOT_RECORDED for value in values)
    if len(counts) < 2:
        return next(iter(counts), NOT_RECORDED)
    parts = [f"{value} ({count} run{'s' * (count != 1)})" for value, count in counts.most_common(_MOST)]
    return "; ".join([*parts, *([f"and {len(counts) - _MOST} more"] if len(counts) > _MOST else [])])


def _number(value: Any) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and 0 < value < 1e11 else 0.0


def _numbers(records: Iterable[Mapping[str, Any]], name: str) -> list[float]:
    return [value for record in records if (value := _number(record.get(name)))]


def day(seconds: float) -> str:
    """A moment in UTC as text, to the minute."""
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")


def _dates(moments: list[float]) -> str:
    if not moments:
        return NOT_RECORDED
    first, last = day(min(moments)), day(max(moments))
    return first if first == last else f"{first} to {last}"


def shown_hours(value: float) -> str:
    """A number of hours as text: hours in three digits, minutes below one."""
    return f"{value:.3g} h" if value >= 1 else f"{60 * value:.3g} min"


def _gpus(names: str) -> int:
    """The number of GPUs in a text such as ``2 x NVIDIA H200, NVIDIA A100``."""
    counts = [part.partition(" x ")[0] for part in names.split(", ")]
    return max(1, sum(int(count) if count.isdecimal() else 1 for count in counts))
