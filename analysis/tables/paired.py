"""Differences between methods, seed by seed: the same task and the same seed, with another method.

Runs of one seed start from the same weights and see the same minibatches, so much of the spread between seeds is common
to both and leaves their difference.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import stdtr

from analysis.groups.aggregate import Estimate, estimate
from analysis.groups.seed_groups import no_result_names, of_the_method, without_chosen_rate
from analysis.groups.tensor_formats import keeps
from nuq.registry import METHODS

BASELINE = "supersgd"
_METHOD = ("method", "method.name")
_ROUNDING = 1e-12  # differences of equal numbers, relative to the numbers


@dataclass(frozen=True)
class Difference(Estimate):
    """The mean difference, half-width of its interval, number of pairs, and the p value of "there is none"."""

    p: float


def difference(values: pd.Series | np.ndarray, others: pd.Series | np.ndarray) -> Difference:
    """The mean of ``values - others`` over the pairs of finite values, with the two-sided p of Student's paired t test.

    t = mean / (s / sqrt(n)) with n - 1 degrees of freedom. p is NaN where the test has nothing to measure the mean
    against: for fewer than two pairs, and where all differences are equal (rounding aside), be they 0 or not.
    Accuracies are multiples of one test image: two or three equal differences are no certainty, which a p of 0 would
    claim.
    """
    first, second = np.asarray(values, float), np.asarray(others, float)
    both = np.isfinite(first) & np.isfinite(second)
    differences = first[both] - second[both]
    found = estimate(differences)
    p = np.nan
    if found.n > 1:
        error = float(differences.std(ddof=1)) / np.sqrt(found.n)
        if error > _ROUNDING * float(np.abs([first[both], second[both]]).max()):
            p = float(2 * stdtr(found.n - 1, -abs(found.mean) / error))
    return Difference(found.mean, found.half_width, found.n, p)


def holm(p: np.ndarray) -> np.ndarray:
    """P values corrected for their number (Holm, 1979); NaN stay, and do not count.

    The k-th smallest of n is multiplied by n - k + 1, and none is below the one before.  The chance that any method
    without a difference gets a value below a is then at most a.
    """
    p = np.asarray(p, float)
    corrected, order = p.copy(), np.argsort(p)[: int(np.isfinite(p).sum())]
    factors = len(order) - np.arange(len(order))
    corrected[order] = np.minimum(np.maximum.accumulate(p[order] * factors), 1.0)
    return corrected


def partners(settings: pd.DataFrame) -> pd.Series:
    """The baseline's run with which each run is compared; absent where there is none, or more than one.

    Partners have the same seed and agree in every setting outside the method and its memory (data, model, workers,
    rate, steps, trajectory ...) that can change a result; one that neither reads counts as equal.  The baseline keeps
    all tensors in full precision.
    """
    names = [name for name in settings if not of_the_method(name) and name not in no_result_names()]
    keys = _keys(settings, ["seed", *names])
    of_tensors = settings.filter(regex="^(method.name|tensors[.])").to_dict("records")
    whole = np.array([not keeps(row) for row in of_tensors], bool)
    seeded = settings["seed"].notna()
    of_baseline = (settings["method.name"] == BASELINE) & seeded & whole
    own = keys.loc[of_baseline].drop_duplicates(keep=False)
    return keys.map(pd.Series(own.index, index=own.to_numpy(), dtype=object)).where(seeded & ~of_baseline)


def _keys(settings: pd.DataFrame, names: Sequence[str]) -> pd.Series:
    """One text for each run, equal where the settings are; most of them are the same throughout and left out."""
    found = pd.Series("", index=settings.index, dtype=object)
    for name in names:
        text = [_exact(value) for value in settings[name]]
        if len(set(text)) > 1:
            found += pd.Series(text, index=settings.index) + "\n"
    return found


def _exact(value: Any) -> str:
    """A text that is equal for equal values: 1 and 1.0, but not 1000001 and 1000002, which are shown alike."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    return repr(int(value) if isinstance(value, float) and value.is_integer() else value)


def without_partner(
    every: pd.DataFrame, chosen: pd.DataFrame, conditions: Sequence[str], methods: Sequence[str] = ()
) -> list[str]:
    """A sentence where --where (``conditions``) or --methods chose runs without those of the baseline beside them.

    ``every``, ``chosen``: the settings of all runs and of these.
    """
    with_one = partners(without_chosen_rate(every)).dropna()
    lost = [run for run, partner in with_one.items() if run in chosen.index and partner not in chosen.index]
    if not lost:
        return []
    option, named = "--where", next((text for text in conditions if text.partition("=")[0] in _METHOD), "")
    way_out = f"; {named},{BASELINE} keeps it" if named else ""
    if methods and BASELINE not in methods:
        option, way_out = "--methods", f"; --methods {' '.join([*methods, BASELINE])} keeps it"
    title = METHODS[BASELINE].title
    return [f"{option} leaves out {title}, with which {len(lost)} of these runs would be compared{way_out}"]
