"""Every reader of arrays on small files of its true format, written here byte by byte."""

import contextlib
import gzip
import os
import pickle
import struct
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from settings import resolving
from settings.data import DATA, DataRecord, Embedded
from train import data
from train.data import cifar, idx, pickles
from train.data.dataset import Arrays, Normalization
from train.data.source import Source, Splits

CPU = torch.device("cpu")
UNVERIFIED = {"data.verify": False}  # files of the true format, not the original ones


def load(name: str, data_dir: Path | str = "nowhere", /, **chosen: object) -> data.DataSet:
    return data.load(resolving.resolve({"data": name, "data_dir": str(data_dir), **chosen}), "cpu")


def whole(dataset: data.DataSet, split: str) -> tuple[np.ndarray, np.ndarray]:
    parts = list(dataset.batches(split, 7))  # type: ignore[arg-type]
    return torch.cat([x for x, _ in parts]).numpy(), torch.cat([y for _, y in parts]).numpy()


# --- writers of true formats ---------------------------------------------------------------------------------------


def write_idx(path: Path, array: np.ndarray) -> None:
    content = struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.astype(np.uint8).tobytes()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)


def write_mnist(folder: Path, suffix: str = "", num: int = 12) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    images, labels = rng.integers(0, 256, (num, 28, 28), dtype=np.uint8), np.arange(num) % 10
    for stem in ("train", "t10k"):
        write_idx(folder / f"{stem}-images-idx3-ubyte{suffix}", images)
        write_idx(folder / f"{stem}-labels-idx1-ubyte{suffix}", labels)
    return images, labels


def python2_batch(images: np.ndarray, labels: np.ndarray) -> bytes:
    """A CIFAR batch with the opcodes that Python 2 wrote: byte strings everywhere,
    0 and 1 for the flags of the dtype.
    """

    def text(value: bytes) -> bytes:
        return b"T" + struct.pack("<I", len(value)) + value

    dtype = (
        b"cnumpy\ndtype\n"
        + text(b"u1")
        + b"K\x00K\x01\x87R(K\x03"
        + text(b"|")
        + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    )
    empty = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85" + text(b"b") + b"\x87R"
    shape = b"(J" + struct.pack("<i", len(images)) + b"J" + struct.pack("<i", 3072) + b"t"
    array = empty + b"(K\x01" + shape + dtype + b"\x89" + text(images.tobytes()) + b"tb"
    numbers = b"](" + b"".join(b"K" + bytes([label]) for label in labels) + b"e"
    return (
        b"\x80\x02}("
        + text(b"batch_label")
        + text(b"a batch")
        + text(b"labels")
        + numbers
        + text(b"data")
        + array
        + b"u."
    )


def cifar_batches(num: int = 4) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(2)
    names = [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]
    return {name: (rng.integers(0, 256, (num, 3072), dtype=np.uint8), rng.integers(0, 10, num)) for name in names}


def write_cifar(folder: Path) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    folder.mkdir(parents=True)
    batches = cifar_batches()
    for name, batch in batches.items():
        (folder / name).write_bytes(python2_batch(*batch))
    return batches


def unnormalized(x: np.ndarray, normalization: Normalization) -> np.ndarray:
    shape = (1, -1, 1, 1)
    return (
        x.astype(np.float64) * np.reshape(normalization.std, shape) + np.reshape(normalization.mean, shape)
    ) * normalization.top


# --- embedded and synthetic ----------------------------------------------------------------------------------------


def test_digits_are_split_by_class_and_normalised() -> None:
    from sklearn.datasets import load_digits

    digits = load("digits")
    assert (digits.num_train, digits.num_test, digits.input_shape, digits.num_classes) == (1442, 355, (1, 8, 8), 10)
    assert not digits.is_stand_in
    (x, y), (x_test, y_test) = whole(digits, "train"), whole(digits, "test")
    assert x.dtype == np.float32 and y.dtype == np.int64
    everything = np.concatenate([x, x_test])
    assert abs(everything.mean()) < 1e-3 and abs(everything.std() - 1) < 1e-3
    share = np.bincount(y_test) / (np.bincount(y) + np.bincount(y_test))
    assert np.all(abs(share - 0.2) < 0.01)
    bunch: Any = load_digits()
    original = sorted(
        (image.tobytes(), label) for image, label in zip(bunch.images.astype(np.uint8), bunch.target, strict=True)
    )
    pixels = np.rint((everything[:, 0] * 0.3760 + 0.3053) * 16).astype(np.uint8)
    ours = sorted((image.tobytes(), label) for image, label in zip(pixels, np.concatenate([y, y_test]), strict=True))
    assert ours == original


