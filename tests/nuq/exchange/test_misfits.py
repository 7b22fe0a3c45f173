"""States, settings and models that do not fit together: said in one sentence, on all ranks, before anything is
exchanged.
"""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import _make_nccl_premul_sum

import nuq
from nuq.fsdp import CompressedReduceScatter
from nuq.registry import METHODS
from nuq.settings.exchange import Exchange
from nuq.simulation import Workers
from tests.nuq.small_training import backward, hooked, net, residuals, wrapped

ALQ = {"method": "alq", "bucket_size": 64}


def older_on_one_rank(group):
    model, state = hooked(group, net(), **ALQ)
    rank = dist.get_rank(group)
    before = state.state_dict()
    backward(model, rank, 0)
    if rank == 1:
        state.load_state_dict(before)
    else:
        state.load_state_dict(state.state_dict())
    with pytest.raises(ValueError, match="rank 0 has step=1 and rank 1 has step=0"):
        backward(model, rank, 1)


def test_a_state_that_is_older_on_one_rank(ranks):
    ranks.run(older_on_one_rank, world=2)


def attached_again(group):
    """The state keeps what it has learned when it is attached again with a layer frozen."""
    rank = dist.get_rank(group)
    model, state = hooked(group, net(), **ALQ, feedback="error", update_at=[1])
    for step in range(3):
        backward(model, rank, step)
    levels, kept = state.levels, residuals(state)["4.weight"].clone()
    model.module[0].weight.requires_grad_(False)
    again = wrapped(group, model.module)
    state.attach(again)
    assert (state.step, state.levels) == (3, levels)
    assert "0.weight" not in residuals(state)
    assert torch.equal(residuals(state)["4.weight"], kept)
    again.register_comm_hook(state, nuq.compress_hook)
    backward(again, rank, 3)
    state.close()


def test_a_state_is_attached_again(ranks):
    ranks.run(attached_again, world=2)


def not_attached(group):
    state = nuq.CompressionState(**ALQ, min_size=0)
    assert (state.levels, state.bytes_sent, state.seconds) == ([], 0, {})
    with pytest.raises(ValueError, match="rank 0 has bits=3 and rank 1 has bits=4"):
        nuq.CompressionState(**ALQ, min_size=0, bits=3 + dist.get_rank(group)).attach(wrapped(group, net()))
    model, other = hooked(group, net(), **ALQ)
    backward(model, dist.get_rank(group), 0)
    state.load_state_dict(other.state_dict())  # taken when the model comes
    with pytest.raises(ValueError, match="no model"):
        state.submit(None)  # pyright: ignore[reportArgumentType]
    state.close()
    state.attach(model)
    assert state.step == 1
    assert len(state.levels) == 8


def test_a_state_without_a_model(ranks):
    ranks.run(not_attached, world=2)


def of_another_model(group):
    state = nuq.CompressionState(wrapped(group, net()), **ALQ)
    model = wrapped(group, net())
    model.register_comm_hook(state, nuq.compress_hook)
    with pytest.raises(ValueError, match=r"attach\(ddp\)"):
        backward(model, dist.get_rank(group), 0)


def test_parameters_of_another_model(ranks):
    ranks.run(of_another_model, world=2)


def skipped(group):
    """A step that one rank spoils leaves no trace in anybody's memory, whatever bucket it was in."""
    rank = dist.get_rank(group)
    model, state = hooked(
        group, net(), ddp={"bucket_cap_mb": 0.001}, **ALQ, feedback="error", on_non_finite="propagate"
    )
    for step in range(3):
        backward(model, rank, step)
    before = {name: residual.clone() for name, residual in residuals(state).items()}
    assert all(bool(residual.any()) for residual in before.values())
    model.zero_grad()
    hurt = model.module[2].weight.register_hook(
        lambda gradient: gradient * (torch.inf if rank == 1 else 1.0)
    )  # a bucket in the middle
    backward(model, rank, 3)
    hurt.remove()
    finite = {name: bool(torch.isfinite(p.grad).all()) for name, p in model.module.named_parameters()}
    assert not finite["2.weight"]
    assert any(finite.values())  # others were well, and are undone with it
    assert all(torch.equal(residual, before[name]) for name, residual in residuals(state).items())
    model.zero_grad()
    backward(model, rank, 4)
    assert not any(torch.equal(residual, before[name]) for name, residual in residuals(state).items())
    state.close()


def test_a_step_that_is_thrown_away_leaves_the_residuals(ranks):
    ranks.run(skipped, world=2)


def asked_differently(group):
    rank = dist.get_rank(group)
    with pytest.raises(ValueError, match="rank 0 has bits=3 and rank 1 has bits=4"):
        nuq.all_reduce(torch.ones(100), "alq", group, step=1, bits=3 + rank)
    with pytest.raises(ValueError, match="rank 0 has step=0 and rank 1 has step=1"):
        nuq.all_reduce(torch.ones(100), "alq", group, step=rank)


def test_all_reduce_with_other_settings(ranks):
    ranks.run(asked_differently, world=2)


def divides(group):
    """FSDP2's gradient_divide_factor, which reaches a custom reduce-scatter as an operation."""
    scatter = CompressedReduceScatter("supersgd", "one")
    rank, out = dist.get_rank(group), torch.empty(2)
    for op, factor in [(dist.ReduceOp.SUM, 1.0), (dist.ReduceOp.AVG, 0.5), (_make_nccl_premul_sum(0.125), 0.125)]:
        scatter(out, torch.arange(4.0) + rank, group, op)
        assert torch.equal(out, factor * (2 * torch.arange(4.0) + 1)[2 * rank : 2 * rank + 2])
    with pytest.raises(ValueError, match="MAX"):
        scatter(out, torch.ones(4), group, dist.ReduceOp.MAX)


def test_fsdps_own_factor(ranks):
    ranks.run(divides, world=2)


@pytest.mark.parametrize("collective", ["two_stage", "server"])
def test_a_second_stage_does_not_spoil_the_first_steps(collective: str) -> None:
    """It does not before the first update either: heavy-tailed gradients at the defaults, whose mean's error no average
    makes smaller.
    """
    generator = torch.Generator().manual_seed(1)
    common = torch.randn(20_000, generator=generator) * torch.exp(1.5 * torch.randn(20_000, generator=generator))
    gradients = {worker: common + 0.3 * torch.randn(20_000, generator=generator) for worker in range(4)}
    mean = torch.stack(list(gradients.values())).mean(dim=0)
    error = {}
    for name in ("gather", collective):
        workers = Workers(
            "alq", METHODS["alq"].settings(), 4, {"a": mean.shape}, 1, torch.device("cpu"), exchange=Exchange(name)
        )
        found = workers.exchange(gradients, dict.fromkeys(range(4), 0.0), 0).mean
        error[name] = float((found - mean).square().sum() / mean.square().sum())
    assert error[collective] < 1.5 * error["gather"]
