"""The time that calls take, in turns with their baselines, and the figures of many such times."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, TypeVar

from files.aligned import aligned

Name = TypeVar("Name", bound=Hashable)


def seconds(
    call: Callable[[], object],
    settle: Callable[[], object] = lambda: None,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """The time of one call; ``settle`` waits for what was started before, and then for what the call started."""
    settle()
    started = clock()
    call()
    settle()
    return clock() - started


def own_seconds(call: Callable[[], object], *, wall: bool = False) -> float:
    """The time of one call; with a single thread its own, which others on the machine change little.

    On a GPU, once one is in use, it is wall time and includes what the call started.
    """
    import torch  # benchmarks.grid is timed without it

    on_gpu = torch.cuda.is_initialized()
    own = torch.get_num_threads() == 1 and not (wall or on_gpu)
    settle = torch.cuda.synchronize if on_gpu else lambda: None
    return seconds(call, settle, time.thread_time if own else time.perf_counter)


def in_turns(measures: Mapping[Name, Callable[[], float]], turns: int, *, warm_up: int = 1) -> dict[Name, list[float]]:
    """The values of every measure, one of each after another; the first ``warm_up`` turns do not count."""
    rounds = [{name: measure() for name, measure in measures.items()} for _ in range(warm_up + turns)]
    return {name: [values[name] for values in rounds[warm_up:]] for name in measures}


def spread(values: Sequence[float], beside: Sequence[float]) -> tuple[float, float, float]:
    """The median and quartiles of the ratios of the values to those beside them."""
    low, middle, high = statistics.quantiles([a / b for a, b in zip(values, beside, strict=True)], n=4)
    return middle, low, high


def quartiles(values: Sequence[float]) -> dict[str, float]:
    """The median and quartiles of many values, in four digits."""
    low, middle, high = (float(f"{value:.4g}") for value in statistics.quantiles(values, n=4, method="inclusive"))
    return {"median": middle, "low": low, "high": high}


def summary(values: Sequence[float]) -> dict[str, float]:
    """The median, the smallest and the largest value."""
    return {"median": round(statistics.median(values), 3), "low": round(min(values), 3), "high": round(max(values), 3)}


def print_rows(title: str, rows: Mapping[str, Mapping[str, Any]]) -> None:
    """Print a line for each row: its numbers, of rows within it their medians and quartiles."""
    columns = list(next(iter(rows.values()), {}))
    cells = ([name, *(_cell(row.get(column)) for column in columns)] for name, row in rows.items())
    print(aligned([[title, *columns], *cells]), flush=True)


def _cell(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"{value['median']:.4g} ({value['low']:.4g} - {value['high']:.4g})" if "median" in value else "..."
    return f"{value:.4g}" if isinstance(value, int | float) else "-" if value is None else str(value)
