"""What every data set can be asked before it is read, with the answers of pictures of one size.

A data set is a subclass of ``Source``, or of ``Fetched`` where torchvision can fetch its files, with ``read``.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from settings.data import DATA
from train.process.terminal import complain

from . import limit
from .augment import Augmentation, Cutout
from .data_files import Origin, download
from .dataset import Arrays, DataSet, InMemory, Normalization, check_arrays

Splits = tuple[Arrays, Arrays]  # to train and to test
LABEL_BYTES = 8


@dataclass(frozen=True)
class Size:
    """Examples of the two splits, and the bytes that they take in memory."""

    num_train: int
    num_test: int
    num_bytes: int


class Source:
    """The data set of a resolved configuration; ``record`` is its line in the catalog."""

    normalization: Normalization | None = None  # of pictures; without one a model gets their pixels from 0 to 1
    augmentation: Augmentation | None = None  # where ``data.augment`` asks for it

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.settings, self.data_dir = config["data"], Path(config["data_dir"])
        self.name = self.settings["name"]
        self.record = DATA[self.name]
        self.num_classes = self.record.num_classes

    def read(self) -> Splits:
        """The examples as decoded.  FileNotFoundError for files that are not there, ValueError for damaged ones."""
        raise NotImplementedError

    def load(self, device: torch.device) -> DataSet:
        """The data set on ``device``; errors as of ``read``."""
        return self._in_memory(*self.read(), device)

    def input_shape(self) -> tuple[int, ...]:
        """The shape of an example, without the batch."""
        assert self.record.input_shape
        return self.record.input_shape

    def sizes(self) -> tuple[int, int]:
        """The examples of both splits; FileNotFoundError where only the files could tell."""
        return self.record.sizes or (self.settings["num_train"], self.settings["num_test"])

    def example_bytes(self) -> int:
        """The bytes of an example in memory, without its label."""
        return math.prod(self.input_shape())

    def num_bytes(self) -> int:
        """The bytes of both splits in memory; 0 where they are read batch by batch."""
        return sum(self.sizes()) * (self.example_bytes() + LABEL_BYTES) if self.record.in_memory else 0

    def tell_other_sizes(self, found: tuple[int, int], known: tuple[int, int] | None) -> None:
        """Say, on one rank, where a published set has other numbers of examples here than it is known to have."""
        if known not in (None, found) and os.environ.get("RANK", "0") == "0":
            here = f"{found[0]} training and {found[1]} test examples in {self.data_dir}"
            complain(f"data={self.name}: {here}; the published set has {known[0]} and {known[1]}")

    def num_tokens(self) -> int:
        """The number of different tokens in sentences; 0 where inputs are something else."""
        return 0

    def stand_in(self, device: torch.device, num_train: int, num_test: int) -> DataSet:
        """So many random examples, always the same."""
        draws = np.random.default_rng(0)
        train, test = (
            Arrays(self._drawn(draws, count), np.arange(count) % self.num_classes) for count in (num_train, num_test)
        )
        return self._in_memory(train, test, device, is_stand_in=True)

    def _drawn(self, draws: np.random.Generator, count: int) -> np.ndarray:
        return draws.integers(0, 256, (count, *self.input_shape()), dtype=np.uint8)

    def _in_memory(self, train: Arrays, test: Arrays, device: torch.device, *, is_stand_in: bool = False) -> DataSet:
        """The data set of decoded examples; ValueError for what no model is given."""
        for split, arrays in (("training", train), ("test", test)):
            check_arrays(arrays, self.input_shape(), f"data={self.name}, {split} split")
        found = len(train.labels), len(test.labels)
        if not is_stand_in and "verify" in self.settings:  # a published set, of which a part may be meant
            self.tell_other_sizes(found, self.record.sizes)
        elif not is_stand_in and self.record.sizes not in (None, found):
            rule = f"its DataRecord has sizes={self.record.sizes}"
            raise ValueError(f"data={self.name}: {found[0]} training and {found[1]} test examples: {rule}")
        normalization = self.normalization
        if train.inputs.dtype == np.uint8:
            channels = train.inputs.shape[1]
            if normalization is None:
                normalization = Normalization((0.0,) * channels, (1.0,) * channels)
            elif {len(normalization.mean), len(normalization.std)} != {channels}:
                rule = f"must have {channels} means and deviations, one a channel"
                raise ValueError(f"data={self.name}: {normalization}: {rule}")
            elif is_stand_in:  # the mean and the deviation of what was drawn
                normalization = Normalization((0.5,) * channels, (0.29,) * channels)
        if not is_stand_in:
            kept = limit.chosen(train.labels, self.settings)
            train = Arrays(train.inputs[kept], train.labels[kept])
        return InMemory(
            self.name,
            train,
            test,
            self.num_classes,
            device,
            normalization=normalization,
            augmentation=self.augmentation if self.settings.get("augment") else None,
            cutout=Cutout.of(self.settings, self.input_shape()),
            is_stand_in=is_stand_in,
        )


class Fetched(Source):
    """A data set whose files torchvision can fetch."""

    origin: Origin
    normalization: Normalization

    def find(self) -> Callable[[], Splits]:
        """The reader of the form that is there; FileNotFoundError where there is none, or not all of it."""
        raise NotImplementedError

    def read(self) -> Splits:
        if self.settings["download"] and not self._is_there():
            download(self.origin, self.data_dir, self._is_there)
        return self.find()()

    def _is_there(self) -> bool:
        try:
            self.find()
        except FileNotFoundError:
            return False
        return True
