"""A mean that float32 holds is returned though the sum behind it overflows, and every other mean keeps its bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import Tensor

import nuq
from nuq.fsdp import CompressedReduceScatter
from tests.nuq.small_training import hooked

LARGE = 3e38


def vectors(world: int) -> np.ndarray:
    """Of every rank, float32[world, 1200]: large here and there, on all ranks or with either sign."""
    found = np.random.default_rng(0).standard_normal((world, 1200)).astype(np.float32)
    found[:, 100:110] = LARGE
    found[:, 700] = -LARGE
    found[:2, 900] = LARGE, -LARGE
    found[:, 1100] = 3.4e38
    return found


def expected(world: int) -> np.ndarray:
    """The mean by float32 in the ranks' order, and by float64 where that overflows."""
    every = vectors(world)
    total = np.zeros(1200, np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        for row in every:
            total += row
        total *= np.float32(1 / world)
    wide = every.astype(np.float64).sum(0) / world
    return np.where(np.isfinite(total), total, wide.astype(np.float32))


def means(group: dist.ProcessGroup) -> dict[str, np.ndarray]:
    rank, world = dist.get_rank(group), dist.get_world_size(group)
    mine, found = torch.from_numpy(vectors(world)[rank]), dict[str, np.ndarray]()
    for collective in ("gather", "two_stage", "server"):
        how: dict[str, Any] = {"collective": collective, "timeout_s": 30.0}
        found[collective] = nuq.all_reduce(mine, "supersgd", group, step=0, **how).numpy()
    scatter, shard = CompressedReduceScatter("supersgd", "test", timeout_s=30.0), torch.empty(1200 // world)
    scatter(shard, mine, group, dist.ReduceOp.AVG)
    rows = [torch.empty_like(shard) for _ in range(world)]
    dist.all_gather(rows, shard, group=group)
    found["reduce-scatter"] = torch.cat(rows).numpy()
    layer = torch.nn.Linear(1200, 1, bias=False)
    model, state = hooked(group, layer, method="supersgd", collective="gather")
    model(mine[None]).sum().backward()
    assert layer.weight.grad is not None
    found["hook"] = layer.weight.grad[0].numpy()
    state.close()
    return found


@pytest.mark.parametrize("world", [2, 3])
def test_a_mean_whose_sum_overflows_is_returned(ranks, world):
    for found in ranks.run(means, world=world):
        for name, mean in found.items():
            assert mean.tobytes() == expected(world).tobytes(), name


def hierarchical(group: dist.ProcessGroup) -> Tensor:
    layer = torch.nn.Linear(1200, 1, bias=False)
    model, state = hooked(group, layer, method="supersgd", collective="hierarchical", per_machine=2)
    model(torch.full((1, 1200), LARGE)).sum().backward()
    state.close()
    assert layer.weight.grad is not None
    return layer.weight.grad


def test_a_sum_inside_a_machine_may_overflow(ranks: Any) -> None:
    for mean in ranks.run(hierarchical):
        assert torch.equal(mean, torch.full((1, 1200), LARGE))
