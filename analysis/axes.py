"""The axes against which a curve can be drawn: training steps, seconds of training, epochs, bytes one worker sent.

Beside these stand the seconds that the training would take over slow links (``LINKS``).

The position of a run on such an axis is known at the steps at which it logged something of it (knots), and linear
between them.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pandas as pd

from analysis.logs.load import Logs
from analysis.logs.rows import Rows
from analysis.run_costs import costs

AXES = ("step", "time", "epoch", "bytes")
LINKS = {"10M": 1e7, "100M": 1e8, "1G": 1e9}  # axis -> bit/s of each worker's link to the others
TITLES = {
    "step": "against the training step",
    "time": "against the training time",
    "epoch": "against the epoch",
    "bytes": "against the bytes that one worker sent",
}
MISSING = {
    "step": "no run has logged a step",
    "time": "no run has logged times",
    "epoch": "no run has logged the epochs that its steps belong to, or none has finished its first",
    "bytes": "no run has logged comm/bytes",
}
MISSING |= dict.fromkeys(LINKS, "no run has logged times and bytes")
# (from this value on, size of the unit, label), the last that fits is used
_UNITS = {
    "step": ((0, 1, "training step"),),
    "time": ((0, 1, "training time (s)"), (300, 60, "training time (min)"), (10800, 3600, "training time (h)")),
    "epoch": ((0, 1, "epoch"),),
    "bytes": (
        (0, 1e3, "sent by one worker (kB)"),
        (1e6, 1e6, "sent by one worker (MB)"),
        (1e9, 1e9, "sent by one worker (GB)"),
        (1e12, 1e12, "sent by one worker (TB)"),
    ),
}
_UNITS |= dict.fromkeys(
    LINKS, ((0, 1, "predicted time (s)"), (300, 60, "predicted time (min)"), (10800, 3600, "predicted time (h)"))
)


def checked(axes: Iterable[str] | None) -> tuple[str, ...]:
    """The axes of these names (default: all), in the order of AXES; ValueError for one that does not exist."""
    wanted = AXES if axes is None else tuple(axes)
    for axis in wanted:
        if axis not in AXES:
            raise ValueError(f"axis {axis!r} does not exist (there are: {', '.join(AXES)})")
    return tuple(axis for axis in AXES if axis in wanted)


def unit(axis: str, largest: float) -> tuple[float, str]:
    """The size of the unit and the label of an axis that ends at ``largest`` steps, seconds, epochs or bytes."""
    return next((size, label) for begin, size, label in reversed(_UNITS[axis]) if largest >= begin or begin == 0)


def positions(
    logs: Logs, axis: str, runs: Sequence[str], steps: Sequence[float] | np.ndarray | pd.Index
) -> pd.DataFrame:
    """The position of each run on the axis after each step: steps down, runs across; NaN where it logged nothing of it.

    - ``time``: seconds of training, the sum of ``time/step_s`` over the steps; for runs without it the wall time since
      their first record, in which a gap between two attempts counts only what its steps take elsewhere in the run;
    - ``epoch``: step over steps per epoch, which follow from any two records of ``epoch`` and ``batch_idx``; without
      those the ``epoch`` itself, linear between the first records of each;
    - ``bytes``: ``comm/bytes``, what one worker has sent so far;
    - a name of ``LINKS``: see ``_over_link``.

    No run is followed further than one of its log intervals beyond its first and last record.
    """
    at = np.asarray(steps, float)
    found = np.full((len(at), len(runs)), np.nan)
    if axis == "step":
        found[:] = at[:, None]
    else:
        for column, knots in enumerate(_KNOTS[axis](logs, list(runs))):
            if knots is not None:
                found[:, column] = _read(knots, at)
    return pd.DataFrame(found, index=pd.Index(steps, name="step"), columns=pd.Index(runs, name="run"))


_Knots = tuple[np.ndarray, np.ndarray]  # ascending steps, and the positions of one run there


def _read(knots: _Knots, at: np.ndarray) -> np.ndarray:
    """The positions at some steps: linear between the knots and one interval beyond them; NaN further out."""
    step, value = knots
    found = np.interp(at, step, value, left=np.nan, right=np.nan)
    if len(step) > 1 and np.isnan(found).any():
        interval = float(np.median(np.diff(step)))
        after = (at > step[-1]) & (at <= step[-1] + interval)
        found[after] = value[-1] + (at[after] - step[-1]) * (value[-1] - value[-2]) / (step[-1] - step[-2])
        before = (at < step[0]) & (at >= step[0] - interval)
        found[before] = np.maximum(0, value[0] - (step[0] - at[before]) * (value[1] - value[0]) / (step[1] - step[0]))
    return found


def _records(logs: Logs, tag: str, runs: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """The steps (n) and values (n, runs) of a tag; NaN where a run logged none."""
    table = logs.of_tag(tag).reindex(columns=runs)
    return table.index.to_numpy(float), table.to_numpy(float)


def _from_zero(step: np.ndarray, value: np.ndarray) -> _Knots:
    """The knots of a sum that begins at zero before the first step."""
    return (step, value) if step[0] == 0 else (np.append(0.0, step), np.append(0.0, value))


def _bytes(logs: Logs, runs: list[str]) -> Iterator[_Knots | None]:
    step, sent = _records(logs, "comm/bytes", runs)
    for value in sent.T:
        there = np.isfinite(value)
        yield _from_zero(step[there], value[there]) if there.any() else None


def _time(logs: Logs, runs: list[str]) -> Iterator[_Knots | None]:
    step, step_s = _records(logs, "time/step_s", runs)
    edges = np.searchsorted(logs.rows.spans[:, 0], np.arange(len(logs.rows.names) + 1)).tolist()
    spans = dict(zip(logs.rows.names, itertools.pairwise(edges), strict=True))
    for run, seconds in zip(runs, step_s.T, strict=True):
        there = np.isfinite(seconds)
        if there.any():
            own = step[there]
            yield _from_zero(own, np.cumsum(np.diff(own, prepend=0.0) * seconds[there]))
        else:
            yield _by_wall(logs.rows, *spans.get(run, (0, 0)))


def _by_wall(logged: Rows, begin: int, end: int) -> _Knots | None:
    """The wall times of the tag that the run of these spans logged most often, after the run's very first record."""
    if begin == end:
        return None
    _, tag, attempt, low, high = logged.spans[begin:end].T
    steps, walls = logged.part.step, logged.part.wall_time
    first = int(np.argmin(walls[low]))
    own = np.flatnonzero(tag == np.bincount(tag, weights=high - low).argmax())
    rows = np.concatenate([low[first : first + 1], *(np.arange(low[span], high[span]) for span in own)])
    tries = np.append(attempt[first], np.repeat(attempt[own], (high - low)[own]))
    step, kept = np.unique(steps[rows], return_index=True)
    seconds, resumed = np.diff(walls[rows][kept]), np.diff(tries[kept]) != 0
    within = ~resumed & (seconds >= 0)
    pace = seconds[within].sum() / max(1, np.diff(step)[within].sum())
    return step.astype(float), np.append(0.0, np.cumsum(np.where(within, seconds, pace * np.diff(step))))


