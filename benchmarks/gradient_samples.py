"""The data that accuracy is measured on: vectors of three distributions, and gradients from short runs of ``train``.

Every source has vectors that adaptive methods may learn from and other vectors to be measured on; of a recorded run
these are the ten steps before a level update and steps after it, as in training.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from nuq.compressors.quantized import AdaptiveQuantizer
from nuq.kernels.spec import Key
from nuq.kernels.statistics import Statistics
from settings import resolving
from train.steps.trainer import Trainer

CACHE = Path("runs") / "accuracy_per_bit"
NUM_COORDINATES = 1 << 19
UPDATE_STEP, NUM_LEARNED, NUM_MEASURED, EVERY, NUM_WORKERS = 60, 10, 10, 5, 16
RECORDED = {  # data: model, batch size, title
    "digits": ("cnn", 32, "CNN on digits"),
    "text": ("gpt", 8, "GPT on text"),
    "cifar10": ("resnet8", 32, "ResNet-8 on CIFAR-10"),
}


@dataclass(frozen=True)
class Source:
    """A source of vectors.

    title: of its panel; learn, measure: float32 vectors; workers: of one step, minibatches apart, to be averaged.
    """

    title: str
    learn: list[Tensor]
    measure: list[Tensor]
    workers: list[Tensor]
    recorded: bool = False

    @property
    def num_coordinates(self) -> int:
        return sum(vector.numel() for vector in self.measure)


def _normal(generator: torch.Generator) -> Tensor:
    return torch.randn(NUM_COORDINATES, generator=generator)


def _signs(generator: torch.Generator) -> Tensor:
    return 1.0 - 2.0 * torch.randint(0, 2, (NUM_COORDINATES,), generator=generator)


# Gradients have both signs, so the distributions on the positive numbers get random ones; nothing that rotates can
# tell.
DISTRIBUTIONS: dict[str, tuple[str, Callable[[torch.Generator], Tensor]]] = {
    "normal": ("Normal", _normal),
    "lognormal": ("Lognormal(0, 1), random signs", lambda g: _normal(g).exp() * _signs(g)),
    "exponential": (
        "Exponential, random signs",
        lambda g: torch.empty(NUM_COORDINATES).exponential_(generator=g) * _signs(g),
    ),
}


def learn(made: AdaptiveQuantizer, gradients: Sequence[Tensor]) -> Statistics:
    """Fit the levels to the gradients of several workers, as at an update; the statistics behind it."""
    together = Statistics.empty(made.settings.num_components, sketched=True)
    for worker, gradient in enumerate(gradients):
        own = Statistics.empty(made.settings.num_components, sketched=True)
        made.observe(gradient, Key(2, 0, worker, "model"), own)
        together.merge(own)
    made.update(together)
    return together


@functools.cache
def source(name: str) -> Source:
    """A source by name: one of DISTRIBUTIONS or of RECORDED."""
    return synthetic(name) if name in DISTRIBUTIONS else recorded(name)


def synthetic(name: str) -> Source:
    """A source of one vector to measure, others to learn from, and independent ones to be averaged."""
    title, draw = DISTRIBUTIONS[name]
    generator = torch.Generator().manual_seed(12)
    learn, measure = [draw(generator)], [draw(generator)]
    workers = [draw(generator)[: 1 << 17] for _ in range(NUM_WORKERS)]
    return Source(title, [*learn, draw(generator)], measure, workers)  # levels for the mean are learned from two


def recorded(data: str) -> Source:
    """The gradients of one worker early in a run; kept in ``runs/``.

    Raises FileNotFoundError where the data set is not there.
    """
    model, batch_size, title = RECORDED[data]
    title = f"Gradients, {title}"
    place = CACHE / f"{data}-{model}-{batch_size}-{UPDATE_STEP}-{NUM_WORKERS}.pt"
    if place.exists():
        kept = torch.load(place, weights_only=True)
        return Source(title, kept["learn"], kept["measure"], kept["workers"], recorded=True)
    config = resolving.resolve(
        {"method": "supersgd", "data": data, "model": model, "batch_size": batch_size, "workers": 1, "seed": 1}
    )
    trainer = Trainer(config, device=torch.device("cpu"))
    learn, measure, workers = [], [], []
    for step in range(UPDATE_STEP + EVERY * NUM_MEASURED):
        after = step - UPDATE_STEP
        wanted = learn if -NUM_LEARNED <= after < 0 else measure if after >= 0 and after % EVERY == 0 else None
        if wanted is not None:
            gradient, _ = trainer.gradient(0, step, trainer.order, "train")
            wanted.append(gradient)
        if after == 0:  # later steps' minibatches, at these weights
            workers = [trainer.gradient(0, step + n, trainer.order, "workers")[0] for n in range(NUM_WORKERS)]
        trainer.train_step()
    place.parent.mkdir(parents=True, exist_ok=True)
    torch.save({"learn": learn, "measure": measure, "workers": workers}, place)
    return Source(title, learn, measure, workers, recorded=True)
