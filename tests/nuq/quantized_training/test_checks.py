"""The refusals of ``nuq.CompressedTraining``: one sentence each, and the model is as free afterwards as before."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard

import nuq
from tests.nuq.quantized_training.test_training import ALL, setup, train


def linear(dtype: torch.dtype = torch.float32) -> nn.Linear:
    return nn.Linear(40, 40, dtype=dtype)


def sgd(model: nn.Module, momentum: float = 0.9) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=momentum)


def hooks(model: Any) -> int:
    modules = model.modules() if isinstance(model, nn.Module) else []
    return sum(len(module._forward_pre_hooks) + len(module._forward_hooks) for module in modules)


def refused(model: Any, optimizer: Any, **settings: Any) -> None:
    before = hooks(model)
    with pytest.raises(ValueError):
        nuq.CompressedTraining(model, optimizer, **settings)
    if isinstance(model, nn.Module):
        assert hooks(model) == before
        nuq.CompressedTraining(model, activations="smaq").remove()


def test_what_is_no_model_or_not_its_optimizer() -> None:
    model = linear()
    refused(model, sgd(model), activations="smaq", min_size=2.5)
    refused(model, "sgd", activations="smaq")
    refused(list(model.parameters()), None, activations="smaq")
    refused(model, sgd(linear()), weights="smaq")


def test_moments_that_are_not_there_or_must_not_be_rounded() -> None:
    model = linear()
    refused(model, sgd(model, momentum=0), moments="smaq")
    centered = torch.optim.RMSprop(model.parameters(), centered=True)
    refused(model, centered, moments="bf16")
    nuq.CompressedTraining(model, centered, weights="bf16")


def test_an_optimizer_whose_step_computes_the_gradients() -> None:
    model = linear()
    for kind in ALL:
        refused(model, torch.optim.LBFGS(model.parameters()), **{kind: "smaq"})


@pytest.mark.parametrize(
    ("kind", "betas"),
    [(torch.optim.Adam, (0.95, 0.8)), (torch.optim.NAdam, (0.9, 0.81)), (torch.optim.Adamax, (0.9, 0.9))],
)
def test_means_that_outlive_what_they_are_divided_by(kind: Any, betas: tuple[float, float]) -> None:
    model = linear()
    refused(model, kind(model.parameters(), betas=betas), moments="smaq")
    nuq.CompressedTraining(model, kind(model.parameters(), betas=betas), moments="bf16")


def loaded(optimizer: torch.optim.Optimizer) -> None:
    saved = optimizer.state_dict()
    saved["param_groups"][0]["betas"] = (0.99, 0.5)
    optimizer.load_state_dict(saved)


@pytest.mark.parametrize(
    "change",
    [
        lambda optimizer: optimizer.add_param_group({"params": [nn.Parameter(torch.zeros(3))], "betas": (0.99, 0.5)}),
        loaded,
    ],
)
def test_groups_that_come_later(change: Any) -> None:
    model = linear()
    optimizer = torch.optim.Adam(model.parameters())
    nuq.CompressedTraining(model, optimizer, moments="smaq")
    model(torch.ones(2, 40)).sum().backward()
    optimizer.step()
    change(optimizer)
    before = model.weight.detach().clone()
    for _ in range(2):
        with pytest.raises(ValueError, match=r"betas=\(0\.99, 0\.5\)"):
            optimizer.step()
    assert torch.equal(model.weight, before)
    optimizer.param_groups[-1]["betas"] = (0.9, 0.999)
    optimizer.step()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_float32_copy_of_what_the_optimizer_computes_in_half_precision(dtype: torch.dtype) -> None:
    model = linear(dtype)
    refused(model, sgd(model), weights="smaq", master=True)
    nuq.CompressedTraining(model, sgd(model), weights="smaq")


def test_models_inside_each_other() -> None:
    inner = nn.Sequential(linear())
    outer = nn.Sequential(inner, linear())
    compressed = nuq.CompressedTraining(inner, activation_gradients="smaq")
    with pytest.raises(ValueError):
        nuq.CompressedTraining(outer, activation_gradients="smaq")
    compressed.remove()
    nuq.CompressedTraining(outer, activation_gradients="smaq")
    with pytest.raises(ValueError):
        nuq.CompressedTraining(inner, activation_gradients="smaq")


@pytest.mark.parametrize(
    "change",
    [
        lambda saved: [],
        lambda saved: {"step": 1},
        lambda saved: saved | {"min_size": 16},
        lambda saved: saved | {"masters": {"out.weight": torch.zeros(3)}},
        lambda saved: saved | {"masters": {name: value.half() for name, value in saved["masters"].items()}},
    ],
)
def test_states_of_other_trainings(change: Any) -> None:
    model, optimizer, compressed = setup(weights="smaq", master=True)
    train(model, optimizer)
    saved = compressed.state_dict()
    with pytest.raises(ValueError):
        compressed.load_state_dict(change(saved))
    older = {key: value for key, value in saved.items() if key not in ("seed", "formats", "min_size")}
    compressed.load_state_dict(older)
    train(model, optimizer)


def refuses_shards(group: dist.ProcessGroup) -> None:
    model = linear()
    fully_shard(model, mesh=DeviceMesh.from_group(group, "cpu"))
    for kind in ("weights", "gradients", "moments"):
        refused(model, sgd(model), **{kind: "smaq"})
    nuq.CompressedTraining(model, sgd(model), activations="smaq")


def test_shards_of_parameters(ranks: Any) -> None:
    ranks.run(refuses_shards, world=2)


def test_all_of_it_may_be_asked_for() -> None:
    model = linear()
    nuq.CompressedTraining(model, sgd(model), **ALL, min_size=16, seed=3, master=True, inference=True)
