"""nuq.all_reduce: one tensor's mean over the ranks, by every method."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist

import nuq
from nuq.errors import NonFiniteError
from nuq.exchange import driver
from nuq.exchange.level_updates import fit_levels
from nuq.registry import METHODS
from tests.nuq.small_training import assert_same_bits, of_all


def heavy(rank: int, *shape: int) -> torch.Tensor:
    """Coordinates with a heavy tail."""
    generator = torch.Generator().manual_seed(rank)
    return torch.randn(shape, generator=generator) * torch.rand(shape, generator=generator).pow(-0.7)


# Relative to the mean of random tensors, which is shorter than each of them.
LARGEST_ERROR = {
    "sgd": 1e-6,
    "supersgd": 1e-6,
    "trn": 4,
    "qsgd": 3,
    "qsgdinf": 2,
    "nuqsgd": 2,
    "drive": 4,
    "randomk": 70,
    "atomo": 4,
    "powersgd": 1.2,
}


def every_method(group, names):
    rank = dist.get_rank(group)
    for number, name in enumerate(names):
        for collective in (
            ("gather",) if METHODS[name].single_worker else ("auto", ("gather", "two_stage", "server")[number % 3])
        ):
            x = heavy(rank, 40, 7, 5)
            given: dict[str, Any] = {"collective": collective, "timeout_s": 30.0} | (
                {"bucket_size": 128} if "bucket_size" in METHODS[name].settings.__dataclass_fields__ else {}
            )
            mean = nuq.all_reduce(x, name, group, step=4, **given)
            assert mean.shape == x.shape and mean.dtype == torch.float32
            assert_same_bits(group, mean)
            exact = torch.stack(of_all(group, x)).mean(dim=0)
            if METHODS[name].single_worker:
                exact = of_all(group, x)[0]
            error = float((mean - exact).norm() / exact.norm())
            assert error < LARGEST_ERROR.get(name, 1.0), (name, error)
            again = nuq.all_reduce(x, name, group, step=4, **given)
            assert torch.equal(again, mean), name  # step and seed decide
            if not METHODS[name].deterministic and name not in (
                "drive",
                "eden",
                "casq",
            ):  # few coordinates in a cell: nothing to draw
                assert not torch.equal(nuq.all_reduce(x, name, group, step=5, **given), mean), name
                assert not torch.equal(nuq.all_reduce(x, name, group, step=4, seed=9, **given), mean), name


@pytest.mark.parametrize("world", [1, 2, pytest.param(3, marks=pytest.mark.slow)])
def test_every_method_gives_one_mean_on_all_ranks(world, ranks):
    names = list(METHODS)
    ranks.run(every_method, names if world == 3 else names[world - 1 :: 2], world=world)


def shapes_and_types(group):
    rank = dist.get_rank(group)
    for shape in ((), (1,), (0,), (3, 0, 2), (63,), (64, 1), (65,)):
        for dtype in (torch.float32, torch.bfloat16, torch.float16):
            x = torch.randn(shape, generator=torch.Generator().manual_seed(rank)).to(dtype)
            for collective in ("gather", "two_stage"):
                mean = nuq.all_reduce(
                    x, "supersgd" if collective == "gather" else "qsgdinf", group, step=0, collective=collective
                )
                assert mean.shape == x.shape and mean.dtype == torch.float32
                assert_same_bits(group, mean)
                if collective == "gather":
                    torch.testing.assert_close(mean, torch.stack([row.float() for row in of_all(group, x)]).mean(dim=0))
    one = torch.arange(2.0)[1::2]  # whose stride is 2
    for name in METHODS:
        given: dict[str, Any] = (
            {"bucket_size": 128} if "bucket_size" in METHODS[name].settings.__dataclass_fields__ else {}
        )
        assert nuq.all_reduce(one, name, group, step=0, **given).shape == (1,), name
    turned = torch.arange(12.0).view(3, 4).T + rank
    kept = turned.clone()
    assert torch.equal(nuq.all_reduce(turned, "supersgd", group, step=0), torch.arange(12.0).view(3, 4).T + 0.5)
    assert torch.equal(turned, kept)  # the argument stays as it is


def test_shapes_and_types(ranks):
    ranks.run(shapes_and_types, world=2)


def fitted(group):
    """Levels fitted to the tensor at hand err less than those fitted to a normal distribution."""
    rank = dist.get_rank(group)
    x = heavy(rank, 1 << 15)
    exact = torch.stack(of_all(group, x)).mean(dim=0)

    def error(fit):
        kept, driver.fit_levels = fit_levels, fit
        try:
            means = [nuq.all_reduce(x, "alq", group, step=step, collective="gather", bits=3) for step in range(4)]
        finally:
            driver.fit_levels = kept
        return sum(float((mean - exact).square().sum()) for mean in means)

    assert error(fit_levels) < 0.5 * error(lambda *_: None)


def test_levels_are_fitted_to_the_tensor(ranks):

    ranks.run(fitted, world=2)


def refused(group):
    rank = dist.get_rank(group)
    x = torch.ones(10)
    for collective in ("gather", "two_stage", "server"):
        for bad in (torch.nan, 3e38):  # whose norm overflows
            mine = x.clone().fill_(bad) if rank == 1 else x
            with pytest.raises(NonFiniteError, match="worker 1"):
                nuq.all_reduce(mine, "alq", group, step=0, collective=collective, norm="l2")


def test_what_cannot_be_is_refused_on_all_ranks(ranks):
    ranks.run(refused, world=3)


def outer_loop(group):
    """DiLoCo: local steps, then the mean of what every rank moved by."""
    rank = dist.get_rank(group)
    target, weights = torch.linspace(-1, 1, 200), torch.zeros(200)
    for step in range(25):
        local = weights.clone()
        generator = torch.Generator().manual_seed(100 * rank + step)
        for _ in range(5):
            local -= 0.2 * (local - target + 0.05 * torch.randn(200, generator=generator))
        weights += nuq.all_reduce(local - weights, "alq", group, step=step, bits=4)
        assert_same_bits(group, weights)
    assert (weights - target).norm() < 0.1 * target.norm()


@pytest.mark.slow
def test_an_outer_loop_converges(ranks):
    ranks.run(outer_loop, world=2)


def waits(_: dist.ProcessGroup) -> str:
    """What the first rank is told, whose group waits for 1.5 s, when the second one comes after 4 s."""
    group = dist.new_group(range(2), timeout=timedelta(seconds=1.5))  # by all ranks of the pool
    if not isinstance(group, dist.ProcessGroup):
        return ""
    time.sleep(4.0 * dist.get_rank())
    try:
        nuq.all_reduce(torch.ones(9), group=group, step=0)
    except nuq.RankLost as error:
        return str(error)
    return "nothing"


def test_it_waits_as_long_as_its_group_does(ranks: Any) -> None:
    told = ranks.run(waits)[0]
    assert "rank 1 of 4 did not answer in time (timeout_s=None, the process group's own 1.5 s" in told
