"""Differences paired by seed: against numbers worked out by hand, against scipy, and who is whose partner."""

import math
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from analysis.groups.seed_groups import without_chosen_rate
from analysis.logs.load import load
from analysis.tables.paired import difference, holm, partners


def test_difference_by_hand() -> None:
    """91, 93, 92, 96 less 90, 91, 92, 91: differences 1, 2, 0, 5, mean 2, s^2 = (1 + 0 + 4 + 9) / 3 = 14 / 3.

    Standard error sqrt(14 / 12) = 1.0801234; t = 1.8516402 with 3 degrees of freedom, of which 16.12 % lies beyond;
    half-width t(3, .975) = 3.1824463 times the error = 3.4374350.
    """
    found = difference(np.array([91.0, 93, 92, 96, 50, np.nan]), np.array([90.0, 91, 92, 91, np.nan, 60]))
    assert (found.mean, found.n) == (2.0, 4)
    assert found.half_width == pytest.approx(3.4374350, abs=1e-6)
    # Student's distribution with 3 degrees of freedom in closed form: F(t) = 1/2 + (atan(x) + x / (1 + x^2)) / pi at x
    # = t / sqrt(3)
    x = math.sqrt(12 / 14) * 2 / math.sqrt(3)
    assert found.p == pytest.approx(2 * (0.5 - (math.atan(x) + x / (1 + x * x)) / math.pi), rel=1e-12)
    assert found.p == pytest.approx(0.1612, abs=5e-5)


sixty_fourths = st.integers(-(10**6), 10**6).map(lambda number: number / 64)


@given(st.lists(st.tuples(sixty_fourths, st.one_of(sixty_fourths, st.just(math.nan))), min_size=2, max_size=9))
def test_p_equals_scipy(pairs: list[tuple[float, float]]) -> None:
    first, second = np.array(pairs).T
    both = np.isfinite(second)
    found = difference(first, second)
    assert found.n == both.sum()
    if found.n < 2 or len(set((first - second)[both])) == 1:
        assert math.isnan(found.p)
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # scipy on differences that are nearly equal
        theirs = stats.ttest_rel(first, second, nan_policy="omit")
    assert found.p == pytest.approx(theirs.pvalue, rel=1e-7, abs=1e-300)
    low, high = theirs.confidence_interval(0.95)
    assert (found.mean - found.half_width, found.mean + found.half_width) == pytest.approx(
        (low, high), rel=1e-7, abs=1e-6
    )


@pytest.mark.parametrize("others", [(90.3, 91.3, 92.3), (90.0, 91.0, 92.0)], ids=["none", "the same"])
def test_equal_differences_have_no_p(others: tuple[float, ...]) -> None:
    found = difference(np.array([90.3, 91.3, 92.3]), np.array(others))
    assert math.isnan(found.p)
    assert found.half_width == pytest.approx(0, abs=1e-10)


def test_one_pair_has_neither_interval_nor_p_and_none_no_mean() -> None:
    one, none = difference(np.array([3.0, 4.0]), np.array([1.0, np.nan])), difference(np.zeros(0), np.zeros(0))
    assert (one.mean, one.n) == (2.0, 1)
    assert math.isnan(one.half_width)
    assert math.isnan(one.p)
    assert (none.n, math.isnan(none.mean), math.isnan(none.p)) == (0, True, True)


def table(*rows: Mapping[str, object]) -> pd.DataFrame:
    return pd.DataFrame(list(rows), index=[f"r{index}" for index in range(len(rows))], dtype=object)


def found(settings: pd.DataFrame) -> dict[str, object]:
    return {str(run): other for run, other in partners(without_chosen_rate(settings)).items() if isinstance(other, str)}


def test_partners_agree_in_everything_outside_the_method() -> None:
    base = {"method.name": "supersgd", "seed": 1, "workers": 4, "schedule.at": (5,)}
    settings = table(
        base,
        base | {"method.name": "alq", "method.bits": 3},  # r1: r0
        base | {"method.name": "alq", "method.bits": 4},  # r2: r0 too
        base | {"method.name": "alq", "seed": 2},  # r3: the baseline has no such seed
        base | {"method.name": "alq", "workers": 8},  # r4: nor so many workers
        base | {"method.name": "alq", "schedule.at": (6,)},
        base | {"method.name": "alq", "workers": 4.0},  # r6: r0
    )
    assert found(settings) == {"r1": "r0", "r2": "r0", "r6": "r0"}


def test_what_cannot_change_a_result_does_not_part_partners() -> None:
    base = {"method.name": "supersgd", "seed": 1, "run_dir": "a", "log_every": 20}
    assert found(table(base, base | {"method.name": "alq", "run_dir": "b", "log_every": 5})) == {"r1": "r0"}


def test_a_rate_chosen_for_each_method_is_the_methods() -> None:
    base = {"method.name": "supersgd", "seed": 1, "workers": 4, "optim.lr": 0.1}
    chosen = table(base, base | {"method.name": "alq", "optim.lr": 0.05}, base | {"method.name": "trn"})
    assert found(chosen) == {"r1": "r0", "r2": "r0"}
    two = table(*[base | {"method.name": name, "optim.lr": lr} for name in ("supersgd", "alq") for lr in (0.1, 0.05)])
    assert found(two) == {"r2": "r0", "r3": "r1"}
    tasks = table(base, base | {"method.name": "alq", "optim.lr": 0.05, "workers": 2})
    assert found(tasks) == {}


def test_holms_correction() -> None:
    given = np.array([0.01, 0.04, np.nan, 0.03, 0.005])
    np.testing.assert_allclose(holm(given), [0.03, 0.06, np.nan, 0.06, 0.02])
    np.testing.assert_array_equal(holm(np.array([0.7, 0.9, np.nan])), [1.0, 1.0, np.nan])
    assert len(holm(np.array([]))) == 0


def test_large_seeds_and_steps_are_told_apart() -> None:
    base = {"method.name": "supersgd", "seed": 12345678, "steps": 1000001}
    settings = table(
        base, base | {"method.name": "alq", "seed": 12345679}, base | {"method.name": "alq", "steps": 1000002}
    )
    assert found(settings) == {}


def test_no_seed_no_partner() -> None:
    base = {"method.name": "supersgd", "seed": np.nan, "workers": 4}
    assert found(table(base, base | {"method.name": "alq"})) == {}


def test_several_baselines_are_none() -> None:
    base = {"method.name": "supersgd", "seed": 1, "workers": 4}
    assert found(table(base, base, base | {"method.name": "alq"})) == {}


def test_partners_of_a_sweep_over_tasks(write_run: Callable[..., Path], tmp_path: Path) -> None:
    for workers in (2, 4):
        for seed in (1, 2):
            for method in ("supersgd", "alq", "trn"):
                write_run("s", {"method": method, "workers": workers, "seed": seed}, [("Vacc", 0, 1.0)])
    settings = load(tmp_path / "runs", "s").settings
    pairs = found(settings)
    assert len(pairs) == 8
    for run, other in pairs.items():
        assert settings.loc[other, "method.name"] == "supersgd"
        assert list(settings.loc[run, ["workers", "seed"]]) == list(settings.loc[other, ["workers", "seed"]])
