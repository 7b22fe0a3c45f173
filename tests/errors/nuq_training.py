"""Errors of nuq.CompressedTraining: what it is given, what it resumes from, and what a step meets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.optim import SGD, Adam, Adamax, Optimizer, RMSprop
from torch.optim.lbfgs import LBFGS

import nuq
from nuq.quantized_training.formats import Format
from tests.errors.nuq_messages import KEY
from tests.errors.rows import Row, row

CALL = "nuq.CompressedTraining"


def linear(dtype: torch.dtype = torch.float32) -> nn.Linear:
    return nn.Linear(40, 40, dtype=dtype)


def sgd(model: nn.Module, momentum: float = 0.9) -> SGD:
    return SGD(model.parameters(), lr=0.1, momentum=momentum)


def refused(
    key: str,
    given: str,
    make: Callable[[nn.Module], Any] = sgd,
    *,
    model: Callable[[], Any] = linear,
    **settings: Any,
) -> Row:
    """A model and its optimizer with these settings."""

    def attach() -> None:
        of = model()
        nuq.CompressedTraining(of, make(of), **settings)

    return row(f"{CALL}({key})", given, attach)


def _twice(first: Callable[[Any], Any], second: Callable[[Any], Any], **settings: Any) -> None:
    """Attached to the first of two parts of a model, then to the second."""
    whole = nn.Sequential(nn.Sequential(linear()), linear())
    optimizer = sgd(whole)
    nuq.CompressedTraining(first(whole), optimizer if "weights" in settings else None, **settings)
    nuq.CompressedTraining(second(whole), optimizer if "weights" in settings else None, **settings)


class _Shard(nn.Module):
    """A model whose parameter says that it is a shard."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(40, 40))
        self.weight.placements = ()  # pyright: ignore[reportAttributeAccessIssue]


def saved(given: str, change: Callable[[dict[str, Any]], Any]) -> Row:
    """A state of another training."""

    def load() -> None:
        model = linear()
        compressed = nuq.CompressedTraining(model, sgd(model), weights="bf16", master=True, min_size=100)
        _step(model, sgd(model))
        state = compressed.state_dict()
        state["masters"] = {"weight": torch.zeros(40, 40)}
        compressed.load_state_dict(change(state))

    return row(f"{CALL}.load_state_dict(state)", given, load)


def _step(model: nn.Module, optimizer: Optimizer, numbers: float = 1.0, *step: Any) -> None:
    model(torch.full((2, 40), numbers)).sum().backward()
    optimizer.step(*step)


def stepped(given: str, numbers: float = 1.0, *step: Any, **settings: Any) -> Row:
    def train() -> None:
        model = linear()
        optimizer = sgd(model)
        nuq.CompressedTraining(model, optimizer, **settings)
        _step(model, optimizer, numbers, *step)

    return row("optimizer.step(), compressed", given, train)


def _changed_in_place() -> None:
    model = nn.Sequential(linear(), nn.ReLU())
    nuq.CompressedTraining(model, activations="smaq", min_size=10_000)
    out = model(torch.ones(2, 40))
    out.add_(1)
    out.sum().backward()


ROWS = [
    refused("weights=", "3", weights=3),
    refused("min_size=", "2.5", weights="smaq", min_size=2.5),
    refused("min_size=", "0", activations="smaq", min_size=0),
    refused("min_size=", "'x'", activations="smaq", min_size="x"),
    refused("inference=", "1", activations="smaq", inference=1),
    refused("inference=", "True, without activations", weights="smaq", inference=True),
    refused("seed=", "'a'", weights="smaq", seed="a"),
    refused("seed=", "-1", weights="smaq", seed=-1),
    refused("master=", "'yes'", weights="smaq", master="yes"),
    refused("master=", "True, without weights", moments="smaq", master=True),
    refused("master=", "True, of a model in float16", model=lambda: linear(torch.float16), weights="smaq", master=True),
    refused("model", "a list", lambda model: None, model=list, activations="smaq"),
    refused("optimizer", "'sgd'", lambda model: "sgd", weights="smaq"),
    refused("optimizer", "None, with weights", lambda model: None, weights="smaq"),
    refused("optimizer", "another model's", lambda model: sgd(linear()), weights="smaq"),
    refused("optimizer", "LBFGS", lambda model: LBFGS(model.parameters()), activations="smaq"),
    refused("moments=", "of SGD without momentum", lambda model: sgd(model, 0.0), moments="smaq"),
    refused("moments=", "of centered RMSprop", lambda m: RMSprop(m.parameters(), centered=True), moments="bf16"),
    refused("moments=", "of betas=(0.95, 0.8)", lambda m: Adam(m.parameters(), betas=(0.95, 0.8)), moments="smaq"),
    refused("moments=", "of Adamax", lambda m: Adamax(m.parameters(), betas=(0.9, 0.9)), moments="smaq"),
    refused("weights=", "of shards", model=_Shard, weights="smaq"),
    row(f"{CALL}(model)", "a second time", lambda: _twice(lambda m: m, lambda m: m, activations="smaq")),
    row(f"{CALL}(model)", "around one that is", lambda: _twice(lambda m: m[0], lambda m: m, activations="smaq")),
    row(f"{CALL}(model)", "inside one that is", lambda: _twice(lambda m: m, lambda m: m[0], activations="smaq")),
    row(f"{CALL}(optimizer)", "a second time", lambda: _twice(lambda m: m[0], lambda m: m[1], weights="smaq")),
    saved("a list", lambda state: []),
    saved("without step", lambda state: {}),
    saved("without master", lambda state: {"step": 1}),
    saved("step='1'", lambda state: state | {"step": "1"}),
    saved("of another min_size", lambda state: state | {"min_size": 16}),
    saved("without copies of weights", lambda state: state | {"master": False}),
    saved("step=-1", lambda state: state | {"step": -1}),
    saved("of another seed", lambda state: state | {"seed": 5}),
    saved("of other formats", lambda state: state | {"formats": {"weights": "smaq"}}),
    saved("of another parameter", lambda state: state | {"masters": {"conv": torch.zeros(3)}}),
    saved("of another shape", lambda state: state | {"masters": {"weight": torch.zeros(3)}}),
    saved("of another type", lambda state: state | {"masters": {"weight": torch.zeros(40, 40).half()}}),
    row("nuq.quantized_training: a format's pack", "int64", lambda: Format("smaq").pack(torch.ones(4).long(), KEY)),
    stepped("a gradient that is not finite", float("nan"), gradients="smaq"),
    stepped("a closure", 1.0, lambda: torch.zeros(()), gradients="smaq"),
    row("loss.backward(), compressed", "an activation changed in place", _changed_in_place),
]
