"""The first levels are fitted to the first gradient that says anything, before it is sent: in the hook and in the
simulation.
"""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from nuq.errors import NonFiniteError
from nuq.registry import METHODS
from nuq.settings.exchange import Exchange
from nuq.simulation import Workers
from tests.nuq.parts import flat
from tests.nuq.small_training import assert_same_bits, backward, gradients, hooked, net
from tests.tiers import few

ADAPTIVE = [name for name, entry in METHODS.items() if entry.adaptive]
L2: dict[str, Any] = {"method": "alq", "bits": 3, "norm": "l2"}
WIDTHS = (16, 32, 64, 128)  # a quarter of a ResNet-18's channels


def shapes() -> dict[str, tuple[int, ...]]:
    """The shapes of a ResNet-18 for small images: 62 tensors, 700,000 coordinates, most tensors shorter than a bucket
    of 8192.
    """
    found: dict[str, tuple[int, ...]] = {
        "stem": (WIDTHS[0], 3, 3, 3),
        "stem_norm": (WIDTHS[0],),
        "stem_bias": (WIDTHS[0],),
    }
    for number, (before, width) in enumerate(zip((WIDTHS[0], *WIDTHS), WIDTHS, strict=False)):
        for block, inputs in enumerate((before, width)):
            name = f"{number}_{block}"
            found |= {f"{name}_first": (width, inputs, 3, 3), f"{name}_second": (width, width, 3, 3)}
            found |= {f"{name}_{norm}_{kind}": (width,) for norm in (1, 2) for kind in ("weight", "bias")}
            if inputs != width:
                found |= {
                    f"{name}_short": (width, inputs, 1, 1),
                    f"{name}_short_weight": (width,),
                    f"{name}_short_bias": (width,),
                }
    return found | {"head": (10, WIDTHS[-1]), "head_bias": (10,)}


def heavy(seed: int = 0) -> dict[str, Tensor]:
    """Coordinates of heavy tails, whose scale differs from tensor to tensor:
    ALQ errs on them much as on a ResNet-18's.
    """
    generator = torch.Generator().manual_seed(seed)

    def normal(shape: tuple[int, ...]) -> Tensor:
        return torch.randn(shape, generator=generator)

    return {
        name: (0.5 * normal((1,))).exp() * normal(shape) * (0.7 * normal(shape)).exp()
        for name, shape in shapes().items()
    }


class Given(nn.Module):
    """Parameters whose gradient is what ``forward`` is given."""

    def __init__(self, like: dict[str, Tensor]) -> None:
        super().__init__()
        self.of = nn.ParameterDict({name: nn.Parameter(torch.zeros_like(value)) for name, value in like.items()})

    def forward(self, gradient: dict[str, Tensor]) -> Tensor:
        return torch.stack([(self.of[name] * value).sum() for name, value in gradient.items()]).sum()


def error(decoded: Tensor, exact: Tensor) -> float:
    return float((decoded - exact).square().sum() / exact.square().sum())


def of_hook(group: dist.ProcessGroup, settings: dict[str, Any]) -> list[float]:
    """Errors of the first and of the second message of several of DDP's buckets."""
    gradient, errors = heavy(), []
    model, state = hooked(group, Given(gradient), ddp={"bucket_cap_mb": 0.3}, **settings)
    exact = torch.cat([gradient[name.removeprefix("module.of.")].reshape(-1) for name, _ in model.named_parameters()])
    for _ in range(2):
        model.zero_grad()
        model(gradient).backward()
        errors.append(error(gradients(model), exact))
    state.close()
    return errors


def test_the_first_message_of_the_hook_has_fitted_levels(ranks: Any) -> None:
    (errors,) = ranks.run(of_hook, {"method": "alq", "bits": 3}, world=1)
    assert max(errors) < 0.6 and errors[0] == pytest.approx(errors[1], rel=0.1)
    (paper,) = ranks.run(of_hook, L2, world=1)
    assert max(paper) < 0.6
    (never,) = ranks.run(of_hook, L2 | {"update_at": [100], "update_every": 0}, world=1)
    assert never[0] > 2 * paper[0]


