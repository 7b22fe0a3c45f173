"""The C++ side of the levels against NumPy, scipy and itself under every instruction set."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from nuq import native
from nuq.levels import level_sets, solver_exact, solver_optimal, update_rules
from nuq.levels.objective import Objective
from nuq.levels.truncated_normals import CondTruncNorm, CondTruncNormHist, Histogram, TruncNorm
from nuq.native import levels as kernels
from tests.nuq.levels.test_update_rules import DISTRIBUTIONS
from tests.tiers import few

pytestmark = pytest.mark.skipif(native.library() is None, reason="the C++ kernels are not built")

mixtures = st.builds(
    lambda seed, size, spread: _mixture(np.random.default_rng(seed), size, spread),
    st.integers(0, 1000),
    st.sampled_from([2, 3, 40]),
    st.floats(0.0, 1.5),
)
histograms = st.builds(
    lambda seed, bins: _histogram(np.random.default_rng(seed), bins),
    st.integers(0, 1000),
    st.sampled_from([1, 7, 64, 500]),
)


def _mixture(rng, size, spread):
    return CondTruncNorm(
        rng.normal(0, 0.05, size).clip(-1, 1),
        0.02 * np.exp(rng.normal(0, spread, size)),
        rng.uniform(0, 1, size) + 1e-3,
    )


def _histogram(rng, bins):
    edges = np.sinh(np.linspace(-6, 6, bins + 1)) / np.sinh(6)
    edges[0], edges[-1] = -1, 1
    weight = rng.gamma(0.5, 1, bins) * (rng.random(bins) < 0.9) + 1e-6
    place = edges[:-1] + np.diff(edges) * rng.uniform(0.02, 0.98, bins)
    return Histogram(edges, weight, weight * place, weight * (place**2 + np.diff(edges) ** 2 / 50))


@settings(max_examples=25)
@given(mixtures)
def test_mixture_moments_equal_numpy(distribution):
    edges = distribution.knots(513)
    got = distribution.interval_moments(edges)
    with kernels.switched_off():
        expected = distribution.interval_moments(edges)
    np.testing.assert_allclose(got[0], expected[0], rtol=1e-9, atol=1e-300)  # tails of 1e-200 keep their digits
    np.testing.assert_allclose(got[1], expected[1], rtol=1e-6, atol=1e-16 * np.abs(expected[0]).max())
    np.testing.assert_allclose(got[2], expected[2], atol=1e-8 * expected[2].max())


def test_mixture_moments_equal_scipy_in_the_tails():
    distribution = CondTruncNorm([0.0, 0.0, 0.0], [0.01, 0.01, 0.01], [1, 2, 3])
    z = np.array([0.0, 0.3, 1.0, 4.0, 9.0, 20.0, 30.0, 36.0])
    exact = stats.norm.sf(z[:-1]) - stats.norm.sf(z[1:])
    np.testing.assert_allclose(distribution.interval_moments(z * 0.01)[0], exact, rtol=1e-12)
    np.testing.assert_allclose(distribution.interval_moments(-z[::-1] * 0.01)[0], exact[::-1], rtol=1e-12)


@pytest.mark.parametrize("size", [1, 2, 247, 248, 249, 1000])
def test_every_instruction_set_gives_the_same_bits(size):
    distribution = _mixture(np.random.default_rng(size), 60, 1.0)
    edges = np.sort(np.random.default_rng(1).normal(0, 0.1, size + 1)).clip(-1, 1)
    points = np.unique(np.append(distribution.knots(300), [-1.0, 1.0]))
    found = []
    for name in native.instruction_sets():
        with native.using(name):
            sums = solver_optimal.prefix_sums(Objective(CondTruncNormHist(distribution, 256), False), points)
            found.append(
                (
                    distribution.interval_moments(edges).tobytes(),
                    solver_optimal.best_indices(*sums, 20, centred=False).tobytes(),
                )
            )
    assert len(set(found)) == 1


@settings(max_examples=30)
@given(
    st.one_of(mixtures.map(CondTruncNormHist), histograms, st.sampled_from(list(DISTRIBUTIONS.values()))),
    st.booleans(),
    st.integers(0, 99),
)
def test_psi_equals_numpy(distribution, symmetric, seed):
    objective = Objective.of(distribution.tabulated(), symmetric)
    first = 0.0 if symmetric else -1.0
    edges = np.sort(np.random.default_rng(seed).uniform(first, 1, (3, 9)), axis=1)
    edges[:, 0], edges[:, -1] = first, 1.0
    got = objective.value(edges)
    with kernels.switched_off():
        np.testing.assert_allclose(got, objective.value(edges), rtol=1e-10, atol=1e-18)


@settings(max_examples=30)
@given(
    st.one_of(mixtures.map(CondTruncNormHist), histograms, st.sampled_from(list(DISTRIBUTIONS.values()))),
    st.booleans(),
    st.sampled_from([2, 3, 4]),
)
def test_solvers_end_where_numpy_ends(distribution, symmetric, bits):
    objective = Objective.of(distribution.tabulated(), symmetric)
    start = objective.edges(level_sets.companded(bits, distribution.tabulated(), symmetric=symmetric))[None]
    for solve in (solver_exact.descend, solver_exact.projected_descent):
        edges, psi = solve(objective, start)
        with kernels.switched_off():
            _, expected = solve(objective, start)
            assert float(objective.value(edges[0])) == pytest.approx(psi[0], rel=1e-9, abs=1e-18)
        # rounding may send one of them to another minimum of a rough distribution; from a smooth one both find the same
        assert psi[0] == pytest.approx(
            expected[0],
            rel=1e-8 if not isinstance(distribution, Histogram) or distribution.edges.size > 2000 else 0.05,
            abs=1e-17,
        )
    if symmetric:
        p, _ = solver_exact.multiplier(objective, bits)
        with kernels.switched_off():
            other, _ = solver_exact.multiplier(objective, bits)
        values = objective.value(solver_exact.multiplier_edges(np.array([p, other]), bits))
        assert values[0] == pytest.approx(values[1], rel=1e-9, abs=1e-18)


@settings(max_examples=30)
@given(st.one_of(mixtures.map(CondTruncNormHist), histograms), st.booleans(), st.sampled_from([3, 4, 7, 16, 60]))
def test_the_program_equals_numpy(distribution, symmetric, num_levels):
    objective = Objective.of(distribution, symmetric)
    points = solver_optimal.candidates(objective.distribution, 0.0 if symmetric else -1.0, num_levels)
    given_ = (*solver_optimal.prefix_sums(objective, points), num_levels)
    got = objective.value(points[solver_optimal.best_indices(*given_, centred=symmetric)])
    with kernels.switched_off():
        assert got == pytest.approx(
            objective.value(points[solver_optimal.best_indices(*given_, centred=symmetric)]), rel=1e-9, abs=1e-16
        )


@few(2, "name", DISTRIBUTIONS)
def test_fitted_levels_equal_those_of_numpy(name):
    distribution = DISTRIBUTIONS[name]
    for bits in (2, 3, 4):
        for call in (
            partial(update_rules.alq, distribution, bits),
            partial(update_rules.amq, distribution, bits),
            partial(update_rules.optimal, distribution, 2**bits),
        ):
            made = call()
            with kernels.switched_off():
                expected = call()
            assert made.expected_variance == pytest.approx(expected.expected_variance, rel=1e-6, abs=1e-16)


@settings(max_examples=20)
@given(st.floats(-1, 1), st.floats(1e-4, 2.0), st.booleans())
def test_closed_form_and_table_agree_on_a_normal(mean, sigma, symmetric):
    """The solver inverts a truncated normal in closed form by itself: held against a table of the same."""
    distribution = TruncNorm(mean, sigma)
    closed, table = (
        update_rules.alq(each, 3, symmetric=symmetric) for each in (distribution, CondTruncNormHist(distribution))
    )
    assert update_rules.expected_variance(table.levels, distribution) == pytest.approx(
        closed.expected_variance, rel=1e-6, abs=1e-17
    )
