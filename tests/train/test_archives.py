"""Fashion-MNIST, CIFAR-100, SVHN in their true formats; the originals' checksums; downloads, for which a class stands
in.
"""

import gzip
import hashlib
import io
import pickle
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.io import savemat

from tests.train.test_data import load, unnormalized, whole, write_cifar, write_idx, write_mnist
from train import data
from train.data import cifar10, cifar100, fashion_mnist, sources, svhn
from train.data.mnist import MNIST
from train.steps.order import Order, generator
from train.torchvision_import import torchvision

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
    check(
        dataset, dict.fromkeys(("train", "test"), (images[:, None], labels)), fashion_mnist.FASHION_MNIST.normalization
    )
    assert (dataset.input_shape, dataset.num_classes, dataset.num_train) == ((1, 28, 28), 10, 12)


def test_fashion_mnist_names_what_is_wrong(tmp_path: Path) -> None:
    write_mnist(tmp_path / "MNIST" / "raw")
    with pytest.raises(
        FileNotFoundError,
        match=r"Fashion-MNIST not found.*fashion_mnist/train-images.*data=fashion_mnist data\.download",
    ):
        load("fashion_mnist", tmp_path)
    write_mnist(tmp_path / "fashion_mnist")
    write_idx(tmp_path / "fashion_mnist" / "t10k-labels-idx1-ubyte", np.full(12, 11))
    with pytest.raises(ValueError, match=r"fashion_mnist/t10k-labels-idx1-ubyte: .*labels 0 to 9, found the label 11"):
        load("fashion_mnist", tmp_path)


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
    check(dataset, splits, cifar100.NORMALIZATION)


def test_cifar_reads_the_binary_files(tmp_path: Path) -> None:
    splits = write_binary(tmp_path / "cifar-100-binary", {"train": 12, "test": 5}, coarse=True)
    check(load("cifar100", tmp_path), splits, cifar100.NORMALIZATION)
    names = [f"data_batch_{number}" for number in range(1, 6)]
    splits = write_binary(tmp_path / "cifar-10-batches-bin", {**dict.fromkeys(names, 4), "test_batch": 4}, coarse=False)
    images, labels = (np.concatenate([splits[name][part] for name in names]) for part in (0, 1))
    check(load("cifar10", tmp_path), {"train": (images, labels), "test": splits["test_batch"]}, cifar10.NORMALIZATION)


def test_cifar_names_a_damaged_or_missing_binary_file(tmp_path: Path) -> None:
    write_binary(tmp_path / "cifar-100-binary", {"train": 12, "test": 5}, coarse=True)
    path = tmp_path / "cifar-100-binary" / "test.bin"
    good = path.read_bytes()
    for content, message in (
        (good[:-1], r"pictures of 3074 bytes, found 15369 bytes"),
        (b"", "found 0 bytes"),
        (b"\x13\x64" + good[2:], "labels 0 to 99, found the label 100"),
    ):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=rf"test\.bin: damaged.*{message}"):
            load("cifar100", tmp_path)
    path.unlink()
    with pytest.raises(FileNotFoundError, match=r"test\.bin not found: expected all of train\.bin, test\.bin"):
        load("cifar100", tmp_path)


def test_cifar100_names_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(
        FileNotFoundError, match=r"CIFAR-100 not found.*cifar-100-python\.tar\.gz.*data=cifar100 data\.download=true"
    ):
        load("cifar100", tmp_path)
    write_cifar(tmp_path / "cifar-100-python")  # another data set's pickles in its place
    with pytest.raises(FileNotFoundError, match=r"cifar-100-python/train not found: expected all of train, test"):
        load("cifar100", tmp_path)
    write_cifar100(tmp_path / "cifar100" / "cifar-100-python")
    path = tmp_path / "cifar100" / "cifar-100-python" / "test"
    path.write_bytes((tmp_path / "cifar-100-python" / "test_batch").read_bytes())
    with pytest.raises(ValueError, match=r"test: damaged.*a list of 4 labels, found NoneType"):
        load("cifar100", tmp_path)
    path.write_bytes(pickle.dumps({"data": np.zeros((1, 3072), np.uint8), "fine_labels": [100]}))
    with pytest.raises(ValueError, match=r"labels 0 to 99, found the label 100"):
        load("cifar100", tmp_path)


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
        check(dataset, splits, svhn.NORMALIZATION)
    assert len(list((tmp_path / ".cache").iterdir())) == 2


