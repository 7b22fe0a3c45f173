"""The original's AMQ and ALQ-G against plain loops, written from their description."""

import itertools
import math

import numpy as np
import pytest
import torch
from scipy import integrate, stats

from nuq.compressors.quantized import alq_g, amq
from nuq.kernels.statistics import Statistics
from nuq.levels import level_sets, solver_paper, update_rules
from nuq.levels.truncated_normals import CondTruncNorm, TruncNorm
from nuq.settings.quantizers import ALQ, AMQ, AMQNormal, Normal

FIRST, NORM_LESS_FIRST = [0.1, 0.2, 0.3, 0.4, 0.5, 0.8, 0.9], [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 0.9]


class Original:
    """A normal truncated to [-1, 1], of a kind that knows its density and distribution and nothing else."""

    def __init__(self, mean, sigma):
        self.mean, self.sigma = mean, sigma
        self.below = self.whole(-1.0)
        self.kept = self.whole(1.0) - self.below

    def whole(self, x):
        return math.erfc((self.mean - x) / self.sigma / math.sqrt(2)) / 2

    def cdf(self, x):
        return (self.whole(x) - self.below) / self.kept

    def pdf(self, x):
        return math.exp(-(((x - self.mean) / self.sigma) ** 2) / 2) / (self.sigma * math.sqrt(2 * math.pi) * self.kept)

    def integral(self, function, a, b):
        near = [p for p in (self.mean + k * self.sigma for k in (-6, -3, 0, 3, 6)) if a < p < b]
        return integrate.quad(lambda r: function(r) * self.pdf(r), a, b, points=near or None, epsabs=1e-14, limit=200)[
            0
        ]

    def variance(self, values):
        return sum(self.integral(lambda r, a=a, b=b: (r - a) * (b - r), a, b) for a, b in itertools.pairwise(values))


def amq_of_the_original(components, bits, starts):
    """(p, variance) from 40 steps of rate .7 along Eq.

    G.3, by the cost of 1 .. p^s alone.  components: of weight, mean and sigma.
    """
    s, ends = 2 ** (bits - 1) - 1, []
    for p in starts:
        for _ in range(40):
            gradient = 0.0
            for weight, mean, sigma in components:
                distribution = Original(mean, sigma)
                gradient += weight * 2 * s * p ** (2 * s - 1) * (distribution.cdf(p**s) - distribution.cdf(0))
                for j in range(s):
                    slope = (j * p ** (j - 1) if j else 0.0) + (j + 1) * p**j
                    inside = distribution.cdf(p**j) - distribution.cdf(p ** (j + 1))
                    gradient += weight * (mean * slope - (2 * j + 1) * p ** (2 * j)) * inside
                    gradient += weight * sigma**2 * slope * (distribution.pdf(p ** (j + 1)) - distribution.pdf(p**j))
            p = p - 0.7 * gradient
        half = [p**j for j in range(s, -1, -1)]
        ends.append((sum(weight * Original(mean, sigma).variance(half) for weight, mean, sigma in components), p))
    p = min(ends)[1]
    made = level_sets.exponential(bits, p).values
    return p, sum(weight * Original(mean, sigma).variance(made) for weight, mean, sigma in components)


def later(previous):
    return [0.1, 0.2, 0.3, 0.4, previous, 0.5, 0.8, 0.9]


@pytest.mark.parametrize(
    "bits, norm_less, p, variance",
    [
        (3, False, 0.263815, 3.76122e-4),
        (3, True, 0.263859, 3.7622e-4),
        (4, False, 0.523376, 8.97141e-5),
        (4, True, 0.54652, 1.10667e-4),
    ],
)
def test_the_originals_values_at_one_thirty_second(bits, norm_less, p, variance):
    made = update_rules.amq(TruncNorm(0.0, 1 / 32), bits, solver="paper", norm_less=norm_less)
    assert made.p == pytest.approx(p, abs=1e-6)
    assert made.expected_variance == pytest.approx(variance, rel=1e-5)


@pytest.mark.parametrize("norm_less, first", [(False, FIRST), (True, NORM_LESS_FIRST)])
@pytest.mark.parametrize("bits, sigmas", [(2, [0.2, 0.05]), (3, [0.1, 1 / 32, 1 / 90]), (4, [0.1, 1 / 32])])
def test_amq_update_after_update_is_the_originals(norm_less, first, bits, sigmas):
    previous, starts = None, first
    for sigma in sigmas:
        p, variance = amq_of_the_original([(1.0, 0.1 * sigma, sigma)], bits, starts)
        made = update_rules.amq(
            TruncNorm(0.1 * sigma, sigma), bits, solver="paper", previous=previous, norm_less=norm_less
        )
        assert made.p == pytest.approx(p, rel=1e-6)
        assert made.expected_variance == pytest.approx(variance, rel=1e-5)
        previous, starts = made.p, later(p)


