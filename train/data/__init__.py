"""The data sets: ``load`` reads one, ``stand_in`` draws random tensors of its shape.

Adding a data set is one file here with a ``load``, one line in ``KINDS`` and its settings in ``args.DATA``.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from nuq.registry import unknown

from .augment import Augmentation
from .dataset import Arrays, DataSet, InMemory, Normalization

__all__ = ["KINDS", "DataSet", "load", "stand_in"]


@dataclass(frozen=True)
class Kind:
    """One line of the table: where the reader lives, and the shape of what it reads.

    ``input_shape`` is (channel, height, width); None for points, whose number of features is a setting.
    """

    module: str
    num_classes: int
    input_shape: tuple[int, ...] | None = None
    num_stand_ins: int = 1024  # training examples of a stand-in; a quarter as many to test


KINDS: dict[str, Kind] = {
    "digits": Kind("digits", 10, (1, 8, 8)),
    "logreg2": Kind("synthetic", 2),
    "logreg5": Kind("synthetic", 5),
    "logreg10": Kind("synthetic", 10),
    "mnist": Kind("mnist", 10, (1, 28, 28)),
    "cifar10": Kind("cifar10", 10, (3, 32, 32)),
    "imagenet": Kind("imagenet", 1000, (3, 224, 224), num_stand_ins=256),
}


def _kind(config: Mapping[str, Any]) -> Kind:
    name = config["data"]["name"]
    if name not in KINDS:
        raise unknown("data set", name, KINDS)
    return KINDS[name]


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
        is_stand_in=True,
    )
