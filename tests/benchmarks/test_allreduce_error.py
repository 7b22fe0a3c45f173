"""The formulas of ``benchmarks.allreduce_error`` on numbers worked out by hand, and that it would notice a wrong
collective.
"""

from dataclasses import replace

import pytest
import torch

from benchmarks import allreduce_error
from benchmarks.allreduce_error import compared, gather_error, measure, norm_ratio, summary, two_stage_error
from nuq.exchange.collectives import reduce_scatter
from nuq.exchange.collectives.two_stage import TwoStage

VECTORS = torch.tensor([[3.0, 0.0], [0.0, 4.0]])  # mean (1.5, 2): |mean|^2 = 6.25, mean |x|^2 = (9 + 16) / 2


def test_the_formulas_by_hand():
    assert norm_ratio(VECTORS) == 2.0
    # two workers, w1 = .1: errors of .1 * 9 and .1 * 16, a quarter of their sum over 6.25
    assert gather_error(0.1, 2.0, 2) == pytest.approx((0.9 + 1.6) / 4 / 6.25)
    # and w2 = .01 of what the first stage leaves, whose squared length is 6.25 + .625
    assert two_stage_error(0.1, 0.01, 2.0, 2) == pytest.approx((0.625 + 0.01 * (6.25 + 0.625)) / 6.25)
    assert two_stage_error(0.1, 0.0, 2.0, 2) == gather_error(0.1, 2.0, 2)


def test_inputs_have_the_ratio_they_are_named_after():
    generator = torch.Generator().manual_seed(1)
    for workers in (2, 8):
        for ratio in (1.2, 20.0):  # above the number of workers the noise cancels
            assert norm_ratio(allreduce_error.correlated(ratio)(workers, 1 << 14, generator)) == pytest.approx(
                ratio, rel=0.05
            )
        assert norm_ratio(allreduce_error.independent(workers, 1 << 14, generator)) == pytest.approx(workers, rel=0.05)


def test_noise_is_of_the_differences():
    one = compared(2.0, [1.0, 3.0], [1.5, 3.5])
    assert (one.measured, one.rel_err, one.noise) == (2.5, 0.25, 0.0)
    assert compared(2.0, [2.0, 2.0], [1.0, 3.0]).noise == pytest.approx(2**0.5 / 2**0.5 / 2.0)


CASE = ("qsgdinf", {**allreduce_error.ALONE, "bits": 3, "bucket_size": 256}, 4)


def test_a_collective_that_is_right_fits_and_one_that_is_not_does_not(monkeypatch):
    vectors = allreduce_error.independent(4, 1 << 13, torch.Generator().manual_seed(1))
    right = measure("normal", vectors, CASE, 12)
    assert abs(right["gather"].rel_err) < 0.03
    assert abs(right["two_stage"].rel_err) < 0.03
    assert summary([right])["rows"] == 2

    class Correlated(TwoStage):
        """All workers round with the same random numbers."""

        def mean(self, vectors, parts, key, out):
            with monkeypatch.context() as patch:
                patch.setattr(reduce_scatter, "of_worker", lambda key, *_: replace(key, worker=0))
                super().mean(vectors, parts, key, out)

    monkeypatch.setattr(allreduce_error, "TwoStage", Correlated)
    wrong = measure("normal", torch.stack([vectors[0]] * 4), CASE, 12)
    assert abs(wrong["two_stage"].rel_err) > 0.5
