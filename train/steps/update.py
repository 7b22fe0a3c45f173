"""The optimizer's part of a step, and the check after it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from nuq.errors import NonFiniteError
from nuq.exchange.finite import first_not_finite, surely_finite
from settings.sections import dotted
from train.steps import muon, optim


def update(
    config: Mapping[str, Any],
    optimizer: torch.optim.Optimizer,
    named: Mapping[str, nn.Parameter],
    mean: Tensor,
    step: int,
    unused: Collection[str] = (),
) -> None:
    """Take one step down the mean gradient, flat in the parameters' order; NonFiniteError names a bad parameter.

    unused: the parameters that have no gradient, which stay as they are.
    """
    parameters = list(named.values())
    pieces = optim.clipped(config["optim"], mean).split([parameter.numel() for parameter in parameters])
    for (name, parameter), piece in zip(named.items(), pieces, strict=True):
        parameter.grad = None if name in unused else piece.view(parameter.shape)
    for group in optimizer.param_groups:
        group["lr"] = optim.learning_rate(dict(config), step, group.get(muon.RATE, "lr"))
    optimizer.step()
    values = [parameter.detach() for parameter in parameters]
    if not surely_finite(values) and (bad := first_not_finite(values)) is not None:
        raise NonFiniteError(f"step {step}: the parameter {list(named)[bad]!r} is not finite after the update")


def check_state(optimizer: torch.optim.Optimizer, parameters: Mapping[str, Tensor], step: int) -> None:
    """Raise NonFiniteError where the optimizer remembers what is not finite: a mean square may overflow unseen."""
    for name, parameter in parameters.items():
        for key, value in optimizer.state.get(parameter, {}).items():
            if isinstance(value, Tensor):
                check_finite(step, f"the optimizer's {key} of {name!r}", value)


def check_saved(state: Mapping[str, Any]) -> None:
    """Raise ValueError where a tensor of a saved state is not finite: no run saves one."""
    for name, value in dotted(state).items():
        if isinstance(value, Tensor) and not bool(torch.isfinite(value).all()):
            raise ValueError(f"its {name} has numbers that are not finite")


def check_finite(step: int, what: str, tensor: Tensor) -> None:
    """Raise NonFiniteError where a tensor is not finite."""
    if not bool(torch.isfinite(tensor).all()):
        raise NonFiniteError(f"step {step}: {what} is not finite")


def not_finite(step: int, loss: float, model: nn.Module) -> str:
    """The sentence on a test loss that is not finite; it names the model's first tensor that is not either."""
    bad = next((name for name, value in model.state_dict().items() if not bool(torch.isfinite(value).all())), None)
    made = "the model's parameters and buffers are finite, what it makes of its inputs is not"
    why = f"{bad!r} is not finite" if bad else made
    return f"step {step}: the loss on the test set is {loss}: {why}"
