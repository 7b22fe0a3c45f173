"""The interface of a data set for the trainer, and the kind of data set that lies in memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from . import fingerprint
from .augment import Augmentation, Cutout
from .objective import CLASSES, Objective

Split = Literal["train", "test"]


class DataSet(Protocol):
    """Labelled examples in two splits, addressed by number; where they lie is the data set's own affair."""

    @property
    def name(self) -> str: ...
    @property
    def num_train(self) -> int: ...
    @property
    def num_test(self) -> int: ...
    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one example, without the batch: (channel, height, width), or (feature,)."""
        ...

    @property
    def num_classes(self) -> int: ...
    @property
    def objective(self) -> Objective:
        """The loss that is trained on, and what an evaluation tells."""
        ...

    @property
    def is_stand_in(self) -> bool:
        """Whether the examples are random numbers of the right shape: results from them mean nothing."""
        ...

    @property
    def fingerprint(self) -> str:
        """14 hexadecimal digits that other examples do not have, on which no run goes on (see ``fingerprint``)."""
        ...

    def train_batch(self, indices: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """A training batch: normalised float32 inputs, augmented where asked for, by ``generator``; int64 labels."""
        ...

    def batches(self, split: Split, batch_size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """The whole split in order, not augmented; the last batch may be smaller."""
        ...


@runtime_checkable
class ReadsAhead(Protocol):
    """A data set that reads files: told which batch comes next, it decodes it while another one is trained on."""

    def expect(self, indices: Tensor, generator: torch.Generator) -> None:
        """Note that ``train_batch`` will be asked for this batch, with such a generator; it is the same without."""
        ...


@dataclass(frozen=True)
class Normalization:
    """The map x -> (x / top - mean) / std per channel; ``top`` is the value of a full pixel (255, or 16 for digits)."""

    mean: tuple[float, ...]
    std: tuple[float, ...]
    top: float = 255.0

    def tensors(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """The normalization as one multiplication and one addition: (scale, shift), each (1, channel, 1, 1)."""
        both = torch.tensor([self.mean, self.std], dtype=torch.float64, device="cpu")
        mean, std = both.view(2, 1, -1, 1, 1)
        return (1 / (self.top * std)).to(device, torch.float32), (-mean / std).to(device, torch.float32)


def normalized(images: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """The float32 images of uint8 (batch, channel, height, width), in the same order in memory.

    They are scaled and shifted as ``Normalization.tensors`` says.  Where the channels lie last, a row of the picture is
    one vector against a row of scales, which is three times as fast.
    """
    pixels = images.permute(0, 2, 3, 1)
    if not pixels.is_contiguous() or images.is_contiguous():
        return images.float().mul_(scale).add_(shift)
    batch, height, width, channels = pixels.shape
    scales, shifts = (values.view(1, channels).expand(width, channels).reshape(1, -1) for values in (scale, shift))
    table = pixels.float().view(batch * height, width * channels).mul_(scales).add_(shifts)
    return table.view(batch, height, width, channels).permute(0, 3, 1, 2)


@dataclass(frozen=True)
class Arrays:
    """One split as decoded: inputs uint8 (images) or float32 (features), labels int64 in [0, num_classes)."""

    inputs: np.ndarray
    labels: np.ndarray


def check_arrays(arrays: Arrays, input_shape: tuple[int, ...], where: str) -> None:
    """Raise ValueError where a split has inputs of another type or shape than a model is given, or too few labels."""
    inputs, labels = arrays.inputs, arrays.labels
    for name, given in (("inputs", inputs), ("labels", labels)):
        if not isinstance(given, np.ndarray):
            raise ValueError(f"{where}: {name} of type {type(given).__name__}: must be a numpy.ndarray")
    pictures = inputs.dtype == np.uint8 and len(input_shape) == 3
    if not (pictures or inputs.dtype == np.float32) or inputs.shape[1:] != input_shape:
        wanted = f"uint8{['n', *input_shape]} or " if len(input_shape) == 3 else ""
        rule = f"{wanted}float32{['n', *input_shape]}".replace("'", "")
        raise ValueError(f"{where}: inputs of {inputs.dtype}{list(inputs.shape)}: must be {rule}")
    if labels.dtype != np.int64 or labels.shape != inputs.shape[:1]:
        raise ValueError(f"{where}: labels of {labels.dtype}{list(labels.shape)}: must be int64[{len(inputs)}]")


def check_labels(labels: np.ndarray, num_classes: int, where: str) -> None:
    """Raise ValueError, naming the first one, where a label is none of 0 .. num_classes - 1."""
    strange = np.flatnonzero((labels < 0) | (labels >= num_classes))
    if len(strange):
        first = f"the label {labels[strange[0]]} of example {strange[0]} is no class"
        raise ValueError(f"{where}: {first}; the {num_classes} classes are labelled 0 to {num_classes - 1}")


class InMemory:
    """A data set that lies decoded on the training device."""

    def __init__(
        self,
        name: str,
        train: Arrays,
        test: Arrays,
        num_classes: int,
        device: torch.device,
        *,
        normalization: Normalization | None = None,
        augmentation: Augmentation | None = None,
        cutout: Cutout | None = None,
        objective: Objective = CLASSES,
        is_stand_in: bool = False,
    ) -> None:
        """Raise ValueError for a label that is no class."""
        for split, arrays in (("training", train), ("test", test)) if objective.counts else ():
            check_labels(arrays.labels, num_classes, f"data={name}, {split} split")
        self.name = name
        self.num_train, self.num_test = len(train.labels), len(test.labels)
        self.input_shape = tuple(train.inputs.shape[1:])
        self.num_classes, self.objective = num_classes, objective
        self.is_stand_in = is_stand_in
        self.fingerprint = self._digits_of(train, test)
        self.device = device
        self._splits = {
            split: (torch.from_numpy(arrays.inputs).to(device), torch.from_numpy(arrays.labels).to(device))
            for split, arrays in (("train", train), ("test", test))
        }
        self._normalization = normalization.tensors(device) if normalization else None
        self._augmentation = augmentation
        self._cutout = cutout

    def train_batch(self, indices: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        inputs, labels = self._splits["train"]
        indices = indices.to(self.device)
        chosen = inputs.index_select(0, indices)
        if self._augmentation:
            chosen = self._augmentation(chosen, generator)
        chosen = self._prepared(chosen)
        if self._cutout:
            chosen = self._cutout(chosen, generator)
        return chosen, labels.index_select(0, indices)

    def batches(self, split: Split, batch_size: int) -> Iterator[tuple[Tensor, Tensor]]:
        inputs, labels = self._splits[split]
        for start in range(0, len(labels), batch_size):
            yield self._prepared(inputs[start : start + batch_size]), labels[start : start + batch_size]

    def _digits_of(self, train: Arrays, test: Arrays) -> str:
        return fingerprint.of_arrays((arrays.inputs, arrays.labels) for arrays in (train, test))

    def _prepared(self, inputs: Tensor) -> Tensor:
        """What a model is given of inputs as they are kept."""
        return inputs if self._normalization is None else normalized(inputs, *self._normalization)
