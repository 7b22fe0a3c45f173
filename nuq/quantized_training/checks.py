"""Checks of what ``nuq.CompressedTraining`` is given, before anything is attached: a ValueError of one sentence."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from nuq.parameters import check_model
from nuq.quantized_training.formats import Format
from nuq.settings.quantized_training import FULL, OWN_EXPONENTS

HALVES = (torch.float16, torch.bfloat16)


def formats(specs: Mapping[str, object]) -> dict[str, Format]:
    """The formats that round anything, by kind."""
    for kind, spec in specs.items():
        if spec is not None and not isinstance(spec, str):
            rule = "must be a format, as 'smaq' or 'smaq samples=16', or empty, None or 'fp32' for none"
            raise ValueError(f"{kind}={spec!r}: {rule}")
    given = {kind: spec for kind, spec in specs.items() if isinstance(spec, str)}
    return {kind: Format(spec, kind) for kind, spec in given.items() if spec.strip() not in ("", *FULL)}


def check_values(
    formats: Mapping[str, Format], *, seed: object, min_size: object, master: object, inference: object
) -> None:
    """Check numbers and switches: ValueError for those that are none, or have no effect."""
    for name, number, low in (("seed", seed, 0), ("min_size", min_size, 1)):
        if isinstance(number, bool) or not isinstance(number, int):
            raise ValueError(f"{name}={number!r}: must be of type int")
        if number < low:
            raise ValueError(f"{name}={number}: must be at least {low}")
    for name, switch, kind in (("master", master, "weights"), ("inference", inference, "activations")):
        if not isinstance(switch, bool):
            raise ValueError(f"{name}={switch!r}: must be True or False")
        if switch and kind not in formats:
            raise ValueError(f"{name}=True: has no effect without a format of {kind}")


def check_parts(model: object, optimizer: object, attached: Iterable[object]) -> None:
    """Check types, and that neither model nor optimizer, nor a module inside or around, is attached already."""
    check_model(model)
    assert isinstance(model, nn.Module)
    if optimizer is not None and not isinstance(optimizer, torch.optim.Optimizer):
        found = type(optimizer).__name__
        raise ValueError(f"the optimizer is of type {found}: must be a torch.optim.Optimizer or None")
    inside = set(model.modules())
    for other in attached:
        if other is model:
            remedy = "call remove() of the first CompressedTraining, or give it all formats"
            raise ValueError(f"this model's training is compressed already: {remedy}")
        if other is optimizer:
            apart = "(activations are packed in no other passes), or give each model its own optimizer"
            once = f"attach once, to a module whose own forward calls all models {apart}"
            raise ValueError(f"this optimizer's steps are compressed already: {once}")
        if isinstance(other, nn.Module) and (other in inside or model in other.modules()):
            what = f"a {type(other).__name__} {'inside' if other in inside else 'around'} this model"
            raise ValueError(f"{what} is compressed already: attach once, to the outer one")


def check_stepped(
    model: nn.Module,
    optimizer: torch.optim.Optimizer | None,
    formats: Mapping[str, Format],
    *,
    min_size: int,
    master: bool,
) -> None:
    """Check the optimizer: ValueError where its part cannot be done."""
    stepped = [f"{kind}={formats[kind].spec!r}" for kind in ("weights", "gradients", "moments") if kind in formats]
    if optimizer is None:
        if stepped:
            raise ValueError(f"{stepped[0]}: needs the optimizer, which is None; legal without: activations")
        return
    if isinstance(optimizer, torch.optim.LBFGS):
        why = "whose step computes gradients itself, by a closure, so that they cannot be compressed before it"
        legal = "optimizer=None with activations and activation_gradients, or another optimizer"
        raise ValueError(f"the optimizer is LBFGS, {why}; legal: {legal}")
    named = {parameter: name for name, parameter in model.named_parameters()}
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    if not any(parameter in named for parameter in parameters):
        raise ValueError("none of the optimizer's parameters is the model's: give the optimizer of this model")
    for parameter in parameters:
        name = named.get(parameter, "a parameter")
        if stepped and hasattr(parameter, "placements"):  # a DTensor: its class is slow to import
            why = f"{name!r} is sharded (FSDP2), and only whole parameters have formats"
            raise ValueError(f"{stepped[0]}: {why}; legal: activations")
        if master and parameter.dtype in HALVES and parameter.numel() >= min_size:
            why = f"{name!r} is of {parameter.dtype}, in which the optimizer computes its updates"
            remedy = "keep the model in float32, passes may be in half precision by torch.autocast"
            raise ValueError(f"master=True: {why}; {remedy}")
    if "moments" in formats:
        if type(optimizer) is torch.optim.SGD and not any(group["momentum"] for group in optimizer.param_groups):
            raise ValueError(f"moments={formats['moments'].spec!r}: has no effect where SGD with momentum=0 keeps none")
        check_groups(optimizer, formats["moments"])


def check_groups(optimizer: torch.optim.Optimizer, moments: Format) -> None:
    """Check groups, as before every step: ValueError for settings with which moments must not be rounded."""
    shown = f"moments={moments.spec!r}"
    if any(group.get("centered") for group in optimizer.param_groups):
        why = "takes the root of a difference of two moments, which roundings make negative"
        raise ValueError(f"{shown}: centered RMSprop {why}; legal: centered=False")
    adamax = isinstance(optimizer, torch.optim.Adamax)
    of_adam = torch.optim.Adam | torch.optim.AdamW | torch.optim.NAdam | torch.optim.RAdam
    if moments.name in OWN_EXPONENTS or not (adamax or isinstance(optimizer, of_adam)):
        return
    for group in optimizer.param_groups:  # a mean that outlives what it is divided by: their ratio has no bound
        beta1, beta2 = group["betas"]
        if beta1 and beta1 ** (1 if adamax else 2) >= beta2:
            rule = "beta1 < beta2" if adamax else "beta1^2 < beta2"
            why = f"betas=({beta1}, {beta2}) let a mean outlive the moment that it is divided by"
            raise ValueError(f"{shown}: {why}; legal: {rule}")


def none_packed(kind: str, spec: str, min_size: int) -> str:
    """The warning about a format that has packed nothing."""
    reach = {
        "activations": "those of passes through the attached module's own forward, of {}: call the module that you "
        "attach to",
        "weights": "those of the optimizer's parameters that have a gradient, of {}",
        "gradients": "those of the optimizer's parameters that are not sparse, of {}",
        "moments": "those that the attached optimizer itself keeps between steps, of their parameter's shape and {}",
    }
    packed = reach[kind].format(f"min_size={min_size} coordinates or more")
    return f"{kind}={spec!r}: none was packed in the first step; packed are {packed}"


def check_saved(saved: object, own: Mapping[str, Any], parameters: Mapping[str, Tensor]) -> None:
    """Check a saved state against this one's (own) and the parameters' names; ValueError where it does not fit."""
    if not isinstance(saved, Mapping):
        raise ValueError(f"a {type(saved).__name__} is no state_dict() of a CompressedTraining, which is a dict")
    for key in ("step", "master", "masters"):
        if type(saved.get(key)) is not type(own[key]):
            raise ValueError(f"no state_dict() of a CompressedTraining: its {key!r} is missing or of another type")
    if saved["step"] < 0:
        raise ValueError(f"its step is {saved['step']}: must be at least 0")
    for key in ("master", "seed", "formats", "min_size"):
        if saved.get(key, own[key]) != own[key]:
            raise ValueError(f"saved with {key}={saved[key]!r}, and {key}={own[key]!r} here: choose the same")
    for name, value in saved["masters"].items():
        if name not in parameters:
            raise ValueError(f"saved for another model: the optimizer here has no parameter {name!r}")
        if not isinstance(value, Tensor) or value.shape != parameters[name].shape:
            shape = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
            here = tuple(parameters[name].shape)
            raise ValueError(f"saved for another model: {name!r} is {shape} there, and {here} here")
        if value.dtype != parameters[name].dtype:
            rule = f"must be of the parameter's type, {parameters[name].dtype}"
            raise ValueError(f"its copy of {name!r} is of {value.dtype}: {rule}")
