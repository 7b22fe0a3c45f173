"""Settings of the parts of a run other than data, model, method and optimizer: passes, measurements and the exchange.

This module imports no torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nuq.registry import METHODS
from nuq.settings import FROM_ONE, exchange, setting
from nuq.settings.layers import parsed_format
from nuq.settings.outer import FRAGMENTS, MIXING, NESTEROV, OUTER_LR, OUTER_MOMENTUM, check_fragments
from nuq.settings.quantized_training import FORMATS, MIN_SIZE, OWN_EXPONENTS, formats_of
from settings.sections import methods_of, momentum_acts_in_workers, named_layers


@dataclass
class Measure:
    """The variance of the gradient estimator, measured beside training from extra minibatches."""

    every: int = setting(
        0,
        "measure at step 0 and every so many steps (0: never); one measurement costs num_samples * workers passes",
        low=0,
    )
    num_samples: int = setting(10, "gradient estimates behind one measurement; the paper's value", low=2)


@dataclass
class Logging:
    """What a run writes beside its event file."""

    csv: bool = setting(
        False,
        "true: every scalar also goes to scalars.csv in the run's folder (attempt, step, tag, value, unix seconds)",
        identity=False,
    )


@dataclass
class Untrain:
    """Gradient ascent with noise before training: a bad start, to study the methods far from a minimum."""

    steps: int = setting(0, "steps of ascent (0: none)", low=0)
    lr: float = setting(0.001, "rate of ascent", low=0)
    std: float = setting(0.001, "standard deviation of the noise added to each parameter", low=0)


@dataclass
class Compute:
    """The way in which a worker's forward and backward passes are computed; other than by default results differ, at
    least in their last bits.
    """

    precision: str = setting(
        "fp32",
        "of the passes (autocast; parameters, exchange and evaluation stay in float32): bf16 took 1/1.5 of the time "
        "on a CPU with bf16 instructions (ResNet-8); fp16 scales the loss and skips steps that overflow (logged as "
        "compute/skipped_steps), for GPUs older than bf16: on that CPU it took 80 times as long",
        choices=("fp32", "bf16", "fp16"),
        identity="unless default",
    )
    compile: bool = setting(
        False,
        "torch.compile of the model: 1.2 times as fast (ResNet-8 on CPU), after compiling at every start: for long "
        "runs",
        identity="unless default",
    )
    channels_last: bool = setting(
        True,
        "images with their channels side by side in memory: 1.1 to 1.2 times as fast (ResNet-8 and -32 on CPU)",
        identity="unless default",
    )
    cuda_graphs: bool = setting(
        False,
        "record a pass as one CUDA graph and replay it: for small models, whose kernels are shorter than launching "
        "them (not measured)",
        identity="unless default",
    )
    accumulate: int = setting(
        1,
        "minibatches of batch_size per worker and step, their mean being its gradient (DGC's num_batches_per_step): "
        "saves memory, not time",
        low=1,
        identity="unless default",
    )


_IN_ROUNDS = ("local_steps", range(2, 2**63))


@dataclass
class Exchange(exchange.Exchange):
    """The way in which the workers' messages become one mean, in real processes and in their simulation."""

    local_steps: int = setting(
        1,
        "steps of a round, in which every worker trains a model of its own before the workers exchange what they moved "
        "by (DiLoCo); 1: gradients are exchanged at every step",
        low=1,
        identity="unless default",
    )
    outer_lr: float = setting(0.7, OUTER_LR, low=0, identity="unless default", read_if=_IN_ROUNDS)
    outer_momentum: float = setting(
        0.9, OUTER_MOMENTUM, low=0, high=1 - 1e-9, identity="unless default", read_if=_IN_ROUNDS
    )
    nesterov: bool = setting(True, NESTEROV, identity="unless default", read_if=_IN_ROUNDS)
    fragments: int = setting(1, FRAGMENTS, low=1, identity="unless default", read_if=_IN_ROUNDS)
    overlap: int = setting(
        0,
        "local steps before the mean of such a part is taken over, fewer than local_steps",
        low=0,
        identity="unless default",
        read_if=_IN_ROUNDS,
    )
    mixing: float = setting(0.5, MIXING, low=0, high=1, identity="unless default", read_if=("overlap", FROM_ONE))
    timeout_s: float = setting(
        1800.0,
        "a rank that does not answer for so many seconds counts as lost; the others wait while rank 0 evaluates, so "
        "longer than that takes",
        low=1,
        high=1e6,
        identity=False,
    )


def check_compute(config: Mapping[str, Any]) -> None:
    """Raise ValueError for ways to compute that do not go together."""
    compute = config["compute"]
    if compute["cuda_graphs"] and config["device"] == "cpu":
        raise ValueError(
            "compute.cuda_graphs=True: records the kernels of a CUDA device, so device=cpu is not legal with it; "
            "auto, cuda are"
        )
    if compute["cuda_graphs"] and compute["compile"]:
        raise ValueError(
            "compute.cuda_graphs=True: does not go with compute.compile=True, whose kernels are not recorded; choose "
            "one"
        )


