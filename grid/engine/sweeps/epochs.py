"""Conversion of epochs to steps: papers count the one, settings the other."""

from __future__ import annotations

from collections.abc import Iterable

from settings.text import IMDB_SIZES, TASKS

# Training samples of each data set, and of each task of GLUE.
NUM_TRAIN = {
    "digits": 1_442,
    "mnist": 60_000,
    "fashion_mnist": 60_000,
    "cifar10": 50_000,
    "cifar100": 50_000,
    "svhn": 73_257,
    "imagenet": 1_281_167,
    "imdb": IMDB_SIZES[0],
    **{name: task.num_train for name, task in TASKS.items()},
}


def steps_per_epoch(data: str, batch_size: int, workers: int, accumulate: int = 1) -> int:
    """The whole steps of ``workers * accumulate * batch_size`` samples in one epoch.

    The rest of an epoch is dropped, as ``train.steps.order.Order`` does; accumulate: minibatches per worker and step
    (``compute.accumulate``).
    """
    return NUM_TRAIN[data] // (batch_size * accumulate * workers)


def at_epochs(epochs: Iterable[float], per_epoch: int) -> list[int]:
    """The first steps after so many epochs."""
    return [round(epoch * per_epoch) for epoch in epochs]
