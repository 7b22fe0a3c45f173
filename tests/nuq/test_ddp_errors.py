"""Misuses of the hook, each told in one sentence on all ranks; its gate, and small tensors."""

from __future__ import annotations

import math
import time
from typing import Any, cast

import pytest
import torch
import torch.distributed as dist
from torch import nn

import nuq
from nuq.compressors import frame
from nuq.errors import NonFiniteError
from tests.nuq.ranks import second_group
from tests.nuq.small_training import assert_same_bits, backward, gradients, hooked, net, of_all, residuals
from tests.tiers import few

SEVERAL = {"bucket_cap_mb": 0.002}


# --- settings ---


def differing(group):
    rank = dist.get_rank(group)
    cases: list[tuple[dict[str, Any], str, str]] = [
        ({"method": "alq" if rank != 1 else "amq"}, "method='alq'", "method='amq'"),
        ({"method": "alq", "bits": 3 + (rank == 1)}, "bits=3", "bits=4"),
        ({"method": "alq", "gate": rank == 1}, "gate=False", "gate=True"),
        ({"method": "trn", "collective": "dense" if rank else "gather"}, "collective='gather'", "collective='dense'"),
    ]
    for settings, here, there in cases:
        with pytest.raises(ValueError, match=f"rank 0 has {here} and rank 1 has {there}"):
            nuq.CompressionState(net(), group=group, timeout_s=20, **settings)
    with pytest.raises(
        ValueError, match=r"rank 0 has parameter 0\.weight=\[40, 12\] and rank 2 has parameter 0\.weight=\[41, 12\]"
    ):
        nuq.CompressionState(net(hidden=41 if rank == 2 else 40), group=group, timeout_s=20)
    with (
        pytest.MonkeyPatch.context() as patch,
        pytest.raises(ValueError, match="rank 0 has frame version=1 and rank 1 has frame version=9"),
    ):
        patch.setattr(frame, "VERSION", 9 if rank == 1 else 1)
        nuq.CompressionState(net(), group=group, timeout_s=20)
    wrong, right = cast(Any, 3.0), net()
    for call in (
        lambda: nuq.CompressionState(wrong, group=group),
        lambda: nuq.OuterLoop(wrong, torch.optim.SGD(right.parameters()), group=group),
        lambda: nuq.compress_fsdp(wrong),
        lambda: nuq.compress_fsdp_weights(wrong),
    ):
        with pytest.raises(ValueError, match="float"):
            call()
    more = nn.Sequential(*net(), nn.Linear(5, 5)) if rank == 1 else net()
    with pytest.raises(ValueError, match=r"rank 0 has no parameter 5\.weight and rank 1 has parameter 5\.weight="):
        nuq.CompressionState(more, group=group, timeout_s=20)


def test_ranks_that_differ_are_named_on_all_ranks(ranks):
    ranks.run(differing, world=3)


