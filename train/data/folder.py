"""Any pictures in one folder per class: small ones live decoded in memory, large ones are decoded batch by batch."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from . import cache, pictures
from .augment import Augmentation, Cutout
from .dataset import Arrays, DataSet, InMemory
from .imagenet import NORMALIZATION  # the customary one for photographs
from .picture_set import PictureSet
from .sources import first_existing, missing

LARGEST_IN_MEMORY = 64  # pixels a side: 100,000 pictures of it take 1.2 GB


def load(config: Mapping[str, Any], device: torch.device) -> DataSet:
    """The pictures of ``train/<class>/*`` and ``test/<class>/*`` (or ``val``) of ``data_dir/path``.

    Labels are the places of the sorted class names.

    Up to 64x64 pixels: the centre at that size, decoded once and kept; augmented by a crop from a border of size/8 and
    a mirror.  Above: views as of ImageNet, a random box of 8 to 100 % of the area in training and the centre, 7/8 of
    the short side, in evaluation.
    """
    settings = config["data"]
    size = settings["size"]
    trees = _trees(config)
    train, test = trees["train"], trees["test"]
    if size > LARGEST_IN_MEMORY:
        return PictureSet(
            train, test, device, settings, size=size, short_side=size * 8 // 7, normalization=NORMALIZATION
        )

    def decoded(tree: pictures.Tree) -> Arrays:
        def build() -> np.ndarray:
            with pictures.pool() as threads:
                return pictures.decode_all(
                    threads, tree.paths(), size, pictures.central(size, size), fast=settings["decode"] == "fast"
                )

        name = f"folder-{tree.root.name}-{size}-{settings['decode']}-{cache.tree_key(tree)}"
        return Arrays(
            cache.kept(Path(config["data_dir"]), name, (sum(tree.counts), 3, size, size), build), tree.labels()
        )

    return InMemory(
        settings["name"],
        decoded(train),
        decoded(test),
        len(train.classes),
        device,
        normalization=NORMALIZATION,
        augmentation=Augmentation(padding=size // 8, flip=True) if settings["augment"] else None,
        cutout=Cutout.of(settings, (3, size, size)),
    )


def true_size(config: Mapping[str, Any]) -> tuple[int, int, int]:
    """The numbers of pictures of the two splits, and the bytes that they and their labels take in memory."""
    trees, size = _trees(config), config["data"]["size"]
    num_train, num_test = (sum(trees[split].counts) for split in ("train", "test"))
    return num_train, num_test, (num_train + num_test) * (3 * size * size + 8) if size <= LARGEST_IN_MEMORY else 0


def _trees(config: Mapping[str, Any]) -> dict[str, pictures.Tree]:
    data_dir, path = Path(config["data_dir"]), config["data"]["path"]
    home = data_dir / path
    remedy = (
        f"set data.path (now {path!r}) to the folder that holds train/ and test/ (or val/), seen from data_dir (now "
        f"{data_dir})"
    )
    test = first_existing((home / "test", home / "val"))
    if test is None:
        raise missing("image folder", f"{home}/{{train,test}}/<class>/<picture>.jpg (or val in place of test)", remedy)
    trees = {"train": pictures.list_tree(home / "train", remedy), "test": pictures.list_tree(test, remedy)}
    pictures.same_classes(trees["train"], trees["test"])
    return trees
