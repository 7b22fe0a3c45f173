"""Means and 95 % intervals over seeds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.special import stdtrit

from analysis.cells import Cell
from analysis.logs.load import Logs

CONFIDENCE = 0.95
UNFINISHED = "unfinished"


@dataclass(frozen=True)
class Estimate:
    """Mean of n values and the half-width of its interval (NaN for n below 2)."""

    mean: float
    half_width: float
    n: int


def half_width(std: np.ndarray | float, n: np.ndarray | int) -> np.ndarray:
    """Student's t interval of a mean: t(n - 1) * s / sqrt(n); NaN where n is below 2."""
    n = np.asarray(n, float)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(n > 1, stdtrit(np.maximum(n - 1, 1), (1 + CONFIDENCE) / 2) * np.asarray(std) / np.sqrt(n), np.nan)


def estimate(values: pd.Series | np.ndarray) -> Estimate:
    """Mean and interval of the finite values."""
    finite = np.asarray(values, float)
    finite = finite[np.isfinite(finite)]
    if not len(finite):
        return Estimate(np.nan, np.nan, 0)
    std = float(finite.std(ddof=1)) if len(finite) > 1 else np.nan
    return Estimate(float(finite.mean()), float(half_width(std, len(finite))), len(finite))


def runs_to_use(logs: Logs, cell: Cell) -> list[str]:
    """The complete runs of a cell; where there is none yet, all that have logged something."""
    status = logs.status.loc[list(cell.runs)]
    complete = status.index[status["complete"]]
    return list(complete if len(complete) else status.index[status["logged"]])


def incomplete(logs: Logs) -> str:
    """How many runs have not finished, by state; empty where all have."""
    status = logs.status
    unfinished = status.loc[~status["complete"]]
    if not len(unfinished):
        return ""
    states = unfinished["state"].replace("", "unknown").value_counts()
    kinds = ", ".join(f"{count} {state}" for state, count in states.items())
    return f"{len(unfinished)} of {len(status)} runs are incomplete ({kinds})"


def wide(logs: Logs, tag: str, runs: list[str]) -> pd.DataFrame:
    """Steps down, runs across; non-finite values are absent.  ``a/b`` with two known tags is their quotient."""
    numerator, _, denominator = tag.partition(" / ")
    if denominator:
        return (wide(logs, numerator, runs) / wide(logs, denominator, runs)).dropna(how="all")
    return logs.of_tag(tag).reindex(columns=runs).dropna(how="all")


def seeds(logs: Logs, tag: str, cell: Cell, *, geometric: bool = False) -> pd.DataFrame:
    """The values (``geometric``: their logarithms) of those runs of a cell that make up its curve, at the steps that all of them have.

    Runs that have no finite (positive) value of the tag do not count.  Where the others share no step, because their seeds were
    measured at different ones, it is the run with the most values alone: a mean whose members change from step to step would move
    where no run does.
    """
    table = wide(logs, tag, runs_to_use(logs, cell))
    if geometric:
        table = table.where(table > 0).transform(np.log)
    table = table.dropna(axis=1, how="all")
    if not table.shape[1]:
        return table.iloc[:0]
    shared = table.dropna(axis=0)
    if len(shared):
        return shared
    longest = int(table.count().to_numpy().argmax())
    return table.iloc[:, [longest]].dropna(axis=0)


def curve(logs: Logs, tag: str, cell: Cell, *, geometric: bool = False) -> pd.DataFrame:
    """Mean, low, high and n by step, of ``seeds``.

    ``geometric``: mean and interval of the logarithm, for quantities that spread over orders of magnitude.
    """
    return mean_and_interval(seeds(logs, tag, cell, geometric=geometric), geometric=geometric)


def mean_and_interval(table: pd.DataFrame, *, geometric: bool = False) -> pd.DataFrame:
    """Mean, low, high and n of each row of ``seeds``; where those are logarithms (``geometric``), of the values."""
    n = table.shape[1]
    mean = table.mean(axis=1)
    width = half_width(table.std(axis=1, ddof=1).to_numpy(), n)
    found = pd.DataFrame({"mean": mean, "low": mean - width, "high": mean + width})
    found = found.transform(np.exp) if geometric else found
    return found.assign(n=n)


def mark(logs: Logs, cell: Cell, n: int) -> str:
    """What a legend has to add to a mean over ``n`` runs of a cell; empty where all its seeds are complete and used."""
    complete = int(logs.status.loc[list(cell.runs), "complete"].to_numpy().sum())
    if not complete:
        return UNFINISHED
    return f"{n} of {len(cell.runs)} seeds" if n < len(cell.runs) else ""


def marked(label: str, addition: str) -> str:
    """``ALQ (2 of 3 seeds)``, ``ALQ (4 bits, unfinished)``."""
    if not addition:
        return label
    return f"{label[:-1]}, {addition})" if label.endswith(")") else f"{label} ({addition})"


def final(logs: Logs, tag: str, runs: list[str]) -> pd.Series:
    """The last logged value of each run; NaN where the tag is missing or that value is not finite."""
    names, run, value = _rows(logs, tag)
    last = np.full(len(names), np.nan)
    last[run] = value  # in step order: the last one stays
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
    """The names of all runs; and of each row of a tag the number of its run and its value, in step order."""
    rows = logs.of_tags(tag)
    runs = rows["run"].cat
    return runs.categories, runs.codes.to_numpy(), rows["value"].to_numpy(float)


def late(logs: Logs, tag: str, runs: list[str]) -> pd.Series:
    """Geometric mean of each run's last quarter of values, at least one: measurements are noisy, one is not enough."""
    table = wide(logs, tag, runs)

    def of_run(values: np.ndarray) -> float:
        values = values[values > 0]
        return float(np.exp(np.log(values[-max(1, len(values) // 4) :]).mean())) if len(values) else np.nan

    return pd.Series({run: of_run(table[run].to_numpy()) for run in runs}, dtype=float)


def geometric_mean(values: pd.Series | np.ndarray) -> float:
    """Of the finite positive values; NaN where there is none."""
    finite = values[np.isfinite(values) & (values > 0)]
    return float(np.exp(np.log(finite).mean())) if len(finite) else np.nan
