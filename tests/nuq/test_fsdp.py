"""FSDP2's reduce-scatter from compressed messages: exact methods give plain FSDP2's gradients, the others come near."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard

import nuq
from nuq.errors import NonFiniteError
from nuq.fsdp import CompressedReduceScatter
from nuq.kernels.spec import Key
from nuq.registry import METHODS
from tests.nuq.ranks import second_group
from tests.nuq.small_training import assert_same_bits, backward, net
from tests.tiers import few


def sharded(group: dist.ProcessGroup) -> nn.Module:
    """Two FSDP modules: the middle layer, and the rest."""
    mesh, model = DeviceMesh.from_group(group, "cpu"), net()
    fully_shard(model[2], mesh=mesh)  # type: ignore[index]
    fully_shard(model, mesh=mesh)
    return model


def groups_of_parameters(group, *, second=False):
    """The groups by which a sharded model's parameters are gathered after a step."""
    model = sharded(second_group(group) if second else group)
    model(torch.ones(2, 12)).sum().backward()
    torch.optim.SGD(model.parameters(), lr=0.1).step()
    return {p.device_mesh.get_group().group_name for p in model.parameters()}  # type: ignore[attr-defined]


def _second(group):
    return groups_of_parameters(group, second=True)


def test_a_test_takes_no_group_of_one_before_it(ranks):
    assert ranks.run(_second, world=2) != ranks.run(groups_of_parameters, world=2)


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


@few(1, "world", [2, 3])
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
        with pytest.raises(NonFiniteError, match="'test' on worker 1"):
            each(out, mine, group, dist.ReduceOp.AVG)


def test_the_reduce_scatter_by_itself(ranks):
    ranks.run(scatters, world=3)


def averaged(group):
    """LoCo's recursion in NumPy, of all ranks at once, around messages of the same method."""
    rank, world, size = dist.get_rank(group), dist.get_world_size(group), 70
    beta, reset_every = 0.3, 4
    quantizer: dict[str, Any] = {"bits": 2, "bucket_size": 32}
    scatter = CompressedReduceScatter(
        "qsgdinf", "test", feedback="average", beta=beta, reset_every=reset_every, timeout_s=30, **quantizer
    )
    compressor = METHODS["qsgdinf"].load()(METHODS["qsgdinf"].settings(**quantizer))
    errors, out, largest = np.zeros((world, world * size)), torch.empty(size), 0.0
    for step in range(6):
        if step % reset_every == 0:
            errors[:] = 0
        mine = [torch.randn(world * size, generator=torch.Generator().manual_seed(10 * step + r)) for r in range(world)]
        sent = np.zeros((world, world * size))
        for r in range(world):
            for first in range(0, world * size, size):
                key = Key(0, step, r, f"test[{first}]", piece_of=2, workers=world)
                wanted = (mine[r].numpy() + errors[r])[first : first + size]
                decoded = compressor.decode(compressor.encode(torch.from_numpy(wanted).float(), key)).double().numpy()
                factor = np.clip(wanted @ decoded / (decoded @ decoded), 0, 1)
                sent[r, first : first + size] = factor * decoded
            errors[r] = (1 - beta) * errors[r] + beta * (mine[r].numpy() + errors[r] - sent[r])
        scatter(out, mine[rank], group, dist.ReduceOp.AVG)
        wanted = sent[:, rank * size : (rank + 1) * size].mean(axis=0)
        np.testing.assert_allclose(out.numpy(), wanted, rtol=1e-4, atol=1e-5)
        largest = max(largest, np.abs(errors).max())
    assert largest > 0.1
    remembered = kept(scatter)
    np.testing.assert_allclose(remembered.numpy(), errors[rank], rtol=1e-4, atol=1e-5)
    broken = mine[rank].clone()
    broken[-1] = torch.nan if rank == 1 else 0  # of a shard that is encoded after others
    with pytest.raises(NonFiniteError):
        scatter(out, broken, group, dist.ReduceOp.AVG)
    assert torch.equal(kept(scatter), remembered)
    scatter(torch.empty(5), torch.ones(world * 5), group, dist.ReduceOp.AVG)  # other parameters have gradients
    assert kept(scatter).shape == (world * 5,)


def kept(scatter: CompressedReduceScatter) -> torch.Tensor:
    """What this rank remembers of its messages."""
    (of_worker,) = scatter._compressors.memories[0].memory()["workers"].values()
    return of_worker["residuals"]["test"]


def test_a_moving_average_of_the_errors_is_locos(ranks):
    ranks.run(averaged, world=2)


def sums(group):
    """Over steps the ranks' means add up to that of the gradients, also of a biased method."""
    rank, world, size, steps = dist.get_rank(group), dist.get_world_size(group), 200, 60
    mine = torch.randn(world * size, generator=torch.Generator().manual_seed(rank))
    out, errors = torch.empty(size), []
    ways: list[dict[str, Any]] = [{}, {"feedback": "average"}, {"feedback": "average", "beta": 1.0, "reset_every": 0}]
    for settings in ways:
        scatter, total = CompressedReduceScatter("topk", "test", ratio=0.2, timeout_s=30, **settings), torch.zeros(size)
        for _ in range(steps):
            scatter(out, mine, group, dist.ReduceOp.SUM)
            total += out / steps
        wanted = mine.clone()
        dist.all_reduce(wanted, group=group)
        wanted = wanted[rank * size : (rank + 1) * size]
        errors.append(float((total - wanted).norm() / wanted.norm()))
    return errors


def test_what_is_left_out_comes_later(ranks):
    for without, average, feedback in ranks.run(sums, world=2):
        assert without > 0.5
        assert average < 0.3 and feedback < 0.1
