"""MNIST's idx files, plain or gzipped, and the data sets that come in them."""

from __future__ import annotations

import gzip
import math
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from .augment import Augmentation, Cutout
from .dataset import Arrays, DataSet, InMemory, Normalization
from .sources import Origin, damaged, download, download_remedy, first_existing, missing, verify

STEMS = {"train": "train", "test": "t10k"}
SIDE, NUM_CLASSES = 28, 10


@dataclass(frozen=True)
class Idx:
    """A data set of four idx files of 28x28 pixels.

    It holds where they may lie below ``data_dir``, and what is done with them.
    """

    title: str
    origin: Origin
    folders: tuple[str, ...]
    normalization: Normalization
    augmentation: Augmentation


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


def _find(kind: Idx, data_dir: Path, stem: str, what: str) -> Path:
    names = [f"{stem}-{what}", f"{stem}-{what.replace('-idx', '.idx')}"]
    path = first_existing(
        data_dir / folder / (name + suffix) for folder in kind.folders for name in names for suffix in ("", ".gz")
    )
    if path is None:
        wanted = f"{data_dir / kind.folders[0] / names[0]} (also .gz, also in {', '.join(kind.folders[1:])})"
        raise missing(kind.title, wanted, download_remedy(kind.origin.name, data_dir))
    return path


def _paths(kind: Idx, data_dir: Path) -> list[tuple[Path, Path]]:
    """The paths of the images and labels of each split."""
    return [
        (_find(kind, data_dir, stem, "images-idx3-ubyte"), _find(kind, data_dir, stem, "labels-idx1-ubyte"))
        for stem in STEMS.values()
    ]


def _is_complete(kind: Idx, data_dir: Path) -> bool:
    try:
        _paths(kind, data_dir)
    except FileNotFoundError:
        return False
    return True


def _read_split(kind: Idx, image_path: Path, label_path: Path, settings: Mapping[str, Any]) -> Arrays:
    for path in (image_path, label_path):
        if path.suffix == ".gz":
            verify(path, kind.origin, settings)
    images, labels = read_idx(image_path, 3), read_idx(label_path, 1)
    if images.shape[1:] != (SIDE, SIDE) or not len(images):
        raise damaged(image_path, f"at least one image of {SIDE}x{SIDE} pixels", f"the shape {list(images.shape)}")
    if len(labels) != len(images):
        raise damaged(label_path, f"{len(images)} labels, one for each image of {image_path.name}", len(labels))
    if labels.max() >= NUM_CLASSES:
        raise damaged(label_path, f"labels 0 to {NUM_CLASSES - 1}", f"the label {labels.max()}")
    return Arrays(images[:, None].copy(), labels.astype(np.int64))


def load(kind: Idx, config: Mapping[str, Any], device: torch.device) -> DataSet:
    """The data of the four files, packed or not.

    They are fetched first where they are missing and the configuration asks for that.
    """
    settings, data_dir = config["data"], Path(config["data_dir"])
    if settings["download"] and not _is_complete(kind, data_dir):
        download(kind.origin, data_dir, lambda: _is_complete(kind, data_dir))
    train, test = (_read_split(kind, *paths, settings) for paths in _paths(kind, data_dir))
    return InMemory(
        settings["name"],
        train,
        test,
        NUM_CLASSES,
        device,
        normalization=kind.normalization,
        augmentation=kind.augmentation if settings["augment"] else None,
        cutout=Cutout.of(settings, (1, SIDE, SIDE)),
    )