def test_svhn_labels_are_torchvisions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_svhn(tmp_path)
    monkeypatch.setattr(torchvision().datasets.SVHN, "_check_integrity", lambda self: True)
    theirs = torchvision().datasets.SVHN(str(tmp_path), split="train")
    x, y = whole(load("svhn", tmp_path, **UNVERIFIED), "train")
    np.testing.assert_array_equal(y, theirs.labels)
    np.testing.assert_array_equal(np.rint(unnormalized(x, svhn.NORMALIZATION)), theirs.data)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"X": np.zeros((32, 32, 3, 2), np.uint8)}, "with the arrays X and y, found no y"),
        ({"y": np.ones((2, 1), np.uint8)}, "with the arrays X and y, found no X"),
        (
            {"X": np.zeros((32, 32, 3, 3), np.uint8), "y": np.ones((2, 1), np.uint8)},
            r"shape \[32, 32, 3, 2\], found uint8 \[32, 32, 3, 3\]",
        ),
        ({"X": np.zeros((32, 32, 3, 2)), "y": np.ones((2, 1), np.uint8)}, r"found float64 \[32, 32, 3, 2\]"),
        (
            {"X": np.zeros((32, 32, 3, 2), np.uint8), "y": np.array([[1], [11]])},
            "labels 1 to 10, .* found the label 11",
        ),
        ({"X": np.zeros((32, 32, 3, 2), np.uint8), "y": np.array([[0], [1]])}, "found the label 0"),
        (
            {"X": np.zeros((32, 32, 3, 2), np.uint8), "y": np.array(["a", "b"])},
            r"labels y of shape \[n, 1\], whole numbers",
        ),
    ],
)
def test_svhn_names_a_wrong_file(tmp_path: Path, arrays: dict[str, np.ndarray], message: str) -> None:
    write_svhn(tmp_path)
    savemat(tmp_path / "train_32x32.mat", arrays)
    with pytest.raises(ValueError, match=rf"train_32x32\.mat: damaged or not the right file: .*{message}"):
        load("svhn", tmp_path, **UNVERIFIED)


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


# --- checksums -----------------------------------------------------------------------------------------------------


def md5(path: Path) -> str:
    return hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()


def write_archive(folder: Path) -> Path:
    write_cifar100(folder / "source")
    with tarfile.open(folder / "cifar-100-python.tar.gz", "w:gz") as tar:
        tar.add(folder / "source", "cifar-100-python")
    return folder / "cifar-100-python.tar.gz"