@few(3, ("scope", "name"), product(["model", "tensor"], ADAPTIVE))
def test_the_first_message_of_the_simulation_has_fitted_levels(name: str, scope: str) -> None:
    """The simulation steps as the trainer does: what is due is fitted, then sent."""
    gradient = heavy()
    of = workers(name, {key: value.shape for key, value in gradient.items()}, scope=scope)
    exact = flat(gradient.values())
    first = stepped(of, exact, 0)
    assert error(first, exact) < 0.6
    assert error(first, exact) == pytest.approx(error(stepped(of, exact, 1), exact), rel=0.1)
    assert not any(level_updater.begins or level_updater.due(1) for level_updater in of.levels.every)


def workers(
    name: str, sizes: dict[str, torch.Size], num_workers: int = 1, *, collective: str = "gather", **settings: Any
) -> Workers:
    exchange = Exchange(collective=collective)
    return Workers(
        name, METHODS[name].settings(**settings), num_workers, sizes, 1, torch.device("cpu"), exchange=exchange
    )


def stepped(of: Workers, gradient: Tensor, step: int) -> Tensor:
    """A step of ``Trainer``; every worker has the same gradient."""
    own = dict.fromkeys(of.hosted, gradient)
    of.observe(own, step, [one for one in of.levels.every if one.collects(step)])
    of.update_levels([one for one in of.levels.every if one.due(step)])
    return of.exchange(own, dict.fromkeys(of.hosted, 0.0), step).mean


def test_a_first_gradient_of_zeros_is_passed_over_in_the_simulation() -> None:
    gradient = torch.randn(3000, generator=torch.Generator().manual_seed(2)).exp()
    sizes = {"w": torch.Size((50, 60))}
    of, late = workers("alq", sizes, 2), workers("alq", sizes, 2)
    assert not stepped(of, torch.zeros(3000), 0).any()
    assert of.levels.every[0].begins and of.levels.every[0].due(1) and of.levels.every[0].collects(1)
    stepped(of, gradient, 1)
    assert not of.levels.every[0].begins
    stepped(late, gradient, 0)
    assert of.compressor.levels.values.tolist() == late.compressor.levels.values.tolist()


def test_a_first_gradient_that_is_not_finite_is_passed_over_in_the_simulation() -> None:
    sizes = {"w": torch.Size((50, 60))}
    of = workers("alq", sizes, 2)
    with pytest.raises(NonFiniteError, match=r"step 0.*'w' on worker 0"):
        stepped(of, torch.full((3000,), math.inf), 0)
    assert of.levels.every[0].begins
    stepped(of, torch.ones(3000), 1)
    assert not of.levels.every[0].begins


def test_a_schedule_without_step_0_leaves_the_first_levels() -> None:
    """The paper's."""
    of = workers("alq", {"w": torch.Size((50, 60))}, update_at=[100, 2000])
    before = of.compressor.levels.values.tolist()
    stepped(of, torch.randn(3000).exp(), 0)
    assert of.compressor.levels.values.tolist() == before and not of.compressor.fitted


# --- the hook ---


def hook_is_simulation(group: dist.ProcessGroup) -> None:
    """One vector per parameter, in several of DDP's buckets, whose order is not the model's."""
    rank, world = dist.get_rank(group), dist.get_world_size(group)
    model, state = hooked(group, net(), method="alq", bucket_size=64, collective="gather", ddp={"bucket_cap_mb": 0.002})
    alone = net()
    of = workers("alq", {name: p.shape for name, p in alone.named_parameters()}, world, scope="tensor", bucket_size=64)
    of.seed = of.levels.seed = state.settings.hook.seed
    own = {}
    for worker in range(world):
        alone.zero_grad()
        backward(alone, worker, 0)
        own[worker] = gradients(alone)
    of.observe(own, 0, of.levels.every)
    of.update_levels()
    backward(model, rank, 0)
    assert state.levels == of.compressor.levels.values.tolist()
    assert torch.equal(gradients(model), of.exchange(own, dict.fromkeys(own, 0.0), 0).mean)
    state.close()


@pytest.mark.parametrize("world", [2, 3])
def test_the_hook_begins_with_the_bits_of_the_simulation(world: int, ranks: Any) -> None:
    ranks.run(hook_is_simulation, world=world)