def test_synthetic_task_depends_on_its_own_seed_alone() -> None:
    x, y = whole(load("logreg5"), "train")
    again = whole(load("logreg5", seed=99, **{"data.num_train": 50}), "train")
    np.testing.assert_array_equal(again[0], x[:50])  # fewer points are the first ones
    np.testing.assert_array_equal(again[1], y[:50])
    assert not np.array_equal(whole(load("logreg5", **{"data.data_seed": 1}), "train")[0], x)
    with pytest.raises(ValueError, match=r"data\.data_seed=-1"):
        load("logreg5", **{"data.data_seed": -1})


@pytest.mark.parametrize("num_classes", [2, 5, 10])
def test_synthetic_labels_are_linear_but_for_the_noise(num_classes: int) -> None:
    name = f"logreg{num_classes}"
    x, clean = whole(load(name, **{"data.noise": 0.0, "data.num_features": 20}), "train")
    _, noisy = whole(load(name, **{"data.noise": 0.3, "data.num_features": 20}), "train")
    assert abs((clean != noisy).mean() - 0.3 * (1 - 1 / num_classes)) < 0.02
    assert set(clean) == set(range(num_classes))
    fit = np.linalg.lstsq(x, np.eye(num_classes)[clean], rcond=None)[0]
    assert (np.argmax(x @ fit, axis=1) == clean).mean() > 0.85  # least squares nearly finds a linear rule


# --- MNIST ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("folder", "suffix"), [("mnist", ""), ("mnist", ".gz"), ("MNIST/raw", ""), ("MNIST/raw", ".gz")]
)
def test_mnist_reads_idx_files(tmp_path: Path, folder: str, suffix: str) -> None:
    images, labels = write_mnist(tmp_path / folder, suffix)
    dataset = load("mnist", tmp_path, **UNVERIFIED)
    for split in ("train", "test"):
        x, y = whole(dataset, split)
        np.testing.assert_allclose(x[:, 0], (images / 255 - 0.1307) / 0.3081, atol=1e-5)
        np.testing.assert_array_equal(y, labels)


def test_mnist_names_a_cut_gzip_a_bad_label_and_a_missing_file(tmp_path: Path) -> None:
    write_mnist(tmp_path / "mnist", ".gz")
    labels = tmp_path / "mnist" / "t10k-labels-idx1-ubyte.gz"
    whole_file = labels.read_bytes()
    for cut in (whole_file[:-9], whole_file[:3], b"\x1f\x8b" + whole_file[2:].replace(whole_file[12:16], b"????")):
        labels.write_bytes(cut)
        with pytest.raises(ValueError, match=r"t10k-labels-idx1-ubyte\.gz: damaged"):
            load("mnist", tmp_path, **UNVERIFIED)
    write_idx(labels, np.full(12, 10))
    with pytest.raises(ValueError, match="labels 0 to 9, found the label 10"):
        load("mnist", tmp_path, **UNVERIFIED)
    labels.unlink()
    with pytest.raises(FileNotFoundError, match=r"t10k-labels-idx1-ubyte.*data=mnist data\.download=true"):
        load("mnist", tmp_path, **UNVERIFIED)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=40))
def test_idx_reader_refuses_any_bytes_with_a_value_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "bytes"
    path.write_bytes(content)
    try:
        array = idx.read_idx(path, 1)
    except ValueError as error:
        assert str(path) in str(error)
    else:
        assert content == b"\0\0\x08\x01" + struct.pack(">I", len(array)) + array.tobytes()


