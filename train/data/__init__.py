"""The data sets: ``load`` reads one, ``stand_in`` draws random tensors of its shape.

Adding a data set is one file here with a ``load``, one line in ``KINDS`` and its settings in ``settings.data.DATA``.

This room may import ``settings``, ``train.process`` and the rooms below it, and torchvision by ``torchvision_import``.
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

from . import wordpiece
from .augment import Augmentation, Cutout
from .dataset import Arrays, DataSet, InMemory, Normalization

__all__ = ["KINDS", "DataSet", "Size", "holds_tokens", "load", "num_tokens", "stand_in", "true_size"]


@dataclass(frozen=True)
class Kind:
    """A line of the table: where the reader lives, and the shape and number of what it reads.

    ``input_shape`` is (channel, height, width).  It and the two sizes are None for points, where settings give them,
    and for a folder of pictures, where a setting gives the shape and the folder the sizes.
    """

    module: str
    num_classes: int
    input_shape: tuple[int, ...] | None = None
    num_train: int | None = None
    num_test: int | None = None
    in_memory: bool = True  # decoded on the training device; False: read from disk, batch by batch
    num_stand_ins: int = 1024  # training examples of a stand-in; a quarter as many to test
    tokens: bool = (
        False  # inputs are int64 tokens: of a text (length,), with a label at every place, or of sentences (2, length)
    )


KINDS: dict[str, Kind] = {
    "digits": Kind("digits", 10, (1, 8, 8), 1442, 355),
    "logreg2": Kind("synthetic", 2),
    "logreg5": Kind("synthetic", 5),
    "logreg10": Kind("synthetic", 10),
    "text": Kind("text", 97, tokens=True),
    "mnist": Kind("mnist", 10, (1, 28, 28), 60_000, 10_000),
    "fashion_mnist": Kind("fashion_mnist", 10, (1, 28, 28), 60_000, 10_000),
    "cifar10": Kind("cifar10", 10, (3, 32, 32), 50_000, 10_000),
    "cifar100": Kind("cifar100", 100, (3, 32, 32), 50_000, 10_000),
    "svhn": Kind("svhn", 10, (3, 32, 32), 73_257, 26_032),
    "imagenet": Kind("imagenet", 1000, (3, 224, 224), 1_281_167, 50_000, in_memory=False, num_stand_ins=256),
    "folder": Kind("folder", 10, num_stand_ins=256),  # its classes and numbers are the folder's own
    "glue": Kind("glue", 1, tokens=True),  # a score; other tasks of it have classes
    "imdb": Kind("imdb", 2, tokens=True),
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


def _module(kind: Kind) -> Any:
    return importlib.import_module(f"{__name__}.{kind.module}")


def _input_shape(kind: Kind, settings: Mapping[str, Any]) -> tuple[int, ...]:
    if kind.input_shape is not None:
        return kind.input_shape
    return (3, settings["size"], settings["size"]) if "size" in settings else (settings["num_features"],)


def holds_tokens(config: Mapping[str, Any]) -> bool:
    """Whether inputs are token numbers, int64: a text, which has a label at every place, or sentences."""
    return _kind(config).tokens


def num_tokens(config: Mapping[str, Any]) -> int:
    """The number of different tokens in sentences; 0 where inputs are something else."""
    return wordpiece.num_tokens(config["data"]) if "tokenizer" in config["data"] else 0


def true_size(config: Mapping[str, Any]) -> Size:
    """The size of the complete data set, whether or not its files are here.

    FileNotFoundError where only the files could tell.
    """
    kind, settings = _kind(config), config["data"]
    if kind.tokens or settings["name"] == "folder":
        return Size(*_module(kind).true_size(config))
    num_train = settings["num_train"] if kind.num_train is None else kind.num_train
    num_test = settings["num_test"] if kind.num_test is None else kind.num_test
    example_bytes = math.prod(_input_shape(kind, settings)) * (4 if kind.input_shape is None else 1)
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
    return _module(kind).load(config, torch.device(device))


def stand_in(config: Mapping[str, Any], device: torch.device | str) -> DataSet:
    """Random tensors, always the same, with the data set's shape, type, classes and augmentation of small images."""
    kind, settings = _kind(config), config["data"]
    if kind.tokens:
        return _module(kind).stand_in(config, torch.device(device), kind.num_stand_ins, kind.num_stand_ins // 4)
    shape = _input_shape(kind, settings)
    draws = np.random.default_rng(0)

    def split(count: int) -> Arrays:
        labels = np.arange(count) % kind.num_classes
        if len(shape) == 1:
            return Arrays(draws.standard_normal((count, *shape), dtype=np.float32), labels)
        return Arrays(draws.integers(0, 256, (count, *shape), dtype=np.uint8), labels)

    channels = shape[0] if len(shape) == 3 else 0
    return InMemory(
        settings["name"],
        split(kind.num_stand_ins),
        split(kind.num_stand_ins // 4),
        kind.num_classes,
        torch.device(device),
        normalization=Normalization((0.5,) * channels, (0.29,) * channels) if channels else None,
        augmentation=Augmentation(padding=4, flip=True) if settings.get("augment") and channels else None,
        cutout=Cutout.of(settings, shape),
        is_stand_in=True,
    )
