"""Picture files in one folder per class (torchvision's ImageFolder layout): listed, checked, decoded."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
from PIL import Image

from .sources import damaged, missing

Result = TypeVar("Result")
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
        return [f"{self.root}/{name}/{file}" for name, files in zip(self.classes, self.files, strict=True) for file in files]

    def labels(self) -> np.ndarray:
        return np.repeat(np.arange(len(self.classes)), self.counts)


def list_tree(root: Path, remedy: str) -> Tree:
    """The classes and pictures below ``root``.  Raises FileNotFoundError for no folder, no class or an empty class."""
    if not root.is_dir():
        raise missing("image folder", f"{root}/<class>/<picture>.jpg", remedy)
    classes = sorted(entry.name for entry in os.scandir(root) if entry.is_dir() and not entry.name.startswith("."))
    if not classes:
        raise missing("class folders", f"{root}/<class>/<picture>.jpg, one folder per class", remedy)
    files = []
    for name in classes:
        found = os.listdir(root / name)
        files.append(tuple(sorted(file for file in found if file.lower().endswith(SUFFIXES) and not file.startswith("."))))
        if not files[-1]:
            raise missing("pictures", f"at least one {' or '.join(SUFFIXES)} file in {root / name}", remedy)
    return Tree(root, tuple(classes), tuple(files))


def same_classes(train: Tree, test: Tree) -> None:
    """ValueError where the two splits do not have the same class folders: their labels would mean different things."""
    odd = sorted(set(train.classes) ^ set(test.classes))
    if odd:
        owner, other = (train, test) if odd[0] in train.classes else (test, train)
        raise ValueError(
            f"{owner.root / odd[0]} has no counterpart {other.root / odd[0]}: both splits need the same class folders "
            f"({len(train.classes)} in {train.root}, {len(test.classes)} in {test.root})"
        )


def decode(path: str, finish: Callable[[Image.Image], Result]) -> Result:
    """``finish`` applied to the opened picture as RGB.  Raises ValueError, naming the file, where it cannot be decoded."""
    try:
        with Image.open(path) as picture:
            rgb = picture.convert("RGB")
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        if isinstance(error, OSError) and error.errno is not None:  # the system's error, not Pillow's for a damaged picture
            raise
        raise damaged(Path(path), "a whole JPEG or PNG picture", error) from error
    return finish(rgb)


def decode_all(pool: ThreadPoolExecutor, paths: Sequence[str], size: int) -> np.ndarray:
    """All pictures as uint8 (count, 3, size, size); ValueError, naming the file, where one has another size."""
    images = np.empty((len(paths), 3, size, size), dtype=np.uint8)

    def one(index: int) -> None:
        def finish(picture: Image.Image) -> None:
            if picture.size != (size, size):
                raise damaged(Path(paths[index]), f"{size}x{size} pixels", f"{picture.width}x{picture.height}")
            images[index] = np.asarray(picture).transpose(2, 0, 1)

        decode(paths[index], finish)

    chunk = 64  # pictures per task: handing over single small pictures costs as much as decoding them
    starts = range(0, len(paths), chunk)
    list(pool.map(lambda start: [one(index) for index in range(start, min(start + chunk, len(paths)))], starts))
    return images


def pool() -> ThreadPoolExecutor:
    """Threads for decoding, as many as this process may use cores; Pillow decodes outside Python's lock."""
    return ThreadPoolExecutor(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count())
