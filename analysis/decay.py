"""The steps at which the learning rate really dropped."""

from __future__ import annotations

import numpy as np

from analysis.logs.load import Logs

_FEW = 10  # more falls than this, or than a third of the records, are a smooth schedule


def drops(logs: Logs) -> list[float]:
    """The steps of all drops in any run, ascending.

    They are the planned ones (``schedule.at``) where no rate was logged or the logged rate does fall there; where it
    falls elsewhere, the first step that was logged with the lower rate. Schedules that fall all the time have none: the
    corners of a piecewise linear one are no drops.
    """
    plans = logs.settings["schedule.at"].to_dict() if "schedule.at" in logs.settings else {}
    kinds = logs.settings["schedule.name"].to_dict() if "schedule.name" in logs.settings else {}
    rates = logs.of_tag("lr")
    step, column = rates.index.to_numpy(float), {str(run): number for number, run in enumerate(rates.columns)}
    values = rates.to_numpy(float)
    found: set[float] = set()
    seen: set[tuple[object, bytes]] = set()
    for run in logs.settings.index:
        plan = plans.get(run) if kinds.get(run) != "piecewise_linear" else None
        planned = plan if isinstance(plan, tuple) else ()
        planned = tuple(float(item) for item in planned if isinstance(item, int | float) and item > 0)
        rate = values[:, column[run]] if run in column else np.full(len(step), np.nan)
        if (planned, rate.tobytes()) not in seen:
            seen.add((planned, rate.tobytes()))
            there = np.isfinite(rate)
            found |= _of_run(planned, step[there], rate[there])
    return sorted(found)


def _of_run(planned: tuple[float, ...], step: np.ndarray, rate: np.ndarray) -> set[float]:
    if not len(step):
        return set(planned)
    found = {item for item in planned if item < step[0] or item >= step[-1]}  # the records do not reach there
    other: list[float] = []
    for index in np.flatnonzero(rate[1:] < rate[:-1] * (1 - 1e-6)):
        inside = [item for item in planned if step[index] <= item <= step[index + 1]]
        found |= set(inside)
        other += [] if inside else [float(step[index + 1])]
    few = len(other) <= min(_FEW, (len(step) - 1) / 3)
    return found | set(other) if few else found