def _epoch(logs: Logs, runs: list[str]) -> Iterator[_Knots | None]:
    table = logs.of_tag("epoch").reindex(columns=runs)
    step, epochs = table.index.to_numpy(float), table.to_numpy(float)
    batches = logs.of_tag("batch_idx").reindex(index=table.index, columns=runs).to_numpy(float)
    for epoch, batch in zip(epochs.T, batches.T, strict=True):
        there = np.isfinite(epoch)
        per_epoch = _steps_per_epoch(step, epoch, batch)
        if per_epoch:
            yield _from_zero(step[there], step[there] / per_epoch)
        else:
            yield _stairs(step[there], epoch[there])


def _steps_per_epoch(step: np.ndarray, epoch: np.ndarray, batch: np.ndarray) -> float | None:
    """The steps per epoch, by the first and last record, whether counted from 0 or 1; None where they do not tell."""
    known = np.flatnonzero(np.isfinite(epoch) & np.isfinite(batch))
    if not len(known):
        return None
    first, last = known[0], known[-1]
    begun = step - batch  # the step at which the epoch began, up to a constant
    if epoch[last] > epoch[first]:
        found = (begun[last] - begun[first]) / (epoch[last] - epoch[first])
    elif epoch[last] >= 1:
        found = (begun[last] - 1) / epoch[last]
    else:
        return None
    return float(found) if found >= 1 and abs(found - np.rint(found)) < 1e-6 else None


def _stairs(step: np.ndarray, epoch: np.ndarray) -> _Knots | None:
    """The knots of epochs logged as whole numbers: linear between the first records of each, then at the last pace."""
    new = np.flatnonzero(np.diff(epoch, prepend=-np.inf) > 0)
    if len(new) < 2:
        return None
    knots, value = step[new], epoch[new]
    if step[-1] > knots[-1]:
        pace = (value[-1] - value[-2]) / (knots[-1] - knots[-2])
        knots, value = np.append(knots, step[-1]), np.append(value, value[-1] + pace * (step[-1] - knots[-1]))
    return knots, value


def _over_link(bandwidth: float, logs: Logs, runs: list[str]) -> Iterator[_Knots | None]:
    """The seconds after each step if every worker had a machine of its own and a link of ``bandwidth`` bit/s.

    They are the run's own costs (``analysis.run_costs``), of computation, encoding, decoding and updates of levels, and
    8 f bytes / bandwidth with ``RunCosts.copies`` f, which is M - 1 where each message goes to every other worker.
    Latency, and what overlaps with the computation, are left out.
    """
    of_runs = costs(logs)
    for run, knots in zip(runs, _bytes(logs, runs), strict=True):
        if knots is not None and (own := of_runs.get(run)) is not None:
            step, sent = knots
            a_step = own.compute_s + own.codec_s(own.workers) / own.every
            yield step, step * a_step + own.update_s(step) + 8 * own.copies(own.workers) * sent / bandwidth
        else:
            yield None


_KNOTS = {"time": _time, "epoch": _epoch, "bytes": _bytes}
_KNOTS |= {name: functools.partial(_over_link, bandwidth) for name, bandwidth in LINKS.items()}
