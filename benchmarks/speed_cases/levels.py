"""The time that better levels take, and how good they are.

An update goes from the statistics of 350 buckets (norm, mean, sigma) to a checked level set: the mixture of 350
truncated normals, its table, four starts and the dynamic program's answers solved to convergence, the best of them. The
optimum is the dynamic program on the distribution and the steps that follow it.  The baseline is the same call with the
C++ kernels off (NumPy), in turns with them in one run: medians and quartiles.

The statistics are those of heavy-tailed buckets (Student's t with 3 degrees of freedom, 8192 coordinates, norms a
factor 3 apart); times do not depend on them much.  There is one thread.

``alq_over_optimal`` is the largest Psi of ALQ and ALQ-G (exact) over that of the optimum at 2 to 8 bits, symmetric or
not, on histograms of five sources; beside each stands the ratio that the starts alone reach, without the program.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

import numpy as np
import torch

from benchmarks.errors import gradients
from benchmarks.timing import in_turns, print_rows, quartiles, seconds
from nuq.kernels.statistics import Statistics
from nuq.levels import solver_exact, update_rules
from nuq.levels.objective import Objective
from nuq.levels.truncated_normals import CondTruncNorm, CondTruncNormHist, Histogram, TruncNorm
from nuq.native import levels as kernels

NUM_BUCKETS, BUCKET_SIZE = 350, 8192
NUM_BINS = 2048
BITS = range(2, 9)
# sigma, bits, Psi of the optimum: independent values of a normal truncated to [-1, 1]
OPTIMA = [
    (1 / 32, 2, 3.038439632e-3),
    (1 / 32, 3, 1.976421727e-4),
    (1 / 32, 4, 3.083512957e-5),
    (0.1, 2, 1.696331341e-2),
    (0.1, 3, 1.675606346e-3),
    (0.1, 4, 2.915558202e-4),
]
LIMITS = {
    "update_ms_350": 10.0,
    "update_ms_350_numpy": 150.0,
    "optimal_ms_4bit": 10.0,
    "optimal_ms_8bit": 60.0,
    "psi_rel_err": 1e-6,
    "alq_over_optimal": 1.01,
}

Array = np.ndarray


def sample() -> tuple[Array, Array]:
    """The bucket norms, float64[B], and the coordinates divided by them, float64[B, n]."""
    generator = np.random.default_rng(0)
    buckets = generator.standard_t(3, (NUM_BUCKETS, BUCKET_SIZE)) * np.exp(generator.normal(0.0, 0.5, (NUM_BUCKETS, 1)))
    norms = np.linalg.norm(buckets, axis=1)
    return norms, buckets / norms[:, None]


def measured(norms: Array, r: Array) -> Histogram:
    """The norm^2-weighted histogram of the coordinates, in bins that are fine around zero."""
    half = np.sinh(np.linspace(0.0, 10.0, NUM_BINS // 2 + 1)) / np.sinh(10.0)
    edges = np.concatenate([-half[:0:-1], half])
    edges[0], edges[-1] = -1.0, 1.0
    place = np.clip(np.searchsorted(edges, r.ravel(), side="right") - 1, 0, NUM_BINS - 1)
    weights = np.repeat(norms**2, r.shape[1])
    return Histogram(edges, *(np.bincount(place, weights * r.ravel() ** order, NUM_BINS) for order in range(3)))


def timed(calls: dict[str, Callable[[], object]], turns: int) -> dict[str, dict[str, dict[str, float]]]:
    """The milliseconds of every call, in turns, with the kernels and without."""

    def once(call: Callable[[], object], compiled: bool) -> float:
        with nullcontext() if compiled else kernels.switched_off():
            return 1e3 * seconds(call)

    ways = {"c++": True, "numpy": False}
    measures = {(name, way): partial(once, calls[name], ways[way]) for name in calls for way in ways}
    times = in_turns(measures, turns)
    return {name: {way: quartiles(times[name, way]) for way in ways} for name in calls}


def worst_psi_error() -> float:
    """The largest relative error of Psi over the known optima.

    It is that of the optimum and of ALQ, in closed form and on a table.
    """
    errors = []
    for sigma, bits, psi in OPTIMA:
        for distribution in (TruncNorm(0.0, sigma), CondTruncNormHist(TruncNorm(0.0, sigma))):
            for symmetric in (True, False):
                errors.append(
                    update_rules.optimal(distribution, 2**bits, symmetric=symmetric).expected_variance / psi - 1
                )
            errors.append(update_rules.alq(distribution, bits).expected_variance / psi - 1)
    return float(np.abs(errors).max())


def sources() -> dict[str, Histogram]:
    """The histograms that an update would see.

    They are of 2^18 coordinates of four distributions, and of gradients of a CNN on the digits.
    """
    generator, count = np.random.default_rng(1), 1 << 18
    drawn = {
        "normal": generator.standard_normal(count),
        "lognormal": np.exp(generator.standard_normal(count)) * generator.choice([-1, 1], count),
        "t2": generator.standard_t(2, count),
        "t3": generator.standard_t(3, count),
    }
    vectors = {name: [torch.from_numpy(values.astype(np.float32))] for name, values in drawn.items()}
    vectors["gradients"] = gradients.source("digits").learn
    found = {}
    for name, of_source in vectors.items():
        statistics = Statistics.empty(NUM_BUCKETS)
        statistics.add(of_source, BUCKET_SIZE, "l2", moments=False)
        found[name] = statistics.fit("histogram")
    return found


def over_optimal() -> tuple[float, dict[str, float]]:
    """The largest Psi of ALQ over that of the optimum, and, by bits, that without the dynamic program among the starts.

    Each source is printed.
    """
    worst, alone = 0.0, dict.fromkeys((str(bits) for bits in BITS), 0.0)
    rows: dict[str, dict[str, str]] = {}
    for name, distribution in sources().items():
        rows[name] = {}
        for bits in BITS:
            ratios = np.array([_ratios(distribution, bits, symmetric) for symmetric in (True, False)]).max(axis=0)
            worst = max(worst, float(ratios[:2].max()))
            alone[str(bits)] = max(alone[str(bits)], float(ratios[2]))
            rows[name][f"{bits} bits"] = " ".join(f"{ratio:.4f}" for ratio in ratios)
    print_rows("Psi over the optimum's: ALQ, ALQ-G, the starts alone", rows)
    return worst, alone


def _ratios(distribution: Histogram, bits: int, symmetric: bool) -> tuple[float, float, float]:
    objective = Objective.of(distribution, symmetric)
    starts = update_rules.exact_starts(distribution, bits, symmetric).values()
    edges, _ = solver_exact.descend(objective, np.stack([objective.edges(levels) for levels in starts]))
    alone = min(update_rules.expected_variance(objective.levels(row), distribution) for row in edges)
    best = update_rules.optimal(distribution, 2**bits, symmetric=symmetric).expected_variance
    alq, alq_g = (
        solve(distribution, bits, symmetric=symmetric).expected_variance
        for solve in (update_rules.alq, update_rules.alq_gradient)
    )
    return alq / best, alq_g / best, alone / best


def figures(turns: int) -> dict[str, Any]:
    """The milliseconds of updates and optima, and their distance from what is best."""
    torch.set_num_threads(1)
    norms, r = sample()
    means, sigmas = r.mean(axis=1), r.std(axis=1, ddof=1)
    histogram = measured(norms, r)
    table = CondTruncNormHist(CondTruncNorm(means, sigmas, norms**2))

    def update(bits: int) -> update_rules.Fitted:
        return update_rules.alq(CondTruncNormHist(CondTruncNorm(means, sigmas, norms**2)), bits)

    calls: dict[str, Callable[[], object]] = {
        "update from 350 buckets, mixture, 3 bits": lambda: update(3),
        "update from 350 buckets, mixture, 4 bits": lambda: update(4),
        "optimum, 16 levels, histogram": lambda: update_rules.optimal(histogram, 16),
        "optimum, 16 levels, mixture": lambda: update_rules.optimal(table, 16),
        "optimum, 256 levels, histogram": lambda: update_rules.optimal(histogram, 256),
        "optimum, 256 levels, mixture": lambda: update_rules.optimal(table, 256),
    }
    ms = timed(calls, turns)
    print_rows("ms", ms)

    def worst(start: str, way: str = "c++") -> float:
        return max(row[way]["median"] for name, row in ms.items() if name.startswith(start))

    over, alone = over_optimal()
    found = {
        "update_ms_350": worst("update"),
        "update_ms_350_numpy": worst("update", "numpy"),
        "optimal_ms_4bit": worst("optimum, 16"),
        "optimal_ms_8bit": worst("optimum, 256"),
        "psi_rel_err": worst_psi_error(),
        "alq_over_optimal": over,
    }
    print_rows("", {name: {"found": value, "limit": LIMITS[name]} for name, value in found.items()})
    short = {name: float(f"{value:.4g}") for name, value in found.items()}
    return short | {"ms": ms, "without_program_over_optimal": alone}
