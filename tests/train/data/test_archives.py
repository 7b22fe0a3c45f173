"""Fashion-MNIST, CIFAR-100, SVHN in their true formats."""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.train.archive_files import UNVERIFIED, write_binary, write_cifar100, write_svhn
from tests.train.data.test_data import load, unnormalized, whole, write_mnist
from train import data
from train.data import cifar, idx, svhn
from train.data.torchvision_import import torchvision
from train.steps.order import Order, generator


def check(dataset: data.DataSet, splits: dict[str, tuple[np.ndarray, np.ndarray]], normalization: Any) -> None:
    for name, (images, labels) in splits.items():
        x, y = whole(dataset, name)
        np.testing.assert_array_equal(np.rint(unnormalized(x, normalization)), images)
        np.testing.assert_array_equal(y, labels)


# --- Fashion-MNIST -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("folder", "suffix"), [("fashion_mnist", ""), ("FashionMNIST/raw", ".gz"), ("FashionMNIST/raw", "")]
)
def test_fashion_mnist_reads_idx_files(tmp_path: Path, folder: str, suffix: str) -> None:
    write_mnist(tmp_path / "MNIST" / "raw", suffix, num=3)  # files of the same names, which are not meant
    images, labels = write_mnist(tmp_path / folder, suffix)
    dataset = load("fashion_mnist", tmp_path, **UNVERIFIED)
    check(dataset, dict.fromkeys(("train", "test"), (images[:, None], labels)), idx.FashionMnist.normalization)
    assert (dataset.input_shape, dataset.num_classes, dataset.num_train) == ((1, 28, 28), 10, 12)


# --- CIFAR ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["cifar-100-python", "cifar100/cifar-100-python", "archive"])
def test_cifar100_reads_the_fine_labels_of_the_pickles(tmp_path: Path, place: str) -> None:
    source = tmp_path / "source" / "cifar-100-python"
    splits = write_cifar100(source if place == "archive" else tmp_path / place)
    if place == "archive":
        with tarfile.open(tmp_path / "cifar-100-python.tar.gz", "w:gz") as tar:
            tar.add(source, "cifar-100-python")
    dataset = load("cifar100", tmp_path, **UNVERIFIED)
    assert (dataset.num_train, dataset.num_test, dataset.input_shape, dataset.num_classes) == (12, 5, (3, 32, 32), 100)
    check(dataset, splits, cifar.Cifar100.normalization)


def test_cifar_reads_the_binary_files(tmp_path: Path) -> None:
    splits = write_binary(tmp_path / "cifar-100-binary", {"train": 12, "test": 5}, coarse=True)
    check(load("cifar100", tmp_path), splits, cifar.Cifar100.normalization)
    names = [f"data_batch_{number}" for number in range(1, 6)]
    splits = write_binary(tmp_path / "cifar-10-batches-bin", {**dict.fromkeys(names, 4), "test_batch": 4}, coarse=False)
    images, labels = (np.concatenate([splits[name][part] for name in names]) for part in (0, 1))
    check(
        load("cifar10", tmp_path),
        {"train": (images, labels), "test": splits["test_batch"]},
        cifar.Cifar10.normalization,
    )


# --- SVHN ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("folder", "compressed"), [("", True), ("svhn", True), ("SVHN", False)])
def test_svhn_reads_the_mat_files(tmp_path: Path, folder: str, compressed: bool) -> None:
    splits = write_svhn(tmp_path / folder, compressed)
    for _ in range(2):  # from the file, and from the pixels that were kept
        dataset = load("svhn", tmp_path, **UNVERIFIED)
        assert (dataset.num_train, dataset.num_test, dataset.input_shape, dataset.num_classes) == (
            12,
            5,
            (3, 32, 32),
            10,
        )
        check(dataset, splits, svhn.Svhn.normalization)
    assert len(list((tmp_path / ".cache").iterdir())) == 2


def test_svhn_labels_are_torchvisions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_svhn(tmp_path)
    monkeypatch.setattr(torchvision().datasets.SVHN, "_check_integrity", lambda self: True)
    theirs = torchvision().datasets.SVHN(str(tmp_path), split="train")
    x, y = whole(load("svhn", tmp_path, **UNVERIFIED), "train")
    np.testing.assert_array_equal(y, theirs.labels)
    np.testing.assert_array_equal(np.rint(unnormalized(x, svhn.Svhn.normalization)), theirs.data)


def test_svhn_names_a_damaged_or_missing_file(tmp_path: Path) -> None:
    write_svhn(tmp_path)
    path = tmp_path / "test_32x32.mat"
    good = path.read_bytes()
    changed = bytearray(good)
    changed[len(good) // 2] ^= 255
    for content in (good[: len(good) // 2], good[:100], b"", b"MATLAB 7.3 MAT-file" + bytes(500), bytes(changed)):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"test_32x32\.mat: damaged or not the right file") as error:
            load("svhn", tmp_path, **UNVERIFIED)
        assert "\n" not in str(error.value)
    path.unlink()
    with pytest.raises(
        FileNotFoundError, match=r"SVHN not found: expected .*test_32x32\.mat.*data=svhn data\.download=true"
    ):
        load("svhn", tmp_path)


# --- workers -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["fashion_mnist", "cifar100", "svhn", "folder"])
def test_workers_see_different_pictures_and_the_same_wherever_they_run(tmp_path: Path, name: str) -> None:
    sets = [
        load(name, tmp_path, stand_in=True, **{"data.augment": True}) for _ in range(2)
    ]  # as two processes have them
    order = Order(sets[0].num_train, 4, 3, seed=1)
    seen = [
        index
        for step in range(order.steps_per_epoch)
        for worker in range(3)
        for index in order.indices(step, worker).tolist()
    ]
    assert len(set(seen)) == len(seen) == sets[0].num_train // 12 * 12
    for worker in (2, 0, 1):
        batches = [one.train_batch(order.indices(5, worker), generator(1, 5, worker, "train")) for one in sets]
        assert torch.equal(batches[0][0], batches[1][0]) and torch.equal(batches[0][1], batches[1][1])