class Nested(nn.Module):
    """Names that differ only by what DDP and torch.compile put into names."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.a, self.b = nn.Linear(12, 30), nn.ModuleDict({"module": nn.Linear(30, 30), "last": nn.Linear(30, 5)})
        self.b.weight = nn.Parameter(torch.randn(30))

    def forward(self, x):
        return self.b["last"](self.b["module"](self.a(x)) * self.b.weight)


def names_are_kept(group):
    rank = dist.get_rank(group)
    model, state = hooked(group, Nested(), method="supersgd", collective="gather")
    local = Nested()
    for each in (model, local):
        backward(each, rank, 0)
    assert set(state._here.sizes) == {f"module.{name}" for name, _ in local.named_parameters()}
    torch.testing.assert_close(gradients(model), torch.stack(of_all(group, gradients(local))).mean(dim=0))
    state.close()


def test_parameters_of_like_names_are_kept_apart(ranks):
    ranks.run(names_are_kept, world=2)


# --- gradients that are not finite ---


def raises(group, collective):
    rank = dist.get_rank(group)
    given: dict[str, Any] = {"per_machine": 2} if collective == "hierarchical" else {}
    where = r"machine 1 \(ranks 2 to 3\)" if collective == "hierarchical" else "worker 2"
    model, state = hooked(group, net(), ddp=SEVERAL, method="alq", bucket_size=64, collective=collective, **given)
    backward(model, rank, 0)
    if rank == 2:
        model.module[2].register_full_backward_hook(lambda *_: None)
        model.module[2].weight.register_hook(lambda gradient: gradient.index_fill(0, torch.tensor([3]), math.nan))
    with pytest.raises(NonFiniteError, match=rf"'2\.weight' on {where}") as raised:
        backward(model, rank, 1)
    assert state.error is raised.value and type(raised.value) is NonFiniteError
    with pytest.raises(RuntimeError, match="earlier"):
        backward(model, rank, 2)


@few(2, "collective", ["gather", "two_stage", "server", "hierarchical"])
def test_a_gradient_that_is_not_finite_is_raised_on_all_ranks(collective, ranks):
    ranks.run(raises, collective)


def overflows_float16(group):
    """A mean that float32 holds, and the bucket does not: one coordinate in a hundred travels, a hundred times as
    large.
    """
    for policy in ("raise", "propagate"):
        settings: dict[str, Any] = {"method": "randomk", "ratio": 0.01, "min_size": 0, "on_non_finite": policy}
        model, state = hooked(group, nn.Linear(400, 1).half(), **settings)
        loss = model(torch.full((1, 400), 2000.0, dtype=torch.float16)).sum()
        if policy == "raise":
            with pytest.raises(NonFiniteError, match=r"'weight'.*float16"):
                loss.backward()
        else:
            loss.backward()
            assert bool(torch.isnan(gradients(model)).any()) and state.error is None
        state.close()


def test_a_mean_beyond_float16_is_not_an_infinity(ranks):
    ranks.run(overflows_float16, world=2)


def propagates(group, collective):
    """A gradient scaler sees what is not finite: the step is lost on all ranks, and the next one is well."""
    rank = dist.get_rank(group)
    settings: dict[str, Any] = {
        "method": "alq",
        "bucket_size": 64,
        "update_at": [1, 3],
        "num_samples": 3,
        "feedback": "error",
    }
    model, state = hooked(group, net(), ddp=SEVERAL, on_non_finite="propagate", collective=collective, **settings)
    for step in range(6):
        model.zero_grad()
        scale = torch.tensor(math.inf if rank == 1 and step in (1, 2) else 1.0)
        (model(torch.randn(4, 12)).square().mean() * scale).backward()
        found = gradients(model)
        assert bool(torch.isfinite(found).all()) == (step not in (1, 2)), step
        assert_same_bits(group, found.nan_to_num(7.0))
    assert state.error is None
    assert all(bool(torch.isfinite(residual).all()) for residual in residuals(state).values())
    state.close()


@pytest.mark.parametrize("collective", ["gather", "two_stage"])
def test_a_scaler_sees_nan_on_all_ranks_and_goes_on(collective, ranks):
    ranks.run(propagates, collective, world=2)


def two_ways(group):
    """One rank's gradient is NaN, and what the other decodes of its own overflows: they skip the step together."""
    rank = dist.get_rank(group)
    given: dict[str, Any] = {"dither": "subtractive", "collective": "gather", "on_non_finite": "propagate"}
    model, state = hooked(group, net(), ddp=SEVERAL, method="qsgdinf", bucket_size=64, **given)
    backward(model, rank, 0)

    def spoilt(gradient):
        return torch.full_like(gradient, math.nan) if rank == 0 else torch.where(gradient > 0, 3.3e38, -3.3e38)

    hook = model.module[2].weight.register_hook(spoilt)
    backward(model, rank, 1)
    assert state.error is None and not bool(torch.isfinite(gradients(model)).all())
    hook.remove()
    backward(model, rank, 2)
    assert_same_bits(group, gradients(model))
    state.close()


def test_two_ranks_err_alike_whatever_each_has(ranks):
    ranks.run(two_ways, world=2)


def gated(group):
    """Slow on one rank is slow for all: they choose alike."""
    rank = dist.get_rank(group)
    for slow, choice in (("messages", "dense"), ("dense", "gather")):
        settings: dict[str, Any] = {"method": "qsgdinf", "bucket_size": 64, "collective": "gather", "gate": True}
        model, state = hooked(group, net(), own=second_group(group), ddp=SEVERAL, **settings)
        lagging = state._here.driver.collective if slow == "messages" else state._here.driver.dense
        mean = lagging.mean

        def late(*arguments, mean=mean):
            time.sleep(0.03 * (rank == 1))
            mean(*arguments)

        lagging.mean = late  # type: ignore[method-assign]
        for step in range(4):
            assert state.collective == ("gather" if step <= 2 else choice)  # measured at the third step
            model.zero_grad()
            backward(model, rank, step)
            assert_same_bits(group, gradients(model))
        assert state.collective == choice
        assert_same_bits(group, torch.tensor([state.gate_s["gather"], state.gate_s["dense"]]))
        again = nuq.CompressionState(model, group=second_group(group), min_size=0, **settings)
        again.load_state_dict(state.state_dict())
        assert again.collective == choice  # the gate's word holds after a restart
        measured = state.gate_s
        state.attach(model, second_group(group))
        assert measured and state.gate_s == measured  # nobody measures again after its step
        assert state.collective == choice and f"in bfloat16: {choice}" in state.summary()
        for each in (state, again):
            each.close()


