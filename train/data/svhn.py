"""SVHN (house numbers, cropped digits) from its original .mat files: Netzer et al., 2011."""

from __future__ import annotations

import struct
import warnings
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np

from . import cache
from .augment import Augmentation
from .data_files import GARBLED, Origin, damaged, download_remedy, first_existing, missing, verify
from .dataset import Arrays, Normalization
from .source import Fetched, Splits

SIZE, NUM_CLASSES = 32, 10


class Svhn(Fetched):
    """House numbers, cropped to a digit; the digit 0, labelled 10 in the files, is class 0."""

    origin = Origin("svhn", "SVHN", size_mb=246, splits=("train", "test"))
    normalization = Normalization(mean=(0.4377, 0.4438, 0.4728), std=(0.1980, 0.2010, 0.1970))  # of all training pixels
    augmentation = Augmentation(padding=4, flip=False)  # a mirrored digit is another sign

    def find(self) -> Callable[[], Splits]:
        train, test = (self._path(split) for split in self.origin.splits)
        return lambda: (self._read_split(train), self._read_split(test))

    def _path(self, split: str) -> Path:
        own, *others = (self.data_dir / place.replace("train", split) for place in self.record.places)
        path = first_existing((own, *others))
        if path is None:
            raise missing("SVHN", f"{own} (or {others[-1]})", download_remedy("svhn", self.data_dir))
        return path

    def _read_split(self, path: Path) -> Arrays:
        """The images and labels of X uint8 (32, 32, 3, n), kept unpacked, which takes seconds, and y (n, 1)."""
        verify(path, self.origin, self.settings)
        state = path.stat()
        labels = _variable(path, "y")
        if labels.ndim != 2 or labels.shape[1] != 1 or not labels.size or labels.dtype.kind not in "ui":
            raise damaged(path, "labels y of shape [n, 1], whole numbers", f"{labels.dtype} {list(labels.shape)}")
        labels = labels[:, 0].astype(np.int64)
        strange = labels[(labels < 1) | (labels > NUM_CLASSES)]
        if len(strange):
            rule = f"labels 1 to {NUM_CLASSES}, where {NUM_CLASSES} is the digit 0"
            raise damaged(path, rule, f"the label {strange[0]}")

        def build() -> np.ndarray:
            images = _variable(path, "X")
            if images.dtype != np.uint8 or images.shape != (SIZE, SIZE, 3, len(labels)):
                rule = f"X of type uint8 and shape [{SIZE}, {SIZE}, 3, {len(labels)}]"
                raise damaged(path, rule, f"{images.dtype} {list(images.shape)}")
            return np.ascontiguousarray(images.transpose(3, 2, 0, 1))

        name = f"svhn-{path.stem}-{state.st_size:x}-{state.st_mtime_ns:x}"
        images = cache.kept(self.data_dir, name, (len(labels), 3, SIZE, SIZE), build)
        return Arrays(images, labels % NUM_CLASSES)


def _variable(path: Path, name: str) -> np.ndarray:
    """One array of a .mat file of MATLAB 5. ValueError where the file has none of that name, or is damaged."""
    from scipy.io import loadmat
    from scipy.io.matlab import MatReadError

    try:
        with path.open("rb") as file, warnings.catch_warnings():
            warnings.simplefilter("error")  # scipy warns of what it cannot read, and goes on without
            found = loadmat(file, variable_names=[name], mat_dtype=False)
    except (*GARBLED, OSError, struct.error, zlib.error, MatReadError, Warning) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        expected, found = "a whole .mat file of MATLAB 5, as torchvision downloads it", " ".join(str(error).split())
        raise damaged(path, expected, found) from error
    if not isinstance(found.get(name), np.ndarray):
        raise damaged(path, "a .mat file with the arrays X and y", f"no {name}")
    return found[name]
