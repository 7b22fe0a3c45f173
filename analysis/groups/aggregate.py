"""Means and 95 % intervals over seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from scipy.special import ndtri, stdtrit

from analysis.groups.seed_groups import SeedGroup
from analysis.logs.load import Logs

CONFIDENCE = 0.95
FEW_SEEDS = 4  # of fewer figures show the range
UNFINISHED = "unfinished"
RELATIVE_VARIANCE = "est_var / super_var"
UNMEASURED = "(measure.every=N measures the variance every N steps; 0, the default, never)"  # why there is none
_NORMAL = float(ndtri((1 + CONFIDENCE) / 2))  # for an error that is known, so without Student's t


@dataclass(frozen=True)
class Estimate:
    """Mean of n values and the half-width of its interval (NaN for n below 2).

    low, high: what a figure shows of their spread (``spread``).
    """

    mean: float
    half_width: float
    n: int
    low: float = field(default=np.nan, kw_only=True)
    high: float = field(default=np.nan, kw_only=True)

    @property
    def spread(self) -> str:
        return spread(self.n)


def spread(n: int) -> str:
    """What a figure shows of n values beside their mean: nothing, the ``range``, or from four on the ``interval``.

    A t interval of two or three fills a figure.
    """
    return "" if n < 2 else "range" if n < FEW_SEEDS else "interval"


def half_width(std: np.ndarray | float, n: np.ndarray | int) -> np.ndarray:
    """The half-width t(n - 1) * s / sqrt(n) of Student's t interval of a mean; NaN where n is below 2."""
    n = np.asarray(n, float)
    t = stdtrit(np.maximum(n - 1, 1), (1 + CONFIDENCE) / 2)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(n > 1, t * np.asarray(std) / np.sqrt(n), np.nan)


def estimate(values: pd.Series | np.ndarray) -> Estimate:
    """Mean and interval of the finite values."""
    finite = np.asarray(values, float)
    finite = finite[np.isfinite(finite)]
    if not len(finite):
        return Estimate(np.nan, np.nan, 0)
    n, mean = len(finite), float(finite.mean())
    if n < 2:
        return Estimate(mean, np.nan, n)
    half = float(half_width(float(finite.std(ddof=1)), n))
    low, high = (float(finite.min()), float(finite.max())) if spread(n) == "range" else (mean - half, mean + half)
    return Estimate(mean, half, n, low=low, high=high)


def runs_to_use(logs: Logs, seed_group: SeedGroup) -> list[str]:
    """The complete runs of a seed group; all runs that have logged something where none is complete yet."""
    complete = _told(logs, "complete", seed_group)
    chosen = complete if complete.any() else _told(logs, "logged", seed_group)
    return [run for run, used in zip(seed_group.runs, chosen.tolist(), strict=True) if used]


def _told(logs: Logs, name: str, seed_group: SeedGroup) -> np.ndarray:
    """The column ``name`` of ``logs.status``, a yes or no, for each run of a seed group."""
    places = logs.status.index.get_indexer(pd.Index(seed_group.runs, dtype=object))
    return logs.status[name].to_numpy(bool)[places]


def incomplete(logs: Logs) -> str:
    """A sentence that says how many runs have not finished, by state; empty where all have."""
    status = logs.status
    unfinished = status.loc[~status["complete"]]
    if not len(unfinished):
        return ""
    states = unfinished["state"].replace({"": "unknown", "done": "with a damaged log"}).value_counts()
    kinds = ", ".join(f"{count} {state}" for state, count in states.items())
    return f"{len(unfinished)} of {len(status)} runs are incomplete ({kinds})"


def wide(logs: Logs, tag: str, runs: Sequence[str]) -> pd.DataFrame:
    """The values of a tag, steps down and runs across, non-finite ones absent; ``a / b`` is a quotient of tags."""
    step, values = _values(logs, tag, runs)
    return pd.DataFrame(values, pd.Index(step, name="step"), pd.Index(runs, name="run", dtype=object))