def passed_over(group: dist.ProcessGroup, bad: float) -> None:
    """The levels of the next gradient are those of a run that began there, whatever the first gradient was on one rank
    or on all.
    """
    rank, several = dist.get_rank(group), {"bucket_cap_mb": 0.002}
    settings: dict[str, Any] = {"method": "alq", "bucket_size": 64, "on_non_finite": "propagate", "ddp": several}
    model, state = hooked(group, net(), **settings)
    other, late = hooked(group, net(), **settings)
    (model(torch.ones(2, 12)).sum() * (bad if rank == 0 or bad == 0 else math.inf)).backward()
    assert not state._here.driver.levels.every[0].method_state.compressor.fitted
    late._here.step = 1  # whose keys random roundings depend on
    for each in (model, other):
        each.zero_grad()
        backward(each, rank, 1)
    assert state._here.driver.levels.every[0].method_state.compressor.fitted
    assert state.levels == late.levels
    assert torch.equal(gradients(model), gradients(other))
    assert_same_bits(group, gradients(model))
    state.close()
    late.close()


@pytest.mark.parametrize("bad", [0.0, math.nan])
def test_a_first_gradient_that_says_nothing_is_passed_over_in_the_hook(bad: float, ranks: Any) -> None:
    ranks.run(passed_over, bad, world=2)


def one_finite(group: dist.ProcessGroup) -> None:
    """A rank whose gradient is not finite has no part in the levels; the other's are those of its gradient alone."""
    rank = dist.get_rank(group)
    model, state = hooked(group, net(), method="alq", bucket_size=64, on_non_finite="propagate")
    (model(torch.ones(2, 12)).sum() * (math.nan if rank == 1 else 1.0)).backward()
    assert not bool(torch.isfinite(gradients(model)).all())
    alone = net()
    alone(torch.ones(2, 12)).sum().backward()
    of = workers("alq", {name: p.shape for name, p in alone.named_parameters()}, scope="tensor", bucket_size=64)
    of.seed = of.levels.seed = state.settings.hook.seed
    of.observe({0: gradients(alone)}, 0)
    of.update_levels()
    assert state.levels == of.compressor.levels.values.tolist()
    state.close()


def test_a_rank_whose_first_gradient_is_not_finite_has_no_part_in_the_levels(ranks: Any) -> None:
    ranks.run(one_finite, world=2)


def goes_on(group: dist.ProcessGroup) -> None:
    """A restored state has its levels, and neither fits anew nor waits for all of the first gradient."""
    rank = dist.get_rank(group)
    settings: dict[str, Any] = {"method": "alq", "bucket_size": 64, "ddp": {"bucket_cap_mb": 0.002}}
    model, state = hooked(group, net(), **settings)
    backward(model, rank, 0)
    other, again = hooked(group, net(), **settings)
    again.load_state_dict(state.state_dict())
    assert again.levels == state.levels and not again._here.begins
    sent = again.transport.bytes_sent["levels"]
    for each in (model, other):
        each.zero_grad()
        backward(each, rank, 1)
    assert again.levels == state.levels and again.transport.bytes_sent["levels"] == sent
    assert torch.equal(gradients(model), gradients(other))
    state.close()
    again.close()


def test_a_restored_state_does_not_fit_again(ranks: Any) -> None:
    ranks.run(goes_on, world=2)


def one_is_fitted(group: dist.ProcessGroup) -> None:
    rank = dist.get_rank(group)
    model, state = hooked(group, net(), method="alq", bucket_size=64, ddp={"bucket_cap_mb": 0.002})
    if rank == 1:
        compressor = state._here.driver.levels.every[0].method_state.compressor
        compressor.load_state_dict({**compressor.state_dict(), "gap": 0.0})
    with pytest.raises(ValueError, match="checksum of the levels"):
        backward(model, rank, 0)
    assert isinstance(state.error, ValueError)
    state.close()


def test_ranks_that_differ_in_whether_levels_were_fitted_say_so(ranks: Any) -> None:
    ranks.run(one_is_fitted, world=2)
