"""Any pictures in one folder per class: small ones live decoded in memory, large ones are decoded batch by batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from . import cache, pictures
from .augment import Augmentation
from .data_files import first_existing, missing
from .dataset import Arrays, DataSet
from .imagenet import NORMALIZATION  # the customary one for photographs
from .picture_set import PictureSet
from .source import Source

LARGEST_IN_MEMORY = 64  # pixels a side: 100,000 pictures of it take 1.2 GB


class Folder(Source):
    """The pictures of ``train/<class>/*`` and ``test/<class>/*`` (or ``val``) of ``data_dir/path``.

    Labels are the places of the sorted class names.  Up to 64x64 pixels: the centre at that size, decoded once and
    kept; augmented by a crop from a border of size/8 and a mirror.  Above: views as of ImageNet, a random box of 8 to
    100 % of the area in training and the centre, 7/8 of the short side, in evaluation.
    """

    normalization = NORMALIZATION

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__(config)
        self.augmentation = Augmentation(padding=self.settings["size"] // 8, flip=True)

    def load(self, device: torch.device) -> DataSet:
        settings, size = self.settings, self.settings["size"]
        train, test = self._trees()
        if size > LARGEST_IN_MEMORY:
            return PictureSet(
                train, test, device, settings, size=size, short_side=size * 8 // 7, normalization=NORMALIZATION
            )
        self.num_classes = len(train.classes)
        return self._in_memory(self._decoded(train), self._decoded(test), device)

    def input_shape(self) -> tuple[int, ...]:
        return (3, self.settings["size"], self.settings["size"])

    def sizes(self) -> tuple[int, int]:
        train, test = self._trees()
        return sum(train.counts), sum(test.counts)

    def num_bytes(self) -> int:
        return super().num_bytes() if self.settings["size"] <= LARGEST_IN_MEMORY else 0

    def _decoded(self, tree: pictures.Tree) -> Arrays:
        size, decode = self.settings["size"], self.settings["decode"]
        name = f"folder-{tree.root.name}-{size}-{decode}"
        return cache.decoded(self.data_dir, name, tree, size, pictures.central(size, size), fast=decode == "fast")

    def _trees(self) -> tuple[pictures.Tree, pictures.Tree]:
        data_dir, path = self.data_dir, self.settings["path"]
        home = data_dir / path
        remedy = (
            f"set data.path (now {path!r}) to the folder that holds train/ and test/ (or val/), seen from data_dir "
            f"(now {data_dir})"
        )
        test = first_existing((home / "test", home / "val"))
        if test is None:
            expected = f"{home}/{{train,test}}/<class>/<picture>.jpg (or val in place of test)"
            raise missing("image folder", expected, remedy)
        trees = pictures.list_tree(home / "train", remedy), pictures.list_tree(test, remedy)
        pictures.same_classes(*trees)
        return trees
