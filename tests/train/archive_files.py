"""Small archives in the formats of the published data sets."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
from scipy.io import savemat

UNVERIFIED = {"data.verify": False}


def draws(num: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(num)
    return rng.integers(0, 256, (num, 3, 32, 32), dtype=np.uint8), rng.integers(0, 10, num)


def write_cifar100(folder: Path) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """The pickles, as Python 3 writes them; the coarse labels are others."""
    folder.mkdir(parents=True)
    splits = {name: draws(num) for name, num in (("train", 12), ("test", 5))}
    for name, (images, labels) in splits.items():
        fine = (labels * 11).tolist()
        content = {
            "data": images.reshape(len(images), -1),
            "fine_labels": fine,
            "coarse_labels": [7] * len(fine),
            "filenames": ["a"],
        }
        (folder / name).write_bytes(pickle.dumps(content, 2))
    return {name: (images, labels * 11) for name, (images, labels) in splits.items()}


def write_binary(folder: Path, names: dict[str, int], coarse: bool) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    folder.mkdir(parents=True)
    splits = {}
    for name, num in names.items():
        images, labels = splits[name] = draws(num)
        columns = [np.full((num, 1), 19)] * coarse + [labels[:, None], images.reshape(num, -1)]
        (folder / f"{name}.bin").write_bytes(np.concatenate(columns, axis=1).astype(np.uint8).tobytes())
    return splits


def write_svhn(folder: Path, compressed: bool = True) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    folder.mkdir(parents=True, exist_ok=True)
    splits = {name: draws(num) for name, num in (("train", 12), ("test", 5))}
    for name, (images, labels) in splits.items():
        arrays = {"X": images.transpose(2, 3, 1, 0), "y": np.where(labels == 0, 10, labels).astype(np.uint8)[:, None]}
        savemat(folder / f"{name}_32x32.mat", arrays, do_compression=compressed)
    return splits
