"""The exact solver against the paper's on gradients of a small network in training, by the variance that levels truly
cause.
"""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn

from nuq.kernels import reference
from nuq.kernels.statistics import Statistics
from nuq.levels import update_rules
from nuq.levels.level_sets import Levels
from tests.tiers import few

BUCKET_SIZE = 512


@pytest.fixture(scope="module")
def gradients() -> list[torch.Tensor]:
    """Flat gradients of 60 steps of a network on digits; every other one is for the statistics."""
    data, target = (torch.tensor(part) for part in load_digits(return_X_y=True))
    generator = torch.Generator().manual_seed(0)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    kept = []
    for step in range(140):
        batch = torch.randint(len(data), (64,), generator=generator)
        model.zero_grad()
        nn.functional.cross_entropy(model(data[batch].float() / 16), target[batch]).backward()
        flat = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
        with torch.no_grad():
            for p in model.parameters():
                p -= 0.1 * p.grad  # type: ignore[operator]
        if step >= 80:
            kept.append(flat)
    return kept


def true_variance(levels: Levels, gradients: list[torch.Tensor], norm: str) -> float:
    """Sum of scale^2 (r - l)(u - r) over every coordinate, as a part of the sum of squares."""
    variance = total = 0.0
    for x in gradients:
        buckets = reference.bucketed(x, BUCKET_SIZE).double()
        scales = buckets.norm(dim=1) if norm == "l2" else buckets.abs().amax(dim=1)
        r = (buckets / scales[:, None]).clamp(-1, 1).numpy()
        k = np.searchsorted(levels.values[1:-1], r, side="right")
        variance += float((scales.numpy()[:, None] ** 2 * (r - levels.values[k]) * (levels.values[k + 1] - r)).sum())
        total += float(buckets.square().sum())
    return variance / total


@few(2, ("norm", "bits"), product(["l2", "linf"], [2, 3, 4]))
def test_true_variance_is_no_higher_than_with_the_papers_solver(gradients, norm, bits):
    statistics = Statistics.empty(350)
    for x in gradients[::2]:
        statistics.add([x], BUCKET_SIZE, norm)
    histogram, mixture = statistics.fit("histogram"), statistics.fit("mixture")
    ours = true_variance(update_rules.alq(histogram, bits).levels, gradients[1::2], norm)
    best = true_variance(update_rules.optimal(histogram, 2**bits).levels, gradients[1::2], norm)
    for symmetric in (True, False):
        paper = true_variance(
            update_rules.alq(mixture, bits, symmetric=symmetric, solver="paper").levels, gradients[1::2], norm
        )
        assert ours <= paper and best <= paper
    if norm == "l2":  # Psi is what a coordinate of a bucket of unit norm suffers
        assert update_rules.alq(histogram, bits).expected_variance * BUCKET_SIZE == pytest.approx(ours, rel=0.2)


@few(2, "fit", ["normal", "mixture", "histogram"])
def test_expected_variance_is_never_above_the_papers_sweeps(gradients, fit):
    statistics = Statistics.empty(350)
    for x in gradients[:10]:
        statistics.add([x], BUCKET_SIZE, "l2")
    distribution = statistics.fit(fit)
    for bits in (2, 3, 4, 6):
        exact, paper = update_rules.alq(distribution, bits), update_rules.alq(distribution, bits, solver="paper")
        assert exact.expected_variance <= paper.expected_variance * (1 + 1e-9)
        assert update_rules.amq(distribution, bits).expected_variance <= update_rules.amq(
            distribution, bits, solver="paper"
        ).expected_variance * (1 + 1e-9)
        assert update_rules.optimal(distribution, 2**bits).expected_variance <= exact.expected_variance * (1 + 1e-9)
