"""Gradients of a ResNet-18 on CIFAR-10, 11 million coordinates, from the first steps of a run of the ``train`` package."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

import args
from task_settings import MODELS
from train.trainer import Trainer

CACHE = Path("runs") / "methods"
MODEL = "cifar_resnet18" if "cifar_resnet18" in MODELS else "resnet18"
BATCH_SIZE = 32
LEARN_AT, MEASURE_AT = (6, 8), (10, 12, 14)  # steps


@dataclass(frozen=True)
class Gradients:
    """title: of tables and figures; shapes: of the parameters, by name, in order; learn, measure: float32[n], one after the other.

    stand_in: of random images, since the real ones are not there: no claim rests on it.
    """

    title: str
    shapes: dict[str, tuple[int, ...]]
    learn: list[Tensor]
    measure: list[Tensor]
    stand_in: bool = False

    @property
    def num_coordinates(self) -> int:
        return self.measure[0].numel()

    def parts(self, vector: Tensor) -> dict[str, Tensor]:
        """A vector as its parameters, in their own shapes."""
        pieces = vector.split([torch.Size(shape).numel() for shape in self.shapes.values()])
        return {name: piece.view(shape) for (name, shape), piece in zip(self.shapes.items(), pieces, strict=True)}


def recorded() -> Gradients:
    """One worker's gradients, kept in ``runs/``; of a stand-in where CIFAR-10 is not there."""
    try:
        return _recorded(stand_in=False)
    except FileNotFoundError:
        return _recorded(stand_in=True)


def _recorded(stand_in: bool) -> Gradients:
    title = f"{MODEL} on {'a stand-in for CIFAR-10' if stand_in else 'CIFAR-10'}, batch {BATCH_SIZE}"
    place = CACHE / f"{MODEL}-{BATCH_SIZE}-{MEASURE_AT[-1]}{'-stand-in' if stand_in else ''}.pt"
    if place.exists():
        kept = torch.load(place, weights_only=True)
        return Gradients(title, kept["shapes"], kept["learn"], kept["measure"], stand_in)
    chosen = {"method": "supersgd", "data": "cifar10", "model": MODEL, "batch_size": BATCH_SIZE, "workers": 1, "stand_in": stand_in}
    trainer = Trainer(args.resolve({**chosen, "threads": torch.get_num_threads()}), device=torch.device("cpu"))
    shapes = {name: tuple(parameter.shape) for name, parameter in trainer.parameters.items()}
    learn, measure = [], []
    for step in range(MEASURE_AT[-1] + 1):
        if step in LEARN_AT or step in MEASURE_AT:
            gradient, _ = trainer.gradient(0, step, trainer.order, "train")
            (learn if step in LEARN_AT else measure).append(torch.cat([part.reshape(-1) for part in gradient]))
        trainer.train_step()
    place.parent.mkdir(parents=True, exist_ok=True)
    torch.save({"shapes": shapes, "learn": learn, "measure": measure}, place)
    return Gradients(title, shapes, learn, measure, stand_in)