def _values(logs: Logs, tag: str, runs: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """The table ``wide`` as arrays: steps, and values of (steps, runs), NaN where there is none."""
    numerator, _, denominator = tag.partition(" / ")
    if denominator:
        (step, values), (steps_below, below) = _values(logs, numerator, runs), _values(logs, denominator, runs)
        if not np.array_equal(step, steps_below):
            step, own, others = np.intersect1d(step, steps_below, assume_unique=True, return_indices=True)
            values, below = values[own], below[others]
        with np.errstate(divide="ignore", invalid="ignore"):
            values = values / below
        values[~np.isfinite(values)] = np.nan
    else:
        table = logs.of_tag(tag)
        step, values = table.index.to_numpy(), np.full((len(table), len(runs)), np.nan)
        places = table.columns.get_indexer(pd.Index(runs, dtype=object))
        there = places >= 0
        values[:, there] = table.to_numpy(float)[:, places[there]]
    some = ~np.isnan(values).all(axis=1)
    return step[some], values[some]


@dataclass(frozen=True)
class Seeds:
    """The values that make up a seed group's curve: (steps, runs), at the steps that all these runs have."""

    step: np.ndarray
    values: np.ndarray
    runs: tuple[str, ...]


def seeds(logs: Logs, tag: str, runs: Sequence[str], *, geometric: bool = False) -> Seeds:
    """The values of a tag that make up a seed group's curve, at the steps that all of its ``runs_to_use`` have.

    Runs that have no finite (positive) value of the tag do not count.  Where the others share no step, because their
    seeds were measured at different ones, it is the run with the most values alone: a mean whose members change from
    step to step would move where no run does.  ``geometric`` gives the logarithms of the values.
    """
    step, values = _values(logs, tag, runs)
    if geometric:
        values = np.log(np.where(values > 0, values, np.nan))
    known = np.isfinite(values)
    some = np.flatnonzero(known.any(axis=0))
    if not len(some):
        return Seeds(step[:0], values[:0, :0], ())
    rows = known[:, some].all(axis=1)
    if not rows.any():
        longest = known[:, some].sum(axis=0).argmax()
        some = some[longest : longest + 1]
        rows = known[:, some[0]]
    return Seeds(step[rows], values[rows][:, some], tuple(runs[place] for place in some.tolist()))


def mean_and_interval(values: np.ndarray, *, geometric: bool) -> np.ndarray:
    """The mean, low end and high end of each row: (3, rows); ``geometric``: of what these are logarithms of."""
    n = values.shape[1]
    if not n:
        return np.zeros((3, 0))
    mean = values.mean(axis=1)
    width = half_width(values.std(axis=1, ddof=1) if n > 1 else np.full(len(mean), np.nan), n)
    found = np.stack([mean, mean - width, mean + width])
    return np.exp(found) if geometric else found


def mean_and_spread(values: np.ndarray, *, geometric: bool) -> np.ndarray:
    """The mean and the ends of the ``spread`` of each row, as ``mean_and_interval``."""
    found = mean_and_interval(values, geometric=geometric)
    if spread(values.shape[1]) == "range":
        ends = np.stack([values.min(axis=1), values.max(axis=1)])
        found[1:] = np.exp(ends) if geometric else ends
    return found


def mark(logs: Logs, seed_group: SeedGroup, n: int) -> str:
    """The words that a legend adds to a mean over ``n`` runs; empty where all seeds are complete and used."""
    return fewer(seed_group, n) if any_complete(logs, seed_group) else UNFINISHED


def any_complete(logs: Logs, seed_group: SeedGroup) -> bool:
    """Whether any run of the seed group is complete."""
    return bool(_told(logs, "complete", seed_group).any())


def fewer(seed_group: SeedGroup, n: int) -> str:
    """The words ``2 of 3 seeds``; empty where all seeds are used."""
    return f"{n} of {len(seed_group.runs)} seeds" if n < len(seed_group.runs) else ""


def marked(label: str, addition: str) -> str:
    """A label with an addition in brackets: ``ALQ (2 of 3 seeds)``, ``ALQ (4 bits, unfinished)``."""
    if not addition:
        return label
    return f"{label[:-1]}, {addition})" if label.endswith(")") else f"{label} ({addition})"


def final(logs: Logs, tag: str, runs: list[str]) -> pd.Series:
    """The last logged value of each run; NaN where the tag is missing or that value is not finite."""
    names, run, value = _rows(logs, tag)
    last = np.full(len(names), np.nan)
    last[run] = value  # rows are in step order: the last one stays
    return pd.Series(last, index=names).reindex(runs).where(np.isfinite)


def best(logs: Logs, tag: str, runs: list[str]) -> pd.Series:
    """The largest finite value of each run."""
    names, run, value = _rows(logs, tag)
    largest = np.full(len(names), -np.inf)
    finite = np.isfinite(value)
    np.maximum.at(largest, run[finite], value[finite])
    return pd.Series(largest, index=names).reindex(runs).where(np.isfinite)


def average(logs: Logs, tag: str, runs: list[str]) -> pd.Series:
    """The mean of each run's finite values."""
    names, run, value = _rows(logs, tag)
    finite = np.isfinite(value)
    sums = np.bincount(run[finite], value[finite], len(names))
    with np.errstate(invalid="ignore"):
        return pd.Series(sums / np.bincount(run[finite], minlength=len(names)), index=names).reindex(runs)


def _rows(logs: Logs, tag: str) -> tuple[pd.Index, np.ndarray, np.ndarray]:
    """The names of all runs, and the run number and value of each row of a tag, in step order."""
    rows = logs.of_tags(tag)
    runs = rows["run"].cat
    return runs.categories, runs.codes.to_numpy(), rows["value"].to_numpy(float)


def late(logs: Logs, tag: str, runs: list[str]) -> pd.Series:
    """The geometric mean of the last quarter (at least one) of each run's values: single measurements are noisy."""
    table = wide(logs, tag, runs)

    def of_run(values: np.ndarray) -> float:
        values = values[values > 0]
        return float(np.exp(np.log(values[-max(1, len(values) // 4) :]).mean())) if len(values) else np.nan

    return pd.Series({run: of_run(table[run].to_numpy()) for run in runs}, dtype=float)


def relative_variance_error(logs: Logs, runs: list[str]) -> pd.Series:
    """The standard error of the log of each run's ``late`` relative variance; NaN where measurements tell no errors.

    Measurements draw minibatches of their own, so their errors are independent.
    """
    if "relative_var_se" not in logs.tags:
        return pd.Series(np.nan, index=runs, dtype=float)
    value, error = wide(logs, RELATIVE_VARIANCE, runs), wide(logs, "relative_var_se", runs)

    def of_run(run: str) -> float:
        steps = value.index[(value[run] > 0).to_numpy()]
        last = error[run].reindex(steps[-max(1, len(steps) // 4) :]).to_numpy(float)
        return float(np.sqrt(np.square(last).sum()) / len(last)) if len(last) else np.nan

    return pd.Series({run: of_run(run) for run in runs}, dtype=float)


def with_own_error(value: np.ndarray | float, log_error: np.ndarray | float) -> tuple[np.ndarray, np.ndarray]:
    """The ends of the interval of values whose logarithms have these standard errors."""
    width = np.exp(_NORMAL * np.asarray(log_error, float))
    return value / width, value * width


def geometric_mean(values: pd.Series | np.ndarray) -> float:
    """The geometric mean of the finite positive values; NaN where there is none."""
    finite = values[np.isfinite(values) & (values > 0)]
    return float(np.exp(np.log(finite).mean())) if len(finite) else np.nan
