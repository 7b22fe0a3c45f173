"""Settings of optimizers and learning-rate schedules: one dataclass for each, and the tables of their names.

This module imports no torch.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nuq.registry import METHODS
from nuq.settings import setting
from nuq.settings.feedback import check_nesterov

DECAY_NORMS = (
    "false: weight decay leaves out biases and the parameters of normalization layers; read with weight_decay above 0 "
    "only"
)
CLIP_NORM = "the mean gradient, as it comes out of the exchange, is shortened to this norm where it is longer (0: not)"
CLIP_VALUE = "each of its coordinates is first cut off at this size (0: not)"
SCALE_LR = (
    "linear, sqrt: lr is of one worker, and is multiplied by the number of workers that a step averages, or by its root"
)


@dataclass
class Optimizer:
    """Settings of all optimizers."""

    lr: float = setting(0.1, "a rate", low=0, high=1e38)
    weight_decay: float = setting(0.0, "off unless asked for", low=0, high=1e38)
    decay_norms: bool = setting(True, DECAY_NORMS, identity="unless default")
    clip_norm: float = setting(0.0, CLIP_NORM, low=0, identity="unless default")
    clip_value: float = setting(0.0, CLIP_VALUE, low=0, identity="unless default")
    scale_lr: str = setting("none", SCALE_LR, choices=("none", "linear", "sqrt"), identity="unless default")


@dataclass
class SGDOptimizer(Optimizer):
    lr: float = setting(0.1, "the paper's rate for CIFAR-10", low=0, high=1e38)
    momentum: float = setting(0.9, "the paper's value", low=0, high=1)
    nesterov: bool = setting(False, "the paper uses plain momentum")
    weight_decay: float = setting(1e-4, "the paper's value", low=0, high=1e38)


@dataclass
class Adam(Optimizer):
    """Weight decay is added to the gradient, and so goes through both running means."""

    lr: float = setting(1e-3, "the customary rate", low=0, high=1e38)
    beta1: float = setting(0.9, "decay of the running mean", low=0, high=0.9999999)
    beta2: float = setting(0.999, "decay of the running mean square", low=0, high=0.9999999)


@dataclass
class AdamW(Adam):
    """Weight decay shrinks the parameters by lr * weight_decay, past the running means."""

    weight_decay: float = setting(0.01, "the customary value; a GPT has .1", low=0, high=1e38)


@dataclass
class Muon(Optimizer):
    """Hidden matrices by torch's Muon, all other parameters by AdamW (``train.steps.muon``)."""

    lr: float = setting(0.02, "of the hidden matrices: that of torch's example and of Muon's author", low=0, high=1e38)
    adamw_lr: float = setting(3e-4, "of all else, likewise; the schedule acts on both rates", low=0, high=1e38)
    weight_decay: float = setting(0.1, "torch's default; of both, each by its own rate", low=0, high=1e38)
    momentum: float = setting(0.95, "torch's default", low=0, high=0.9999999)
    nesterov: bool = setting(True, "torch's default")
    ns_steps: int = setting(5, "Newton-Schulz iterations; torch's default", low=1, high=99)
    adjust_lr: str = setting(
        "original",
        "original: a matrix of A x B has the rate lr sqrt(max(1, A / B)), torch's default; match_rms_adamw: "
        ".2 lr sqrt(max(A, B)), with which one rate suits Muon and AdamW (Moonshot's)",
        choices=("original", "match_rms_adamw"),
    )
    beta1: float = setting(0.9, "AdamW's decay of the running mean", low=0, high=0.9999999)
    beta2: float = setting(0.95, "AdamW's decay of the running mean square; of Muon's author", low=0, high=0.9999999)


@dataclass
class SignSGD(Optimizer):
    """Every coordinate moves by the rate, against the sign of the mean gradient or of its momentum."""

    lr: float = setting(3e-4, "what every coordinate moves in a step, as AdamW's moves about", low=0, high=1e38)
    momentum: float = setting(0.0, "0: signSGD, and DeMo, which has feedback.decay; above: Signum", low=0, high=1)


