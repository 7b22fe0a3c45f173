"""Fitted levels against independent optima, brute force and the published values; no solver ever returns NaN."""

import doctest
import itertools
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, optimize, stats

from nuq.levels import level_sets, solver_exact, solver_paper, update_rules
from nuq.levels.level_sets import Levels
from nuq.levels.objective import Objective
from nuq.levels.truncated_normals import CondTruncNorm, CondTruncNormHist, Histogram, TruncNorm
from tests.tiers import few

rng = np.random.default_rng(3)
# independent optima: sigma, bits, Psi*
OPTIMA = [
    (1 / 32, 2, 3.038439632e-3),
    (1 / 32, 3, 1.976421727e-4),
    (1 / 32, 4, 3.083512957e-5),
    (0.1, 2, 1.696331341e-2),
    (0.1, 3, 1.675606346e-3),
    (0.1, 4, 2.915558202e-4),
]
PUBLISHED = TruncNorm(0.0, 16384**-0.5)  # an L2-normalised bucket of 16384 coordinates


def measured(values, num_bins=512):
    edges = np.sinh(np.linspace(-8, 8, num_bins + 1)) / np.sinh(8)
    edges[0], edges[-1] = -1, 1
    place = np.clip(np.searchsorted(edges, values, side="right") - 1, 0, num_bins - 1)
    return Histogram(edges, *(np.bincount(place, values**k, num_bins) for k in range(3)))


HEAVY = measured(np.clip(rng.standard_t(3, 200_000) / 128, -1, 1))
DISTRIBUTIONS = {
    "normal": TruncNorm(0.0, 1 / 128),
    "off centre": TruncNorm(0.03, 0.02),
    "far": TruncNorm(0.9, 1e-4),
    "end": TruncNorm(-1.0, 0.01),
    "narrow": TruncNorm(0.0, 1e-4),
    "point": TruncNorm(0.2, 0.0),
    "wide": TruncNorm(0.1, 1.4),
    "mixture": CondTruncNorm([0.0, 0.01, -0.05], [1e-3, 0.01, 0.1], [1, 1, 0.1]),
    "two peaks": CondTruncNorm([-0.5, 0.5], [0.01, 0.01], [1, 1]),
    "heavy": HEAVY,
    "few": measured(rng.normal(0, 0.1, 20)),
    "ends": measured(np.array([-1.0, 1.0])),
    "zeros": measured(np.zeros(9)),
    "one bin": Histogram([-1, 1], [1], [0.1], [0.4]),
    "part": Histogram([0.2, 0.3, 0.5], [1, 2], [0.25, 0.8], [0.0633, 0.3267]),
}


def brute_psi(values, mean, sigma):
    """Psi by quadrature of scipy's density."""

    def density(r):
        return stats.truncnorm.pdf(r, (-1 - mean) / sigma, (1 - mean) / sigma, loc=mean, scale=sigma)

    total = 0.0
    for a, b in itertools.pairwise(values):
        near = [p for p in (mean - 3 * sigma, mean, mean + 3 * sigma) if a < p < b]
        total += integrate.quad(
            lambda r, a=a, b=b: (r - a) * (b - r) * density(r), a, b, points=near or None, epsabs=1e-13, limit=200
        )[0]
    return total


@pytest.mark.parametrize("mean, sigma", [(0.0, 0.1), (0.2, 0.05), (-0.5, 0.5)])
def test_expected_variance_equals_quadrature(mean, sigma):
    distribution = TruncNorm(mean, sigma)
    for made in (
        level_sets.uniform(3),
        level_sets.exponential(3),
        level_sets.ternary(),
        level_sets.uniform_magnitude(3),
    ):
        assert update_rules.expected_variance(made, distribution) == pytest.approx(
            brute_psi(made.values, mean, sigma), rel=1e-8
        )
        assert update_rules.expected_variance(made, CondTruncNormHist(distribution)) == pytest.approx(
            brute_psi(made.values, mean, sigma), rel=1e-8
        )


def test_expected_variance_of_measured_coordinates_equals_their_mean():
    values = rng.normal(0, 0.1, 10_000).clip(-1, 1)
    made = level_sets.uniform(3)
    place = np.searchsorted(made.values[1:-1], values, side="right")
    expected = ((values - made.values[place]) * (made.values[place + 1] - values)).mean()
    assert update_rules.expected_variance(made, measured(values, 4096)) == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("sigma, bits, optimum", OPTIMA)
