"""The results of each run: one row per run, from which the tables are made."""

from __future__ import annotations

import numpy as np
import pandas as pd

from analysis.groups.aggregate import (
    RELATIVE_VARIANCE,
    average,
    best,
    final,
    late,
    relative_variance_error,
    with_own_error,
)
from analysis.groups.tensor_formats import FULL_PRECISION, compressor
from analysis.logs.load import Logs
from nuq.registry import METHODS


def of_runs(logs: Logs) -> pd.DataFrame:
    """A table of results with one row per run, finished or not.

    A value is NaN where the run has not logged the quantity, and of a damaged log that ends early.

    ``final``, ``best``: accuracy in percent; ``correlation``: last, of predictions and labels, for data that log one;
    ``loss``: last validation loss; ``bits``: sent per coordinate, last step; ``ratio``: of ``compression_ratio``;
    ``sent_mb``: by one worker, 10^6 bytes; ``variance``: relative to SuperSGD's, last quarter of the measurements;
    ``variance_low``, ``variance_high``: its own 95 % interval; ``steps_per_s``: by the mean duration of a training
    step, level updates in, measurements and evaluations not; ``images_per_s``: of all workers that train; ``seconds``:
    the whole run.
    """
    runs = list(logs.settings.index)
    step_s = average(logs, "time/step_s", runs)
    steps_per_s = 1 / step_s.where(step_s > 0)
    variance = late(logs, RELATIVE_VARIANCE, runs).to_numpy()
    low, high = with_own_error(variance, relative_variance_error(logs, runs).to_numpy())
    found = pd.DataFrame(
        {
            "final": final(logs, "Vacc", runs),
            "best": best(logs, "Vacc", runs),
            "correlation": final(logs, "Vpearson", runs).fillna(final(logs, "Vmatthews", runs)),
            "loss": final(logs, "Vloss", runs),
            "bits": final(logs, "comm/bits_per_coordinate", runs),
            "ratio": compression_ratio(logs),
            "sent_mb": 1e-6 * final(logs, "comm/bytes", runs),
            "variance": variance,
            "variance_low": low,
            "variance_high": high,
            "steps_per_s": steps_per_s,
            "images_per_s": steps_per_s * images_per_step(logs.settings),
        },
        index=logs.settings.index,
    )
    cut_off = (logs.status["state"] == "done") & ~logs.status["complete"].astype(bool)
    return found.where(~cut_off).assign(seconds=logs.status["seconds"].astype(float))


def of_complete_runs(logs: Logs) -> pd.DataFrame:
    """The table ``of_runs``, NaN throughout for a run that is not complete."""
    return of_runs(logs).where(logs.status["complete"].astype(bool))


def compression_ratio(logs: Logs) -> pd.Series:
    """The bytes of float32 over those of the formats in which each run keeps its tensors: the mean of what it logged.

    In a sweep where any run logged it, runs that compress gradients alone have 32 bits over those that travelled, and 1
    for full precision. It is NaN otherwise.
    """
    runs = list(logs.settings.index)
    found = average(logs, "compression_ratio", runs)
    if found.notna().to_numpy().any():
        rows = logs.settings.to_dict("records")
        whole = np.array([compressor(row) in FULL_PRECISION for row in rows], bool)
        found = found.mask(found.isna() & whole, 1.0).fillna(32 / final(logs, "comm/bits_per_coordinate", runs))
    return found


def images_per_step(settings: pd.DataFrame) -> pd.Series:
    """The images of one step over all workers that compute a gradient; NaN where batch or workers are unknown."""
    alone = np.array([name in METHODS and METHODS[name].single_worker for name in settings["method.name"]], bool)
    alone |= (settings["trajectory"] == "sgd").to_numpy()
    batch, workers = (_numbers(settings, name) for name in ("batch_size", "workers"))
    return pd.Series(batch * np.where(alone, 1, workers), index=settings.index)


def _numbers(settings: pd.DataFrame, name: str) -> np.ndarray:
    if name not in settings:
        return np.full(len(settings), np.nan)
    return np.asarray(pd.to_numeric(settings[name], errors="coerce"), float)
