"""The command ``benchmarks.train --options``: every way to compute beside the default, in turns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from benchmarks.timing import spread
from benchmarks.train_turns import METHODS, Prepared, in_pairs, trainer_of
from train.steps.trainer import Trainer

THREADS = (2, 4)
OPTIONS: dict[str, dict[str, Any]] = {
    "compute.precision=bf16": {"compute.precision": "bf16"},
    "compute.precision=fp16": {"compute.precision": "fp16"},
    "compute.compile=true": {"compute.compile": True},
    "compute.channels_last=false": {"compute.channels_last": False},
    "compute.cuda_graphs=true": {"compute.cuda_graphs": True},
    "compute.accumulate=4": {"compute.accumulate": 4},
}


@dataclass(frozen=True)
class Option:
    """The speed-up of an option: images per second over the default's, pair by pair.

    There are median and quartiles; why: where it could not be measured.
    """

    speedup: float | None
    low: float | None = None
    high: float | None = None
    why: str = ""


def with_threads(trainer: Trainer, threads: int) -> None:
    """Take one step with so many threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        trainer.train_step()
    finally:
        torch.set_num_threads(before)


def measured(ours: Trainer, other: Trainer | None, budget_s: float, threads: int = 0) -> Option:
    """The speed-up of a trainer with an option, or of the same one with more threads, over the default's."""
    step = other.train_step if other is not None else lambda: with_threads(ours, threads)
    theirs, mine = in_pairs(step, ours.train_step, budget_s, wall=bool(threads))
    images = 1 if other is None else other.config["compute"]["accumulate"]
    middle, low, high = spread(mine, theirs)
    return Option(images * middle, images * low, images * high)


def table(
    models: Sequence[str], batch_size: int, workers: int, threads: int, budget_s: float
) -> dict[str, dict[str, Any]]:
    """The speed-ups by model and option, measured and printed one by one."""
    found: dict[str, dict[str, Any]] = {}
    for model in models:
        default = _prepared(trainer_of(model, batch_size, workers, threads, METHODS["sgd"]))
        print(f"{model:32}{'x the default images/s':>24}{'quartiles':>18}", flush=True)
        for name, settings in OPTIONS.items():
            try:
                option = measured(
                    default,
                    _prepared(trainer_of(model, batch_size, workers, threads, METHODS["sgd"], **settings)),
                    budget_s,
                )
            except (ValueError, RuntimeError) as error:
                option = Option(None, why=str(error).splitlines()[0])
            found.setdefault(model, {})[name] = vars(option)
            print(_line(name, option), flush=True)
        for more in THREADS:
            found[model][f"threads={more}"] = vars(option := measured(default, None, budget_s, more))
            print(_line(f"threads={more}, wall time", option), flush=True)
    return found


def _prepared(trainer: Trainer) -> Trainer:
    trainer.gradients.data = Prepared(trainer)  # type: ignore[assignment]
    return trainer


def _line(name: str, option: Option) -> str:
    if option.speedup is None or option.low is None or option.high is None:
        return f"  {name:30}{'-':>24}  {option.why}"
    return f"  {name:30}{option.speedup:24.2f}{f'{option.low:.2f} .. {option.high:.2f}':>18}"
