"""Errors of nuq.OuterLoop, on one rank: its model and optimizers, its states, and what it meets."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import SGD

import nuq
from tests.errors.nuq_ranks import entry, net, on_one_rank, ranks
from tests.errors.rows import Row, row


def sgd(*models: nn.Module) -> SGD:
    return SGD([parameter for model in models for parameter in model.parameters()], lr=0.1)


def refused(given: str, make: Callable[[nn.Module], Any], model: Callable[[], nn.Module] = net) -> Row:
    """A model and what is given as its inner optimizer."""

    def build() -> None:
        own = model()
        nuq.OuterLoop(own, make(own))

    return on_one_rank("nuq.OuterLoop(model, inner_optimizer)", given, build)


def _loop(model: nn.Module, **settings: Any) -> nuq.OuterLoop:
    chosen = {"every": 2, "min_size": 0, "method": "topk", "collective": "gather"} | settings
    return nuq.OuterLoop(model, sgd(model), **chosen)


def loaded(given: str, change: Callable[[dict[str, Any]], Any], **settings: Any) -> Row:
    """The state of a loop after a round, with a change, for one like it or (settings) another."""

    def make() -> None:
        with contextlib.closing(_loop(net())) as loop:
            for _ in range(2):
                loop.step()
            saved = copy.deepcopy(loop.state_dict())
        with contextlib.closing(_loop(net(), **settings)) as other:
            other.load_state_dict(change(saved))

    return on_one_rank("nuq.OuterLoop.load_state_dict(state)", given, make)


def _not_finite(end: str) -> None:
    """A round that ends with a parameter that is not finite, or a loop that is finished with one."""
    model = net()
    with contextlib.closing(_loop(model)) as loop:
        with torch.no_grad():
            model[0].weight.fill_(torch.nan)  # pyright: ignore[reportCallIssue, reportAttributeAccessIssue, reportArgumentType]
        for _ in range(2 if end == "round" else 1):
            loop.step()
        loop.finish()


def _closed() -> None:
    loop = _loop(net())
    loop.close()
    loop.step()


ROWS = [
    row("nuq.OuterLoop", "without processes", lambda: nuq.OuterLoop(model := net(), sgd(model))),
    refused("'sgd'", lambda model: "sgd"),
    refused("None", lambda model: None),
    refused("an empty list", lambda model: []),
    refused("a part of the model's parameters", lambda model: sgd(model[0])),  # pyright: ignore[reportIndexIssue]
    refused("two for one parameter", lambda model: [sgd(model), sgd(model)]),
    refused("another model's parameters, too", lambda model: sgd(model, nn.Linear(3, 3))),
    refused("a model under DDP", sgd, lambda: DistributedDataParallel(net())),
    loaded("a list", lambda state: []),
    loaded("without count", entry("count")),
    loaded("count=-1", entry("count", value=-1)),
    loaded("of another method", lambda state: state, method="randomk"),
    loaded("of another shard", entry("shards", value={"0.weight": {"shard": [1]}})),
    loaded("of a parameter of another shape", entry("outer", "0.weight", value=torch.zeros(3))),
    loaded("of two ranks at different steps", ranks(0, 1, ranks=[2, 2], count=[2, 4])),
    on_one_rank("nuq.OuterLoop.step()", "a parameter that is not finite", lambda: _not_finite("round")),
    on_one_rank("nuq.OuterLoop.finish()", "a parameter that is not finite", lambda: _not_finite("end")),
    on_one_rank("nuq.OuterLoop.step()", "after close()", _closed),
]
