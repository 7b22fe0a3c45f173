"""Reader of CIFAR in any of its forms.

The forms are: as torchvision knows it (pickles in a folder or in the .tar.gz), as its binary files, or as pictures in
one folder per class.
"""

from __future__ import annotations

import gzip
import tarfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from . import cache, pictures
from .augment import Augmentation, Cutout
from .dataset import Arrays, DataSet, InMemory, Normalization
from .pickles import load_arrays
from .sources import Origin, damaged, download, download_remedy, first_existing, missing, verify

AUGMENTATION = Augmentation(padding=4, flip=True)
SIZE, WIDTH = 32, 3 * 32 * 32


@dataclass(frozen=True)
class Cifar:
    """One of the two CIFARs: the names of its files, and the keys of their labels."""

    title: str
    origin: Origin
    num_classes: int
    normalization: Normalization
    batches: Mapping[str, tuple[str, ...]]  # names of the pickles of each split
    folder: str
    archive: str
    label_key: str
    binary_folder: str
    binary_labels: int  # bytes before the pixels of a picture in the binary files; the last is the label


def load(kind: Cifar, config: Mapping[str, Any], device: torch.device) -> DataSet:
    """The data set in whichever of its forms lies in ``data_dir``."""
    settings, data_dir = config["data"], Path(config["data_dir"])
    reader = _find(kind, data_dir, settings)
    if reader is None and settings["download"]:
        download(kind.origin, data_dir, lambda: _find(kind, data_dir, settings) is not None)
        reader = _find(kind, data_dir, settings)
    if reader is None:
        name, files = settings["name"], ", ".join(str(data_dir / form) for form in (kind.folder, kind.binary_folder))
        expected = f"{data_dir}/{name}/{{train,test}}/<class>/<n>.jpg, {files} or {data_dir / kind.archive}"
        raise missing(kind.title, expected, download_remedy(name, data_dir))
    splits = reader()
    return InMemory(
        settings["name"],
        splits["train"],
        splits["test"],
        kind.num_classes,
        device,
        normalization=kind.normalization,
        augmentation=AUGMENTATION if settings["augment"] else None,
        cutout=Cutout.of(settings, (3, SIZE, SIZE)),
    )


def _find(kind: Cifar, data_dir: Path, settings: Mapping[str, Any]) -> Callable[[], dict[str, Arrays]] | None:
    """The reader of the form that is there: pictures, extracted pickles, binary files, the archive; None for none."""
    own = data_dir / kind.origin.name
    if (own / "train").is_dir() or (own / "test").is_dir():
        return lambda: _read_pictures(kind, own, data_dir)
    homes = (own, data_dir)
    folder = first_existing(home / kind.folder for home in homes)
    if folder:
        return lambda: _read_batches(kind, lambda name: _bytes_of_file(kind, folder / name, data_dir), folder)
    binary = first_existing(home / kind.binary_folder for home in homes)
    if binary:
        return lambda: _read_binary(kind, binary, data_dir)
    archive = first_existing(home / kind.archive for home in homes)
    if archive:
        return lambda: _read_archive(kind, archive, settings)
    return None


def _bytes_of_file(kind: Cifar, path: Path, data_dir: Path) -> bytes:
    if not path.exists():
        names = ", ".join(name + path.suffix for batches in kind.batches.values() for name in batches)
        raise missing(str(path), f"all of {names} in {path.parent}", download_remedy(kind.origin.name, data_dir))
    return path.read_bytes()


def _read_archive(kind: Cifar, archive: Path, settings: Mapping[str, Any]) -> dict[str, Arrays]:
    verify(archive, kind.origin, settings)
    try:
        with tarfile.open(archive, "r:gz") as tar:
            members = {Path(member.name).name: tar.extractfile(member) for member in tar if member.isfile()}
            contents = {name: file.read() for name, file in members.items() if file}
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise damaged(archive, "a whole .tar.gz, as torchvision downloads it", error) from error

    def bytes_of(name: str) -> bytes:
        if name not in contents:
            raise damaged(archive, f"a member {kind.folder}/{name}", f"only {', '.join(sorted(contents)) or 'nothing'}")
        return contents[name]

    return _read_batches(kind, bytes_of, archive)


def _read_batches(kind: Cifar, bytes_of: Callable[[str], bytes], home: Path) -> dict[str, Arrays]:
    """Both splits from the pickles; every batch holds the dict {"data": uint8 (n, 3072), its label key: n numbers}."""
    return {
        split: _joined(
            [_read_batch(kind, bytes_of(name), home / name) for name in names], [home / name for name in names]
        )
        for split, names in kind.batches.items()
    }