@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("solve", [update_rules.alq, update_rules.alq_gradient])
def test_exact_solvers_reach_the_known_optimum(sigma, bits, optimum, symmetric, solve):
    distribution = TruncNorm(0.0, sigma)
    for made in (
        solve(distribution, bits, symmetric=symmetric),
        solve(CondTruncNormHist(distribution), bits, symmetric=symmetric),
    ):
        assert made.expected_variance == pytest.approx(optimum, rel=1e-8)
        assert made.levels.num_levels == 2**bits
    if (sigma, bits) == (1 / 32, 3):
        np.testing.assert_allclose(made.levels.positive, [0.013047, 0.042609, 0.094134, 1.0], atol=1e-6)
        assert optimum * 1024 == pytest.approx(
            0.2024, abs=5e-5
        )  # vNMSE of an L2 bucket of 1024; .2835 with a phantom level at 0


def test_every_start_alone_ends_at_the_optimum_of_a_normal():
    for distribution, bits in ((TruncNorm(0.0, 1 / 128), 3), (TruncNorm(0.0, 1 / 128), 4), (TruncNorm(0.1, 0.05), 4)):
        for symmetric in (True, False):
            objective = Objective.of(distribution, symmetric)
            starts = [
                level_sets.uniform(bits),
                level_sets.exponential(bits),
                level_sets.quantile(bits, distribution, symmetric=symmetric),
            ]
            best = update_rules.alq(distribution, bits, symmetric=symmetric).expected_variance
            edges, psi = solver_exact.descend(objective, np.stack([objective.edges(made) for made in starts]))
            np.testing.assert_allclose(psi, best, rtol=1e-9)
            assert np.isfinite(edges).all()


@settings(deadline=None, max_examples=30)
@given(
    st.sampled_from(["normal", "off centre", "wide", "mixture", "two peaks", "heavy"]),
    st.lists(st.floats(0.001, 0.999), min_size=3, max_size=3, unique=True),
    st.booleans(),
)
def test_psi_never_rises_in_a_sweep(name, inner, symmetric):
    objective = Objective.of(DISTRIBUTIONS[name], symmetric)
    edges = np.concatenate([[0.0 if symmetric else -1.0], np.sort(inner), [1.0]])[None]
    if np.diff(edges).min() < 1e-6:
        return
    for _ in range(5):
        swept = solver_exact.coordinate_sweep(objective, edges)
        assert (np.diff(swept) > 0).all()
        assert objective.value(swept) <= objective.value(edges) * (1 + 1e-9) + 1e-15
        edges = swept


@pytest.mark.parametrize("symmetric", [True, False])
def test_a_sweep_puts_each_level_where_a_search_finds_the_minimum(symmetric):
    objective = Objective.of(TruncNorm(0.02, 0.1), symmetric)
    edges = np.array([[0.0 if symmetric else -1.0, 0.03, 0.2, 0.4, 1.0]])
    swept = solver_exact.coordinate_sweep(objective, edges)
    for i in (1, 3):  # the odd ones move first, between neighbours at rest

        def cost(x, i=i):
            return objective.value(np.concatenate([edges[0, :i], [x], edges[0, i + 1 :]]))

        found, *_ = optimize.fminbound(cost, edges[0, i - 1], edges[0, i + 1], xtol=1e-10, full_output=True)
        assert swept[0, i] == pytest.approx(found, abs=1e-6)


@pytest.mark.parametrize("name", ["normal", "off centre", "mixture", "heavy"])
@pytest.mark.parametrize("symmetric", [True, False])
def test_derivatives_equal_finite_differences(name, symmetric):
    objective = Objective.of(DISTRIBUTIONS[name], symmetric)
    first = 0.0 if symmetric else -1.0
    edges = np.array([first, *(np.array([0.7, 2.0, 5.0, 9.0]) / 128), 1.0])
    at = objective.derivatives(edges)
    np.testing.assert_allclose(objective.gradient(edges), at.gradient)
    for i in range(1, 5):
        shift = np.zeros(6)
        shift[i] = 1e-7
        slope = (objective.value(edges + shift) - objective.value(edges - shift)) / 2e-7
        assert at.gradient[i - 1] == pytest.approx(slope, rel=1e-5, abs=1e-9)
        turn = (objective.gradient(edges + shift) - objective.gradient(edges - shift)) / 2e-7
        assert at.diagonal[i - 1] == pytest.approx(turn[i - 1], rel=1e-3)
        if i < 4:
            assert at.masses[i] == pytest.approx(-turn[i], rel=1e-3, abs=1e-7)