# --- CIFAR-10 ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["cifar-10-batches-py", "cifar10/cifar-10-batches-py", "archive"])
def test_cifar10_reads_the_original_pickles(tmp_path: Path, place: str) -> None:
    batches = write_cifar(tmp_path / ("source/cifar-10-batches-py" if place == "archive" else place))
    if place == "archive":
        with tarfile.open(tmp_path / "cifar-10-python.tar.gz", "w:gz") as tar:
            tar.add(tmp_path / "source" / "cifar-10-batches-py", "cifar-10-batches-py")
    dataset = load("cifar10", tmp_path, **UNVERIFIED)
    assert (dataset.num_train, dataset.num_test, dataset.input_shape, dataset.num_classes) == (20, 4, (3, 32, 32), 10)
    x, y = whole(dataset, "train")
    expected = np.concatenate([batches[f"data_batch_{number}"][0] for number in range(1, 6)]).reshape(-1, 3, 32, 32)
    np.testing.assert_array_equal(np.rint(unnormalized(x, cifar.Cifar10.normalization)), expected)
    np.testing.assert_array_equal(y, np.concatenate([batches[f"data_batch_{number}"][1] for number in range(1, 6)]))
    np.testing.assert_array_equal(whole(dataset, "test")[1], batches["test_batch"][1])


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_pickles_of_every_protocol_are_read(protocol: int) -> None:
    content = {"data": np.arange(12, dtype=np.uint8).reshape(3, 4), "labels": [1, 2, 3], b"raw": b"\xff\x00"}
    read = pickles.load_arrays(pickle.dumps(content, protocol))
    np.testing.assert_array_equal(read["data"], content["data"])
    assert read["labels"] == [1, 2, 3] and read[b"raw"] == b"\xff\x00"


class Attack:
    def __init__(self, victim: str) -> None:
        self.victim = victim

    def __reduce__(self):
        return os.mkdir, (self.victim,)


def test_pickles_run_no_code(tmp_path: Path) -> None:
    victim = tmp_path / "made-by-the-pickle"
    write_cifar(tmp_path / "cifar-10-batches-py")
    path = tmp_path / "cifar-10-batches-py" / "data_batch_2"
    path.write_bytes(pickle.dumps({"data": Attack(str(victim)), "labels": []}))
    with pytest.raises(ValueError, match=r"data_batch_2.*asks for (posix|nt)\.mkdir"):
        load("cifar10", tmp_path)
    assert not victim.exists()
    with pytest.raises(ValueError, match=r"refused: an array of 'O8'"):
        pickles.load_arrays(pickle.dumps(np.array([None, "x"], dtype=object)))
    with pytest.raises(ValueError, match="would remember 1852793701 values"):
        pickles.load_arrays(b"\x80\x02Nrecon.")


@st.composite
def changed_pickles(draw: st.DrawFn) -> bytes:
    content = bytearray(python2_batch(np.arange(2 * 3072).reshape(2, 3072).astype(np.uint8), np.array([1, 2])))
    places = st.integers(-3, 198)  # all but the pixels: a changed pixel cannot be seen
    for _ in range(draw(st.integers(1, 4))):
        content[draw(places)] = draw(st.integers(0, 255))
    return bytes(content[: draw(st.just(len(content)) | st.integers(0, len(content)))])


@settings(max_examples=200, deadline=None)
@given(changed=changed_pickles())
@example(changed=b"S'\\d'\n.")  # an unknown escape, which pickletools warns of
def test_a_changed_pickle_gives_a_value_error_or_plain_values(changed: bytes) -> None:
    with contextlib.suppress(ValueError):
        pickles.load_arrays(changed)


class Plain(Source):
    """A data set as the recipe asks for it, and no more: ``read``."""

    inputs = np.arange(2 * 3 * 8 * 8, dtype=np.uint8).reshape(2, 3, 8, 8)

    def read(self) -> Splits:
        split = Arrays(self.inputs, np.arange(2))
        return split, split


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setitem(DATA, "plain", DataRecord(Embedded, f"{__name__}:Plain", 2, (3, 8, 8), (2, 2)))
    return {"data": {"name": "plain", "limit": 0, "cutout": 0, "augment": False}, "data_dir": "data"}


def test_pictures_without_a_normalization_are_given_from_0_to_1(plain: dict[str, Any]) -> None:
    inputs, _ = next(Plain(plain).load(CPU).batches("test", 2))
    np.testing.assert_allclose(inputs.numpy(), Plain.inputs / 255, rtol=1e-6)
    rehearsed, _ = next(Plain(plain).stand_in(CPU, 64, 64).batches("test", 64))
    assert rehearsed.dtype == inputs.dtype and rehearsed.min() >= 0 and 0.9 < rehearsed.max() <= 1
