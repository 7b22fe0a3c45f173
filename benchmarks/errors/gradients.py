"""The sources of errors: draws of distributions, and gradients recorded in short runs of ``train``."""

from __future__ import annotations

import functools
import itertools
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from files import atomic
from settings import resolving
from train.steps.trainer import Trainer

CACHE = Path("runs") / "gradients"
NUM_COORDINATES = 1 << 19  # of a draw
WORKERS = 16  # whose gradients at one moment are kept of a run of one worker


@dataclass(frozen=True)
class Gradients:
    """Vectors of one source, float32[n] each.

    learn, measure: levels are fitted to the first, and errors are those of the second. moments: the workers' vectors
    at one step or several. shapes: of the parameters, by name, in order. stand_in: the gradients are those of random
    images, because the real ones are not there; no claim rests on them.
    """

    title: str
    learn: list[Tensor] = field(default_factory=list)
    measure: list[Tensor] = field(default_factory=list)
    moments: list[list[Tensor]] = field(default_factory=list)
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    stand_in: bool = False

    @property
    def num_coordinates(self) -> int:
        """The coordinates of one vector."""
        return next(itertools.chain(self.measure, *self.moments)).numel()

    def parts(self, vector: Tensor) -> dict[str, Tensor]:
        """A vector as its parameters, in their shapes."""
        pieces = vector.split([torch.Size(shape).numel() for shape in self.shapes.values()])
        return {name: piece.view(shape) for (name, shape), piece in zip(self.shapes.items(), pieces, strict=True)}


# --- distributions ---


def normal(generator: torch.Generator) -> Tensor:
    return torch.randn(NUM_COORDINATES, generator=generator)


def _signs(generator: torch.Generator) -> Tensor:
    return 1.0 - 2.0 * torch.randint(0, 2, (NUM_COORDINATES,), generator=generator)


# Gradients have both signs, so distributions of positive numbers get random signs.  Nothing that rotates can tell.
DISTRIBUTIONS: dict[str, tuple[str, Callable[[torch.Generator], Tensor]]] = {
    "normal": ("Normal", normal),
    "lognormal": ("Lognormal(0, 1), random signs", lambda g: normal(g).exp() * _signs(g)),
    "exponential": (
        "Exponential, random signs",
        lambda g: torch.empty(NUM_COORDINATES).exponential_(generator=g) * _signs(g),
    ),
}


def drawn(name: str) -> Gradients:
    """One vector to measure, two to learn from (levels for the mean need two), and shorter ones of 16 workers."""
    title, draw = DISTRIBUTIONS[name]
    generator = torch.Generator().manual_seed(12)
    first, measure = draw(generator), draw(generator)
    workers = [draw(generator)[: 1 << 17] for _ in range(WORKERS)]
    return Gradients(title, [first, draw(generator)], [measure], [workers])


# --- recorded gradients ---


@dataclass(frozen=True)
class Run:
    """A short run without compression, and the steps whose gradients are kept.

    learn, measure: one worker's gradients of minibatches as they come. moments: all workers' gradients at that step;
    in a run of one worker, the gradients of later minibatches at these weights stand for them.
    """

    title: str
    settings: dict[str, Any]
    learn: Sequence[int] = ()
    measure: Sequence[int] = ()
    moments: Sequence[int] = ()


def _early(title: str, data: str, model: str, batch_size: int) -> Run:
    """The ten steps before an update of levels, and steps after it, as in training."""
    settings = {"data": data, "model": model, "batch_size": batch_size}
    return Run(f"Gradients, {title}", settings, range(50, 60), range(60, 110, 5), (60,))


def _apart(title: str, **settings: Any) -> Run:
    """Four workers early, in the middle and late in a run."""
    return Run(title, {"workers": 4, "optim.lr": 0.1, **settings}, moments=(0, 100, 500))


def _large(title: str, **settings: Any) -> Run:
    return Run(f"{title}, batch 32", {"batch_size": 32, **settings}, (6, 8), (10, 12, 14))