OPTIMIZERS: dict[str, type] = {
    "sgd": SGDOptimizer,
    "adam": Adam,
    "adamw": AdamW,
    "muon": Muon,
    "signsgd": SignSGD,
}


def check_optimizer(config: Mapping[str, Any]) -> None:
    """Raise ValueError where settings of the optimizer do not go with one another, or with the method.

    The settings are those of a full configuration.
    """
    optim, method = config["optim"], config["method"]["name"]
    if optim["name"] == "sgd":
        check_nesterov(optim["nesterov"], optim["momentum"], "optim.")
    if not optim["decay_norms"] and optim["weight_decay"] == 0:
        raise ValueError(
            "optim.decay_norms=False: has no effect with optim.weight_decay=0.0; it is read with weight_decay above 0 "
            "only"
        )
    if optim["scale_lr"] != "none" and (config["trajectory"] == "sgd" or METHODS[method].single_worker):
        chosen = "trajectory='sgd'" if config["trajectory"] == "sgd" else f"method={method}"
        raise ValueError(
            f"optim.scale_lr={optim['scale_lr']!r}: {chosen} steps along one worker's gradient; legal here: none"
        )


WARMUP_STEPS = "steps in which the rate first rises in a straight line to where the schedule starts (0: none)"
WARMUP_DEFAULT = 0.25
WARMUP_FACTOR = (
    "the rise starts at this share of the rate, customarily 1 / workers; read with warmup_steps above 0 only"
)


@dataclass
class Constant:
    """A schedule that keeps the rate, after a warm-up where one is asked for."""

    warmup_steps: int = setting(0, WARMUP_STEPS, low=0, identity="unless default")
    warmup_factor: float = setting(WARMUP_DEFAULT, WARMUP_FACTOR, low=0, high=1, identity="unless default")


@dataclass
class Step(Constant):
    """A schedule in which the rate drops at chosen steps."""

    at: list[int] = setting([40000, 60000], "steps at which the rate drops; the paper's", low=0)
    factor: float = setting(0.1, "the rate is multiplied by this at each drop", low=0)


@dataclass
class Exponential(Constant):
    """A schedule in which the rate decays exponentially from the end of the warm-up."""

    factor: float = setting(0.95, "the rate is multiplied by this over every period, smoothly", low=0)
    period: int = setting(1000, "steps over which the factor is reached", low=1)


@dataclass
class Cosine:
    """A schedule of half a cosine after the warm-up, down to zero at the last of ``steps``."""

    warmup_steps: int = setting(0, WARMUP_STEPS, low=0)
    warmup_factor: float = setting(WARMUP_DEFAULT, WARMUP_FACTOR, low=0, high=1)


@dataclass
class PiecewiseLinear:
    at: list[int] = setting(
        [0, 485, 2328], "steps of the corners; the default is 0, 5 and 24 epochs of 97 steps, ResNet-9's recipe", low=0
    )
    factors: list[float] = setting(
        [0.0, 1.0, 0.0], "the rate at each corner, as a share of optim.lr; straight lines between", low=0
    )


SCHEDULES: dict[str, type] = {
    "constant": Constant,
    "step": Step,
    "exponential": Exponential,
    "cosine": Cosine,
    "piecewise_linear": PiecewiseLinear,
}


def check_schedule(schedule: Mapping[str, Any]) -> None:
    """Raise ValueError where settings of a schedule do not go with one another."""
    if schedule.get("warmup_steps") == 0 and schedule["warmup_factor"] != WARMUP_DEFAULT:
        raise ValueError(
            f"schedule.warmup_factor={schedule['warmup_factor']}: has no effect with schedule.warmup_steps=0; legal "
            f"above 0"
        )
    if schedule["name"] != "piecewise_linear":
        return
    at, factors = schedule["at"], schedule["factors"]
    if not at or any(later <= earlier for earlier, later in itertools.pairwise(at)):
        raise ValueError(f"schedule.at={at}: must be at least one step, each after the one before")
    if len(factors) != len(at):
        raise ValueError(f"schedule.factors={factors}: must be as many as the {len(at)} steps of schedule.at={at}")
