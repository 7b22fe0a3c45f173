"""FSDP2 on two machines of two ranks: more bits inside a machine, fewer between, the same bits on both."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard

import nuq
from nuq.errors import NonFiniteError
from nuq.fsdp import CompressedReduceScatter
from nuq.fsdp_between import MeanBetween
from nuq.kernels.spec import Key
from nuq.registry import METHODS
from tests.nuq.small_training import assert_same_bits, backward, net
from tests.nuq.test_fsdp_state import Training
from tests.tiers import few

EIGHT_BITS: dict[str, Any] = {"bits": 8, "bucket_size": 32, "timeout_s": 30}


def machines() -> DeviceMesh:
    return init_device_mesh("cpu", (2, 2), mesh_dim_names=("machines", "ranks"))


def sharded(mesh: DeviceMesh) -> nn.Module:
    """Two FSDP modules, sharded over the ranks of a machine."""
    model = net()
    fully_shard(model[2], mesh=mesh["ranks"])  # type: ignore[index]
    fully_shard(model, mesh=mesh["ranks"])
    return model


def decoded(vector: torch.Tensor, bits: int, worker: int, name: str, step: int) -> torch.Tensor:
    compressor = METHODS["qsgdinf"].load()(METHODS["qsgdinf"].settings(bits=bits, bucket_size=32))
    return compressor.decode(compressor.encode(vector, Key(0, step, worker, name, piece_of=2, workers=2)))


def follows(group):
    """A mean of two machines' means, each of messages in 8 bits, in messages of 4 bits."""
    mesh, rank, size = machines(), dist.get_rank(group), 70
    inside, between = mesh.get_group("ranks"), mesh.get_group("machines")
    scatter = CompressedReduceScatter("qsgdinf", "test", between=between, bits_between=4, **EIGHT_BITS)
    owner, out = rank % 2, torch.empty(size)
    for step in range(3):
        all_gradients = [torch.randn(2 * size, generator=torch.Generator().manual_seed(9 * step + r)) for r in range(4)]
        scatter(out, all_gradients[rank], inside, dist.ReduceOp.AVG)
        wanted, first = torch.zeros(size), owner * size
        for machine in range(2):
            of_machine = torch.zeros(size)
            for worker in range(2):
                piece = all_gradients[2 * machine + worker][first : first + size]
                of_machine += decoded(piece, 8, worker, f"test[{first}]", step)
            wanted += decoded(of_machine * 0.5, 4, machine, f"test, shard {owner}", step)
        assert torch.equal(out, wanted * 0.5)
    assert_same_bits(between, out)
    assert scatter.between is not None and scatter.between.transport is not None and scatter.transport is not None
    eight, four = (t.bytes_sent["messages"] for t in (scatter.transport, scatter.between.transport))
    assert eight - four == 3 * 36  # half a byte a coordinate, and rounded up to four bytes

    def fails(broken: torch.Tensor, where: str) -> None:
        with pytest.raises(NonFiniteError, match=f"'test' on {where}"):
            scatter(out, broken, inside, dist.ReduceOp.AVG)

    broken = all_gradients[rank].clone()
    if rank == 3:
        broken[0] = torch.inf  # of the other rank's shard
    fails(broken, "worker 1" if rank >= 2 else "machine 1")
    huge = torch.tensor([1.0, 3e38]).repeat_interleave(size)
    scatter(out, huge, inside, dist.ReduceOp.SUM)  # the second shard alone overflows
    assert bool(out.isnan().all()) if owner == 1 else bool(out.isfinite().all())
    scatter(out, all_gradients[rank], inside, dist.ReduceOp.AVG)
    assert bool(out.isfinite().all())


def test_a_mean_of_machines_means(ranks):
    ranks.run(follows, world=4)


def of_four(group):
    """With more than two machines the mean goes in two stages."""
    rank, size = dist.get_rank(group), 300
    shards = [torch.randn(size, generator=torch.Generator().manual_seed(r)) for r in range(4)]
    how = {"bits": 6, "seed": 0, "timeout_s": 30, "settings": {"bits": 8, "bucket_size": 64, "feedback": "average"}}
    mean, exact = MeanBetween("qsgdinf", "test", group, **how), torch.stack(shards).mean(dim=0)
    for step in range(3):
        shard = shards[rank].clone()
        assert mean.mean(shard, 0, step, None) is None
        mean.settle(undo=False)
        assert_same_bits(group, shard)
        assert 0 < float((shard - exact).norm() / exact.norm()) < 0.1
    assert mean.transport is not None and mean.transport.bytes_sent["means"] > 0


def test_four_machines(ranks):
    ranks.run(of_four, world=4)


def trains(group, settings):
    """Parameters after steps: the same bits on both machines, and near those of plain FSDP2 on both."""
    mesh, rank, found = machines(), dist.get_rank(group), {}
    for name in ("plain", "compressed"):
        model: Any = sharded(mesh)
        if name == "compressed":
            between = mesh.get_group("machines")
            nuq.compress_fsdp(model, between=between, **settings)
            nuq.compress_fsdp_weights(model, "qsgdinf", **EIGHT_BITS)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(6):
            optimizer.zero_grad()
            backward(model, rank, step)
            if name == "plain":
                for p in model.parameters():
                    dist.all_reduce(p.grad.to_local(), group=mesh.get_group("machines"))
                    p.grad.to_local().div_(2)
            optimizer.step()
        found[name] = torch.cat([p.full_tensor().reshape(-1) for p in model.parameters()]).detach()
        assert_same_bits(group, found[name])
    began = torch.cat([p.detach().reshape(-1) for p in net().parameters()])
    error = float((found["compressed"] - found["plain"]).norm() / (found["plain"] - began).norm())
    assert 0 < error < 0.2, error


@few(
    1,
    "settings",
    [
        {"method": "qsgdinf", **EIGHT_BITS, "feedback": "average"},
        {"method": "alq", **EIGHT_BITS, "bits_between": 5},
    ],
    ids=["a memory", "levels that are fitted"],
)
def test_machines_stay_together(settings, ranks):
    ranks.run(trains, settings, world=4)


def saves(group, folder):
    """Every rank goes on from the mean of all machines' memories, in which those between machines are."""
    mesh = machines()
    how = {"between": mesh.get_group("machines"), "feedback": "average"}
    one = Training(group, sharded(mesh), **how)
    one.steps(0, 1, 2)
    one.save(folder)
    saved = one.saved("gradients")
    other = Training(group, sharded(mesh), **how)
    other.load(folder)
    again = other.saved("gradients")  # before any step
    assert saved.keys() == again.keys()
    for name, row in saved.items():
        assert_same_bits(group, row)
        assert float(row.norm()) > 0
        torch.testing.assert_close(again[name], row, rtol=1e-5, atol=1e-7)
    other.steps(3, 4)
    assert_same_bits(group, other.whole())
    assert all(each.step == 5 for each in other.gradients)


def test_memories_are_saved(ranks, tmp_path: Path):
    ranks.run(saves, tmp_path, world=4)


def refuses(group):
    mesh = machines()
    scatter, inside = CompressedReduceScatter("qsgdinf", "x", between=mesh.get_group("ranks")), mesh.get_group("ranks")
    with pytest.raises(ValueError, match=r"\[0, 1\] of x"):
        scatter(torch.empty(8), torch.ones(16), inside, dist.ReduceOp.AVG)


def test_what_is_not_between_machines(ranks):
    ranks.run(refuses, world=4)
