"""Steps of trainers, prepared and timed in turns."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from benchmarks.timing import own_seconds
from settings import resolving
from train.steps.trainer import Trainer

METHODS: dict[str, dict[str, Any]] = {"sgd": {"method": "supersgd"}, "alq_3bit": {"method": "alq", "method.bits": 3}}


class Prepared:
    """The first training batches of a data set, as the passes take them.

    The batches that the trainer asks for come from memory, in turn.
    """

    def __init__(self, trainer: Trainer) -> None:
        self.steps = [batches_of(trainer, step) for step in range(PREPARED_STEPS)]
        self._next, self._workers = 0, len(self.steps[0])
        self.is_stand_in = trainer.data.is_stand_in

    def train_batch(self, indices: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        del indices, generator
        step, worker = divmod(self._next, self._workers)
        self._next += 1
        return self.steps[step % PREPARED_STEPS][worker]


def batches_of(trainer: Trainer, step: int) -> list[tuple[Tensor, Tensor]]:
    """The minibatch of every worker at a step."""
    return [trainer.gradients.batch(worker, step, trainer.order, "train") for worker in trainer.trained.hosted]


def data_of(model: str) -> str:
    return "text" if model == "gpt" else "cifar10"


def trainer_of(
    model: str, batch_size: int, workers: int, threads: int, method: dict[str, Any], device: str = "cpu", **more: Any
) -> Trainer:
    """A trainer on CIFAR-10, or of a GPT on text; on a stand-in of its shape where the data is not there.

    No level is updated of the trainer's own accord.
    """
    quiet = {"method.update_at": [], "method.update_every": 0} if "method.bits" in method else {}
    settings = {
        "data": data_of(model),
        "model": model,
        "batch_size": batch_size,
        "workers": workers,
        "threads": threads,
        **method,
        **quiet,
    }
    try:
        return Trainer(resolving.resolve(settings | more), device=torch.device(device))
    except FileNotFoundError:
        return Trainer(resolving.resolve(settings | more | {"stand_in": True}), device=torch.device(device))


def in_pairs(
    ours: Callable[[], object], theirs: Callable[[], object], budget_s: float, *, wall: bool = False
) -> tuple[list[float], list[float]]:
    """The times of both calls, one pair after another, until the time is up; at least three pairs."""
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(WARM_UP):
        ours()
        theirs()
    began, turn = time.perf_counter(), 0
    while turn < 3 or time.perf_counter() - began < budget_s:
        for which in (0, 1) if turn % 2 else (1, 0):
            times[which].append(own_seconds((ours, theirs)[which], wall=wall))
        turn += 1
    return times


PREPARED_STEPS, CHECKED_STEPS, WARM_UP = 4, 3, 2