def check_tensors(config: Mapping[str, Any], *, momentum_in_workers: bool) -> None:
    """Raise ValueError where the formats of tensors are not legal.

    That is: they are none, do not go with the rest of a full configuration, or have no effect.

    momentum_in_workers: whether all of the optimizer's momentum is kept there.
    """
    tensors, compute, optim = config["tensors"], config["compute"], config["optim"]
    for name in ("all", *FORMATS):
        if tensors[name].strip():
            parsed_format(tensors[name].strip(), f"tensors.{name}")
    formats = formats_of(tensors)
    needed = {"master": ("weights",), "inference": ("activations",), "min_size": FORMATS}
    for name, kinds in needed.items():
        default = MIN_SIZE if name == "min_size" else False
        if tensors[name] != default and not any(kind in formats for kind in kinds):
            listed = ", ".join(f"tensors.{kind}" for kind in (*kinds, "all"))
            raise ValueError(f"tensors.{name}={tensors[name]}: has no effect without a format in {listed}")
    none_kept = optim["name"] in ("sgd", "signsgd") and (momentum_in_workers or optim["momentum"] == 0)
    if tensors["moments"].strip() and none_kept:
        why = "the workers keep the momentum" if momentum_in_workers else "optim.momentum=0.0 keeps none"
        raise ValueError(f"tensors.moments={tensors['moments']!r}: has no effect where {why}")
    rounded = "moments" in formats and formats["moments"].split()[0] not in OWN_EXPONENTS
    if rounded and optim.get("beta1") and optim["beta1"] ** 2 >= optim["beta2"]:
        shown = f"tensors.moments={formats['moments']!r}: optim.beta1={optim['beta1']} and optim.beta2={optim['beta2']}"
        raise ValueError(f"{shown} let a mean outlive the moment that it is divided by; legal: beta1^2 < beta2")
    in_passes = [kind for kind in ("activations", "activation_gradients") if kind in formats]
    for name in ("compile", "cuda_graphs"):
        if in_passes and compute[name]:
            shown = f"tensors.{in_passes[0]}={formats[in_passes[0]]!r}"
            raise ValueError(
                f"{shown}: does not go with compute.{name}=True, which records the passes without it; legal: False"
            )


def check_local_steps(config: Mapping[str, Any]) -> None:
    """Raise ValueError where the rest of a full configuration does not go with rounds of several local steps."""
    every, optim = config["exchange"]["local_steps"], config["optim"]
    if every == 1:
        return
    where = f"exchange.local_steps={every}"
    how = config["exchange"]
    check_fragments(every, how["fragments"], how["overlap"], "local_steps", "exchange.")
    if single := [name for name in methods_of(config) if METHODS[name].single_worker]:
        raise ValueError(f"{where}: method={single[0]} sends one worker's move alone; legal here: all other methods")
    of_methods = [config["method"], *(vars(layer.settings) for layer in named_layers(config))]
    if any(own.get("statistics") == "fresh" for own in of_methods):
        raise ValueError(
            f"method.statistics='fresh': draws gradients, and with {where} levels are of the moves that are sent; "
            f"legal here: running"
        )
    if momentum_acts_in_workers(config):
        raise ValueError(
            f"{where}: momentum correction takes the optimizer's momentum into messages of every step; legal here: "
            f"feedback.kind=error, ef21, none"
        )
    if optim["scale_lr"] != "none":
        raise ValueError(
            f"optim.scale_lr={optim['scale_lr']!r}: with {where} a step is along one worker's gradient; legal here: "
            f"none"
        )
    if config["measure"]["every"]:
        raise ValueError(
            f"measure.every={config['measure']['every']}: measures the method on gradients, and with {where} it sends "
            f"moves; legal here: 0"
        )
    if config["compute"]["precision"] == "fp16":
        raise ValueError(
            f"compute.precision='fp16': a step that overflows is skipped by all workers together, which with {where} "
            f"are on their own; legal here: fp32, bf16"
        )
    if formats := formats_of(config["tensors"]):
        kind = next(iter(formats))
        raise ValueError(
            f"tensors.{kind}={formats[kind]!r}: with {where} every worker has a model of its own, and formats are of "
            f"one that all share; legal here: none"
        )
    for name in ("steps", "eval_every"):
        if config[name] % every:
            raise ValueError(
                f"{name}={config[name]}: must be a multiple of {where}, as only at the end of a round all workers have "
                f"the same model"
            )


def lag_s(text: str | None) -> float:
    """The value of NUQ_LAG_S: the seconds by which files of other nodes may be seen late and clocks may differ.

    It is 120 where NUQ_LAG_S is not set.
    """
    try:
        value = float(text or "120")
    except ValueError:
        value = -1.0
    if not 0 <= value <= 3600:
        raise ValueError(f"NUQ_LAG_S={text!r}: must be a number of seconds from 0 to 3600")
    return value