def test_amq_on_a_mixture_is_the_originals():
    components = [(0.5, 0.001, 0.02), (0.3, -0.01, 0.05), (0.2, 0.0, 0.1)]
    p, variance = amq_of_the_original(components, 3, FIRST)
    weights, means, sigmas = zip(*components, strict=True)
    made = update_rules.amq(CondTruncNorm(means, sigmas, weights), 3, solver="paper")
    assert made.p == pytest.approx(p, rel=1e-5)
    assert made.expected_variance == pytest.approx(variance, rel=1e-5)


def observed(size):
    """Statistics of normal buckets of this many coordinates, divided by their L2 norm."""
    found = Statistics.empty(350)
    found.add([torch.randn(4096, generator=torch.Generator().manual_seed(size))], size, "l2")
    return found


@pytest.mark.parametrize(
    "settings", [AMQ(bits=4, fit="mixture", weights="norm", solver="paper"), AMQNormal(bits=4, solver="paper")]
)
def test_the_best_of_the_update_before_is_a_start_also_after_a_checkpoint(settings):
    distribution = observed(64).fit(settings.fit, "norm")
    whole, anew = amq(settings), amq(settings)
    whole.update(observed(16))
    before, kept = whole.multiplier, whole.state_dict()
    whole.update(observed(64))
    anew.update(observed(64))
    norm_less = settings.fit == "normal"
    assert whole.multiplier == update_rules.amq(distribution, 4, solver="paper", previous=before, norm_less=norm_less).p
    assert (
        anew.multiplier == update_rules.amq(distribution, 4, solver="paper", norm_less=norm_less).p
    )  # the levels of its first day are no update's
    assert whole.multiplier != pytest.approx(anew.multiplier, rel=1e-3)
    resumed = amq(settings)
    resumed.load_state_dict(kept)
    resumed.update(observed(64))
    assert (resumed.multiplier, resumed.levels) == (whole.multiplier, whole.levels)


def alq_g_of_the_original(sigma, start, num_sweeps=30):
    """One level after another: a step of rate .1, at most half the smaller gap.  start: all levels, or 0 and the
    positive ones.
    """
    distribution, x = Original(0.0, sigma), list(start)
    for _ in range(num_sweeps):
        for i in range(1, len(x) - 1):
            left, right = x[i - 1], x[i + 1]
            gradient = distribution.integral(lambda r, left=left: r - left, left, x[i]) + distribution.integral(
                lambda r, right=right: r - right, x[i], right
            )
            x[i] -= np.sign(gradient) * min(abs(0.1 * gradient), (x[i] - left) / 2, (right - x[i]) / 2)
    return np.array(x)


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("sigma, bits", [(1 / 32, 3), (0.2, 2)])
def test_alq_g_sweeps_as_the_original(symmetric, sigma, bits):
    quantile = stats.truncnorm(-1 / sigma, 1 / sigma, scale=sigma).ppf(np.linspace(0, 1, 2**bits))
    uniform, half = np.linspace(-1, 1, 2**bits), 0.5 ** np.arange(2 ** (bits - 1))
    ends = []
    for start in (quantile, uniform, np.concatenate([-half, half[::-1]])):
        if symmetric:  # a level at 0 beneath the positive ones, dropped at the end
            positive = alq_g_of_the_original(sigma, [0.0, *start[len(start) // 2 :]])[1:]
            ends.append(np.concatenate([-positive[::-1], positive]))
        else:
            ends.append(alq_g_of_the_original(sigma, start))
    best = min(ends, key=Original(0.0, sigma).variance)
    made = update_rules.alq_gradient(TruncNorm(0.0, sigma), bits, symmetric=symmetric, solver="paper")
    np.testing.assert_allclose(made.levels.values, best, rtol=1e-6)


def test_alq_g_and_alq_gn_with_the_papers_solver_are_that_sweep():
    for settings in (ALQ(bits=3, fit="mixture", weights="norm", solver="paper"), Normal(bits=3, solver="paper")):
        made = alq_g(settings)
        made.update(observed(256))
        distribution = observed(256).fit(settings.fit, "norm").tabulated()
        start = np.array([[0.0, *level_sets.quantile(3, distribution, symmetric=True).positive]])
        np.testing.assert_array_equal(made.levels.positive, solver_paper.projected_sweeps(distribution, start)[0, 1:])


def test_a_step_of_alq_g_is_at_most_half_the_smaller_gap():
    edges = np.array([[0.0, 0.001, 0.3, 1.0]])
    distribution = TruncNorm(0.0, 0.1)
    moved = solver_paper.projected_sweeps(distribution, edges, 1)
    assert moved[0, 1] == 0.0015  # as far as it may
    m0, m1, _ = distribution.interval_moments(np.array([0.0015, 0.3, 1.0]))
    assert moved[0, 2] == pytest.approx(0.3 - 0.1 * (m1[0] - (0.7 * m0[1] - m1[1])), rel=1e-12)


def test_the_start_that_wins_alq_g() -> None:
    """It stays near where it began, so the best start changes with the bits, as the module says."""
    starts = [update_rules.alq_gradient(TruncNorm(0.0, 1 / 32), bits, solver="paper").start for bits in (2, 3, 4, 5)]
    assert starts == ["quantile", "quantile", "exponential", "exponential"]
