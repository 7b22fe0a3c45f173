"""FSDP2's reduce-scatter from compressed messages: exact methods give plain FSDP2's gradients, the others come near."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard

import nuq
from nuq.errors import NonFiniteError
from nuq.fsdp import CompressedReduceScatter
from tests.nuq.small_training import assert_same_bits, backward, net


def sharded(group: dist.ProcessGroup) -> nn.Module:
    """Two FSDP modules: the middle layer, and the rest."""
    mesh, model = DeviceMesh.from_group(group, "cpu"), net()
    fully_shard(model[2], mesh=mesh)  # type: ignore[index]
    fully_shard(model, mesh=mesh)
    return model


def whole(model: nn.Module) -> torch.Tensor:
    """All gradients, gathered from their shards."""
    grads = [p.grad for p in model.parameters() if p.grad is not None]
    return torch.cat([grad.full_tensor().reshape(-1) for grad in grads])  # type: ignore[attr-defined]


def against_plain(group, method, settings, tolerance):
    rank = dist.get_rank(group)
    plain, model = sharded(group), sharded(group)
    installed = nuq.compress_fsdp(model, method, timeout_s=30, **settings)
    assert len(installed) == 2
    errors = []
    for step in range(3):
        for each in (plain, model):
            each.zero_grad()
            backward(each, rank, step)
        ours, theirs = whole(model), whole(plain)
        assert len(ours) == 2365
        assert_same_bits(group, ours)
        errors.append(float((ours - theirs).norm() / theirs.norm()))
        if tolerance == 0:
            torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-9)
    assert max(errors) <= max(tolerance, 1e-6)
    if tolerance:
        assert min(errors) > 0 and len(set(errors)) == 3
        sent = sum(each.transport.bytes_sent["messages"] for each in installed if each.transport)
        assert sent < 3 * 2400 * 4 * (dist.get_world_size(group) - 1) / dist.get_world_size(group)


@pytest.mark.parametrize("world", [2, 3])
@pytest.mark.parametrize(
    ("method", "settings", "tolerance"),
    [
        ("supersgd", {}, 0.0),
        ("qsgdinf", {"bits": 8, "bucket_size": 64}, 0.02),
        ("alq", {"bits": 4, "bucket_size": 64}, 0.4),
        ("ecdq", {"bits": 6}, 0.1),
    ],
)
def test_fsdp2_gives_near_plain_gradients(method, settings, tolerance, world, ranks):
    ranks.run(against_plain, method, settings, tolerance, world=world)


def scatters(group):
    """The callable by itself: means or sums, types, keys that differ from step to step, and a gradient that is not
    finite.
    """
    rank, world, size = dist.get_rank(group), dist.get_world_size(group), 65
    mine = torch.randn(world * size, generator=torch.Generator().manual_seed(rank))
    rows = [torch.empty_like(mine) for _ in range(world)]
    dist.all_gather(rows, mine, group=group)
    shard = torch.stack(rows)[:, rank * size : (rank + 1) * size]
    for op, wanted in ((dist.ReduceOp.AVG, shard.mean(dim=0)), (dist.ReduceOp.SUM, shard.sum(dim=0))):
        scatter = CompressedReduceScatter("supersgd", "test", timeout_s=30)
        out = scatter.allocate((size,), dtype=torch.float32, device=torch.device("cpu"))
        assert scatter(out, mine, group, op) is None
        torch.testing.assert_close(out, wanted)
        half = scatter.allocate((size,), dtype=torch.bfloat16, device=torch.device("cpu"))
        scatter(half, mine.to(torch.bfloat16), group, op, True)
        torch.testing.assert_close(half.float(), wanted, rtol=0.02, atol=0.02)
    scatter, out = CompressedReduceScatter("qsgd", "test", bucket_size=32, timeout_s=30), torch.empty(size)
    found = []
    for _ in range(2):
        scatter(out, mine, group, dist.ReduceOp.AVG)
        found.append(out.clone())
    assert not torch.equal(found[0], found[1])
    again = CompressedReduceScatter("qsgd", "test", bucket_size=32, timeout_s=30)
    again(out, mine, group, dist.ReduceOp.AVG)
    assert torch.equal(out, found[0])
    errors = []
    for rounding in ("stochastic", "correlated"):
        scatter = CompressedReduceScatter("qsgdinf", "test", bits=2, rounding=rounding, timeout_s=30)
        errors.append(0.0)
        for _ in range(20):
            scatter(out, mine, group, dist.ReduceOp.AVG)
            errors[-1] += float((out - shard.mean(dim=0)).square().sum())
    assert errors[1] < 0.8 * errors[0]
    if rank == 1:
        mine[2 * size] = torch.nan  # of the last rank's shard: the first one has to hear of it as well
    for each in (again, CompressedReduceScatter("ecdq", "test", timeout_s=30)):  # lengths known beforehand, and told
        with pytest.raises(NonFiniteError, match="the gradient of 'test' on worker 1 is not finite"):
            each(out, mine, group, dist.ReduceOp.AVG)


def test_the_reduce_scatter_by_itself(ranks):
    ranks.run(scatters, world=3)


@pytest.mark.parametrize("settings", [{"method": "alqq"}, {"bitz": 1}, {"bits": 99}], ids=str)
def test_settings_are_checked(settings: dict[str, Any]):
    with pytest.raises(ValueError, match=r"alqq|bitz|bits=99"):
        CompressedReduceScatter(
            settings.get("method", "alq"), "x", **{key: value for key, value in settings.items() if key != "method"}
        )


def test_a_method_of_one_worker_is_refused():
    with pytest.raises(ValueError, match="method='sgd': sends one worker's gradient alone"):
        CompressedReduceScatter("sgd", "x")


def test_a_model_that_is_not_sharded_is_refused():
    with pytest.raises(ValueError, match=r"call torch\.distributed\.fsdp\.fully_shard first"):
        nuq.compress_fsdp(nn.Linear(2, 2))
