"""The optimizer, and the learning rate as a function of the step."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn


def build(config: dict[str, Any], parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """The optimizer of ``config["optim"]``; its rate is set anew at every step."""
    values = config["optim"]
    if values["name"] == "sgd":
        if values["nesterov"] and values["momentum"] == 0:
            raise ValueError("optim.nesterov=True with optim.momentum=0.0: Nesterov needs a momentum above 0")
        options = {key: values[key] for key in ("lr", "momentum", "nesterov", "weight_decay")}
        return torch.optim.SGD(parameters, **options)
    return torch.optim.Adam(parameters, lr=values["lr"], betas=(values["beta1"], values["beta2"]), weight_decay=values["weight_decay"])


def learning_rate(config: dict[str, Any], step: int) -> float:
    """The rate of the step after ``step`` finished steps; a drop listed at 40000 holds from step 40000 on."""
    rate, schedule = config["optim"]["lr"], config["schedule"]
    if schedule["name"] == "step":
        return rate * schedule["factor"] ** sum(step >= at for at in schedule["at"])
    if schedule["name"] == "exponential":
        return rate * schedule["factor"] ** (step / schedule["period"])
    return rate
