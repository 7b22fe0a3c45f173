"""The cache of decoded pictures beside the data, so that only the first run decodes them.

The key of a kept array is a digest of every file's name, size and time of change: a picture that is added, removed or
replaced gives another key, and its tree is decoded again.
"""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from files.atomic import aside

from . import pictures
from .dataset import Arrays


def decoded(
    data_dir: Path,
    name: str,
    tree: pictures.Tree,
    size: int,
    plan: pictures.Plan = pictures.whole,
    *,
    fast: bool = False,
) -> Arrays:
    """The pictures of a tree (see ``pictures.decode_all``) and their labels, kept below a name that begins so."""

    def build() -> np.ndarray:
        return pictures.decode_all(tree.paths(), size, plan, fast=fast)

    images = kept(data_dir, f"{name}-{tree_key(tree)}", (sum(tree.counts), 3, size, size), build)
    return Arrays(images, tree.labels())


def tree_key(tree: pictures.Tree) -> str:
    """14 hexadecimal digits over name, size and time of change of every picture; the folder itself may move."""
    digest = hashlib.sha256()
    for name, files in zip(tree.classes, tree.files, strict=True):
        with os.scandir(tree.root / name) as entries:
            states = {entry.name: entry.stat() for entry in entries}
        for file in files:
            digest.update(f"{name}/{file} {states[file].st_size} {states[file].st_mtime_ns}\n".encode())
    return digest.hexdigest()[:14]


def folders(data_dir: Path) -> Iterator[Path]:
    """The folders in which arrays are kept: with the data or, where that is read-only, in the user's cache folder."""
    yield data_dir / ".cache"
    yield Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "nuq-data"


def kept(data_dir: Path, name: str, shape: tuple[int, ...], build: Callable[[], np.ndarray]) -> np.ndarray:
    """The uint8 array called ``name``, from the first folder that has it, else built and written.

    A file of another shape, or cut short, counts as not there.  The array is mapped from the file (copy-on-write), so
    runs side by side share its memory.  One warning, and no file, where no folder can be written.
    """
    places = [folder / f"{name}.npy" for folder in folders(data_dir)]
    for place in places:
        found = _read(place, shape)
        if found is not None:
            return found
    array = build()
    reasons = []
    for place in places:
        try:
            _write(place, array)
        except OSError as error:
            reasons.append(str(error))
        else:
            return array
    warnings.warn(
        f"the decoded {name} cannot be kept, so every run decodes it again: {'; '.join(reasons)}", stacklevel=2
    )
    return array


def _read(path: Path, shape: tuple[int, ...]) -> np.ndarray | None:
    try:
        array = np.load(path, mmap_mode="c", allow_pickle=False)
    except (OSError, ValueError, EOFError):  # not there, or not a whole .npy file
        return None
    return array if array.shape == shape and array.dtype == np.uint8 else None


def _write(path: Path, array: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with aside(path) as place, open(place, "wb") as file:
        np.save(file, array, allow_pickle=False)
