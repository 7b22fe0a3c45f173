"""``benchmarks.mean_levels``: its exact error of the mean is the one that the kernels make."""

from __future__ import annotations

import pytest
import torch

from benchmarks import mean_levels
from benchmarks.mean_error import measured
from nuq.kernels import reference
from nuq.kernels.spec import Key
from tests.tiers import few


@few(2, ("norm", "workers"), [("linf", 4), ("quantile", 2), ("l2", 3)])
def test_the_exact_error_is_that_of_the_kernels(norm, workers):
    """Of workers that have something in common, and with a short last bucket."""
    draw = torch.Generator().manual_seed(4)
    common = torch.randn(20_000, generator=draw)
    rows = [common + torch.randn(20_000, generator=draw) for _ in range(workers)]
    made, seen = mean_levels.fitted("optimal", "mean", norm, 7, rows)
    exact = mean_levels.error_of_mean(made, rows, nodes=32) / float(
        torch.stack(rows).mean(dim=0).double().square().sum()
    )
    assert seen.workers == workers and seen.agreement == pytest.approx(0.99, abs=0.03)
    assert measured(made, rows, 40).of_mean == pytest.approx(exact, rel=0.02)


@pytest.mark.parametrize("workers", [2, 3, 4, 5, 8])
def test_points_are_those_of_the_specification(workers):
    numbers = {}
    for worker in range(workers):
        key, among = Key(1, 2, worker, "a", workers=workers).together()
        numbers[among[0]] = reference.uniforms(100, key, torch.device("cpu"), among).double()
    even = (workers + 1) // 2
    for drawn in torch.stack([numbers[place] for place in range(workers)]).T:
        points = mean_levels._points(workers, float(drawn[0]) * even)  # the first place's is p z
        assert sorted(drawn.tolist()) == pytest.approx(sorted(points), abs=2e-4)
