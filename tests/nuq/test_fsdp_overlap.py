"""FSDP2's gradients have the same bits whether their messages travel during the backward pass or at once."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

import nuq
from nuq.errors import NonFiniteError
from nuq.fsdp import CompressedReduceScatter
from nuq.fsdp_overlap import AtTheEnd, filled_later
from tests.nuq.small_training import assert_same_bits, backward, inputs, net
from tests.nuq.test_fsdp import sharded, whole
from tests.tiers import few

TWO_BITS: dict[str, Any] = {"method": "qsgdinf", "bits": 2, "bucket_size": 64, "timeout_s": 30}
Way = Callable[[Any, int, int], list[torch.Tensor]]  # (model, rank, step) -> gradients of a step


def waited(installed: list[CompressedReduceScatter]) -> list[str]:
    """The names of the modules whose gradients have waited, from now on."""
    names: list[str] = []
    at_the_end = installed[0].at_the_end
    add = at_the_end.add

    def counted(end: Any) -> None:
        names.append("one")
        add(end)

    at_the_end.add = counted
    return names


def plainly(model: Any, rank: int, step: int) -> list[torch.Tensor]:
    model.zero_grad()
    backward(model, rank, step)
    return [whole(model)]


def clipped(model: Any, rank: int, step: int) -> list[torch.Tensor]:
    model.zero_grad()
    backward(model, rank, step)
    norm: Any = nn.utils.clip_grad_norm_(model.parameters(), 0.01)
    return [norm.full_tensor(), whole(model)]


def accumulated(model: Any, rank: int, step: int) -> list[torch.Tensor]:
    model.zero_grad()
    backward(model, rank, 2 * step)
    backward(model, rank, 2 * step + 1)
    return [whole(model)]


def without_sync(model: Any, rank: int, step: int) -> list[torch.Tensor]:
    model.zero_grad()
    model.set_requires_gradient_sync(False)
    backward(model, rank, 2 * step)
    model.set_requires_gradient_sync(True)
    backward(model, rank, 2 * step + 1)
    return [whole(model)]


def stepping_inside(model: Any, rank: int, step: int) -> list[torch.Tensor]:
    """An optimizer in hooks of the backward pass, as torchtitan and torchtune have it."""
    model.zero_grad()
    if step == 0:
        for p in model.parameters():
            p.register_post_accumulate_grad_hook(lambda p: p.data.sub_(p.grad))
    backward(model, rank, step)
    return [torch.cat([p.full_tensor().reshape(-1) for p in model.parameters()]).detach()]


def hooked(model: Any, rank: int, step: int) -> list[torch.Tensor]:
    model.set_all_reduce_hook(lambda output: output.mul_(2), stream=None)
    return plainly(model, rank, step)


def summed(model: Any, rank: int, step: int) -> list[torch.Tensor]:
    """FSDP divides the sums itself."""
    model.set_force_sum_reduction_for_comms(True)
    return plainly(model, rank, step)


def divided(model: Any, rank: int, step: int) -> list[torch.Tensor]:
    model.set_gradient_divide_factor(3.0)
    return plainly(model, rank, step)


def used_twice(model: Any, rank: int, step: int) -> list[torch.Tensor]:
    model.zero_grad()
    (model(inputs(rank, step)).square().mean() + model(inputs(rank, step + 100)).square().mean()).backward()
    return [whole(model)]


def in_bfloat16(group: dist.ProcessGroup) -> nn.Module:
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16)
    model, how = net(), {"mesh": DeviceMesh.from_group(group, "cpu"), "mp_policy": policy}
    fully_shard(model[2], **how)
    fully_shard(model, **how)
    return model


CASES: dict[str, tuple[Callable[[Any], nn.Module], Way, dict[str, Any], int]] = {  # the last: that wait, of six
    "a memory": (sharded, plainly, {"feedback": "average"}, 6),
    "levels that are fitted": (sharded, plainly, {"method": "alq", "bits": 3}, 6),
    "lengths that are told": (sharded, plainly, {"coding": "huffman"}, 6),
    "norms": (sharded, clipped, {}, 6),
    "gradients that are accumulated": (sharded, accumulated, {}, 6),
    "without reducing": (sharded, without_sync, {}, 6),
    "an optimizer in hooks": (sharded, stepping_inside, {}, 0),
    "a hook of the root": (sharded, hooked, {}, 3),
    "sums": (sharded, summed, {}, 3),
    "another divisor": (sharded, divided, {}, 6),
    "a model that is used twice": (sharded, used_twice, {}, 6),
    "another type": (in_bfloat16, plainly, {}, 0),
}


def same(group, name):
    rank, (build, way, settings, count) = dist.get_rank(group), CASES[name]
    models = [build(group), build(group)]
    installed = [
        nuq.compress_fsdp(model, overlap=overlap, **{**TWO_BITS, **settings})
        for model, overlap in zip(models, (True, False), strict=True)
    ]
    names = waited(installed[0])
    for step in range(3):
        ours, theirs = (way(model, rank, step) for model in models)
        assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))
        assert all(bool(a.any()) for a in ours)
    assert len(names) == count


@few(
    ("a memory", "gradients that are accumulated", "an optimizer in hooks", "a model that is used twice"), "name", CASES
)
def test_the_same_bits(name, ranks):
    ranks.run(same, name, world=2)


@pytest.mark.parametrize(("device", "waits"), [("meta", True), ("cpu", False)])
def test_what_is_taken_to_the_cpu_is_filled_at_once(device, waits, monkeypatch):
    monkeypatch.setattr("nuq.fsdp_overlap.inside_backward", lambda: True)
    parameter = SimpleNamespace(
        grad=None,
        _post_accumulate_grad_hooks=None,
        placements=(0,),
        dtype=torch.float32,
        device=torch.device(device),
    )
    group = SimpleNamespace(fsdp_params=[SimpleNamespace(sharded_param=parameter)], _all_reduce_hook=None)
    module = SimpleNamespace(_get_fsdp_state=lambda: SimpleNamespace(_fsdp_param_group=group))
    assert filled_later(module, torch.empty(3, device="meta")) == [parameter] * waits


def on_streams(group):
    """An output is filled on the stream of FSDP's reduce-scatter, for which that of the backward pass then waits."""
    model, seen = sharded(group), []
    outer = torch.cpu.current_stream()

    class Watched(torch.cpu.Stream):
        def wait_stream(self, stream: Any) -> None:
            assert self is outer
            seen.append(("waited", stream))

    outer.__class__ = Watched
    for each in nuq.compress_fsdp(model, **TWO_BITS):

        def finish(*how: Any, own: Any = each._finish) -> None:
            seen.append(("filled", torch.cpu.current_stream()))
            own(*how)

        vars(each)["_finish"] = finish
    model.zero_grad()
    backward(model, dist.get_rank(group), 0)
    stream = model._get_fsdp_state()._comm_ctx.reduce_scatter_stream  # type: ignore[operator]
    assert outer is not stream and torch.cpu.current_stream() is outer
    assert seen[-4:] == 2 * [("filled", stream), ("waited", stream)]
    model.zero_grad()
    with pytest.raises(NonFiniteError):
        model(inputs(0, 0) * torch.inf).square().mean().backward()
    assert seen[-1] == ("waited", stream)
    outer.__class__ = torch.cpu.Stream


