"""Experts that some ranks use, or none: what is remembered of them, and what arrives of their gradients."""

from __future__ import annotations

import copy
import functools
import itertools
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from nuq.exchange.compressor_map import sorted_settings
from nuq.exchange.driver import Memory
from nuq.registry import METHODS
from nuq.settings.exchange import Exchange
from nuq.settings.feedback import Feedback
from nuq.simulation import Workers
from tests.nuq.small_training import gradients, hooked

WIDTH = 24
FINDS = {"find_unused_parameters": True}
# what remembers -> settings of the hook
REMEMBERING: dict[str, dict[str, Any]] = {
    "residual": {"method": "topk", "ratio": 0.1, "collective": "gather"},
    "decaying residual": {"method": "topk", "ratio": 0.1, "collective": "gather", "feedback": "error", "decay": 0.9},
    "momentum": {"method": "dgc", "ratio": 0.1, "momentum": 0.9, "collective": "gather"},
    "estimates": {"method": "topk", "ratio": 0.1, "collective": "gather", "feedback": "ef21"},
    "second memory": {"method": "topk", "ratio": 0.1, "collective": "two_stage", "feedback": "error", "both": True},
    "estimates in two stages": {"method": "sign", "collective": "two_stage", "feedback": "ef21", "both": True},
    "one vector": {"method": "topk", "ratio": 0.1, "collective": "gather", "scope": "model"},
    "server": {"method": "topk", "ratio": 0.1, "collective": "server", "both": True},
    "low rank": {"method": "powersgd", "rank": 1},
}


class Experts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(2))

    def forward(self, x: Tensor, used: str, nothing_of: str = "") -> Tensor:
        """The sum of the experts in ``used``, and of those whose part is multiplied by zero."""
        parts = [getattr(self, name)(x) for name in used] + [0 * getattr(self, name)(x) for name in nothing_of]
        return functools.reduce(torch.add, parts)


def inputs(rank: int, step: int) -> Tensor:
    return torch.randn(8, WIDTH, generator=torch.Generator().manual_seed(100 * rank + step))


def remembered_of(state: Any, name: str) -> list[Tensor]:
    """Copies of all that this rank remembers of a parameter; with scope=model of its half of the vector."""
    found = []
    for memory in state._here.driver.compressors.memories:
        kinds = [of_kind for own in memory.memories.values() for of_kind in own.values()]
        for vector, tensor in (item for of_kind in [*kinds, getattr(memory, "means", {})] for item in of_kind.items()):
            plain = vector.removeprefix("mean/").partition("[")[0]
            if plain == "model":
                found.append(tensor.chunk(2)["ab".index(name[0])].clone())
            elif plain == name:
                found.append(tensor.clone())
    return found


def unused_by_all(group, settings):
    rank = dist.get_rank(group)
    model, state = hooked(group, Experts(), ddp=FINDS, **settings)

    def step(number: int, used: str) -> None:
        model.zero_grad(set_to_none=True)
        model(inputs(rank, number), used).square().sum().backward()

    step(0, "ab")
    step(1, "ab")
    of_b, of_a = remembered_of(state, "b.weight"), remembered_of(state, "a.weight")
    assert of_b and any(bool(tensor.any()) for tensor in of_b)
    for number in (2, 3, 4):
        step(number, "a")
        assert model.module.b.weight.grad is None
    now = remembered_of(state, "b.weight")
    assert all(torch.equal(one, other) for one, other in zip(of_b, now, strict=True))
    assert not all(torch.equal(x, y) for x, y in zip(of_a, remembered_of(state, "a.weight"), strict=True))
    step(5, "b")
    assert not all(torch.equal(x, y) for x, y in zip(of_b, remembered_of(state, "b.weight"), strict=True))
    state.close()


@pytest.mark.parametrize("what", REMEMBERING)
def test_of_a_parameter_that_no_rank_used_everything_remembered_stays(ranks, what):
    ranks.run(unused_by_all, REMEMBERING[what], world=2)


def all_arrives(group):
    """One gradient of b, steps in which nobody uses it, then gradients of next to nothing, until all is sent."""
    model, state = hooked(group, Experts(), ddp=FINDS, **{**REMEMBERING["residual"], "ratio": 0.05})
    arrived = torch.zeros(WIDTH, WIDTH)
    x = inputs(0, 0)
    for used, scale in [("b", 1.0), *[("a", 1.0)] * 10, *[("b", 1e-6)] * 30]:
        model.zero_grad(set_to_none=True)
        (scale * model(x, used)).square().sum().backward()
        if used == "b":
            arrived += model.module.b.weight.grad
    whole = 2 * model.module.b(x).detach().T @ x
    torch.testing.assert_close(arrived, whole, rtol=1e-3, atol=1e-3)
    state.close()


def test_all_of_a_gradient_arrives_whoever_pauses(ranks):
    ranks.run(all_arrives, world=2)


def views_that_stay(group):
    """Gradients that are views of DDP's buckets and are set to zero, not to None: nothing is applied that is kept."""
    rank = dist.get_rank(group)
    model, state = hooked(group, Experts(), ddp=FINDS | {"gradient_as_bucket_view": True}, **REMEMBERING["residual"])
    for number in range(6):
        model.zero_grad(set_to_none=False)
        model(inputs(rank, number), "ab" if number < 2 else "a").square().sum().backward()
        if number == 1:
            kept = remembered_of(state, "b.weight")
        if number > 1:
            assert not model.module.b.weight.grad.any()
    assert all(torch.equal(one, other) for one, other in zip(kept, remembered_of(state, "b.weight"), strict=True))
    state.close()