_GPT = {"model": "gpt", "model.layers": 6, "model.heads": 6, "model.width": 384, "optim": "adamw"}
RUNS = {
    "digits": _early("CNN on digits", "digits", "cnn", 32),
    "text": _early("GPT on text", "text", "gpt", 8),
    "cifar10": _early("ResNet-8 on CIFAR-10", "cifar10", "resnet8", 32),
    "CNN on digits": _apart("CNN on digits", data="digits", model="cnn", batch_size=16),
    "LeNet on CIFAR-10": _apart(
        "LeNet on CIFAR-10", data="cifar10", model="lenet", batch_size=32, **{"optim.lr": 0.02}
    ),
    "ResNet-8 on CIFAR-10": _apart("ResNet-8 on CIFAR-10", data="cifar10", model="resnet8", batch_size=32),
    "cifar_resnet18": _large("cifar_resnet18 on CIFAR-10", data="cifar10", model="cifar_resnet18"),
    "lenet": _large("lenet on CIFAR-10", data="cifar10", model="lenet"),  # 657,000 parameters, for a look
    "gpt": _large("gpt on text", data="text", **_GPT),  # 10.8 million parameters
}
EARLY, APART, LARGE = (list(RUNS)[begin : begin + 3] for begin in (0, 3, 6))


@functools.cache
def source(name: str) -> Gradients:
    """A source by its name in DISTRIBUTIONS or RUNS.

    Raises FileNotFoundError if its data set is not there.
    """
    return drawn(name) if name in DISTRIBUTIONS else recorded(name)


def available(names: Sequence[str]) -> list[str]:
    """Those of the names whose data set is there; the others are printed."""
    found = []
    for name in names:
        try:
            source(name)
        except FileNotFoundError as error:
            print(f"without {name}: {error}")
        else:
            found.append(name)
    return found


def or_stand_in(name: str) -> Gradients:
    """A source, made with random images if the real ones are not there."""
    try:
        return source(name)
    except FileNotFoundError:
        return recorded(name, stand_in=True)


def recorded(name: str, stand_in: bool = False) -> Gradients:
    """The gradients of one of RUNS, kept in ``runs/``."""
    run = RUNS[name]
    title = run.title.replace(" on ", " on a stand-in for ") if stand_in else run.title
    place = CACHE / f"{name.replace(' ', '_')}-{zlib.crc32(repr((run, WORKERS, stand_in)).encode()):08x}.pt"
    if place.exists():
        return Gradients(title, **torch.load(place, weights_only=True), stand_in=stand_in)
    given = {"method": "supersgd", "workers": 1, "seed": 1, "stand_in": stand_in, **run.settings}
    found = trained(Trainer(resolving.resolve(given), device=torch.device("cpu")), run, title)
    place.parent.mkdir(parents=True, exist_ok=True)
    with atomic.aside(place) as part:
        torch.save({name: getattr(found, name) for name in ("learn", "measure", "moments", "shapes")}, part)
    return found


def trained(trainer: Trainer, run: Run, title: str) -> Gradients:
    """The gradients at the steps of a run, which is trained up to the last of them."""
    shapes = {name: tuple(parameter.shape) for name, parameter in trainer.parameters.items()}
    found = Gradients(title, shapes=shapes, stand_in=trainer.data.is_stand_in)
    while trainer.step <= max((*run.learn, *run.measure, *run.moments)):
        step = trainer.step
        if step in (*run.learn, *run.measure):
            gradient, _ = trainer.gradient(0, step, trainer.order, "train")
            (found.learn if step in run.learn else found.measure).append(gradient)
        if step in run.moments:
            found.moments.append(_of_workers(trainer))
        trainer.train_step()
    return found


def _of_workers(trainer: Trainer) -> list[Tensor]:
    workers, step = trainer.config["workers"], trainer.step
    if workers > 1:
        return list(trainer.gradients.of_workers(range(workers), step, trainer.order, "norms")[0].values())
    return [trainer.gradient(0, step + n, trainer.order, "workers")[0] for n in range(WORKERS)]
