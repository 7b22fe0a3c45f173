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


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"weights": 3}, "weights=3: must be a format, as 'smaq'"),
        ({"activations": True}, "activations=True: must be a format"),
        ({"min_size": "x"}, "min_size='x': must be of type int"),
        ({"min_size": 2.5}, "min_size=2.5: must be of type int"),
        ({"seed": "a"}, "seed='a': must be of type int"),
        ({"seed": 1.5}, "seed=1.5: must be of type int"),
        ({"seed": -1}, "seed=-1: must be at least 0"),
        ({"weights": "smaq", "master": "yes"}, "master='yes': must be True or False"),
        ({"activations": "smaq", "inference": 1}, "inference=1: must be True or False"),
    ],
)
def test_settings_of_another_type(settings: dict[str, Any], said: str) -> None:
    model = linear()
    refused(model, sgd(model), said, **settings)


def hooks(model: Any) -> int:
    modules = model.modules() if isinstance(model, nn.Module) else []
    return sum(len(module._forward_pre_hooks) + len(module._forward_hooks) for module in modules)


def refused(model: Any, optimizer: Any, said: str, **settings: Any) -> None:
    before = hooks(model)
    with pytest.raises(ValueError) as told:
        nuq.CompressedTraining(model, optimizer, **settings)
    assert said in str(told.value) and "\n" not in str(told.value)
    if isinstance(model, nn.Module):
        assert hooks(model) == before
        nuq.CompressedTraining(model, activations="smaq").remove()


def test_what_is_no_model_or_not_its_optimizer() -> None:
    model = linear()
    refused(model, "sgd", "the optimizer is of type str: must be a torch.optim.Optimizer or None", activations="smaq")
    refused(list(model.parameters()), None, "the model is of type list: must be a torch.nn.Module", activations="smaq")
    refused(model, sgd(linear()), "none of the optimizer's parameters is the model's", weights="smaq")


def test_moments_that_are_not_there_or_must_not_be_rounded() -> None:
    model = linear()
    refused(
        model,
        sgd(model, momentum=0),
        "moments='smaq': has no effect where SGD with momentum=0 keeps none",
        moments="smaq",
    )
    centered = torch.optim.RMSprop(model.parameters(), centered=True)
    refused(model, centered, "centered RMSprop takes the root of a difference of two moments", moments="bf16")
    nuq.CompressedTraining(model, centered, weights="bf16")


def test_an_optimizer_whose_step_computes_the_gradients() -> None:
    model = linear()
    for kind in ALL:
        refused(
            model,
            torch.optim.LBFGS(model.parameters()),
            "the optimizer is LBFGS, whose step computes gradients",
            **{kind: "smaq"},
        )


@pytest.mark.parametrize(
    ("kind", "betas", "rule"),
    [(torch.optim.Adam, (0.95, 0.8), "beta1^2 < beta2"), (torch.optim.NAdam, (0.9, 0.81), "beta1^2 < beta2"),
     (torch.optim.Adamax, (0.9, 0.9), "beta1 < beta2")],
)  # fmt: skip
def test_means_that_outlive_what_they_are_divided_by(kind: Any, betas: tuple[float, float], rule: str) -> None:
    model = linear()
    refused(
        model,
        kind(model.parameters(), betas=betas),
        f"let a mean outlive the moment that it is divided by; legal: {rule}",
        moments="smaq",
    )
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
        with pytest.raises(ValueError, match=r"moments='smaq': betas=\(0\.99, 0\.5\) let a mean outlive"):
            optimizer.step()
    assert torch.equal(model.weight, before)
    optimizer.param_groups[-1]["betas"] = (0.9, 0.999)
    optimizer.step()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_float32_copy_of_what_the_optimizer_computes_in_half_precision(dtype: torch.dtype) -> None:
    model = linear(dtype)
    refused(
        model,
        sgd(model),
        f"master=True: 'weight' is of {dtype}, in which the optimizer computes",
        weights="smaq",
        master=True,
    )
    nuq.CompressedTraining(model, sgd(model), weights="smaq")


def test_models_inside_each_other() -> None:
    inner = nn.Sequential(linear())
    outer = nn.Sequential(inner, linear())
    compressed = nuq.CompressedTraining(inner, activation_gradients="smaq")
    with pytest.raises(
        ValueError, match="a Sequential inside this model is compressed already: attach once, to the outer one"
    ):
        nuq.CompressedTraining(outer, activation_gradients="smaq")
    compressed.remove()
    nuq.CompressedTraining(outer, activation_gradients="smaq")
    with pytest.raises(ValueError, match="a Sequential around this model is compressed already"):
        nuq.CompressedTraining(inner, activation_gradients="smaq")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda saved: [], "a list is no state_dict"),
        (lambda saved: {}, "its 'step' is missing or of another type"),
        (lambda saved: {"step": 1}, "its 'master' is missing or of another type"),
        (lambda saved: saved | {"step": "1"}, "its 'step' is missing or of another type"),
        (lambda saved: saved | {"seed": 5}, "saved with seed=5, and seed=0 here"),
        (lambda saved: saved | {"min_size": 16}, "saved with min_size=16, and min_size=100 here"),
        (
            lambda saved: saved | {"formats": {"weights": "bf16"}},
            "saved with formats={'weights': 'bf16'}, and formats={'weights': 'smaq'} here",
        ),
        (
            lambda saved: saved | {"masters": {"conv.weight": torch.zeros(3)}},
            "the optimizer here has no parameter 'conv.weight'",
        ),
        (
            lambda saved: saved | {"masters": {"out.weight": torch.zeros(3)}},
            "'out.weight' is (3,) there, and (4, 256) here",
        ),
        (
            lambda saved: saved | {"masters": {name: value.half() for name, value in saved["masters"].items()}},
            "is of torch.float16: must be of the parameter's type, torch.float32",
        ),
    ],
)
def test_states_of_other_trainings(change: Any, said: str) -> None:
    model, optimizer, compressed = setup(weights="smaq", master=True)
    train(model, optimizer)
    saved = compressed.state_dict()
    with pytest.raises(ValueError) as told:
        compressed.load_state_dict(change(saved))
    assert said in str(told.value) and "\n" not in str(told.value)
    older = {key: value for key, value in saved.items() if key not in ("seed", "formats", "min_size")}
    compressed.load_state_dict(older)
    train(model, optimizer)


def refuses_shards(group: dist.ProcessGroup) -> None:
    model = linear()
    fully_shard(model, mesh=DeviceMesh.from_group(group, "cpu"))
    for kind in ("weights", "gradients", "moments"):
        refused(model, sgd(model), f"{kind}='smaq': 'weight' is sharded (FSDP2)", **{kind: "smaq"})
    nuq.CompressedTraining(model, sgd(model), activations="smaq")


def test_shards_of_parameters(ranks: Any) -> None:
    ranks.run(refuses_shards, world=2)


def test_all_of_it_may_be_asked_for() -> None:
    model = linear()
    nuq.CompressedTraining(model, sgd(model), **ALL, min_size=16, seed=3, master=True, inference=True)
