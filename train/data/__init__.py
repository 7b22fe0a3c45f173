"""The data sets: ``load`` reads one, ``stand_in`` draws random tensors of its shape.

Adding a data set is one file here with a ``load``, one line in ``KINDS`` and its settings in ``task_settings.DATA``.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from nuq.settings import unknown

from .augment import Augmentation, Cutout
from .dataset import Arrays, DataSet, InMemory, Normalization

__all__ = ["KINDS", "DataSet", "Size", "load", "stand_in", "true_size"]


@dataclass(frozen=True)
class Kind:
    """One line of the table: where the reader lives, and the shape and number of what it reads.

    ``input_shape`` is (channel, height, width).  It and the two sizes are None for points, where settings give them.
    """

    module: str
    num_classes: int
    input_shape: tuple[int, ...] | None = None
    num_train: int | None = None
    num_test: int | None = None
    in_memory: bool = True  # decoded on the training device; False: read from disk, batch by batch
    num_stand_ins: int = 1024  # training examples of a stand-in; a quarter as many to test


KINDS: dict[str, Kind] = {
    "digits": Kind("digits", 10, (1, 8, 8), 1442, 355),
    "logreg2": Kind("synthetic", 2),
    "logreg5": Kind("synthetic", 5),
    "logreg10": Kind("synthetic", 10),
    "mnist": Kind("mnist", 10, (1, 28, 28), 60_000, 10_000),
    "cifar10": Kind("cifar10", 10, (3, 32, 32), 50_000, 10_000),
    "imagenet": Kind("imagenet", 1000, (3, 224, 224), 1_281_167, 50_000, in_memory=False, num_stand_ins=256),
}


@dataclass(frozen=True)
class Size:
    """Examples of the two splits, and the bytes that they take in memory."""

    num_train: int
    num_test: int
    num_bytes: int


def _kind(config: Mapping[str, Any]) -> Kind:
    name = config["data"]["name"]
    if name not in KINDS:
        raise unknown("data set", name, KINDS)
    return KINDS[name]


def true_size(config: Mapping[str, Any]) -> Size:
    """The size of the complete data set, whether or not its files are here."""
    kind, settings = _kind(config), config["data"]
    num_train = settings["num_train"] if kind.num_train is None else kind.num_train
    num_test = settings["num_test"] if kind.num_test is None else kind.num_test
    example_bytes = 4 * settings["num_features"] if kind.input_shape is None else math.prod(kind.input_shape)
    label_bytes = 8
    return Size(num_train, num_test, (num_train + num_test) * (example_bytes + label_bytes) if kind.in_memory else 0)


def load(config: Mapping[str, Any], device: torch.device | str) -> DataSet:
    """The data set of a resolved configuration, on ``device``; its stand-in where the configuration asks for that.

    Raises FileNotFoundError for files that are not there and ValueError for damaged ones; both name the file, what was
    expected and how to get it.
    """
    kind = _kind(config)
    if config["stand_in"]:
        return stand_in(config, device)
    module = importlib.import_module(f"{__name__}.{kind.module}")
    return module.load(config, torch.device(device))


def stand_in(config: Mapping[str, Any], device: torch.device | str) -> DataSet:
    """Random tensors, always the same, with the data set's shape, type, classes and augmentation of small images."""
    kind, settings = _kind(config), config["data"]
    draws = np.random.default_rng(0)

    def split(count: int) -> Arrays:
        labels = np.arange(count) % kind.num_classes
        if kind.input_shape is None:
            return Arrays(draws.standard_normal((count, settings["num_features"]), dtype=np.float32), labels)
        return Arrays(draws.integers(0, 256, (count, *kind.input_shape), dtype=np.uint8), labels)

    channels = kind.input_shape[0] if kind.input_shape else 0
    return InMemory(
        settings["name"],
        split(kind.num_stand_ins),
        split(kind.num_stand_ins // 4),
        kind.num_classes,
        torch.device(device),
        normalization=Normalization((0.5,) * channels, (0.29,) * channels) if channels else None,
        augmentation=Augmentation(padding=4, flip=True) if settings.get("augment") and channels else None,
        cutout=Cutout.of(settings, kind.input_shape or ()),
        is_stand_in=True,
    )
