"""Means and intervals, against numbers worked out by hand and against scipy."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from analysis.groups.aggregate import average, best, estimate, final, geometric_mean, incomplete, late, runs_to_use
from analysis.groups.seed_groups import seed_groups
from analysis.logs.load import Logs, load
from tests.analysis.mean_curve import curve


def test_estimate_by_hand() -> None:
    """1, 2, 6: mean 3, s = sqrt(7), t(2, .975) = 4.302653, half-width 4.302653 * sqrt(7 / 3) = 6.572411."""
    found = estimate(np.array([1.0, 2.0, 6.0, np.nan, np.inf]))
    assert (found.mean, found.n) == (3.0, 3)
    assert found.half_width == pytest.approx(6.572411, abs=2e-6)


@given(st.lists(st.integers(-(10**6), 10**6).map(lambda number: number / 64), min_size=2, max_size=12, unique=True))
def test_estimate_equals_scipy(values: list[float]) -> None:
    found = estimate(np.array(values))
    low, high = stats.t.interval(0.95, len(values) - 1, loc=np.mean(values), scale=stats.sem(values))
    np.testing.assert_allclose(
        [found.mean - found.half_width, found.mean + found.half_width], [low, high], rtol=1e-9, atol=1e-6
    )


def test_one_value_has_no_interval_and_none_has_no_mean() -> None:
    one, none = estimate(np.array([4.0])), estimate(np.array([np.nan]))
    assert (one.mean, one.n, np.isnan(one.half_width)) == (4.0, 1, True)
    assert (np.isnan(none.mean), none.n) == (True, 0)


@pytest.fixture
def three_seeds(write_run: Callable[..., Path], tmp_path: Path) -> Callable[..., Logs]:
    def made(*values: dict[int, float], states: tuple[str, ...] = ("done",) * 3) -> Logs:
        for seed, (rows, state) in enumerate(zip(values, states, strict=False), 1):
            write_run("s", {"seed": seed}, [("x", step, value) for step, value in rows.items()], state=state)
        return load(tmp_path / "runs", "s")

    return made


def test_curves_stand_on_common_steps(three_seeds: Callable[..., Logs]) -> None:
    logs = three_seeds({0: 1, 10: 1, 20: 4}, {0: 2, 10: float("nan"), 20: 4, 30: 9}, {0: 6, 10: 3, 20: 4})
    found = curve(logs, "x", seed_groups(logs.settings)[0])
    assert list(found.index) == [0, 20]
    np.testing.assert_allclose(found["mean"], [3, 4])
    np.testing.assert_allclose(found["high"] - found["mean"], [6.572411, 0], atol=2e-6)
    np.testing.assert_allclose(found["mean"] - found["low"], [6.572411, 0], atol=2e-6)
    assert list(found["n"]) == [3, 3]


def test_geometric_curves_average_the_logarithm(three_seeds: Callable[..., Logs]) -> None:
    logs = three_seeds({0: 1e-6, 1: 0}, {0: 1e-4, 1: 1}, {0: 1e-2, 1: 1})
    found = curve(logs, "x", seed_groups(logs.settings)[0], geometric=True)
    assert list(found.index) == [0]
    half_width = stats.t.ppf(0.975, 2) * 2 / np.sqrt(3)  # of log10: -6, -4, -2
    np.testing.assert_allclose(
        np.log10(found.loc[0, ["low", "mean", "high"]].astype(float)), [-4 - half_width, -4, -4 + half_width], rtol=1e-6
    )


def test_incomplete_runs_give_way_to_complete_ones(three_seeds: Callable[..., Logs]) -> None:
    logs = three_seeds({0: 1, 10: 1}, {0: 100}, {0: 3, 10: 3}, states=("done", "running", "done"))
    (seed_group,) = seed_groups(logs.settings)
    assert len(runs_to_use(logs, seed_group)) == 2
    assert list(curve(logs, "x", seed_group)["mean"]) == [2, 2]
    assert incomplete(logs) == "1 of 3 runs are incomplete (1 running)"


def test_without_complete_runs_the_others_are_used(three_seeds: Callable[..., Logs]) -> None:
    logs = three_seeds({0: 1, 10: 1}, {0: 3}, states=("failed", "running"))
    assert list(curve(logs, "x", seed_groups(logs.settings)[0])["mean"]) == [2]


def test_a_missing_tag_is_an_empty_curve(three_seeds: Callable[..., Logs]) -> None:
    logs = three_seeds({0: 1})
    assert len(curve(logs, "y", seed_groups(logs.settings)[0])) == 0
    assert len(curve(logs, "x / y", seed_groups(logs.settings)[0])) == 0


def test_final_best_and_late(three_seeds: Callable[..., Logs]) -> None:
    logs = three_seeds({0: 8, 10: 4, 20: 1, 30: 100, 40: 1, 50: 1, 60: 2, 70: 8}, {0: 5, 10: float("nan")}, {})
    runs = list(logs.settings.index)
    order = [int(logs.settings.loc[run, "seed"]) - 1 for run in runs]
    np.testing.assert_array_equal(final(logs, "x", runs), np.array([8, np.nan, np.nan])[order])
    np.testing.assert_array_equal(best(logs, "x", runs), np.array([100, 5, np.nan])[order])
    np.testing.assert_allclose(
        late(logs, "x", runs), np.array([4, 5, np.nan])[order]
    )  # sqrt(2 * 8); the only one; none
    assert geometric_mean(late(logs, "x", runs)) == pytest.approx(np.sqrt(20))


def test_a_small_sweep_by_hand(write_run: Callable[..., Path], tmp_path: Path) -> None:
    """Four seeds of ALQ and what becomes of them, each number worked out on paper.

    Accuracy at steps 0, 10, 20: seed 1: 50, 90, 88; seed 2: 52, nan, 91; seed 3: no step 10: 54, 94; seed 4: 51, 89,
    inf.  Final values 88, 91, 94, none: mean 91, s = 3, half-width t(2, .975) * 3 / sqrt(3) = 4.302653 * 1.732051 =
    7.452414.  Best values 90, 91, 94, 89: mean 91, s = sqrt((1 + 0 + 9 + 4) / 3) = 2.160247, t(3, .975) = 3.182446,
    half-width 3.437435.  Curve: step 0 alone is shared by all four: mean 51.75, s = sqrt((3.0625 + .0625 + 5.0625 +
    .5625) / 3) = 1.707825, half-width 3.182446 * 1.707825 / 2 = 2.717531.
    """
    accuracy = [
        {0: 50, 10: 90, 20: 88},
        {0: 52, 10: float("nan"), 20: 91},
        {0: 54, 20: 94},
        {0: 51, 10: 89, 20: float("inf")},
    ]
    for seed, values in enumerate(accuracy, 1):
        write_run("s", {"seed": seed}, [("Vacc", step, value) for step, value in values.items()])
    logs = load(tmp_path / "runs", "s")
    runs = list(logs.settings.index)
    ends, peaks = estimate(final(logs, "Vacc", runs)), estimate(best(logs, "Vacc", runs))
    assert (ends.mean, ends.n, ends.half_width) == (91, 3, pytest.approx(7.452414, abs=2e-6))
    assert (peaks.mean, peaks.n, peaks.half_width) == (91, 4, pytest.approx(3.437435, abs=2e-6))
    found = curve(logs, "Vacc", seed_groups(logs.settings)[0])
    assert list(found.index) == [0]
    assert tuple(found.loc[0]) == pytest.approx((51.75, 51.75 - 2.717531, 51.75 + 2.717531, 4), abs=2e-6)


@given(
    st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=9),
    st.lists(st.sampled_from([np.nan, np.inf, 0.0, -1.0]), max_size=3),
)
def test_geometric_mean_equals_scipy(values: list[float], absent: list[float]) -> None:
    assert geometric_mean(np.array([*values, *absent])) == pytest.approx(stats.gmean(values), rel=1e-10)


def test_no_positive_value_has_no_geometric_mean() -> None:
    assert np.isnan(geometric_mean(np.array([0.0, -1.0, np.nan])))


@given(st.lists(st.one_of(st.floats(0.5, 2), st.just(float("nan"))), min_size=1, max_size=9))
def test_final_best_and_average_of_any_values(values: list[float]) -> None:
    """They agree with the plain reading of a small table: the last, the largest and the mean of one run, while a second
    one has other values.
    """
    steps = list(range(len(values)))
    scalars = pd.DataFrame(
        {"run": ["b"] * len(values) + ["a"] * 2, "tag": "x", "step": [*steps, 0, 1], "value": [*values, 7.0, 3.0]}
    )
    scalars = scalars.astype({"run": "category", "tag": "category"})
    runs = ["a", "b", "c"]
    logs = cast("Logs", SimpleNamespace(of_tags=lambda tag: scalars[scalars["tag"] == tag]))
    finite = [value for value in values if np.isfinite(value)]
    middle = float(np.mean(finite)) if finite else np.nan
    np.testing.assert_array_equal(final(logs, "x", runs), [3, values[-1], np.nan])
    np.testing.assert_array_equal(best(logs, "x", runs), [7, max(finite, default=np.nan), np.nan])
    np.testing.assert_allclose(average(logs, "x", runs), [5, middle, np.nan], rtol=1e-12)
    for reduced in (final, best, average):
        assert reduced(logs, "y", runs).isna().all()
