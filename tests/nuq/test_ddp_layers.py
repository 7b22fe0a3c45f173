"""Layers with a method of their own in the hook, and a step of every method with both scopes."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

import nuq
from nuq.registry import METHODS
from nuq.settings.exchange import Exchange
from nuq.settings.feedback import Feedback
from nuq.simulation import Memory, Workers
from tests.nuq.parts import flat
from tests.nuq.small_training import backward, gradients, hooked, inputs, net, wrapped
from tests.tiers import few


class Convolutions(nn.Module):
    """Weights whose rows do not lie one after another."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.first, self.norm, self.second = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Conv2d(8, 4, 3)
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, x: Tensor) -> Tensor:
        return self.second(torch.relu(self.norm(self.first(x))))


def hook_is_workers(group: dist.ProcessGroup, method: str, lines: list[str], settings: dict[str, Any]) -> list[bool]:
    """Whether a step's means are the workers' own, for the model at hand, with several of DDP's buckets."""
    rank, world, same = dist.get_rank(group), dist.get_world_size(group), []
    model, state = hooked(
        group, Convolutions(), method=method, layers=lines, seed=3, ddp={"bucket_cap_mb": 1e-3}, **settings
    )
    local = wrapped(group, Convolutions())
    shapes = {name: p.shape for name, p in local.module.named_parameters()}
    how: dict[str, Any] = {"exchange": Exchange(**{**vars(state.settings.exchange), "collective": state.collective})}
    memory = Memory(state.settings.feedback.settings(), state.settings.feedback.momentum)
    alone = Workers(
        method, state.settings.of_method, world, shapes, 3, torch.device("cpu"), memory=memory, layers=lines, **how
    )  # type: ignore[arg-type]
    for step in range(3):
        own = {}
        for worker in range(world):
            x = torch.randn(4, 3, 7, 7, generator=torch.Generator().manual_seed(10 * step + worker))
            own[worker] = flat(torch.autograd.grad(local.module(x).square().mean(), list(local.module.parameters())))
            if worker == rank:
                model.zero_grad()
                model(x).square().mean().backward()
        begun = [level_updater for level_updater in alone.levels.every if level_updater.begins]
        alone.observe(own, step, begun)
        alone.update_levels(begun)
        mean = alone.exchange(own, dict.fromkeys(range(world), 0.0), step).mean
        same.append(torch.equal(gradients(model), mean))
    state.close()
    return same


@few(
    2,
    ("method", "lines", "settings"),
    [
        ("qsgd", [], {"scope": "model", "collective": "gather"}),
        ("alq", [], {"scope": "model", "collective": "two_stage", "bucket_size": 64}),
        ("dgc", [], {"scope": "tensor", "collective": "gather", "ratio": 0.1}),
        ("atomo", [], {"scope": "tensor", "collective": "gather"}),
        (
            "qsgd",
            ["*.bias = supersgd", "*.weight = dgc ratio=0.1 scope=model"],
            {"collective": "gather", "scope": "model"},
        ),
    ],
    ids=["qsgd model", "alq model", "dgc", "atomo", "layers"],
)
def test_the_hook_gives_the_workers_bits(method: str, lines: list[str], settings: dict[str, Any], ranks: Any) -> None:
    """It does so whatever buckets DDP makes, and for weights in another memory format: shapes are the parameters' own
    in both.
    """
    for outcome in ranks.run(hook_is_workers, method, lines, settings, world=2):
        assert outcome == [True] * 3


def layers_in_the_hook(group: dist.ProcessGroup) -> None:
    rank = dist.get_rank(group)
    lines = ["*.bias = supersgd", "2 = amq bits=4 bucket_size=64 update_at=[2] num_samples=2"]
    given: dict[str, Any] = {
        "method": "alq",
        "update_at": [3],
        "num_samples": 1,
        "bucket_size": 64,
        "layers": lines,
        "debug": True,
    }
    model, state = hooked(group, net(), **given)
    for step in range(4):
        model.zero_grad()
        backward(model, rank, step)
    default, second = (level_updater.method_state for level_updater in state._here.driver.levels.every)
    assert (
        default.compressor.gap is not None
        and second.compressor.gap is not None
        and second.compressor.levels.num_levels == 16
    )
    again = nuq.CompressionState(model, **(given | {"min_size": 0, "timeout_s": 60.0}))
    again.load_state_dict(state.state_dict())
    assert (
        again._here.driver.levels.every[1].method_state.compressor.levels.values.tolist()
        == second.compressor.levels.values.tolist()
    )
    with pytest.raises(ValueError, match="layers="):
        nuq.CompressionState(model, min_size=0).load_state_dict(state.state_dict())
    with pytest.raises(ValueError, match=r"conv = topk.*0\.weight"):
        nuq.CompressionState(model, layers=["conv = topk"])
    with pytest.raises(ValueError, match=r"rank 0 has layers=.'0 = topk'. and rank 1 has layers=.'2 = topk'."):
        nuq.CompressionState(model, layers=[f"{2 * rank} = topk"])
    state.close()
    again.close()


def test_layers_in_the_hook(ranks: Any) -> None:
    ranks.run(layers_in_the_hook, world=2)


def with_every_scope() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for name, entry in METHODS.items():
        fields = {item.name for item in dataclasses.fields(entry.settings)}
        for scope in ("tensor", "model"):
            yield name, scope, {"scope": scope} | ({"bucket_size": 128} if "bucket_size" in fields else {})


def a_step_of_every_method(group: dist.ProcessGroup) -> None:
    """The hook, by the collective that ``auto`` takes: the ranks' gradients become one, by every method with every
    scope.
    """
    rank = dist.get_rank(group)
    for name, scope, settings in with_every_scope():
        model, state = hooked(group, net(), method=name, debug=True, ddp={"bucket_cap_mb": 1e-3}, **settings)
        for step in range(2):
            model.zero_grad()
            backward(model, rank, step)
        assert bool(torch.isfinite(gradients(model)).all()) and bool(gradients(model).any()), (name, scope)
        assert len(state._here.vectors) == (1 if scope == "model" else 6)
        state.close()


@pytest.mark.slow
def test_both_scopes_train_with_every_method(ranks: Any) -> None:
    shapes = {name: p.shape for name, p in net().named_parameters()}
    for name, scope, settings in with_every_scope():
        how: dict[str, Any] = {"exchange": Exchange(collective="auto"), "memory": Memory(Feedback(), 0.9)}
        of = Workers(name, METHODS[name].settings(**settings), 2, shapes, 5, torch.device("cpu"), **how)
        assert [own.name for own in of.layout.segments] == (["model"] if scope == "model" else list(shapes)), name
        model, loss = net(), []
        for step in range(2):
            of_workers = {}
            for worker in of.hosted:
                model.zero_grad()
                loss.append(model(inputs(worker, step)).square().mean())
                of_workers[worker] = flat(torch.autograd.grad(loss[-1], list(model.parameters())))
            mean = of.exchange(of_workers, dict.fromkeys(of.hosted, 0.0), step).mean
            assert bool(torch.isfinite(mean).all()) and bool(mean.any()), (name, scope)
            with torch.no_grad():
                for p, update in zip(
                    model.parameters(), mean.split([p.numel() for p in model.parameters()]), strict=True
                ):
                    p -= 1e-3 * update.view_as(p)
    ranks.run(a_step_of_every_method, world=2)
