"""A data set that lies as picture files, decoded batch by batch, ahead of the batch that is trained on."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from torch import Tensor

from . import augment, fingerprint, pictures
from .dataset import Normalization, Split, normalized
from .objective import CLASSES

MOST_AHEAD_BYTES = 2**28  # decoded before they are asked for: 1,783 pictures of 224x224


class Decoding:
    """A batch that is being decoded: every thread writes the pictures it decodes to their own places."""

    def __init__(
        self, threads: ThreadPoolExecutor, paths: Sequence[str], plans: Sequence[pictures.Plan], size: int, fast: bool
    ) -> None:
        self.images = np.empty((len(paths), size, size, 3), dtype=np.uint8)

        def one(place: int) -> None:
            self.images[place] = pictures.decode(paths[place], plans[place], fast=fast)

        self._parts: list[Future[None]] = [threads.submit(one, place) for place in range(len(paths))]

    def wait(self) -> np.ndarray:
        """The images, uint8 (batch, size, size, 3), once all are there; or the first error of a picture."""
        try:
            for part in self._parts:
                part.result()
        finally:
            self.drop()
        return self.images

    def drop(self) -> None:
        """Cancel the decoding of pictures that no thread has begun."""
        for part in self._parts:
            part.cancel()


class PictureSet:
    """Pictures of ``size`` x ``size``, a random view of each in training and the central one in evaluation."""

    objective = CLASSES
    is_stand_in = False

    def __init__(
        self,
        train: pictures.Tree,
        test: pictures.Tree,
        device: torch.device,
        settings: Mapping[str, Any],
        *,
        size: int,
        short_side: int,
        normalization: Normalization,
    ) -> None:
        """Make the data set; an evaluated picture is scaled to ``short_side`` before its centre is taken."""
        self.name, train = settings["name"], train.limited(settings)
        self.num_train, self.num_test = sum(train.counts), sum(test.counts)
        self.input_shape = (3, size, size)
        self.num_classes = len(train.classes)
        self.fingerprint = fingerprint.of_trees((train, test))
        self.device = device
        self._splits = {
            split: (tree.paths(), torch.from_numpy(tree.labels())) for split, tree in (("train", train), ("test", test))
        }
        self._size, self._central = size, pictures.central(size, short_side)
        self._augmented = settings["augment"]
        self._fast = settings["decode"] == "fast"
        self._cutout = augment.Cutout.of(settings, self.input_shape)
        self._normalization = normalization.tensors(device)
        self._threads: ThreadPoolExecutor | None = None
        self._ahead: OrderedDict[object, Decoding] = OrderedDict()  # keyed by pictures and the numbers drawn for them

    def expect(self, indices: Tensor, generator: torch.Generator) -> None:
        """Begin to decode a batch that ``train_batch`` will be asked for; nothing where enough is under way."""
        key, paths, plans = self._chosen(indices, generator)
        if key not in self._ahead and not self._is_full(len(paths)):
            self._ahead[key] = self._decoding(paths, plans)

    def train_batch(self, indices: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        key, paths, plans = self._chosen(indices, generator)
        if key not in self._ahead and self._is_full(len(paths)):
            self._forget()
        decoding = self._ahead.pop(key, None) or self._decoding(paths, plans)
        images = self._finished(decoding)
        if self._cutout:
            images = self._cutout(images, generator)
        return images, self._splits["train"][1][indices.cpu()].to(self.device)

    def batches(self, split: Split, batch_size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """The batches of a split; the next batch is decoded while one is evaluated."""
        paths, labels = self._splits[split]
        starts = range(0, len(paths), batch_size)

        def decoding(start: int) -> Decoding:
            part = paths[start : start + batch_size]
            return self._decoding(part, [self._central] * len(part))

        following = decoding(0)
        try:
            for start in starts:
                present = following
                following = decoding(start + batch_size)  # past the end: of no picture
                yield self._finished(present), labels[start : start + batch_size].to(self.device)
        finally:
            following.drop()

    def _chosen(self, indices: Tensor, generator: torch.Generator) -> tuple[object, list[str], list[pictures.Plan]]:
        """A key that tells the batch from any other, its pictures, and the view of each."""
        chosen, paths = indices.tolist(), self._splits["train"][0]
        if not self._augmented:
            return tuple(chosen), [paths[index] for index in chosen], [self._central] * len(chosen)
        numbers = augment.draw_crops(len(chosen), generator)
        key = (tuple(chosen), tuple(map(tuple, numbers)))
        return key, [paths[index] for index in chosen], [pictures.random(self._size, row) for row in numbers]

    def _is_full(self, more: int) -> bool:
        waiting = sum(len(one.images) for one in self._ahead.values())
        return (waiting + more) * 3 * self._size**2 > MOST_AHEAD_BYTES

    def _forget(self) -> None:
        """Drop expected batches that were never asked for, because they would keep the place of those to come."""
        for one in self._ahead.values():
            one.drop()
        self._ahead.clear()

    def _decoding(self, paths: Sequence[str], plans: Sequence[pictures.Plan]) -> Decoding:
        self._threads = self._threads or pictures.pool()
        return Decoding(self._threads, paths, plans, self._size, self._fast)

    def _finished(self, decoding: Decoding) -> Tensor:
        return normalized(torch.from_numpy(decoding.wait()).to(self.device).permute(0, 3, 1, 2), *self._normalization)
