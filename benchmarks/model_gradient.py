"""Gradients of a model from the first steps of a run of the ``train`` package.

The model is a ResNet-18 on CIFAR-10, or a GPT on text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from files import atomic
from settings import resolving
from train.steps.trainer import Trainer

CACHE = Path("runs") / "methods"
MODELS = {  # name: what it is trained on, in words, and the settings of its run
    "cifar_resnet18": ("CIFAR-10", {"data": "cifar10"}),
    "lenet": ("CIFAR-10", {"data": "cifar10"}),  # 657,000 parameters, for a look
    "gpt": (
        "text",
        {"data": "text", "model.layers": 6, "model.heads": 6, "model.width": 384, "optim": "adamw"},
    ),  # 10.8 million parameters
}
BATCH_SIZE = 32
LEARN_AT, MEASURE_AT = (6, 8), (10, 12, 14)  # steps


@dataclass(frozen=True)
class Gradients:
    """The gradients of a model.

    title: of tables and figures; shapes: of the parameters, by name, in order; learn, measure: float32[n], one after
    the other. stand_in: they are of random images, since the real ones are not there: no claim rests on them.
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


def recorded(model: str) -> Gradients:
    """The gradients of one worker on one of ``MODELS``, kept in ``runs/``.

    They are of a stand-in where the data is not there.
    """
    try:
        return _recorded(model, stand_in=False)
    except FileNotFoundError:
        return _recorded(model, stand_in=True)


def _recorded(model: str, stand_in: bool) -> Gradients:
    data, settings = MODELS[model]
    title = f"{model} on {'a stand-in for ' if stand_in else ''}{data}, batch {BATCH_SIZE}"
    place = CACHE / f"{model}-{BATCH_SIZE}-{MEASURE_AT[-1]}{'-stand-in' if stand_in else ''}.pt"
    if place.exists():
        kept = torch.load(place, weights_only=True)
        return Gradients(title, kept["shapes"], kept["learn"], kept["measure"], stand_in)
    chosen = {
        "method": "supersgd",
        "model": model,
        **settings,
        "batch_size": BATCH_SIZE,
        "workers": 1,
        "stand_in": stand_in,
    }
    trainer = Trainer(resolving.resolve({**chosen, "threads": torch.get_num_threads()}), device=torch.device("cpu"))
    found = trained(trainer, LEARN_AT, MEASURE_AT, title)
    place.parent.mkdir(parents=True, exist_ok=True)
    with atomic.aside(place) as part:
        torch.save({"shapes": found.shapes, "learn": found.learn, "measure": found.measure}, part)
    return found


def trained(trainer: Trainer, learn_at: Sequence[int], measure_at: Sequence[int], title: str) -> Gradients:
    """The gradients of one worker at these steps of a run, which is trained up to the last of them."""
    shapes = {name: tuple(parameter.shape) for name, parameter in trainer.parameters.items()}
    learn, measure = [], []
    while trainer.step <= measure_at[-1]:
        if trainer.step in (*learn_at, *measure_at):
            gradient, _ = trainer.gradient(0, trainer.step, trainer.order, "train")
            (learn if trainer.step in learn_at else measure).append(gradient)
        trainer.train_step()
    return Gradients(title, shapes, learn, measure, trainer.data.is_stand_in)