@few(9, ("name", "solver", "bits"), product(DISTRIBUTIONS, ["exact", "paper"], [1, 2, 3, 8]))
def test_any_distribution_gives_legal_levels(name, solver, bits):
    distribution, best = DISTRIBUTIONS[name], update_rules.alq
    if bits == 8 and name not in ("normal", "few", "ends"):
        return  # the same code at greater length
    for symmetric in (True, False):
        made = best(distribution, bits, symmetric=symmetric, solver=solver)
        assert isinstance(made.levels, Levels) and made.levels.num_levels == 2**bits
        assert made.expected_variance == update_rules.expected_variance(made.levels, distribution) >= 0
        assert made.levels.symmetric or not symmetric
        if bits < 8:
            sloped = update_rules.alq_gradient(distribution, bits, symmetric=symmetric, solver=solver)
            assert sloped.levels.num_levels == 2**bits and np.isfinite(sloped.expected_variance)
    learned = update_rules.amq(distribution, bits, solver=solver)
    assert learned.levels.num_levels == 2**bits and np.isfinite(learned.expected_variance)
    assert (learned.p is None) == (bits == 1)
    if learned.p is not None:
        assert 0 < learned.p < 1 and learned.levels == level_sets.exponential(bits, learned.p)


@few(3, ("name", "bits"), product(["normal", "off centre", "mixture", "heavy", "wide"], [2, 3, 4]))
def test_exact_is_never_worse_than_paper_and_alq_never_worse_than_amq(name, bits):
    distribution = DISTRIBUTIONS[name]
    best = update_rules.alq(distribution, bits).expected_variance
    slack = 1 + 1e-9
    assert best <= update_rules.alq(distribution, bits, solver="paper").expected_variance * slack
    assert best <= update_rules.amq(distribution, bits).expected_variance * slack
    assert (
        update_rules.amq(distribution, bits).expected_variance
        <= update_rules.amq(distribution, bits, solver="paper").expected_variance * slack
    )
    assert update_rules.alq_gradient(distribution, bits).expected_variance == pytest.approx(best, rel=1e-7)
    assert update_rules.alq(distribution, bits, symmetric=False).expected_variance <= best * (1 + 1e-4)


def test_the_measured_distribution_is_served_better_by_its_own_optimum_than_by_that_of_a_normal():
    spread = float(np.sqrt(HEAVY.partial_moment(2, -1, 1)))
    normal = update_rules.alq(TruncNorm(0.0, spread), 3).levels
    assert update_rules.alq(HEAVY, 3).expected_variance < 0.8 * update_rules.expected_variance(normal, HEAVY)


@few(2, ("ratio", "bits"), product([0.0, 0.5, 2.0], [2, 3, 4]))
def test_amq_equals_brute_force_for_any_mean(ratio, bits):
    sigma = 0.02
    mean = ratio * sigma
    made = update_rules.amq(TruncNorm(mean, sigma), bits)
    grid = np.linspace(0.005, 0.995, 2000)
    distribution = TruncNorm(mean, sigma)
    coarse = grid[
        np.argmin([update_rules.expected_variance(level_sets.exponential(bits, p), distribution) for p in grid])
    ]

    def cost(p):
        return brute_psi(level_sets.exponential(bits, p).values, mean, sigma)

    p, psi, *_ = optimize.fminbound(cost, coarse - 5e-4, coarse + 5e-4, xtol=1e-7, full_output=True)
    assert made.p == pytest.approx(p, abs=2e-5)
    assert made.expected_variance == pytest.approx(psi, rel=1e-7)


