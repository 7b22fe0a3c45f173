"""The DDP hook does to a training what plain DDP does, but for the compression; every way in which DDP hands over its
buckets.
"""

from __future__ import annotations

import time
import warnings
from itertools import product
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

from nuq.registry import METHODS
from tests.nuq.ranks import second_group
from tests.nuq.small_training import (
    assert_same_bits,
    backward,
    descend,
    gradients,
    hooked,
    inputs,
    net,
    of_all,
    parameters,
    wrapped,
)
from tests.tiers import few

IDENTITY: dict[str, Any] = {"method": "supersgd", "collective": "gather"}
TINY = 0.002  # MB of one of DDP's buckets: several buckets, which DDP lays out anew after the first step


def identity_for_100_steps(group):
    rank = dist.get_rank(group)
    plain = wrapped(group, net(), bucket_cap_mb=TINY)
    model, state = hooked(group, net(), ddp={"bucket_cap_mb": TINY}, **IDENTITY)
    for step in range(100):
        for each in (plain, model):
            descend(each, lambda each=each, step=step: backward(each, rank, step))
        assert torch.equal(gradients(model), gradients(plain)), step
    assert torch.equal(parameters(model), parameters(plain))
    assert state.step == 100
    assert (
        len(state._here.plans) > len({name for names in state._here.plans for name in names}) / 3 > 1
    )  # it did rebuild several
    assert state.bytes_sent > 100 * 4 * gradients(model).numel()
    state.close()


@pytest.mark.slow
def test_identity_equals_plain_ddp_for_100_steps(ranks):
    ranks.run(identity_for_100_steps, world=2)


def dense_is_bf16(group):
    rank = dist.get_rank(group)
    dense: dict[str, Any] = {"method": "alq", "collective": "dense", "own": second_group(group)}
    local, (model, state) = net(), hooked(group, net(), ddp={"bucket_cap_mb": TINY}, **dense)
    for step in range(3):
        local.zero_grad()
        model.zero_grad()
        backward(local, rank, step)
        backward(model, rank, step)
        expected = gradients(local).to(torch.bfloat16).div_(dist.get_world_size(group))
        dist.all_reduce(expected, group=group)
        assert torch.equal(gradients(model), expected.float())
    assert (
        state.transport.bytes_sent["dense"] == 3 * 2 * gradients(model).numel()
    )  # a ring of two ranks sends n numbers of two bytes
    state.close()


def test_dense_has_the_semantics_of_the_bf16_hook(ranks):
    ranks.run(dense_is_bf16, world=2)


def eight_bits(group, collective):
    """|hooked - plain| <= two steps of the quantizer, from the largest coordinates of every rank's own buckets."""
    rank, world, size = dist.get_rank(group), dist.get_world_size(group), 64
    second: dict[str, Any] = {"second_bits": 8} if collective == "two_stage" else {}
    local, plain = net(), wrapped(group, net())
    model, state = hooked(
        group,
        net(),
        method="qsgdinf",
        bits=8,
        bucket_size=size,
        collective=collective,
        ddp={"bucket_cap_mb": TINY},
        **second,
    )
    for step in range(3):
        for each in (local, plain, model):
            each.zero_grad()
            backward(each, rank, step)
        for one, want, mine in zip(model.parameters(), plain.parameters(), local.parameters(), strict=True):
            assert one.grad is not None and want.grad is not None and mine.grad is not None
            flat = mine.grad.reshape(-1)
            tops = torch.stack([piece.abs().amax() for piece in flat.split(size)])
            per_bucket = torch.stack(of_all(group, tops)).mean(dim=0)
            if collective == "two_stage":  # which cuts parameters, and so their buckets, elsewhere
                per_bucket = per_bucket.amax().expand(len(tops))
            bound = 2 * (2 / 255) * per_bucket.repeat_interleave(size)[: flat.numel()]
            error = (one.grad - want.grad).reshape(-1).abs()
            assert (error <= bound * 1.0001 + 1e-12).all(), (world, float((error / bound).max()))
            assert error.max() > 0
    state.close()


@few(2, ("collective", "world"), product(["gather", "two_stage"], [2, 3]))
def test_eight_bits_are_within_two_steps_of_plain_ddp(collective, world, ranks):
    ranks.run(eight_bits, collective, world=world)


