"""MNIST from its original idx files, plain or gzipped, in torchvision's folder or one called mnist."""

from __future__ import annotations

import gzip
import math
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from .augment import Augmentation, Cutout
from .dataset import Arrays, DataSet, InMemory, Normalization
from .sources import damaged, download, download_remedy, first_existing, missing

NORMALIZATION = Normalization(mean=(0.1307,), std=(0.3081,))  # of all training pixels; the original's constants
AUGMENTATION = Augmentation(padding=2, flip=False)  # a mirrored digit is another sign
FOLDERS = ("mnist", "mnist/raw", "mnist/MNIST/raw", "MNIST/raw", "MNIST")
STEMS = {"train": "train", "test": "t10k"}


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


def _read_split(data_dir: Path, stem: str) -> Arrays:
    def find(kind: str) -> Path:
        names = [f"{stem}-{kind}", f"{stem}-{kind.replace('-idx', '.idx')}"]
        candidates = [data_dir / folder / (name + suffix) for folder in FOLDERS for name in names for suffix in ("", ".gz")]
        path = first_existing(candidates)
        if path is None:
            wanted = f"{data_dir / FOLDERS[0] / names[0]} (also .gz, also in {', '.join(FOLDERS[1:])})"
            raise missing("MNIST", wanted, download_remedy("mnist", data_dir))
        return path

    image_path, label_path = find("images-idx3-ubyte"), find("labels-idx1-ubyte")
    images, labels = read_idx(image_path, 3), read_idx(label_path, 1)
    if images.shape[1:] != (28, 28) or not len(images):
        raise damaged(image_path, "at least one image of 28x28 pixels", f"the shape {list(images.shape)}")
    if len(labels) != len(images):
        raise damaged(label_path, f"{len(images)} labels, one for each image of {image_path.name}", len(labels))
    if labels.max() > 9:
        raise damaged(label_path, "labels 0 to 9", f"the label {labels.max()}")
    return Arrays(images[:, None].copy(), labels.astype(np.int64))


def _complete(data_dir: Path) -> bool:
    try:
        for stem in STEMS.values():
            _read_split(data_dir, stem)
    except FileNotFoundError:
        return False
    return True


def load(config: Mapping[str, Any], device: torch.device) -> DataSet:
    """MNIST's four idx files, packed or not."""
    settings, data_dir = config["data"], Path(config["data_dir"])
    if settings["download"] and not _complete(data_dir):
        download("mnist", lambda datasets: datasets.MNIST(str(data_dir), download=True), data_dir)
    train, test = (_read_split(data_dir, stem) for stem in STEMS.values())
    return InMemory(
        settings["name"],
        train,
        test,
        10,
        device,
        normalization=NORMALIZATION,
        augmentation=AUGMENTATION if settings["augment"] else None,
        cutout=Cutout.of(settings, (1, 28, 28)),
    )
