"""CIFAR-10 as torchvision knows it (pickles in a folder or in the .tar.gz) or as pictures in one folder per class."""

from __future__ import annotations

import gzip
import tarfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from . import cache, pictures
from .augment import Augmentation, Cutout
from .dataset import Arrays, DataSet, InMemory, Normalization
from .pickles import load_arrays
from .sources import damaged, download, download_remedy, first_existing, missing

NORMALIZATION = Normalization(mean=(0.4914, 0.4822, 0.4465), std=(0.2023, 0.1994, 0.2010))  # the original's: std within one image
AUGMENTATION = Augmentation(padding=4, flip=True)
BATCHES = {"train": [f"data_batch_{number}" for number in range(1, 6)], "test": ["test_batch"]}
FOLDER, ARCHIVE = "cifar-10-batches-py", "cifar-10-python.tar.gz"
SIZE, NUM_CLASSES = 32, 10


def load(config: Mapping[str, Any], device: torch.device) -> DataSet:
    """CIFAR-10 in whichever of the three forms lies in ``data_dir``."""
    settings, data_dir = config["data"], Path(config["data_dir"])
    reader = _find(data_dir)
    if reader is None and settings["download"]:
        download("cifar10", lambda datasets: datasets.CIFAR10(str(data_dir), download=True), data_dir)
        reader = _find(data_dir)
    if reader is None:
        expected = f"{data_dir}/cifar10/{{train,test}}/<class>/<n>.jpg, {data_dir / FOLDER} or {data_dir / ARCHIVE}"
        raise missing("CIFAR-10", expected, download_remedy("cifar10", data_dir))
    splits = reader()
    return InMemory(
        settings["name"],
        splits["train"],
        splits["test"],
        NUM_CLASSES,
        device,
        normalization=NORMALIZATION,
        augmentation=AUGMENTATION if settings["augment"] else None,
        cutout=Cutout.of(settings, (3, SIZE, SIZE)),
    )


def _find(data_dir: Path) -> Callable[[], dict[str, Arrays]] | None:
    """What reads the form that is there: pictures, else extracted pickles, else the archive; None where there is none."""
    own = data_dir / "cifar10"
    if (own / "train").is_dir() or (own / "test").is_dir():
        return lambda: _read_pictures(own, data_dir)
    homes = (own, data_dir)
    folder = first_existing(home / FOLDER for home in homes)
    if folder:
        return lambda: _read_batches(lambda name: _bytes_of_file(folder / name, data_dir), folder)
    archive = first_existing(home / ARCHIVE for home in homes)
    if archive:
        return lambda: _read_archive(archive)
    return None


def _bytes_of_file(path: Path, data_dir: Path) -> bytes:
    if not path.exists():
        names = ", ".join(name for batches in BATCHES.values() for name in batches)
        raise missing(str(path), f"all of {names} in {path.parent}", download_remedy("cifar10", data_dir))
    return path.read_bytes()


def _read_archive(archive: Path) -> dict[str, Arrays]:
    try:
        with tarfile.open(archive, "r:gz") as tar:
            members = {Path(member.name).name: tar.extractfile(member) for member in tar if member.isfile()}
            contents = {name: file.read() for name, file in members.items() if file}
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise damaged(archive, "a whole .tar.gz, as torchvision downloads it", error) from error

    def bytes_of(name: str) -> bytes:
        if name not in contents:
            raise damaged(archive, f"a member {FOLDER}/{name}", f"only {', '.join(sorted(contents)) or 'nothing'}")
        return contents[name]

    return _read_batches(bytes_of, archive)


def _read_batches(bytes_of: Callable[[str], bytes], home: Path) -> dict[str, Arrays]:
    """Both splits from the pickles; every batch holds the dict {"data": uint8 (n, 3072), "labels": n numbers}."""
    splits = {}
    for split, names in BATCHES.items():
        parts = [_read_batch(bytes_of(name), home / name) for name in names]
        counts = [len(part.labels) for part in parts]
        if len(set(counts)) > 1:
            short = names[int(np.argmin(counts))]
            raise damaged(home / short, f"as many images as the other batches ({max(counts)})", min(counts))
        splits[split] = Arrays(np.concatenate([part.inputs for part in parts]), np.concatenate([part.labels for part in parts]))
    return splits


def _read_batch(data: bytes, path: Path) -> Arrays:
    width = 3 * SIZE * SIZE
    try:
        content = load_arrays(data)
    except ValueError as error:
        raise damaged(path, "a pickle with data and labels, as torchvision downloads it", error) from error
    images, labels = (content.get("data"), content.get("labels")) if isinstance(content, dict) else (None, None)
    if not isinstance(images, np.ndarray) or images.dtype != np.uint8 or images.shape[1:] != (width,) or not len(images):
        found = f"{images.dtype} {list(images.shape)}" if isinstance(images, np.ndarray) else type(images).__name__
        raise damaged(path, f"data of type uint8 and shape [n, {width}]", found)
    if not isinstance(labels, list) or len(labels) != len(images):
        found = f"{len(labels)} of them" if isinstance(labels, list) else type(labels).__name__
        raise damaged(path, f"a list of {len(images)} labels", found)
    strange = [label for label in labels if not isinstance(label, int) or not 0 <= label < NUM_CLASSES]
    if strange:
        raise damaged(path, f"labels 0 to {NUM_CLASSES - 1}", f"the label {strange[0]!r}")
    return Arrays(np.ascontiguousarray(images).reshape(-1, 3, SIZE, SIZE), np.array(labels, dtype=np.int64))


def _read_pictures(home: Path, data_dir: Path) -> dict[str, Arrays]:
    """Both splits from 32x32 pictures; classes in alphabetical order, which is also the order of the original labels."""
    remedy = f"unpack the whole data set again, or {download_remedy('cifar10', data_dir)}"
    trees = {split: pictures.list_tree(home / split, remedy) for split in ("train", "test")}
    for tree in trees.values():
        if len(tree.classes) != NUM_CLASSES:
            raise ValueError(f"{tree.root}: expected {NUM_CLASSES} class folders, found {len(tree.classes)}: {', '.join(tree.classes)}")
        if len(set(tree.counts)) > 1:
            fewest = int(np.argmin(tree.counts))
            raise ValueError(
                f"{tree.root / tree.classes[fewest]}: {tree.counts[fewest]} pictures where another class has {max(tree.counts)}; "
                f"CIFAR-10 has equally many in each (5000 to train, 1000 to test): {remedy}"
            )
    pictures.same_classes(trees["train"], trees["test"])

    def decoded(split: str, tree: pictures.Tree) -> np.ndarray:
        def build() -> np.ndarray:
            with pictures.pool() as threads:
                return pictures.decode_all(threads, tree.paths(), SIZE)

        return cache.kept(data_dir, f"cifar10-{split}-{cache.tree_key(tree)}", (sum(tree.counts), 3, SIZE, SIZE), build)

    return {split: Arrays(decoded(split, tree), tree.labels()) for split, tree in trees.items()}