def every_method(group, names):
    rank = dist.get_rank(group)
    for number, name in enumerate(names):
        collectives = ["gather"] if METHODS[name].single_worker else ["gather", "two_stage", "server", "auto"]
        for collective in (
            (collectives[number % 2], collectives[2 + number % 2]) if len(collectives) > 1 else collectives
        ):
            given: dict[str, Any] = (
                {"bucket_size": 128} if "bucket_size" in METHODS[name].settings.__dataclass_fields__ else {}
            )
            given |= {"update_at": [1], "num_samples": 1} if METHODS[name].adaptive else {}
            model, state = hooked(
                group, net(), method=name, collective=collective, debug=True, ddp={"bucket_cap_mb": TINY}, **given
            )
            for step in range(3):
                descend(model, lambda model=model, step=step: backward(model, rank, step))
                assert_same_bits(group, gradients(model))
                assert bool(torch.isfinite(gradients(model)).all())
            assert_same_bits(group, parameters(model))
            state.close()


@pytest.mark.parametrize("world", [1, *(pytest.param(world, marks=pytest.mark.slow) for world in (2, 3, 4))])
def test_all_ranks_hold_the_same_bits_after_every_step(world, ranks):
    names = list(METHODS)
    ranks.run(every_method, names if world == 2 else names[world % 3 :: 3], world=world)


# --- what DDP does ---


class Forked(nn.Module):
    """Uses one of two branches, by the step's parity; the third one never."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.step = 0
        self.branches = nn.ModuleList(nn.Linear(12, 30) for _ in range(3))
        self.last = nn.Linear(30, 5)

    def forward(self, x):
        return self.last(self.branches[self.step % 2](x))


def equals_plain(group, make, options, dtype):
    """The identity hook gives plain DDP's gradients, with these options of DDP's."""
    rank = dist.get_rank(group)
    pair = [wrapped(group, make().to(dtype), **options), None]
    pair[1], state = hooked(group, make().to(dtype), ddp=options, **IDENTITY)
    for step in range(4):
        for each in pair:
            if isinstance(each.module, Forked):
                each.module.step = step
            descend(each, lambda each=each, step=step: backward(each, rank, step, dtype))
        # plain DDP halves before it adds, and loses what is below float16's range
        small: dict[str, Any] = {"rtol": 2e-3, "atol": 1e-6} if dtype == torch.float16 else {"rtol": 0, "atol": 0}
        torch.testing.assert_close(gradients(pair[1]), gradients(pair[0]), **small)
        assert_same_bits(group, gradients(pair[1]))
    state.close()


class Mixed(nn.Module):
    """Parameters of two types, which DDP puts into buckets of one type each."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(4)
        self.first, self.last = nn.Linear(12, 40), nn.Linear(40, 5)
        self.last.to(torch.bfloat16)

    def to(self, *_, **__):
        return self

    def forward(self, x):
        return self.last(self.first(x).to(torch.bfloat16))


@pytest.mark.parametrize(
    ("make", "options", "dtype"),
    [
        (net, {"bucket_cap_mb": TINY}, torch.float32),
        (net, {"bucket_cap_mb": 100}, torch.float32),
        (net, {"bucket_cap_mb": TINY, "gradient_as_bucket_view": True}, torch.float32),
        (net, {"bucket_cap_mb": TINY, "static_graph": True}, torch.float32),
        (Forked, {"bucket_cap_mb": TINY, "find_unused_parameters": True}, torch.float32),
        (Forked, {"find_unused_parameters": True, "gradient_as_bucket_view": True}, torch.float32),
        (net, {"bucket_cap_mb": TINY}, torch.bfloat16),
        (net, {"bucket_cap_mb": TINY}, torch.float16),
        (Mixed, {"bucket_cap_mb": TINY}, torch.float32),
    ],
    ids=[
        "several buckets",
        "one bucket",
        "views",
        "static graph",
        "unused",
        "unused views",
        "bf16",
        "fp16",
        "mixed types",
    ],
)
def test_every_way_of_ddp_gives_plain_ddps_gradients(make, options, dtype, ranks):
    ranks.run(equals_plain, make, options, dtype, world=2)


def accumulates(group):
    rank = dist.get_rank(group)
    plain = wrapped(group, net(), bucket_cap_mb=TINY)
    model, state = hooked(group, net(), ddp={"bucket_cap_mb": TINY}, **IDENTITY)
    for step in range(3):
        for each in (plain, model):
            each.zero_grad()
            with each.no_sync():
                backward(each, rank, 10 * step)
                backward(each, rank, 10 * step + 1)
            backward(each, rank, 10 * step + 2)
        assert torch.equal(gradients(model), gradients(plain))
        assert state.step == step + 1
    state.close()