@pytest.mark.parametrize("bits", [2, 3, 4])
@pytest.mark.parametrize("mean", [0.0, 0.01, 0.04])
def test_amq_derivatives_equal_finite_differences(bits, mean):
    objective = Objective.of(TruncNorm(mean, 0.02), True)
    p, shift = np.array([0.1, 0.3, 0.6, 0.9]), 1e-6
    value, slope, curvature = solver_exact.multiplier_derivatives(objective, p, bits)
    above, below = (solver_exact.multiplier_derivatives(objective, q, bits) for q in (p + shift, p - shift))
    np.testing.assert_allclose(slope, (above[0] - below[0]) / (2 * shift), rtol=1e-5, atol=1e-9)
    np.testing.assert_allclose(curvature, (above[1] - below[1]) / (2 * shift), rtol=1e-5, atol=1e-8)
    np.testing.assert_allclose(
        value,
        [update_rules.expected_variance(level_sets.exponential(bits, q), TruncNorm(mean, 0.02)) for q in p],
        rtol=1e-9,
    )


def test_amq_slope_of_the_positive_half_is_the_papers_formula():
    mean, sigma, bits, p = 0.004, 0.02, 3, 0.3
    distribution, s = TruncNorm(mean, sigma), 3
    expected = 2 * s * p ** (2 * s - 1) * (distribution.cdf(p**s) - distribution.cdf(0.0))
    for j in range(s):  # Eq. G.3
        weight = j * p ** (j - 1) + (j + 1) * p**j
        expected += (mean * weight - (2 * j + 1) * p ** (2 * j)) * (
            distribution.cdf(p**j) - distribution.cdf(p ** (j + 1))
        )
        expected += sigma**2 * weight * (distribution.pdf(p ** (j + 1)) - distribution.pdf(p**j))
    _, slope, _ = solver_exact.multiplier_derivatives(Objective(distribution, symmetric=True), np.array([p]), bits)
    assert slope[0] == pytest.approx(float(expected), rel=1e-9)


def test_paper_solver_gives_the_published_levels():
    free = update_rules.alq(PUBLISHED, 3, symmetric=False, solver="paper")
    assert free.start == "quantile"
    magnitudes = (free.levels.values[4:] - free.levels.values[3::-1]) / 2  # the two sides differ by up to 4 %
    np.testing.assert_allclose(magnitudes, [0.005, 0.018, 0.13, 1.0], rtol=0.03)
    table = update_rules.alq(
        CondTruncNorm(np.zeros(50), np.full(50, 16384**-0.5), np.ones(50)), 3, symmetric=False, solver="paper"
    )
    np.testing.assert_allclose(table.levels.values, free.levels.values, atol=1e-4)
    assert update_rules.amq(PUBLISHED, 3, solver="paper").p == pytest.approx(0.233, abs=0.002)
    # and the exact solutions beside them
    np.testing.assert_allclose(update_rules.alq(PUBLISHED, 3).levels.positive, [0.0035, 0.0115, 0.027, 1.0], rtol=0.02)
    assert update_rules.amq(PUBLISHED, 3).p == pytest.approx(0.133, abs=0.001)


@pytest.mark.parametrize("symmetric", [True, False])
def test_paper_solver_keeps_the_order_of_its_updates(symmetric):
    """The rounds of side-by-side updates give what one coordinate after another gives, with Psi differenced as it
    stands.
    """
    distribution, bits, num_sweeps = PUBLISHED, 3, 4
    half = Objective(distribution, symmetric)
    start = half.edges(level_sets.quantile(bits, distribution, symmetric=symmetric))
    x = start.copy()
    for _ in range(num_sweeps):
        for i in range(1, len(x) - 1):
            eps = (x[i + 1] - x[i - 1]) / 1000

            def cost(y, i=i, x=x):
                return Objective(distribution, symmetric=False).value(np.array([x[i - 1], y, x[i + 1]]))

            for _ in range(10):
                x[i] -= (cost(x[i] + eps) - cost(x[i] - eps)) / (2 * eps)
    np.testing.assert_allclose(
        solver_paper.finite_difference_sweeps(distribution, start[None], num_sweeps)[0], x, rtol=1e-6
    )


@pytest.mark.parametrize("module", [level_sets, update_rules])
def test_examples_in_docstrings_hold(module):
    assert doctest.testmod(module).failed == 0