def test_all_ranks_follow_the_gate(ranks):
    ranks.run(gated, world=3)


def small_tensors(group):
    """Below min_size, and with skip_1d every vector, gradients come as they are."""
    rank = dist.get_rank(group)
    settings: dict[str, Any]
    for settings, exact in (
        ({"min_size": 201}, {"0.bias", "2.bias", "4.weight", "4.bias"}),
        ({"skip_1d": True}, {"0.bias", "2.bias", "4.bias"}),
        ({"min_size": 1600}, {"0.weight", "0.bias", "2.bias", "4.weight", "4.bias"}),
    ):
        for collective in ("gather", "two_stage"):
            local = net()
            model, state = hooked(
                group, net(), method="qsgdinf", bits=2, bucket_size=64, collective=collective, **settings
            )
            for each in (local, model):
                backward(each, rank, 0)
            for (name, mine), (_, mean) in zip(local.named_parameters(), model.module.named_parameters(), strict=True):
                assert mine.grad is not None and mean.grad is not None
                plain = torch.stack(of_all(group, mine.grad)).mean(dim=0)
                assert torch.allclose(mean.grad, plain, rtol=1e-5, atol=1e-8) == (name in exact), (name, settings)
            state.close()


def test_small_tensors_travel_as_they_are(ranks):
    ranks.run(small_tensors, world=2)


def small_tensors_with_momentum(group):
    """Small tensors get momentum where the optimizer has none; a method without a memory is refused."""
    rank = dist.get_rank(group)
    model, state = hooked(group, net(), method="dgc", ratio=1.0, selection="exact", momentum=0.5, skip_1d=True)
    wanted = [torch.zeros_like(parameter) for parameter in model.parameters()]
    for step in range(3):
        local = net()
        for each in (local, model):
            each.zero_grad()
            backward(each, rank, step)
        for momentum, mine, mean in zip(wanted, local.parameters(), model.parameters(), strict=True):
            assert mine.grad is not None and mean.grad is not None
            momentum.mul_(0.5).add_(torch.stack(of_all(group, mine.grad)).mean(dim=0))
            assert torch.allclose(mean.grad, momentum, rtol=1e-4, atol=1e-7)
    state.close()
    refused: list[dict[str, Any]] = [{"gate": True}, {"collective": "dense"}]
    for settings in refused:
        with pytest.raises(ValueError, match="momentum"):
            hooked(group, net(), method="dgc", **settings)
    with pytest.raises(ValueError, match=r"skip_1d=True.*'0\.bias'.*qsgd"):
        hooked(group, net(), method="qsgd", feedback="momentum", momentum=0.5, skip_1d=True)
    with pytest.raises(ValueError, match="feedback='momentum'"):
        hooked(group, net(), method="dgc", scope="model", skip_1d=True)
    model, state = hooked(
        group, net(), method="qsgd", feedback="momentum", momentum=0.5, layers=["*bias = supersgd"], bits=2
    )
    sums = {name: torch.zeros_like(parameter) for name, parameter in model.module.named_parameters()}
    for step in range(3):  # what that error tells to do
        local = net()
        for each in (local, model):
            each.zero_grad()
            backward(each, rank, step)
        for (name, mean), mine in zip(model.module.named_parameters(), local.parameters(), strict=True):
            assert mine.grad is not None and mean.grad is not None
            sums[name].mul_(0.5).add_(torch.stack(of_all(group, mine.grad)).mean(dim=0))
            if name.endswith("bias"):
                assert torch.allclose(mean.grad, sums[name], rtol=1e-4, atol=1e-7)
    state.close()


def test_small_tensors_keep_their_momentum(ranks):
    ranks.run(small_tensors_with_momentum, world=2)