def test_what_is_kept_is_not_applied_where_gradients_are_views_of_buckets(ranks):
    ranks.run(views_that_stay, world=2)


def used_by_one(group, settings):
    """Rank 0 alone uses b: as under plain DDP, where it is zero on rank 1, and as in the simulation."""
    rank = dist.get_rank(group)
    finds, told = hooked(group, Experts(), ddp=FINDS, **settings)
    plain, other = hooked(group, Experts(), **settings)
    for number in range(6):
        used, nothing_of = ("ab", "") if rank == 0 or number == 0 else ("a", "b")
        for model, words in ((finds, (used,)), (plain, (used, nothing_of))):
            model.zero_grad(set_to_none=True)
            model(inputs(rank, number), *words).square().sum().backward()
        assert torch.equal(gradients(finds), gradients(plain)), number
    for name in ("a.weight", "b.weight"):
        pairs = zip(remembered_of(told, name), remembered_of(other, name), strict=True)
        assert all(torch.equal(one, another) for one, another in pairs)
    told.close()
    other.close()


@pytest.mark.parametrize("what", ["residual", "momentum", "estimates"])
def test_a_parameter_that_one_rank_used_has_an_ordinary_gradient(ranks, what):
    ranks.run(used_by_one, REMEMBERING[what], world=2)


def ef21_by_hand(group):
    """Estimates h follow h + TopK(g - h); the mean of all ranks' estimates is what arrives, also where g is zero."""
    rank, world = dist.get_rank(group), dist.get_world_size(group)
    model, state = hooked(group, Experts(), ddp=FINDS, **REMEMBERING["estimates"])
    estimates = [torch.zeros(WIDTH, WIDTH) for _ in range(world)]
    for number in range(6):
        model.zero_grad(set_to_none=True)
        used = "ab" if rank == 0 or number < 2 else "a"
        model(inputs(rank, number), used).square().sum().backward()
        for one in range(world):
            local = copy.deepcopy(model.module)
            local.zero_grad(set_to_none=True)
            local(inputs(one, number), "ab" if one == 0 or number < 2 else "a").square().sum().backward()
            wanted = (torch.zeros(WIDTH, WIDTH) if local.b.weight.grad is None else local.b.weight.grad) - estimates[
                one
            ]
            flat, kept = wanted.reshape(-1), torch.zeros(WIDTH * WIDTH)
            largest = flat.abs().topk(round(0.1 * flat.numel())).indices
            kept[largest] = flat[largest]
            estimates[one] = estimates[one] + kept.view(WIDTH, WIDTH)
        torch.testing.assert_close(model.module.b.weight.grad, sum(estimates) / world, rtol=1e-5, atol=1e-6)
    state.close()


def test_ef21_sends_what_an_estimate_is_too_much_where_a_rank_does_not_use_a_parameter(ranks):
    ranks.run(ef21_by_hand, world=2)


def as_simulated(group, settings):
    """What this rank gets from the hook equals what a simulation of both workers in one process gives."""
    rank = dist.get_rank(group)
    model, state = hooked(group, Experts(), ddp=FINDS, **settings)
    shapes = {name: p.shape for name, p in model.module.named_parameters()}
    chosen = {key: value for key, value in settings.items() if key not in ("method", "feedback")}
    of_method, exchange = sorted_settings(settings["method"], (Exchange,), chosen, {"scope": "tensor"})
    memory = Memory(Feedback(kind=settings.get("feedback", "auto")))
    workers = Workers(
        settings["method"], of_method, 2, dict(shapes), 0, torch.device("cpu"), exchange=exchange, memory=memory
    )
    for number in range(5):
        use = {one: "ab" if one == 0 else "a" for one in range(2)}
        model.zero_grad(set_to_none=True)
        model(inputs(rank, number), use[rank]).square().sum().backward()
        of_workers = {}
        for one in range(2):
            local = copy.deepcopy(model.module)
            local.zero_grad(set_to_none=True)
            local(inputs(one, number), use[one]).square().sum().backward()
            each = [p.grad if p.grad is not None else torch.zeros_like(p) for p in local.parameters()]
            of_workers[one] = torch.cat([gradient.reshape(-1) for gradient in each])
        mean = workers.exchange(of_workers, {0: 0.0, 1: 0.0}, number).mean
        assert torch.equal(gradients(model), mean), number
    state.close()


@pytest.mark.parametrize("what", ["residual", "estimates"])
def test_hook_and_simulation_take_an_unused_parameter_alike(ranks, what):
    ranks.run(as_simulated, REMEMBERING[what], world=2)


def zeros_under_plain_ddp(group):
    """A gradient of zeros on all ranks, of a parameter that is used, is an ordinary one: the residual drains."""
    rank = dist.get_rank(group)
    for options in ({}, FINDS):
        model, state = hooked(group, Experts(), ddp=options, **REMEMBERING["residual"])
        sizes = []
        for number in range(12):
            model.zero_grad(set_to_none=True)
            model(inputs(rank, number), *(("ab",) if number == 0 else ("a", "b"))).square().sum().backward()
            sizes.append(sum(float(kept.abs().sum()) for kept in remembered_of(state, "b.weight")))
        assert sizes[0] > 0 and sizes[-1] == 0 and all(x >= y for x, y in itertools.pairwise(sizes))
        state.close()


def test_a_gradient_of_zeros_is_an_ordinary_one(ranks):
    ranks.run(zeros_under_plain_ddp, world=2)


def test_the_table_names_methods_that_are_there():
    assert {settings["method"] for settings in REMEMBERING.values()} <= set(METHODS)