def test_streams(ranks):
    ranks.run(on_streams, world=2)


def fails(group):
    """A gradient that is not finite is an error of the backward pass on all ranks; afterwards everything works."""
    rank, found = dist.get_rank(group), []
    for overlap in (True, False):
        model = sharded(group)
        installed = nuq.compress_fsdp(model, feedback="average", overlap=overlap, **TWO_BITS)
        plainly(model, rank, 0)
        broken = inputs(rank, 1)
        if rank == 1:
            broken[0, 0] = torch.inf
        model.zero_grad()
        with pytest.raises(NonFiniteError, match="worker 1"):
            model(broken).square().mean().backward()
        found.append([gradient for step in (2, 3) for gradient in plainly(model, rank, step)])
        assert all(each._end is None and each.step == 4 for each in installed)
        assert all(bool(g.isfinite().all()) and bool(g.any()) for g in found[-1])
        assert_same_bits(group, found[-1][-1])
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(*found, strict=True))


def test_failures(ranks):
    ranks.run(fails, world=2)


def fails_amid_others(group):
    """The error waits for FSDP's work on a module that is used again, and on another model."""
    rank, encoder, decoder = dist.get_rank(group), sharded(group), nn.Sequential(nn.Linear(5, 8), nn.Linear(8, 3))
    for module in (decoder[0], decoder):
        fully_shard(module, mesh=DeviceMesh.from_group(group, "cpu"))
    for model in (encoder, decoder):
        nuq.compress_fsdp(model, **TWO_BITS)

    def gradients(last: torch.Tensor) -> list[torch.Tensor]:
        encoder.zero_grad()
        decoder.zero_grad()
        (encoder(inputs(rank, 0)).square().mean() + decoder(encoder(last)).square().mean()).backward()
        return [whole(encoder), whole(decoder)]

    gradients(inputs(rank, 1))
    with pytest.raises(NonFiniteError, match="worker 1"):
        gradients(inputs(rank, 1) if rank == 0 else torch.full_like(inputs(rank, 1), torch.nan))
    for _ in range(2):
        assert all(bool(g.isfinite().all()) and bool(g.any()) for g in gradients(inputs(rank, 2)))


def test_failures_amid_others(ranks):
    ranks.run(fails_amid_others, world=2)


def test_what_a_failed_backward_pass_left_comes_in_the_next_one():
    later, ended = AtTheEnd(), []

    def backward_pass(name: str, *, breaks: bool) -> None:
        def hook(grad: torch.Tensor) -> None:
            del grad
            later.add(lambda: ended.append(name))
            if breaks:
                raise RuntimeError("broken")

        x = torch.ones(1, requires_grad=True)
        x.register_hook(hook)
        x.sum().backward()

    with pytest.raises(RuntimeError, match="broken"):
        backward_pass("first", breaks=True)
    assert not ended
    backward_pass("second", breaks=False)
    assert ended == ["first", "second"]


def reads_too_early(group):
    rank, model = dist.get_rank(group), sharded(group)
    nuq.compress_fsdp(model, **TWO_BITS)
    last: Any = list(model.parameters())[-1]

    def copy(grad: torch.Tensor) -> None:
        if last.grad is not None:
            last.grad = last.grad.clone()

    x = inputs(rank, 0).requires_grad_()
    x.register_hook(copy)
    model.zero_grad()
    with pytest.raises(RuntimeError, match="overlap=False"):
        model(x).square().mean().backward()


def test_a_gradient_that_is_read_too_early(ranks):
    ranks.run(reads_too_early, world=2)
