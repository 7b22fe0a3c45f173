"""Conversion of epochs to steps: papers count the one, settings the other."""

from __future__ import annotations

from collections.abc import Iterable

from settings.data import DATA
from settings.text import TASKS

# Training samples of each data set that has a size of its own, and of each task of GLUE.
NUM_TRAIN = {name: record.sizes[0] for name, record in DATA.items() if record.sizes}
NUM_TRAIN |= {name: task.num_train for name, task in TASKS.items()}


def steps_per_epoch(data: str, batch_size: int, workers: int, accumulate: int = 1) -> int:
    """The whole steps of ``workers * accumulate * batch_size`` samples in one epoch.

    The rest of an epoch is dropped, as ``train.steps.order.Order`` does; accumulate: minibatches per worker and step
    (``compute.accumulate``).
    """
    return NUM_TRAIN[data] // (batch_size * accumulate * workers)


def at_epochs(epochs: Iterable[float], per_epoch: int) -> list[int]:
    """The first steps after so many epochs."""
    return [round(epoch * per_epoch) for epoch in epochs]
