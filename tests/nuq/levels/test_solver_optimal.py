"""The global optimum: against known values, exhaustive search, every other set of levels and its own monotony."""

import itertools
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.errors import gradients
from nuq import native
from nuq.kernels.statistics import Statistics
from nuq.levels import level_sets, solver_optimal, update_rules
from nuq.levels.level_sets import Levels
from nuq.levels.objective import Objective
from nuq.levels.truncated_normals import CondTruncNorm, CondTruncNormHist, Histogram, TruncNorm
from nuq.native import levels as kernels
from tests.nuq.levels.test_update_rules import DISTRIBUTIONS, OPTIMA, measured
from tests.tiers import few

rng = np.random.default_rng(5)
COMPILED = native.library() is not None  # without, 256 levels take a second each: fewer of them


def shares(values: np.ndarray, size: int = 8192) -> np.ndarray:
    """Coordinates in units of their bucket's norm."""
    buckets = values[: len(values) // size * size].reshape(-1, size)
    return (buckets / np.linalg.norm(buckets, axis=1, keepdims=True)).ravel()


HEAVY = {
    "student": measured(shares(rng.standard_t(3, 120_000)), 2048),
    "lognormal": measured(shares(np.exp(rng.normal(0, 2, 120_000)) * rng.choice([-1, 1], 120_000)), 2048),
    "sparse": measured(shares(np.where(rng.random(120_000) < 0.95, 0.0, rng.normal(size=120_000))), 2048),
    "two humps": measured(shares(rng.normal(0, 1, 120_000) + 3 * rng.choice([-1, 1], 120_000)), 2048),
    "one-sided": measured(shares(rng.exponential(1, 120_000)), 2048),
}


@few(3, "sigma, bits, psi", OPTIMA)
@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("compiled", [True, False])
def test_the_known_optima(sigma, bits, psi, symmetric, compiled, monkeypatch):
    if not compiled:
        monkeypatch.setattr(kernels, "_is_there", lambda: False)
    distribution = TruncNorm(0.0, sigma)
    for made in (
        update_rules.optimal(distribution, 2**bits, symmetric=symmetric),
        update_rules.optimal(CondTruncNormHist(distribution), 2**bits, symmetric=symmetric),
    ):
        assert made.expected_variance == pytest.approx(psi, rel=1e-8)
        assert made.levels.num_levels == 2**bits and made.start == "dynamic program"


@pytest.mark.parametrize("centred", [True, False])
@pytest.mark.parametrize("intervals", [1, 2, 3, 4])
def test_the_program_equals_trying_every_set_of_points(centred, intervals):
    distribution = CondTruncNorm([0.0, 0.1, -0.3], [0.02, 0.2, 0.05], [1, 1, 0.5])
    objective = Objective.of(distribution, centred)
    points = np.unique(np.concatenate([[0.0 if centred else -1.0, 1.0], np.abs(rng.normal(0, 0.2, 9)).clip(0, 0.99)]))
    every = [np.array([points[0], *inner, 1.0]) for inner in itertools.combinations(points[1:-1], intervals - 1)]
    best = min(float(objective.value(edges)) for edges in every)
    indices = solver_optimal.best_indices(*solver_optimal.prefix_sums(objective, points), intervals, centred=centred)
    assert indices[0] == 0 and indices[-1] == len(points) - 1 and (np.diff(indices) > 0).all()
    assert float(objective.value(points[indices])) == pytest.approx(best, rel=1e-12)


@settings(max_examples=40)
@given(
    st.sampled_from([*DISTRIBUTIONS, *HEAVY]),
    st.booleans(),
    st.lists(st.floats(1e-5, 0.999), min_size=1, max_size=12, unique_by=np.float32),
)
def test_no_set_of_levels_is_better(name, symmetric, inner):
    distribution = (DISTRIBUTIONS | HEAVY)[name]
    inner = np.sort(inner)
    other = (
        level_sets.from_positive([*inner, 1.0])
        if symmetric
        else level_sets.spread(np.array([-1.0, *(inner * 2 - 1), 1.0]))
    )
    best = update_rules.optimal(distribution, other.num_levels, symmetric=symmetric)
    assert best.expected_variance <= update_rules.expected_variance(other, distribution) * (1 + 1e-9) + 1e-18
    assert best.levels.num_levels == other.num_levels


@few(3, "name", [*DISTRIBUTIONS, *HEAVY])
def test_the_optimum_is_never_above_alq_or_amq_or_the_grid(name):
    distribution = (DISTRIBUTIONS | HEAVY)[name]
    for bits in (2, 3, 4, 8) if COMPILED else (2, 3):
        best = update_rules.optimal(distribution, 2**bits)
        objective = Objective.of(distribution.tabulated(), True)
        points = solver_optimal.candidates(objective.distribution, 0.0, 2 ** (bits - 1))
        grid = points[
            solver_optimal.best_indices(*solver_optimal.prefix_sums(objective, points), 2 ** (bits - 1), centred=True)
        ]
        ceiling = best.expected_variance * (1 - 1e-9) - 1e-16
        assert (
            ceiling <= update_rules.alq(distribution, bits).expected_variance
            and ceiling <= update_rules.amq(distribution, bits).expected_variance
        )
        assert float(objective.value(objective.edges(best.levels))) <= float(objective.value(grid)) * (1 + 1e-9) + 1e-16
        if bits < 8:
            free = update_rules.optimal(distribution, 2**bits, symmetric=False)
            assert free.expected_variance <= best.expected_variance * (1 + 1e-4) + 1e-16
            assert (
                free.expected_variance
                <= update_rules.alq(distribution, bits, symmetric=False).expected_variance * (1 + 1e-9) + 1e-16
            )


@few(
    2,
    ("name", "symmetric"),
    product(["normal", "off centre", "mixture", "heavy", "wide", "few", "student", "two humps"], [True, False]),
)
def test_more_levels_are_never_worse(name, symmetric):
    """One by one for free levels.

    Symmetric ones of even and of odd number are two families, with and without a zero.
    """
    distribution = (DISTRIBUTIONS | HEAVY)[name]
    numbers = (2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 17, *((63, 64, 255, 256) if COMPILED else ()))
    variances = {n: update_rules.optimal(distribution, n, symmetric=symmetric).expected_variance for n in numbers}
    for family in ([n for n in variances if n % 2 == odd] for odd in (0, 1)) if symmetric else [list(variances)]:
        for fewer, more in itertools.pairwise(family):
            assert variances[more] <= variances[fewer] * (1 + 1e-9) + 1e-18


@pytest.mark.parametrize("name", DISTRIBUTIONS)
@pytest.mark.parametrize("num_levels", [2, 3, 5, 8, *([64, 256] if COMPILED else [33])])
def test_any_distribution_gives_legal_levels(name, num_levels):
    for symmetric in (True, False):
        made = update_rules.optimal(DISTRIBUTIONS[name], num_levels, symmetric=symmetric)
        assert isinstance(made.levels, Levels) and made.levels.num_levels == num_levels
        assert made.expected_variance == update_rules.expected_variance(made.levels, DISTRIBUTIONS[name])
        if symmetric:
            assert made.levels.symmetric and made.levels.includes_zero == (num_levels % 2 == 1)


def test_a_symmetric_distribution_has_symmetric_optima():
    for num_levels in (4, 5, 8, 16):
        distribution = TruncNorm(0.0, 0.05)
        free, paired = (
            update_rules.optimal(distribution, num_levels, symmetric=symmetric) for symmetric in (False, True)
        )
        assert free.expected_variance == pytest.approx(paired.expected_variance, rel=1e-9)
        np.testing.assert_allclose(free.levels.values, paired.levels.values, atol=1e-6)


def test_fewer_atoms_than_levels_cost_nothing():
    atoms = np.array([-1.0, -0.25, 0.0, 0.5, 1.0])
    edges = np.unique(np.concatenate([[-1.0, 1.0], np.linspace(-1, 1, 64), atoms + 1e-9, atoms - 1e-9]).clip(-1, 1))
    place = np.clip(np.searchsorted(edges, atoms, side="right") - 1, 0, len(edges) - 2)
    distribution = Histogram(edges, *(np.bincount(place, atoms**k, len(edges) - 1) for k in range(3)))
    assert update_rules.optimal(distribution, 5, symmetric=False).expected_variance < 1e-8
    assert update_rules.optimal(distribution, 256, symmetric=False).expected_variance < 1e-8


def test_the_gap_is_zero_at_the_optimum_and_what_it_says_elsewhere():
    distribution = HEAVY["student"]
    best = update_rules.optimal(distribution, 8)
    assert update_rules.gap(best, distribution) == 0.0
    assert 0 <= update_rules.gap(update_rules.alq(distribution, 3), distribution) < 1e-6
    worse = update_rules.amq(distribution, 3)
    assert update_rules.gap(worse, distribution) == pytest.approx(worse.expected_variance / best.expected_variance - 1)
    assert update_rules.gap(update_rules.alq(distribution, 8, solver="paper"), distribution) > 0.01
    assert update_rules.gap(update_rules.alq(DISTRIBUTIONS["ends"], 3), DISTRIBUTIONS["ends"]) == 0.0
    free = update_rules.alq(distribution, 3, symmetric=False)
    assert update_rules.gap(free, distribution, symmetric=False) < 1e-2


def drawn(name: str) -> np.ndarray:
    if name == "digits":  # gradients of a small network, sixty steps each
        return np.concatenate([vector.numpy() for vector in gradients.source("digits").learn])
    size, draw = 1 << 17, np.random.default_rng(11)
    if name == "lognormal":
        return np.exp(draw.normal(size=size)) * draw.choice([-1, 1], size)
    return draw.normal(size=size) if name == "normal" else draw.standard_t(int(name[1]), size)


@few(2, ("symmetric", "name"), product([True, False], ["normal", "lognormal", "t2", "t3", "digits"]))
def test_alq_is_within_a_percent_of_the_optimum_at_any_number_of_bits(name, symmetric, tmp_path, monkeypatch):
    monkeypatch.setattr(gradients, "CACHE", tmp_path)
    statistics = Statistics.empty(350)
    statistics.add([torch.from_numpy(drawn(name).astype(np.float32))], 8192, "l2")
    distribution = statistics.fit("histogram")
    for bits in range(2, 9) if COMPILED else (2, 6):
        assert (
            update_rules.gap(
                update_rules.alq(distribution, bits, symmetric=symmetric), distribution, symmetric=symmetric
            )
            <= 0.01
        )
        assert (
            update_rules.gap(
                update_rules.alq_gradient(distribution, bits, symmetric=symmetric), distribution, symmetric=symmetric
            )
            <= 0.01
        )


@pytest.mark.parametrize("name", ["normal", "lognormal", "t2", "t3"])
def test_alq_is_no_worse_than_a_program_over_all_edges_of_the_histogram(name):
    """The program in its plainest form, all pairs of edges tried, from the histogram's own sums, without
    distribution, search or descent.
    """
    size = np.sinh(np.linspace(0, 9, 900)) / np.sinh(9)
    size[-1] = 1.0
    r = np.abs(shares(drawn(name)))
    place = np.clip(np.searchsorted(size, r, side="right") - 1, 0, 898)
    w0, w1, w2 = (np.concatenate([[0.0], np.cumsum(np.bincount(place, r**k, 899))]) / len(r) for k in range(3))
    low, high = size[:, None], size[None, :]
    cost = (low + high) * (w1 - w1[:, None]) - low * high * (w0 - w0[:, None]) - (w2 - w2[:, None])
    cost[np.tril_indices(900)] = np.inf
    best = size**2 * w0 - w2  # one interval around zero
    edges = np.concatenate([-size[:0:-1], size])
    halves = [np.bincount(place, r**k, 899) for k in range(3)]
    distribution = Histogram(
        edges, *(np.concatenate([sign * half[::-1], half]) for sign, half in zip((1, -1, 1), halves, strict=True))
    )
    for num_intervals in range(2, 65):
        best = (best[:, None] + cost).min(axis=0)
        if num_intervals in (16, 32, 64):
            assert update_rules.alq(distribution, num_intervals.bit_length()).expected_variance <= best[-1]