def _joined(parts: list[Arrays], paths: list[Path]) -> Arrays:
    counts = [len(part.labels) for part in parts]
    if len(set(counts)) > 1:
        raise damaged(
            paths[int(np.argmin(counts))], f"as many images as the other batches ({max(counts)})", min(counts)
        )
    return Arrays(np.concatenate([part.inputs for part in parts]), np.concatenate([part.labels for part in parts]))


def _read_binary(kind: Cifar, folder: Path, data_dir: Path) -> dict[str, Arrays]:
    """Both splits from the binary files: a picture is its label or labels, a byte each, and its pixels."""
    record = kind.binary_labels + WIDTH

    def read(path: Path) -> Arrays:
        data = _bytes_of_file(kind, path, data_dir)
        if len(data) % record or not data:
            raise damaged(path, f"pictures of {record} bytes", f"{len(data)} bytes")
        table = np.frombuffer(data, np.uint8).reshape(-1, record)
        labels = table[:, kind.binary_labels - 1].astype(np.int64)
        if labels.max() >= kind.num_classes:
            raise damaged(path, f"labels 0 to {kind.num_classes - 1}", f"the label {labels.max()}")
        return Arrays(np.ascontiguousarray(table[:, kind.binary_labels :]).reshape(-1, 3, SIZE, SIZE), labels)

    splits = {}
    for split, names in kind.batches.items():
        paths = [folder / f"{name}.bin" for name in names]
        splits[split] = _joined([read(path) for path in paths], paths)
    return splits


def _read_batch(kind: Cifar, data: bytes, path: Path) -> Arrays:
    try:
        content = load_arrays(data)
    except ValueError as error:
        raise damaged(path, "a pickle with data and labels, as torchvision downloads it", error) from error
    images, labels = (content.get("data"), content.get(kind.label_key)) if isinstance(content, dict) else (None, None)
    if (
        not isinstance(images, np.ndarray)
        or images.dtype != np.uint8
        or images.shape[1:] != (WIDTH,)
        or not len(images)
    ):
        found = f"{images.dtype} {list(images.shape)}" if isinstance(images, np.ndarray) else type(images).__name__
        raise damaged(path, f"data of type uint8 and shape [n, {WIDTH}]", found)
    if not isinstance(labels, list) or len(labels) != len(images):
        found = f"{len(labels)} of them" if isinstance(labels, list) else type(labels).__name__
        raise damaged(path, f"a list of {len(images)} labels", found)
    strange = [label for label in labels if not isinstance(label, int) or not 0 <= label < kind.num_classes]
    if strange:
        raise damaged(path, f"labels 0 to {kind.num_classes - 1}", f"the label {strange[0]!r}")
    return Arrays(np.ascontiguousarray(images).reshape(-1, 3, SIZE, SIZE), np.array(labels, dtype=np.int64))


def _read_pictures(kind: Cifar, home: Path, data_dir: Path) -> dict[str, Arrays]:
    """Both splits from 32x32 pictures.

    Classes in alphabetical order, which is also the order of the original labels.
    """
    remedy = f"unpack the whole data set again, or {download_remedy(kind.origin.name, data_dir)}"
    trees = {split: pictures.list_tree(home / split, remedy) for split in ("train", "test")}
    for tree in trees.values():
        if len(tree.classes) != kind.num_classes:
            raise ValueError(
                f"{tree.root}: expected {kind.num_classes} class folders, found {len(tree.classes)}: "
                f"{', '.join(tree.classes)}"
            )
        if len(set(tree.counts)) > 1:
            fewest = int(np.argmin(tree.counts))
            raise ValueError(
                f"{tree.root / tree.classes[fewest]}: {tree.counts[fewest]} pictures where another class has "
                f"{max(tree.counts)}; {kind.title} has equally many in each: {remedy}"
            )
    pictures.same_classes(trees["train"], trees["test"])

    def decoded(split: str, tree: pictures.Tree) -> np.ndarray:
        def build() -> np.ndarray:
            with pictures.pool() as threads:
                return pictures.decode_all(threads, tree.paths(), SIZE)

        return cache.kept(
            data_dir, f"{kind.origin.name}-{split}-{cache.tree_key(tree)}", (sum(tree.counts), 3, SIZE, SIZE), build
        )

    return {split: Arrays(decoded(split, tree), tree.labels()) for split, tree in trees.items()}
