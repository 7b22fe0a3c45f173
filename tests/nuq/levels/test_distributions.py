"""Distributions against scipy.stats, quadrature, themselves: cdf, sf, inverses, partial moments, folding, tables."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.polynomial.legendre import leggauss
from scipy import stats

from nuq.levels.truncated_normals import CondTruncNorm, CondTruncNormHist, Histogram, TruncNorm

rng = np.random.default_rng(7)
PAIRS = [(0.0, 1 / 32), (0.0, 1e-4), (0.3, 0.5), (-1.0, 0.01), (1.0, 1e-4), (0.2, 1.4), (-0.05, 1e-3)]
MIXTURE = CondTruncNorm([0.0, 0.01, -0.3], [1e-3, 0.05, 0.2], [1.0, 2.0, 0.5])
HISTOGRAM = CondTruncNormHist(MIXTURE)
ROUGH = Histogram(
    [-1.0, -0.5, -0.1, 0.0, 0.1, 0.9, 1.0],
    [1, 0, 3, 2, 1, 2],
    [-0.6, 0, -0.1, 0.15, 0.2, 1.95],
    [0.37, 0, 0.005, 0.012, 0.05, 1.903],
)
DISTRIBUTIONS = {
    "normal": TruncNorm(0.1, 0.05),
    "narrow": TruncNorm(-0.7, 1e-4),
    "wide": TruncNorm(0.5, 1.2),
    "mixture": MIXTURE,
    "table": HISTOGRAM,
    "rough histogram": ROUGH,
    "|normal|": TruncNorm(0.1, 0.05).folded(),
    "|mixture|": MIXTURE.folded(),
    "|table|": HISTOGRAM.folded(),
    "|rough histogram|": ROUGH.folded(),
}


def scipy_distribution(mean, sigma):
    """A frozen scipy distribution, or (arrays given) one distribution for each entry."""
    return stats.truncnorm((-1 - mean) / sigma, (1 - mean) / sigma, loc=mean, scale=sigma)


def scipy_distribution_between(mean, sigma, a, b):
    """The normal given that it lies in [a, b]."""
    return stats.truncnorm((a - mean) / sigma, (b - mean) / sigma, loc=mean, scale=sigma)


def scipy_density(x, mean, sigma):
    return stats.truncnorm.pdf(x, (-1 - mean) / sigma, (1 - mean) / sigma, loc=mean, scale=sigma)


def integral(distribution, function, a, b, breaks=()):
    """Gauss-Legendre over many pieces: no closed form of ours in it but the density."""
    nodes, weights = leggauss(20)
    points = np.unique(np.clip(np.concatenate([np.linspace(a, b, 200), np.asarray(breaks)]), a, b))
    half, middle = np.diff(points)[:, None] / 2, (points[1:] + points[:-1])[:, None] / 2
    x = middle + half * nodes
    return float((half * weights * function(x) * distribution.pdf(x)).sum())


@pytest.mark.parametrize("mean, sigma", PAIRS)
def test_truncated_normal_equals_scipy(mean, sigma):
    distribution, reference = TruncNorm(mean, sigma), scipy_distribution(mean, sigma)
    x = np.unique(np.clip(np.concatenate([np.linspace(-1, 1, 401), mean + sigma * np.linspace(-8, 8, 401)]), -1, 1))
    np.testing.assert_allclose(distribution.cdf(x), reference.cdf(x), rtol=1e-10, atol=1e-15)
    np.testing.assert_allclose(distribution.sf(x), reference.sf(x), rtol=1e-10, atol=1e-15)
    np.testing.assert_allclose(distribution.pdf(x), scipy_density(x, mean, sigma), rtol=1e-9, atol=1e-300)
    u = np.linspace(0, 1, 201)
    np.testing.assert_allclose(distribution.ppf(u), reference.ppf(u), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(distribution.isf(u), reference.isf(u), rtol=1e-9, atol=1e-12)
    assert (
        distribution.pdf(1.5) == distribution.pdf(-1.5) == 0
        and distribution.cdf(-3.0) == distribution.sf(3.0) == 0
        and distribution.cdf(3.0) == distribution.sf(-3.0) == 1
    )


def test_tails_keep_their_digits():
    distribution = TruncNorm(0.0, 0.01)
    z = np.array([1.0, 8.0, 20.0, 37.0])
    for made in (distribution, CondTruncNorm([0.0, 0.0], [0.01, 0.01], [1, 3])):
        np.testing.assert_allclose(made.sf(z * 0.01), stats.norm.sf(z), rtol=1e-12)
        np.testing.assert_allclose(made.cdf(-z * 0.01), stats.norm.sf(z), rtol=1e-12)
        np.testing.assert_allclose(made.isf(stats.norm.sf(z)), z * 0.01, rtol=1e-12)
    np.testing.assert_allclose(distribution.folded().isf(2 * stats.norm.sf(z)), z * 0.01, rtol=1e-12)
    table = CondTruncNormHist(distribution)
    np.testing.assert_allclose(table.sf(z[:2] * 0.01), stats.norm.sf(z[:2]), rtol=1e-4)
    np.testing.assert_allclose(table.sf(table.edges[::100]), distribution.sf(table.edges[::100]), rtol=1e-9)
    assert distribution.partial_moment(0, 0.2, 0.3) == pytest.approx(
        stats.norm.sf(20) - stats.norm.sf(30), rel=1e-12, abs=0
    )


@pytest.mark.parametrize("name", DISTRIBUTIONS)
@pytest.mark.parametrize("order", [0, 1, 2])
def test_partial_moments_equal_quadrature(name, order):
    distribution = DISTRIBUTIONS[name]
    edges = distribution.ppf(np.linspace(0, 1, 8))
    breaks = np.concatenate([distribution.knots(), np.linspace(-1, 1, 21)])
    got = distribution.partial_moment(order, edges[:-1], edges[1:])
    expected = [integral(distribution, lambda r: r**order, a, b, breaks) for a, b in itertools.pairwise(edges)]
    # inside a bin of a histogram the second moment is that of the data, not of the model density: see its own test
    tolerance = 0.02 if "rough" in name and order == 2 else 1e-5 if "rough" in name else 1e-9
    np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_the_whole_is_one_and_sf_completes_cdf(name):
    distribution = DISTRIBUTIONS[name]
    x = np.linspace(distribution.begin, distribution.end, 101)
    np.testing.assert_allclose(distribution.cdf(x) + distribution.sf(x), 1.0, rtol=1e-12)
    assert distribution.partial_moment(0, -1.0, 1.0) == pytest.approx(1.0, rel=1e-12)
    assert (
        (np.diff(distribution.cdf(x)) >= 0).all()
        and distribution.cdf(distribution.begin) == 0
        and distribution.sf(distribution.end) == 0
    )
    assert (
        distribution.ppf(0.0) == distribution.begin
        and distribution.ppf(1.0) == distribution.end
        and distribution.isf(0.0) == distribution.end
    )


@settings(deadline=None, max_examples=40)
@given(st.sampled_from(sorted(DISTRIBUTIONS)), st.lists(st.floats(0, 1), min_size=1, max_size=20))
def test_ppf_inverts_cdf(name, u):
    distribution, u = DISTRIBUTIONS[name], np.array(u)
    np.testing.assert_allclose(distribution.cdf(distribution.ppf(u)), u, atol=3e-12)
    np.testing.assert_allclose(distribution.sf(distribution.isf(u)), u, atol=3e-12)


@settings(deadline=None, max_examples=40)
@given(st.floats(-1, 1), st.floats(1e-4, 2.0), st.lists(st.floats(0, 1), min_size=1, max_size=20))
def test_ppf_inverts_cdf_for_any_mean_and_sigma(mean, sigma, u):
    u = np.array(u)
    distribution = TruncNorm(mean, sigma)
    for made in (distribution, CondTruncNorm([mean, -mean], [sigma, sigma / 2], [1, 2]), distribution.folded()):
        x = made.ppf(u)
        assert ((x >= made.begin) & (x <= made.end)).all()
        np.testing.assert_allclose(made.cdf(x), u, atol=1e-11 + 1e-15 / sigma)


@pytest.mark.parametrize("name", [name for name in DISTRIBUTIONS if not name.startswith("|")])
def test_folded_is_the_distribution_of_the_magnitude(name):
    distribution, folded = DISTRIBUTIONS[name], DISTRIBUTIONS[name].folded()
    x = np.linspace(0.001, 1, 300)
    exact = 1e-13 if name != "rough histogram" else 0.01  # adding bins of -r and r keeps masses and means, not shapes
    np.testing.assert_allclose(folded.cdf(x), distribution.cdf(x) - distribution.cdf(-x), atol=exact)
    np.testing.assert_allclose(folded.sf(x), distribution.sf(x) + distribution.cdf(-x), atol=exact)
    assert folded.partial_moment(2, 0, 1) == pytest.approx(distribution.partial_moment(2, -1, 1), rel=1e-9)
    first = distribution.partial_moment(1, 0, 1) - distribution.partial_moment(1, -1, 0)
    assert folded.partial_moment(1, 0, 1) == pytest.approx(first, rel=1e-9)
    assert folded.folded() is folded or isinstance(folded, Histogram)


def test_mixture_equals_the_sum_of_its_parts_in_any_number_of_blocks():
    means, sigmas, weights = rng.normal(0, 0.01, 3000), rng.uniform(1e-3, 0.1, 3000), rng.uniform(0.1, 1, 3000)
    distribution = CondTruncNorm(means, sigmas, weights)
    x = np.linspace(-0.2, 0.2, 41)
    parts = stats.truncnorm((-1 - means) / sigmas, (1 - means) / sigmas, loc=means, scale=sigmas)
    np.testing.assert_allclose(
        distribution.cdf(x), [(weights * parts.cdf(v)).sum() / weights.sum() for v in x], rtol=1e-10
    )
    np.testing.assert_allclose(
        distribution.pdf(x), [(weights * scipy_density(v, means, sigmas)).sum() / weights.sum() for v in x], rtol=1e-10
    )


def test_both_tails_of_a_mixture_equal_scipy_and_invert():
    means, sigmas, weights = np.array([0.0, 0.02, -0.1]), np.array([0.01, 0.03, 0.02]), np.array([1.0, 0.2, 0.5])
    distribution, share = CondTruncNorm(means, sigmas, weights), weights / weights.sum()
    x = np.array([-0.4, -0.2, -0.05, 0.0, 0.01, 0.1, 0.3, 0.5])
    parts = scipy_distribution(means, sigmas)
    above, below = (np.array([(share * tail(v)).sum() for v in x]) for tail in (parts.sf, parts.cdf))
    np.testing.assert_allclose(distribution.sf(x), above, rtol=1e-9)
    np.testing.assert_allclose(distribution.cdf(x), below, rtol=1e-9)
    right, left = above < 0.5, below < 0.5
    np.testing.assert_allclose(distribution.isf(above[right]), x[right], rtol=1e-9)
    np.testing.assert_allclose(distribution.ppf(below[left]), x[left], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("mean, sigma", PAIRS)
def test_partial_moments_of_a_truncated_normal_equal_scipy(mean, sigma):
    distribution, reference = TruncNorm(mean, sigma), scipy_distribution(mean, sigma)
    edges = np.unique(np.clip(mean + sigma * np.array([-9.0, -1.5, -0.2, 0.0, 0.7, 3.0, 9.0]), -1, 1))
    for a, b in itertools.pairwise(edges):
        inside = reference.cdf(b) - reference.cdf(a) if b <= mean else reference.sf(a) - reference.sf(b)
        assert distribution.partial_moment(0, a, b) == pytest.approx(inside, rel=1e-9, abs=1e-13)
        within = scipy_distribution_between(mean, sigma, a, b)
        for order in (1, 2):
            assert distribution.partial_moment(order, a, b) == pytest.approx(
                inside * within.moment(order), rel=1e-8, abs=1e-12
            )


@pytest.mark.parametrize(
    "mean, sigma", [(0.0, 1e-4), (0.0, 1 / 128), (0.0, 0.1), (0.3, 0.5), (-0.9, 1e-3), (1.0, 0.01)]
)
def test_table_is_nearer_the_mixture_than_fifty_thousand_equal_bins(mean, sigma):
    distribution = TruncNorm(mean, sigma)
    x = np.unique(np.clip(np.concatenate([np.linspace(-1, 1, 20001), mean + sigma * np.linspace(-9, 9, 20001)]), -1, 1))
    uniform = np.linspace(-1, 1, 50001)
    original = np.abs(np.interp(x, uniform, distribution.cdf(uniform)) - distribution.cdf(x)).max()
    ours = np.abs(CondTruncNormHist(distribution).cdf(x) - distribution.cdf(x)).max()
    assert ours < min(original, 3e-9)


def test_table_of_many_components_is_nearer_too():
    """Nearly equal components, as L2-normalised buckets have; and components of all widths."""
    for spread in (0.0, 0.05, 1.0):
        means, sigmas = rng.normal(0, 1e-4, 350), 8192**-0.5 * np.exp(rng.normal(0, spread, 350))
        distribution = CondTruncNorm(means, sigmas, rng.uniform(0.1, 1, 350))
        x = np.unique(np.concatenate([np.linspace(-1, 1, 501), np.linspace(-0.05, 0.05, 1001)]))
        uniform = np.linspace(-1, 1, 50001)
        near = np.unique(np.clip(np.searchsorted(uniform, x)[:, None] + [-1, 0, 1], 0, 50000))
        original = np.abs(np.interp(x, uniform[near], distribution.cdf(uniform[near])) - distribution.cdf(x)).max()
        assert np.abs(CondTruncNormHist(distribution).cdf(x) - distribution.cdf(x)).max() < min(original / 30, 1e-8)


def test_table_has_the_moments_of_its_mixture_at_its_edges():
    edges = HISTOGRAM.edges[::97]
    for order in (0, 1, 2):
        expected = MIXTURE.partial_moment(order, edges[:-1], edges[1:])
        np.testing.assert_allclose(
            HISTOGRAM.partial_moment(order, edges[:-1], edges[1:]), expected, rtol=1e-9, atol=1e-17
        )


def test_histogram_holds_the_measured_sums_at_its_edges():
    r, weights = np.clip(rng.standard_t(2, 5000) * 0.05, -1, 1), rng.uniform(0, 2, 5000)
    edges = np.sinh(np.linspace(-6, 6, 65)) / np.sinh(6)
    edges[0], edges[-1] = -1, 1
    place = np.clip(np.searchsorted(edges, r, side="right") - 1, 0, 63)
    distribution = Histogram(edges, *(np.bincount(place, weights * r**k, 64) for k in range(3)))
    for first, last in ((0, 64), (10, 50), (31, 33), (60, 64)):
        inside = (place >= first) & (place < last)
        for k in range(3):
            expected = (weights * r**k)[inside].sum() / weights.sum()
            assert distribution.partial_moment(k, edges[first], edges[last]) == pytest.approx(
                expected, rel=1e-8, abs=1e-12
            )
    folded = distribution.folded()
    assert isinstance(folded, Histogram)
    assert folded.partial_moment(1, 0, edges[40]) == pytest.approx(
        (weights * np.abs(r))[np.abs(r) < edges[40]].sum() / weights.sum()
    )


def test_point_masses_at_the_ends_stay_there():
    distribution = Histogram([-1, -0.5, 0.5, 1], [1, 2, 1], [-1, 0, 1], [1, 0.1, 1])  # a quarter at each of -1 and 1
    assert distribution.cdf(-0.999) == pytest.approx(0.25, abs=1e-6) and distribution.sf(0.999) == pytest.approx(
        0.25, abs=1e-6
    )
    assert distribution.folded().sf(0.999) == pytest.approx(0.5, abs=1e-6)


def test_zero_buckets_are_dropped_and_constant_buckets_become_narrow():
    distribution = CondTruncNorm([0.0, 0.5, 0.1], [0.1, 0.0, 0.2], [1.0, 0.0, 0.0])
    assert len(distribution.means) == 1 and distribution.cdf(0.1) == pytest.approx(
        scipy_distribution(0.0, 0.1).cdf(0.1)
    )
    point = TruncNorm(0.5, 0.0)
    assert point.cdf(0.4999) == 0 and point.sf(0.5001) == 0 and point.partial_moment(1, -1, 1) == pytest.approx(0.5)
