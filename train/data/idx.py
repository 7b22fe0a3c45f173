"""MNIST's idx files, plain or gzipped, and the data sets that come in them."""

from __future__ import annotations

import gzip
import math
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np

from .augment import Augmentation
from .data_files import Origin, damaged, download_remedy, first_existing, missing, verify
from .dataset import Arrays, Normalization
from .source import Fetched, Splits

STEMS = {"train": "train", "test": "t10k"}
SIDE, NUM_CLASSES = 28, 10


def read_idx(path: Path, num_dims: int) -> np.ndarray:
    """The uint8 array of one idx file: 00 00 08 <dims>, each dimension as a big-endian uint32, then the bytes.

    Raises ValueError, naming the file, where the header or the length differs.
    """
    kind = f"an idx file of bytes with {num_dims} dimension{'s' if num_dims > 1 else ''}"
    try:
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise damaged(path, f"a whole gzip file that holds {kind}", error) from error
    header = 4 + 4 * num_dims
    if len(data) < header or data[:4] != bytes([0, 0, 8, num_dims]):
        found = f"{len(data)} bytes that start with {data[:4].hex(' ') or 'nothing'}"
        raise damaged(path, f"{kind}, which starts with 00 00 08 {num_dims:02x}", found)
    shape = [int(size) for size in np.frombuffer(data, ">u4", num_dims, 4)]
    if len(data) != header + math.prod(shape):
        raise damaged(path, f"{header + math.prod(shape)} bytes for the shape {shape} of its header", f"{len(data)}")
    return np.frombuffer(data, np.uint8, offset=header).reshape(shape)


class Idx(Fetched):
    """A data set of four idx files of 28x28 pixels, in torchvision's folder or one of its own name."""

    title: str

    def find(self) -> Callable[[], Splits]:
        train, test = (
            (self._path(stem, "images-idx3-ubyte"), self._path(stem, "labels-idx1-ubyte")) for stem in STEMS.values()
        )
        return lambda: (self._read_split(*train), self._read_split(*test))

    def _path(self, stem: str, what: str) -> Path:
        names, (own, *others) = [f"{stem}-{what}", f"{stem}-{what.replace('-idx', '.idx')}"], self.record.places
        path = first_existing(
            self.data_dir / folder / (name + suffix)
            for folder in (own, *others)
            for name in names
            for suffix in ("", ".gz")
        )
        if path is None:
            wanted = f"{self.data_dir / own / names[0]} (also .gz, also in {', '.join(others)})"
            raise missing(self.title, wanted, download_remedy(self.name, self.data_dir))
        return path

    def _read_split(self, image_path: Path, label_path: Path) -> Arrays:
        for path in (image_path, label_path):
            if path.suffix == ".gz":
                verify(path, self.origin, self.settings)
        images, labels = read_idx(image_path, 3), read_idx(label_path, 1)
        if images.shape[1:] != (SIDE, SIDE) or not len(images):
            raise damaged(image_path, f"at least one image of {SIDE}x{SIDE} pixels", f"the shape {list(images.shape)}")
        if len(labels) != len(images):
            raise damaged(label_path, f"{len(images)} labels, one for each image of {image_path.name}", len(labels))
        if labels.max() >= NUM_CLASSES:
            raise damaged(label_path, f"labels 0 to {NUM_CLASSES - 1}", f"the label {labels.max()}")
        return Arrays(images[:, None].copy(), labels.astype(np.int64))


class Mnist(Idx):
    """MNIST: handwritten digits."""

    title = "MNIST"
    origin = Origin("mnist", "MNIST", size_mb=12)
    normalization = Normalization(mean=(0.1307,), std=(0.3081,))  # of all training pixels; the original's constants
    augmentation = Augmentation(padding=2, flip=False)  # a mirrored digit is another sign


class FashionMnist(Idx):
    """Fashion-MNIST, 10 kinds of clothing: Xiao, Rasul, Vollgraf, 2017."""

    title = "Fashion-MNIST"
    origin = Origin("fashion_mnist", "FashionMNIST", size_mb=31)
    normalization = Normalization(mean=(0.2860,), std=(0.3530,))  # of all training pixels
    augmentation = Augmentation(padding=2, flip=True)
