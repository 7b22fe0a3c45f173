"""Epochs as steps: papers count the one, settings the other."""

from __future__ import annotations

from collections.abc import Iterable

# Training samples of each data set.
NUM_TRAIN = {"mnist": 60_000, "cifar10": 50_000, "imagenet": 1_281_167, "digits": 1_442}


def steps_per_epoch(data: str, batch_size: int, workers: int) -> int:
    """Whole steps of ``workers * batch_size`` samples in one epoch; the rest of an epoch is dropped, as ``train.order.Order`` does."""
    return NUM_TRAIN[data] // (batch_size * workers)


def at_epochs(epochs: Iterable[float], per_epoch: int) -> list[int]:
    """The first steps after so many epochs."""
    return [round(epoch * per_epoch) for epoch in epochs]
