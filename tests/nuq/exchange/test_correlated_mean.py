"""Correlated rounding in exchanges: less error of the mean, at the same bytes, whatever carries them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist

import nuq
from nuq.settings.exchange import Exchange
from tests.nuq.exchange.test_collectives import gradient, simulated
from tests.nuq.small_training import of_all


@pytest.mark.parametrize("name", ["qsgdinf", "nuqsgd", "trn", "natural", "block8", "fp8", "s2fp8", "bf16", "fp16"])
def test_correlated_workers_err_less_together(name):
    """The server's reply, in its turn, is encoded by one alone."""
    sizes = {"a": 4000}
    exact = torch.stack([gradient(worker, 1, sizes) for worker in range(4)]).mean(dim=0)
    errors = {}
    for collective in ("gather", "server"):
        for rounding in ("stochastic", "correlated"):
            means = [
                simulated(name, Exchange(collective=collective, second_bits=8), 4, sizes, 1, rounding=rounding, seed=s)
                for s in range(4)
            ]
            errors[collective, rounding] = sum(float((mean - exact).square().sum()) for mean in means)
    for collective in ("gather", "server") if name in ("qsgdinf", "nuqsgd", "trn") else ("gather",):
        assert errors[collective, "correlated"] < 0.95 * errors[collective, "stochastic"], collective


def correlated(group):
    """Rounding together, ranks err less: in what they all send, and where an owner sends its mean on."""
    x = torch.randn(1 << 14, generator=torch.Generator().manual_seed(dist.get_rank(group)))
    exact = torch.stack(of_all(group, x)).mean(dim=0)
    for method, collective, most in (("qsgdinf", "gather", 0.7), ("trn", "gather", 0.95), ("alq", "two_stage", 0.9)):
        errors = []
        for rounding in ("stochastic", "correlated"):
            how: dict[str, Any] = {"collective": collective, "rounding": rounding}
            how |= {"second_bits": 8} if collective == "two_stage" else {}
            means = [nuq.all_reduce(x, method, group, step=step, **how) for step in range(4)]
            errors.append(sum(float((mean - exact).square().sum()) for mean in means))
        assert errors[1] < most * errors[0], (method, errors)


def test_ranks_that_round_together_err_less(ranks):
    ranks.run(correlated, world=3)