def test_no_sync_sends_what_was_accumulated_once(ranks):
    ranks.run(accumulates, world=2)


def joins(group):
    """Rank 1 has fewer batches: DDP calls the hook for it with zeros until the others are done."""
    rank = dist.get_rank(group)
    plain = wrapped(group, net(), bucket_cap_mb=TINY)
    model, state = hooked(group, net(), ddp={"bucket_cap_mb": TINY}, **IDENTITY)
    for each in (plain, model):
        with each.join():
            for step in range(3 if rank else 6):
                descend(each, lambda each=each, step=step: backward(each, rank, step))
    assert torch.equal(parameters(model), parameters(plain))
    assert state.step == 6
    assert_same_bits(group, parameters(model))
    state.close()


def test_uneven_inputs_join(ranks):
    ranks.run(joins, world=2)


def two_models(group, collective):
    """Two models with a state each, whose backward passes run as one:
    their exchanges are under way at the same time.
    """
    rank = dist.get_rank(group)
    settings = IDENTITY | {"collective": collective}
    plain = [wrapped(group, net(seed), bucket_cap_mb=TINY) for seed in (1, 2)]
    both = [hooked(group, net(seed), ddp={"bucket_cap_mb": TINY}, **settings) for seed in (1, 2)]
    for step in range(20):
        for pair in (plain, [model for model, _ in both]):
            for model in pair:
                model.zero_grad()
            (pair[0](inputs(rank, step)) * pair[1](inputs(rank, step + 100))).mean().backward()
        for (model, _), want in zip(both, plain, strict=True):
            rounded: dict[str, Any] = {"rtol": 0.02, "atol": 1e-3} if collective == "dense" else {"rtol": 0, "atol": 0}
            torch.testing.assert_close(gradients(model), gradients(want), **rounded)
    for _, state in both:
        state.close()


@few(1, ("collective", "world"), [("gather", 2), ("dense", 4)])
def test_two_models_do_not_mix_up_their_messages(collective, world, ranks):
    ranks.run(two_models, collective, world=world)


def dense_beside_ddps_own(group):
    """DDP reduces its map of unused parameters while the thread of one rank lags with its buckets."""
    rank = dist.get_rank(group)
    plain = wrapped(group, Forked(), find_unused_parameters=True, bucket_cap_mb=TINY)
    options = {"find_unused_parameters": True, "bucket_cap_mb": TINY}
    model, state = hooked(group, Forked(), ddp=options, method="alq", collective="dense")
    reduce = state._here.driver.collective.mean

    def slow(*arguments):
        time.sleep(0.05 * rank)
        reduce(*arguments)

    state._here.driver.collective.mean = slow  # pyright: ignore[reportAttributeAccessIssue]
    for step in range(3):
        for each in (plain, model):
            each.module.step = step
            each.zero_grad()
            backward(each, rank, step)
        torch.testing.assert_close(gradients(model), gradients(plain), rtol=0.02, atol=1e-3)
    state.close()


@pytest.mark.slow
def test_dense_is_not_mixed_up_with_ddps_own_collectives(ranks):
    ranks.run(dense_beside_ddps_own)


def needs_a_group(group):
    with pytest.raises(ValueError, match="2 of the 4 ranks"):
        hooked(group, net(), method="alq", collective="dense")
    with pytest.raises(ValueError, match="hierarchical"):
        hooked(group, net(), method="alq", collective="hierarchical", per_machine=2)


def test_part_of_the_ranks_needs_a_group_of_its_own_for_dense(ranks):
    ranks.run(needs_a_group, world=2)


def compiled(group):
    warnings.filterwarnings("ignore", r"Guards may run slower on Python 3\.13\.0", RuntimeWarning)  # of that one Python
    rank = dist.get_rank(group)
    plain = wrapped(group, net())
    model = torch.compile(net(), backend="aot_eager")
    model, state = hooked(group, model, **IDENTITY)  # pyright: ignore[reportArgumentType]
    assert set(state._here.sizes) == {"0.weight", "0.bias", "2.weight", "2.bias", "4.weight", "4.bias"}
    outside, second = hooked(group, net(), **IDENTITY)
    for step in range(3):
        for each in (plain, model, torch.compile(outside, backend="aot_eager")):
            each.zero_grad()
            backward(each, rank, step)
        torch.testing.assert_close(gradients(model), gradients(plain))
        torch.testing.assert_close(gradients(outside), gradients(plain))
        assert_same_bits(group, gradients(model))
    for each in (state, second):
        each.close()


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_compiled_models(ranks):
    ranks.run(compiled, world=2)
