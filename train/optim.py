"""The optimizer, and the learning rate as a function of the step."""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import nn

import args


def build(config: dict[str, Any], named: Mapping[str, nn.Parameter]) -> torch.optim.Optimizer:
    """The optimizer of ``config["optim"]`` for parameters by name; its rate is set anew at every step."""
    values, parameters = config["optim"], named.values()
    in_workers = args.momentum_in_workers_of(config, named)
    if any(in_workers):
        groups = {where: [p for p, yes in zip(parameters, in_workers, strict=True) if yes == where] for where in (True, False)}
        listed = [{"params": of, "in_workers": where} for where, of in groups.items() if of]
        return DecaySGD(listed, values["lr"], values["momentum"], values["nesterov"], values["weight_decay"])
    if values["name"] == "sgd":
        if values["nesterov"] and values["momentum"] == 0:
            raise ValueError("optim.nesterov=True with optim.momentum=0.0: Nesterov needs a momentum above 0")
        options = {key: values[key] for key in ("lr", "momentum", "nesterov", "weight_decay")}
        return torch.optim.SGD(parameters, **options)
    return torch.optim.Adam(parameters, lr=values["lr"], betas=(values["beta1"], values["beta2"]), weight_decay=values["weight_decay"])


def learning_rate(config: dict[str, Any], step: int) -> float:
    """The rate of the step after ``step`` finished steps; a drop listed at 40000 holds from step 40000 on."""
    return config["optim"]["lr"] * _share(config["schedule"], step, config["steps"])


def _share(schedule: Mapping[str, Any], step: int, steps: int) -> float:
    """What the schedule multiplies the rate by after ``step`` of ``steps`` steps, exact at every corner.

    warm-up: f + (1 - f) step / warmup_steps below warmup_steps, with f = warmup_factor, times the schedule's own share: Goyal et al.,
    "Accurate, large minibatch SGD" (2017), Section 2.2, whose f is 1 / workers.
    cosine: (1 + cos(pi t)) / 2 with t from 0 at the end of the warm-up to 1 after the last step: Loshchilov, Hutter, "SGDR" (2017), as DGC
    uses it. The last step's share is therefore just above 0. A run that is no longer than its warm-up ends in it.
    piecewise_linear: straight lines between the corners, and level outside of them. ResNet-9's first step has the rate 0 of its first
    corner and its last one a rate just above 0; its author's code reads the line one step later, so there it is the other way round.
    """
    warmup_steps = schedule.get("warmup_steps", 0)
    rise = 1.0
    if step < warmup_steps:
        rise = schedule["warmup_factor"] + (1 - schedule["warmup_factor"]) * step / warmup_steps
    if schedule["name"] == "step":
        return rise * schedule["factor"] ** sum(step >= at for at in schedule["at"])
    if schedule["name"] == "exponential":
        return schedule["factor"] ** (step / schedule["period"])
    if schedule["name"] == "cosine":
        if step < warmup_steps:
            return rise
        return (1 + math.cos(math.pi * (step - warmup_steps) / (steps - warmup_steps))) / 2 if step < steps else 0.0
    if schedule["name"] == "piecewise_linear":
        return _on_lines(schedule["at"], schedule["factors"], step)
    return 1.0


def _on_lines(at: Sequence[int], factors: Sequence[float], step: int) -> float:
    """The height at ``step`` of straight lines through the points (at, factors), level before the first and after the last."""
    corner = bisect.bisect_right(at, step)  # the first corner beyond
    if corner in (0, len(at)):
        return factors[max(corner - 1, 0)]
    before, height, rise = at[corner - 1], factors[corner - 1], factors[corner] - factors[corner - 1]
    return height + rise * (step - before) / (at[corner] - before)


class DecaySGD(torch.optim.SGD):
    """SGD on gradients that bring their own momentum (DGC, Section 3.1): only the weight decay has a momentum buffer here.

    b = m b + decay * w, then w -= lr (g + b); with Nesterov's w -= lr (g + decay * w + m b).  Without compression that is torch's SGD with
    momentum, of which it takes the decay's share.  Groups of parameters with ``in_workers=False`` have gradients without momentum, and
    torch's SGD.
    """

    def __init__(self, parameters: Iterable[Any], lr: float, momentum: float, nesterov: bool, weight_decay: float) -> None:
        super().__init__(parameters, lr=lr)
        self.momentum, self.nesterov, self.decay = momentum, nesterov, weight_decay

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        assert closure is None
        for group in self.param_groups:
            for parameter in group["params"]:
                assert parameter.grad is not None
                if not group.get("in_workers", True):
                    update = self._with_momentum(parameter, parameter.grad.add(parameter, alpha=self.decay))
                elif self.decay:
                    update = parameter.grad + self._with_momentum(parameter, parameter * self.decay)
                else:
                    update = parameter.grad
                parameter.add_(update, alpha=-group["lr"])

    def _with_momentum(self, parameter: torch.Tensor, added: torch.Tensor) -> torch.Tensor:
        """What to subtract for a gradient ``added``, which goes into the parameter's buffer."""
        state = self.state[parameter]
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(parameter)
        buffer = state["momentum_buffer"].mul_(self.momentum).add_(added)
        return added.add(buffer, alpha=self.momentum) if self.nesterov else buffer
