"""Picture files in one folder per class (torchvision's ImageFolder layout): listed, checked, decoded."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from . import limit
from .augment import random_resized_box
from .data_files import damaged, missing

SUFFIXES = (".jpg", ".jpeg", ".png")  # in any case, as in ImageNet's .JPEG


@dataclass(frozen=True)
class Tree:
    """The pictures of one split in the order of their class, then their name; a label is the place of its class."""

    root: Path
    classes: tuple[str, ...]
    files: tuple[tuple[str, ...], ...]  # names per class

    @property
    def counts(self) -> list[int]:
        return [len(names) for names in self.files]

    def paths(self) -> list[str]:
        return [
            f"{self.root}/{name}/{file}" for name, files in zip(self.classes, self.files, strict=True) for file in files
        ]

    def labels(self) -> np.ndarray:
        return np.repeat(np.arange(len(self.classes)), self.counts)

    def limited(self, settings: Mapping[str, Any]) -> Tree:
        """The pictures that ``data.limit`` leaves to train on: the first ones of each class."""
        counts = np.bincount(self.labels()[limit.chosen(self.labels(), settings)], minlength=len(self.classes))
        files = (names[:count] for names, count in zip(self.files, counts, strict=True))
        return Tree(self.root, self.classes, tuple(files))


def list_tree(root: Path, remedy: str) -> Tree:
    """The classes and pictures below ``root``. Raises FileNotFoundError for no folder, no class or an empty class."""
    if not root.is_dir():
        raise missing("image folder", f"{root}/<class>/<picture>.jpg", remedy)
    classes = sorted(entry.name for entry in os.scandir(root) if entry.is_dir() and not entry.name.startswith("."))
    if not classes:
        raise missing("class folders", f"{root}/<class>/<picture>.jpg, one folder per class", remedy)
    files = []
    for name in classes:
        found = os.listdir(root / name)
        shown = (file for file in found if file.lower().endswith(SUFFIXES) and not file.startswith("."))
        files.append(tuple(sorted(shown)))
        if not files[-1]:
            raise missing("pictures", f"at least one {' or '.join(SUFFIXES)} file in {root / name}", remedy)
    return Tree(root, tuple(classes), tuple(files))


def same_classes(train: Tree, test: Tree) -> None:
    """Raise ValueError where the two splits have different class folders: their labels would mean different things."""
    odd = sorted(set(train.classes) ^ set(test.classes))
    if odd:
        owner, other = (train, test) if odd[0] in train.classes else (test, train)
        counts = f"{len(train.classes)} in {train.root}, {len(test.classes)} in {test.root}"
        rule = f"both splits need the same class folders ({counts})"
        raise ValueError(f"{owner.root / odd[0]} has no counterpart {other.root / odd[0]}: {rule}")


@dataclass(frozen=True)
class View:
    """A view of a picture: ``box`` (left, upper, right, lower) scaled to ``to`` (width, height), then cropped."""

    box: tuple[int, int, int, int]
    to: tuple[int, int]
    crop: tuple[int, int, int, int] | None = None
    mirrored: bool = False

    def reduction(self) -> int:
        """The largest of 8, 4, 2, 1 that leaves the box as many pixels as are wanted, each way."""
        left, upper, right, lower = self.box
        most = min((right - left) // self.to[0], (lower - upper) // self.to[1])
        return next(factor for factor in (8, 4, 2, 1) if most >= factor or factor == 1)


Plan = Callable[[int, int], View]  # a function of a picture's width and height


def whole(width: int, height: int) -> View:
    """The view that leaves the picture as it is."""
    return View((0, 0, width, height), (width, height))


def central(size: int, short_side: int) -> Plan:
    """The view with the short side scaled to ``short_side``, then the central ``size`` x ``size``."""

    def plan(width: int, height: int) -> View:
        short = min(width, height)
        wide, high = (side * short_side // short for side in (width, height))
        left, upper = round((wide - size) / 2), round((high - size) / 2)
        return View((0, 0, width, height), (wide, high), (left, upper, left + size, upper + size))

    return plan


def random(size: int, numbers: Sequence[float]) -> Plan:
    """A random view at ``size`` x ``size``, mirrored half the time; ``numbers`` is a row of ``augment.draw_crops``."""

    def plan(width: int, height: int) -> View:
        box, mirrored = random_resized_box(width, height, numbers)
        return View(box, (size, size), mirrored=mirrored)

    return plan


def decode(path: str, plan: Plan, *, fast: bool = False) -> np.ndarray:
    """The view of the picture that ``plan`` chooses, as RGB, uint8 (height, width, 3).

    ``fast`` lets libjpeg leave out the finest frequencies of a JPEG where the box stays at least as large as the view
    (``View.reduction``): it decodes at 1/2, 1/4 or 1/8 and never computes the pixels between.  The box is kept to
    fractions of a pixel, so the picture does not move.  Raises ValueError, naming the file, where it cannot be decoded.
    """
    try:
        with Image.open(path) as picture:
            view = plan(*picture.size)
            factor = view.reduction() if fast and picture.format == "JPEG" else 1
            if factor > 1:
                picture.draft(None, (picture.width // factor, picture.height // factor))  # type: ignore[arg-type]
            picture.load()
            rgb = picture if picture.mode == "RGB" else picture.convert("RGB")
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        # the system's error, not Pillow's for a damaged picture
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise damaged(Path(path), "a whole JPEG or PNG picture", error) from error
    if factor > 1:
        left, upper, right, lower = (edge / factor for edge in view.box)
        scaled = rgb.resize(view.to, Image.Resampling.BILINEAR, box=(left, upper, right, lower))
    else:
        part = rgb if view.box == (0, 0, *rgb.size) else rgb.crop(view.box)
        scaled = part if part.size == view.to else part.resize(view.to, Image.Resampling.BILINEAR)
    pixels = np.asarray(scaled.crop(view.crop) if view.crop else scaled)
    return pixels[:, ::-1] if view.mirrored else pixels


def decode_all(paths: Sequence[str], size: int, plan: Plan = whole, *, fast: bool = False) -> np.ndarray:
    """A view of every picture, uint8 (count, 3, size, size); ValueError names a file of another size."""
    images = np.empty((len(paths), 3, size, size), dtype=np.uint8)

    def one(index: int) -> None:
        pixels = decode(paths[index], plan, fast=fast)
        height, width, _ = pixels.shape
        if (height, width) != (size, size):
            raise damaged(Path(paths[index]), f"{size}x{size} pixels", f"{width}x{height}")
        images[index] = pixels.transpose(2, 0, 1)

    chunk = 64  # pictures per task: handing over single small pictures costs as much as decoding them
    starts = range(0, len(paths), chunk)
    with pool() as threads:
        list(threads.map(lambda start: [one(index) for index in range(start, min(start + chunk, len(paths)))], starts))
    return images


def pool() -> ThreadPoolExecutor:
    """The threads for decoding, as many as this process may use cores; Pillow decodes outside Python's lock."""
    return ThreadPoolExecutor(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count())
