"""ImageNet as pictures in one folder per class, decoded batch by batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from . import augment, pictures
from .dataset import DataSet, Normalization, Split
from .sources import missing

NORMALIZATION = Normalization(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))  # torchvision's, and the original's
SIZE = 224
SHORT_SIDE = 256  # an evaluated picture is scaled to this short side before its centre is taken


class PictureTree:
    """A data set that lies as picture files; each batch is decoded when it is asked for, by a few threads."""

    def __init__(self, train: pictures.Tree, test: pictures.Tree, device: torch.device, settings: Mapping[str, Any]) -> None:
        self.name = settings["name"]
        self.num_train, self.num_test = sum(train.counts), sum(test.counts)
        self.input_shape = (3, SIZE, SIZE)
        self.num_classes = len(train.classes)
        self.is_stand_in = False
        self.device = device
        self._splits = {split: (tree.paths(), torch.from_numpy(tree.labels())) for split, tree in (("train", train), ("test", test))}
        self._augmented = settings["augment"]
        self._cutout = augment.Cutout.of(settings, self.input_shape)
        self._normalization = NORMALIZATION.tensors(device)
        self._threads: ThreadPoolExecutor | None = None

    def train_batch(self, indices: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        paths, labels = self._splits["train"]
        chosen = indices.tolist()
        if self._augmented:
            numbers = augment.draw_crops(len(chosen), generator)
            finish = [lambda picture, row=row: random_view(picture, row) for row in numbers]
        else:
            finish = [central_view] * len(chosen)
        images = self._decoded([paths[index] for index in chosen], finish)
        if self._cutout:
            images = self._cutout(images, generator)
        return images, labels[indices.cpu()].to(self.device)

    def batches(self, split: Split, batch_size: int) -> Iterator[tuple[Tensor, Tensor]]:
        paths, labels = self._splits[split]
        for start in range(0, len(paths), batch_size):
            part = paths[start : start + batch_size]
            yield self._decoded(part, [central_view] * len(part)), labels[start : start + batch_size].to(self.device)

    def _decoded(self, paths: list[str], finish: list[Callable[[Image.Image], Image.Image]]) -> Tensor:
        images = np.empty((len(paths), SIZE, SIZE, 3), dtype=np.uint8)

        def one(place: int) -> None:
            images[place] = np.asarray(pictures.decode(paths[place], finish[place]))

        self._threads = self._threads or pictures.pool()
        list(self._threads.map(one, range(len(paths))))
        scale, shift = self._normalization
        return torch.from_numpy(images).to(self.device).permute(0, 3, 1, 2).float().contiguous().mul_(scale).add_(shift)


def random_view(picture: Image.Image, numbers: list[float]) -> Image.Image:
    """A random box of the picture at 224x224, mirrored half the time; ``numbers`` from ``augment.draw_crops``."""
    box, mirrored = augment.random_resized_box(picture.width, picture.height, numbers)
    view = picture.crop(box).resize((SIZE, SIZE), Image.Resampling.BILINEAR)
    return view.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if mirrored else view


def central_view(picture: Image.Image) -> Image.Image:
    """The short side scaled to 256, then the central 224x224."""
    short = min(picture.width, picture.height)
    width, height = (side * SHORT_SIDE // short for side in picture.size)
    left, upper = round((width - SIZE) / 2), round((height - SIZE) / 2)
    return picture.resize((width, height), Image.Resampling.BILINEAR).crop((left, upper, left + SIZE, upper + SIZE))


def load(config: Mapping[str, Any], device: torch.device) -> DataSet:
    """The folders ``train`` and ``val`` of ``data_dir/imagenet``, decoded batch by batch."""
    settings, home = config["data"], Path(config["data_dir"]) / "imagenet"
    remedy = (
        f"ImageNet cannot be downloaded without an account: put its folders there, or set data_dir (now {config['data_dir']}) "
        "to the folder that holds imagenet/"
    )
    if not home.is_dir():
        raise missing("ImageNet", f"{home}/{{train,val}}/<class>/<picture>.JPEG", remedy)
    train, test = (pictures.list_tree(home / split, remedy) for split in ("train", "val"))
    pictures.same_classes(train, test)
    return PictureTree(train, test, device, settings)
