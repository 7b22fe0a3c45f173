"""Correlated rounding in exchanges: less error of the mean, at the same bytes, whatever carries them."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
import torch
import torch.distributed as dist

import nuq
from nuq.exchange.collective_factory import fewest_bytes
from nuq.exchange.compressor_map import CompressorMap
from nuq.exchange.transport import Transport
from nuq.kernels.spec import Key
from nuq.registry import METHODS
from nuq.settings.exchange import Exchange
from tests.nuq.exchange.test_collectives import gradient, settings_of, simulated
from tests.nuq.small_training import of_all
from tests.tiers import few


@pytest.mark.parametrize(
    "name", ["qsgdinf", "nuqsgd", "trn", "natural", "block8", "fp8", "s2fp8", "bf16", "fp16", "smaq", "nnw_bdi"]
)
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


@pytest.mark.slow
def test_ranks_that_round_together_err_less(ranks):
    ranks.run(correlated, world=3)


@few(2, "name", ["qsgdinf", "trn", "natural"])
def test_a_server_that_takes_two_of_four_stays_unbiased(name):
    """Whoever it takes does not depend on how they round; its reply is exact."""
    sizes, repeats = {"a": 500}, 150
    rows = torch.stack([gradient(worker, 1, sizes) for worker in range(4)])
    exchange = Exchange(collective="server", num_aggregate=2, second_bits=8)
    means = torch.stack(
        [simulated(name, exchange, 4, sizes, 1, rounding="correlated", seed=seed) for seed in range(repeats)]
    )
    along = (means - rows.mean(dim=0)) @ rows.mean(dim=0)
    assert abs(float(along.mean())) < 4.5 * float(along.std()) / repeats**0.5


@few(2, "name", ["natural", "bf16", "fp16", "fp8", "block8", "s2fp8", "nnw_bdi"])
def test_every_worker_by_itself_stays_unbiased(name):
    """With both signs, whose random numbers casts turn round."""
    compressor = METHODS[name].load()(METHODS[name].settings(rounding="correlated"))
    x, repeats = gradient(1, 1, {"a": 1500}), 200
    for workers in (3, 4):
        for worker in range(workers):
            keys = [Key(1, step, worker, "a", workers=workers) for step in range(repeats)]
            errors = torch.stack([compressor.decode(compressor.encode(x, key)) for key in keys]) - x
            for part in (x, x.abs()):
                along = errors @ part
                assert abs(float(along.mean())) < 4.5 * float(along.std()) / repeats**0.5, (workers, worker)


@few(2, ("name", "workers"), product(["qsgdinf", "alq", "trn"], [4, 8]))
def test_rounding_costs_no_bytes_under_auto(name, workers):
    chosen = []
    for rounding in ("stochastic", "correlated"):
        compressors = CompressorMap(name, settings_of(name, rounding=rounding, scope="model"), 4)
        chosen.append((fewest_bytes(compressors, Transport(None), workers), compressors.second_bits))
    assert chosen[0] == chosen[1]
