"""FSDP2's parameters from compressed differences of weights: near the shards, exact after a refresh, nothing twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard

import nuq
from nuq.errors import NonFiniteError
from nuq.fsdp_gather import CompressedGather
from tests.nuq.ranks import second_group
from tests.nuq.small_training import assert_same_bits, backward, net, parameters
from tests.nuq.test_fsdp import sharded

FOUR_BITS = {"bits": 4, "bucket_size": 32}


def gathered(gather: CompressedGather, shard: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
    """What FSDP gets: float32[ranks, size]."""
    world = dist.get_world_size(group)
    out = gather.allocate((world * shard.numel(),), dtype=shard.dtype, device=shard.device)
    assert gather(out, shard.detach(), group) is None
    return out.view(world, -1)


def in_backward(call: Callable[..., torch.Tensor], *given: Any) -> torch.Tensor:
    """What the call returns inside a backward pass."""
    found: list[torch.Tensor] = []
    leaf = torch.zeros(1, requires_grad=True)
    leaf.register_hook(lambda grad: found.append(call(*given)))
    leaf.sum().backward()
    return found[0]


def sent_by(gather: CompressedGather) -> Counter[str]:
    """The bytes that it has sent, by purpose."""
    assert gather.transport is not None
    return gather.transport.bytes_sent.copy()


def follows(group):
    """Every gather errs by no more than one message, and errors do not add up; a refresh has none."""
    rank, world, size, full_every = dist.get_rank(group), dist.get_world_size(group), 100, 20
    shard = nn.Parameter(torch.randn(size, generator=torch.Generator().manual_seed(rank)))
    gather = CompressedGather("qsgdinf", "test", full_every=full_every, timeout_s=30, **FOUR_BITS)
    steps = torch.Generator().manual_seed(10 + rank)
    before, errors, farthest = torch.zeros(size), [], 0.0
    for step in range(2 * full_every):
        move = torch.randn(size, generator=steps)
        farthest = max(farthest, float(move.abs().max()))
        with torch.no_grad():
            shard += move
        now = gathered(gather, shard, group)
        assert_same_bits(group, now)
        mine = shard.detach()
        if step % full_every == 0:
            assert torch.equal(now[rank], mine)
        else:
            # one of the two nearest of 16 levels up to the largest of a bucket: off by at most 2/15 of that
            bound = float((mine - before).abs().max()) * 2 / 15
            assert 0 < float((now[rank] - mine).norm()) <= bound * size**0.5
            errors.append(float((now[rank] - mine).abs().max()))
        before = now[rank].clone()
        sent = sent_by(gather)
        again = in_backward(gathered, gather, shard, group)
        assert torch.equal(again, now) and sent_by(gather) == sent
    assert gather.step == 2 * full_every
    # s c / (1 - c) for a share c of 2 / 15, which a message's factor near 1 adds little to
    assert max(errors) < 0.2 * farthest
    others, sent = world - 1, sent_by(gather)
    assert sent["refresh"] == 2 * others * 4 * size
    assert sent["messages"] < (2 * full_every - 2) * others * (size / 2 + 100)  # four bits; scales and headers


def changes(group):
    """A change of one rank's shard reaches all, however it came about; a replica that an evaluation made lives on."""
    rank = dist.get_rank(group)
    shard = nn.Parameter(torch.zeros(64))
    gather = CompressedGather("qsgdinf", "test", bits=8, timeout_s=30)
    with torch.inference_mode():
        gathered(gather, shard, group)
    shard.data.add_(rank)  # PyTorch does not count this as a write
    rows = gathered(gather, shard, group)
    torch.testing.assert_close(rows, torch.tensor([[0.0], [1.0]]).expand(2, 64), rtol=0.0, atol=1e-6)
    assert gather.step == 2


def rewritten(group):
    """Writes into DTensors that PyTorch does not count are seen, too; an optimizer of one rank alone is no matter."""
    model, x = sharded(group), torch.ones(1, 12)
    installed = nuq.compress_fsdp_weights(model, bits=8, timeout_s=30)
    with torch.no_grad():
        first = model(x).clone()
        model.reshard()  # type: ignore[operator]
        for change in (3.0, 1 / 3):
            torch._foreach_mul_(list(model.parameters()), change)  # type: ignore[attr-defined]
            if dist.get_rank(group) == 0:  # of another model, on one rank alone
                probe = nn.Parameter(torch.ones(1))
                probe.grad = torch.ones(1)
                torch.optim.SGD([probe]).step()
            now = model(x).clone()
            model.reshard()  # type: ignore[operator]
            assert (change == 3.0) != torch.allclose(first, now, atol=0.02)
    assert all(gather.step == 3 for gather in installed)