def test_originals_are_held_against_torchvisions_checksums(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = torchvision().datasets
    archive = write_archive(tmp_path)
    write_svhn(tmp_path)
    write_mnist(tmp_path / "FashionMNIST" / "raw", ".gz")
    write_mnist(tmp_path / "mnist", ".gz")
    for path in (tmp_path / "mnist").iterdir():  # the names that another source gives them
        path.rename(path.with_name(path.name.replace("-idx", ".idx")))
    for name, path in (("cifar100", archive), ("svhn", tmp_path / "train_32x32.mat")):
        with pytest.raises(
            ValueError, match=rf"{path.name}: damaged.*original's MD5 [0-9a-f]{{32}}, found {md5(path)}; .*verify=false"
        ):
            load(name, tmp_path)
    for name in ("mnist", "fashion_mnist"):
        with pytest.raises(ValueError, match=r"train-images.idx3-ubyte\.gz: damaged.*original's MD5"):
            load(name, tmp_path)

    monkeypatch.setattr(datasets.CIFAR100, "tgz_md5", md5(archive))
    split_list = {
        split: ["", f"{split}_32x32.mat", md5(tmp_path / f"{split}_32x32.mat")] for split in ("train", "test")
    }
    monkeypatch.setattr(datasets.SVHN, "split_list", split_list)
    for theirs, folder in (("MNIST", "mnist"), ("FashionMNIST", "FashionMNIST/raw")):
        files = [(path.name.replace(".idx", "-idx"), md5(path)) for path in (tmp_path / folder).iterdir()]
        monkeypatch.setattr(getattr(datasets, theirs), "resources", files)
    for name in ("cifar100", "svhn", "mnist", "fashion_mnist"):
        assert load(name, tmp_path).num_train == 12


def test_the_tables_of_torchvision_are_what_is_read() -> None:
    for origin in (
        MNIST.origin,
        fashion_mnist.FASHION_MNIST.origin,
        cifar10.CIFAR10.origin,
        cifar100.CIFAR100.origin,
        svhn.ORIGIN,
    ):
        found = sources.checksums(origin)
        assert found and all(len(digest) == 32 and set(digest) <= set("0123456789abcdef") for digest in found.values())
        assert all(address.startswith("http") for address in sources.addresses(origin))
    assert set(sources.checksums(svhn.ORIGIN)) >= {"train_32x32.mat", "test_32x32.mat"}
    assert set(sources.checksums(cifar10.CIFAR10.origin)) == {cifar10.CIFAR10.archive}
    assert {
        f"{stem}-{what}.gz" for stem in ("train", "t10k") for what in ("images-idx3-ubyte", "labels-idx1-ubyte")
    } == set(sources.checksums(MNIST.origin))


# --- downloads -----------------------------------------------------------------------------------------------------

NAMES = {
    "mnist": "MNIST",
    "fashion_mnist": "FashionMNIST",
    "cifar10": "CIFAR10",
    "cifar100": "CIFAR100",
    "svhn": "SVHN",
}
Fetch = Callable[[Path, str], None]


def replace(monkeypatch: pytest.MonkeyPatch, name: str, fetch: Fetch) -> None:
    """torchvision's class with a fetch of its own; its addresses and checksums stay."""

    def init(self: Any, root: str, split: str = "train", download: bool = False) -> None:
        del self
        assert download
        fetch(Path(root), split)

    theirs = getattr(torchvision().datasets, NAMES[name])
    monkeypatch.setattr(torchvision().datasets, NAMES[name], type(NAMES[name], (theirs,), {"__init__": init}))


@pytest.mark.parametrize("name", list(NAMES))
def test_without_a_network_one_sentence_says_so_and_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    def fetch(root: Path, split: str) -> None:
        del split
        (root / "half").mkdir()
        (root / "half" / "file").write_bytes(b"half")
        raise RuntimeError("Error downloading:\nTried it, got:\nName or service not known")

    replace(monkeypatch, name, fetch)
    with pytest.raises(FileNotFoundError, match="not found"):
        load(name, tmp_path)
    assert "downloading" not in capsys.readouterr().out  # never without being asked
    with pytest.raises(
        FileNotFoundError, match=f"could not fetch {name} to .*: Error downloading: Tried it, got: Name or ser"
    ) as error:
        load(name, tmp_path, **{"data.download": True})
    assert "\n" not in str(error.value)
    (said,) = capsys.readouterr().out.splitlines()
    assert (
        said.startswith(f"downloading {name} (about ") and " MB) from http" in said and said.endswith(f" to {tmp_path}")
    )
    assert list(tmp_path.iterdir()) == []


def test_a_download_is_moved_into_place_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def fetch(root: Path, split: str) -> None:
        assert root.parent == tmp_path and root.name.startswith(".download-svhn-")
        assert not list(tmp_path.glob("*.mat"))
        calls.append(split)
        write_svhn(root)

    replace(monkeypatch, "svhn", fetch)
    for _ in range(2):
        assert load("svhn", tmp_path / "", **{"data.download": True}, **UNVERIFIED).num_train == 12
    assert calls == ["train", "test"]  # once
    assert sorted(path.name for path in tmp_path.iterdir()) == [".cache", "test_32x32.mat", "train_32x32.mat"]


def test_a_download_completes_a_half_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_mnist(tmp_path / "FashionMNIST" / "raw", num=3)
    (tmp_path / "FashionMNIST" / "raw" / "t10k-labels-idx1-ubyte").unlink()
    replace(monkeypatch, "fashion_mnist", lambda root, _: write_mnist(root / "FashionMNIST" / "raw") and None)
    assert load("fashion_mnist", tmp_path, **{"data.download": True}).num_train == 12  # all from one source
    assert [path.name for path in tmp_path.iterdir()] == ["FashionMNIST"]


DOWNLOADER = """
import sys
from pathlib import Path
from train.data import sources
sources.addresses = lambda origin: ["afar"]
sources._table = lambda origin: fetch
target = Path(sys.argv[1])
def fetch(root, download):
    import time
    with (target / "calls").open("a") as calls:
        calls.write("x")
    time.sleep(0.3)
    (Path(root) / "file").write_text("whole")
sources.download(sources.Origin("mnist", "MNIST", 1), target, lambda: (target / "file").exists())
assert (target / "file").read_text() == "whole"
"""


def test_processes_that_ask_at_once_fetch_once(tmp_path: Path) -> None:
    started = [subprocess.Popen([sys.executable, "-c", DOWNLOADER, str(tmp_path)]) for _ in range(2)]
    assert [one.wait() for one in started] == [0, 0]
    assert (tmp_path / "calls").read_text() == "x"


def test_a_gzip_with_another_header_is_another_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The checksum is of the file, not of what it holds: packed again, it is no longer the original."""
    write_mnist(tmp_path / "mnist", ".gz")
    files = [(path.name, md5(path)) for path in (tmp_path / "mnist").iterdir()]
    monkeypatch.setattr(torchvision().datasets.MNIST, "resources", files)
    load("mnist", tmp_path)
    path = tmp_path / "mnist" / "train-labels-idx1-ubyte.gz"
    buffer = io.BytesIO()
    with gzip.GzipFile("other", "wb", fileobj=buffer) as file:
        file.write(gzip.decompress(path.read_bytes()))
    path.write_bytes(buffer.getvalue())
    with pytest.raises(ValueError, match=r"train-labels-idx1-ubyte\.gz: damaged"):
        load("mnist", tmp_path)
    load("mnist", tmp_path, **UNVERIFIED)
