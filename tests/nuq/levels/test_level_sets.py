"""Level sets: invariants, values, and one clear error for every bad input."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from nuq.levels import level_sets
from nuq.levels.level_sets import Levels
from nuq.levels.truncated_normals import Histogram, TruncNorm

SETS = {
    "uniform": level_sets.uniform,
    "exponential": level_sets.exponential,
    "quantile": lambda bits: level_sets.quantile(bits, TruncNorm(0.05, 0.01)),
    "quantile of |r|": lambda bits: level_sets.quantile(bits, TruncNorm(0.05, 0.01), symmetric=True),
    "companded": lambda bits: level_sets.companded(bits, TruncNorm(0.05, 0.01)),
    "companded |r|": lambda bits: level_sets.companded(bits, TruncNorm(0.05, 0.01), symmetric=True),
}


@pytest.mark.parametrize("bits", range(1, 9))
@pytest.mark.parametrize("name", SETS)
def test_every_set_fills_its_bits_and_runs_from_minus_one_to_one(name, bits):
    made = SETS[name](bits)
    assert made.num_levels == 2**bits == len(set(made.values.astype(np.float32).tolist()))
    assert made.values[0] == -1 and made.values[-1] == 1 and not made.includes_zero
    assert made.symmetric or name in ("quantile", "companded")


def test_values():
    np.testing.assert_allclose(level_sets.uniform(3).values, np.linspace(-1, 1, 8), atol=1e-15)
    np.testing.assert_array_equal(level_sets.exponential(3).positive, [0.125, 0.25, 0.5, 1.0])
    np.testing.assert_allclose(level_sets.exponential(2, 0.1).values, [-1, -0.1, 0.1, 1])
    np.testing.assert_allclose(level_sets.uniform_magnitude(3).values, np.linspace(-1, 1, 7), atol=1e-15)
    assert level_sets.uniform_magnitude(8).includes_zero and level_sets.uniform_magnitude(8).num_levels == 255
    np.testing.assert_array_equal(level_sets.ternary().values, [-1, 0, 1])
    assert level_sets.ternary().includes_zero and level_sets.ternary().symmetric


def test_quantile_levels_are_the_quantiles_with_the_ends_put_at_one():
    scipy = stats.truncnorm(-1 / 0.1, 1 / 0.1, scale=0.1)
    expected = scipy.ppf(np.linspace(0, 1, 8))
    for symmetric in (False, True):
        made = level_sets.quantile(3, TruncNorm(0.0, 0.1), symmetric=symmetric)
        np.testing.assert_allclose(made.values[1:-1], expected[1:-1], rtol=1e-12)


def test_companded_levels_of_a_normal_are_quantiles_of_a_normal_three_times_as_wide_in_variance():
    made = level_sets.companded(5, TruncNorm(0.0, 0.01))  # f^(1/3) of N(0, s^2) is N(0, 3 s^2)
    expected = stats.norm(scale=0.01 * np.sqrt(3)).ppf(np.linspace(0, 1, 32))
    np.testing.assert_allclose(made.values[1:-1], expected[1:-1], rtol=1e-3)


def test_a_distribution_with_atoms_still_gives_distinct_levels():
    atom = Histogram([-1.0, 0.0, 1e-12, 1.0], [0, 1, 0], [0, 5e-13, 0], [0, 2.5e-25, 0])
    for symmetric in (False, True):
        assert level_sets.quantile(8, atom, symmetric=symmetric).num_levels == 256


@given(st.lists(st.floats(-1, 1), min_size=2, max_size=256), st.booleans())
def test_spread_separates_whatever_it_is_given(values, symmetric):
    values = np.sort(np.abs(values) if symmetric else values)[: 128 if symmetric else 256]
    made = level_sets.spread(values, symmetric=symmetric)
    assert made.num_levels == len(values) * (2 if symmetric else 1)
    inner = values[:-1] if symmetric else values[1:-1]
    kept = made.positive[:-1] if symmetric else made.values[1:-1]
    np.testing.assert_allclose(kept, inner, atol=256 * 6e-8)


def test_levels_are_a_value():
    source = np.array([-1.0, 0.5, 1.0])
    made = Levels(source)
    source[1] = 0.0
    assert (
        made.values[1] == 0.5
        and made == Levels(np.array([-1, 0.5, 1]))
        and made != level_sets.ternary()
        and made != "levels"
    )
    assert len({made, Levels(np.array([-1, 0.5, 1])), level_sets.ternary()}) == 2
    assert not made.symmetric and not made.includes_zero
    np.testing.assert_array_equal(made.positive, [0.5, 1.0])
    with pytest.raises(ValueError, match="read-only"):
        made.values[0] = 0