def repeated(group):
    """A forward pass that activation checkpointing repeats in the backward pass sends nothing there."""
    mesh, layer = DeviceMesh.from_group(group, "cpu"), checkpoint_wrapper(nn.Linear(12, 12))
    fully_shard(layer, mesh=mesh)
    (gather,) = nuq.compress_fsdp_weights(layer, timeout_s=30)
    for step in range(2):
        backward(layer, dist.get_rank(group), step)
        assert gather.step == step + 1


def noticed(group):
    for check in (changes, rewritten, repeated):
        check(group)


def test_changes_are_noticed(ranks):
    ranks.run(noticed, world=2)


def stays(group):
    """A method whose messages by themselves err by several times what they hold: their factor keeps the replica near.

    So it is no farther from the shards than one that is never told anything.
    """
    shard = nn.Parameter(torch.zeros(512))
    gather = CompressedGather("qsgd", "test", bits=2, bucket_size=512, timeout_s=30)
    steps = torch.Generator().manual_seed(dist.get_rank(group))
    gathered(gather, shard, group)
    for _ in range(50):
        with torch.no_grad():
            shard += torch.randn(512, generator=steps)
        rows = gathered(gather, shard, group)
    mine = shard.detach()
    assert 0 < float((rows[dist.get_rank(group)] - mine).norm()) < float(mine.norm())


def test_no_replica_runs_away(ranks):
    ranks.run(stays, world=2)


def test_errors_of_messages_do_not_add_up(ranks):
    ranks.run(follows, world=3)


def goes_wrong(group):
    rank, world = dist.get_rank(group), dist.get_world_size(group)
    shard = nn.Parameter(torch.ones(40) * rank)
    gather = CompressedGather("ecdq", "layer", timeout_s=30)  # lengths that the ranks tell each other
    gathered(gather, shard, group)
    with torch.no_grad():
        shard += 1
        if rank == 1:
            shard[3] = torch.inf
    with pytest.raises(NonFiniteError, match="'layer' on rank 1"):
        gathered(gather, shard, group)
    with torch.no_grad():
        shard[3] = 7
    rows = gathered(gather, shard, group)  # whole, as nobody knows what the others have
    assert torch.equal(rows[rank], shard) and sent_by(gather)["refresh"] == 2 * (world - 1) * 160
    fresh = CompressedGather("qsgdinf", "new", timeout_s=30)
    with torch.no_grad():
        shard[3] = torch.nan if rank == 1 else 7
    for _ in range(2):  # a full one, as the first
        with pytest.raises(NonFiniteError, match="'new' on rank 1"):
            gathered(fresh, shard, group)
    with torch.no_grad():
        shard[3] = 7
    assert torch.equal(gathered(fresh, shard, group)[rank], shard)
    with pytest.raises(ValueError, match="two groups"):
        gathered(gather, shard, second_group(group))
    bytes_of = CompressedGather("qsgdinf", "layer", timeout_s=30)
    with pytest.raises(ValueError, match="uint8"):
        bytes_of(torch.empty(40 * world, dtype=torch.uint8), torch.ones(40, dtype=torch.uint8), group)


def test_what_cannot_be_gathered(ranks):
    ranks.run(goes_wrong, world=2)


def trains(group):
    """Three steps: with all gathers whole the same bits as plain FSDP2; else near it, and sent once a step."""
    rank = dist.get_rank(group)
    found = {}
    for name, settings in {
        "plain": None,
        "whole": {"full_every": 1},
        "differences": {"bits": 8, "bucket_size": 64},
    }.items():
        model = sharded(group)
        installed = [] if settings is None else nuq.compress_fsdp_weights(model, timeout_s=30, **settings)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        for step in range(6):
            optimizer.zero_grad()
            backward(model, rank, step)
            optimizer.step()
            assert all(gather.step == step + 1 for gather in installed)
        found[name] = torch.cat([p.full_tensor().reshape(-1) for p in model.parameters()]).detach()  # type: ignore[attr-defined]
        assert_same_bits(group, found[name])
        if settings is not None:
            model.load_state_dict({name: value * 0 + 1 for name, value in model.state_dict().items()})
            with torch.no_grad():
                model(torch.ones(1, 12))
            assert all(gather.step == 7 for gather in installed)
    errors = {name: float((vector - found["plain"]).norm()) for name, vector in found.items()}
    assert torch.equal(found["whole"], found["plain"])
    assert 0 < errors["differences"] < 0.01 * float((found["plain"] - parameters(net())).norm())


def test_forward_and_backward_gather_once(ranks):
    ranks.run(trains, world=2)
