"""The optimizer, and the learning rate as a function of the step."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

import args


def build(config: dict[str, Any], parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """The optimizer of ``config["optim"]``; its rate is set anew at every step."""
    values = config["optim"]
    if args.momentum_acts_in_workers(config):
        return DecaySGD(parameters, values["lr"], values["momentum"], values["nesterov"], values["weight_decay"])
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


class DecaySGD(torch.optim.SGD):
    """SGD on gradients that bring their own momentum (DGC, Section 3.1): only the weight decay has a momentum buffer here.

    b = m b + decay * w, then w -= lr (g + b); with Nesterov's w -= lr (g + decay * w + m b).  Without compression that is torch's SGD with
    momentum, of which it takes the decay's share.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], lr: float, momentum: float, nesterov: bool, weight_decay: float) -> None:
        super().__init__(parameters, lr=lr)
        self.momentum, self.nesterov, self.decay = momentum, nesterov, weight_decay

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        assert closure is None
        for group in self.param_groups:
            for parameter in group["params"]:
                assert parameter.grad is not None
                update = parameter.grad
                if self.decay:
                    state, decay = self.state[parameter], parameter * self.decay
                    if "momentum_buffer" not in state:
                        state["momentum_buffer"] = torch.zeros_like(parameter)
                    buffer = state["momentum_buffer"].mul_(self.momentum).add_(decay)
                    update = update + (decay.add(buffer, alpha=self.momentum) if self.nesterov else buffer)
                parameter.add_(update, alpha=-group["lr"])
