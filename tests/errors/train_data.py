"""Errors of data sets: files that are missing, damaged or others, and arrays of another kind."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import pickle
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from PIL import Image
from scipy.io import savemat

from settings import resolving
from settings.data import DATA, DataRecord, Embedded
from tests.errors.rows import Row, row
from tests.train import glue_files
from tests.train.archive_files import write_binary, write_cifar100, write_svhn
from tests.train.data.test_data import cifar_batches, python2_batch, write_cifar, write_idx, write_mnist
from tests.train.data.test_pictures import write_tree
from train import data
from train.data import data_files, digits, pickles, text, torchvision_import, wordpiece
from train.data.dataset import Arrays, Normalization
from train.data.source import Source

TRAIN = "train-images-idx3-ubyte"
Harm = Callable[[Path], object]


def load(name: str, given: str, harm: Harm | None = None, **chosen: Any) -> Row:
    """A data set in whose folder ``harm`` was done first."""
    named = {key if key == "stand_in" else f"data.{key}": value for key, value in chosen.items()}
    settings = {"data": name, "data_dir": ".", **named}

    def make(folder: Path) -> None:
        if harm:
            harm(folder)
        data.load(resolving.resolve(settings), "cpu")

    return row(f"main.py data={name}", given, make)


def replaced(write: Harm, path: str, content: bytes | Callable[[bytes], bytes]) -> Harm:
    """Write a data set, and then one of its files with other bytes."""

    def harm(folder: Path) -> None:
        write(folder)
        place = folder / path
        place.write_bytes(content(place.read_bytes()) if callable(content) else content)

    return harm


def without(write: Harm, path: str) -> Harm:
    def harm(folder: Path) -> None:
        write(folder)
        (folder / path).unlink()

    return harm


# --- arrays -------------------------------------------------------------------------------------------------------


def _mnist(folder: Path) -> None:
    write_mnist(folder / "mnist")


def _mnist_gz(folder: Path) -> None:
    write_mnist(folder / "mnist", ".gz")


def mnist(given: str, name: str, array: np.ndarray) -> Row:
    def harm(folder: Path) -> None:
        _mnist(folder)
        write_idx(folder / "mnist" / name, array)

    return load("mnist", given, harm)


def cifar10(given: str, content: Callable[[np.ndarray, np.ndarray], object]) -> Row:
    def harm(folder: Path) -> None:
        batches = write_cifar(folder / "cifar-10-batches-py")
        made = content(*batches["data_batch_3"])
        (folder / "cifar-10-batches-py/data_batch_3").write_bytes(
            made if isinstance(made, bytes) else pickle.dumps(made)
        )

    return load("cifar10", given, harm)


def _cifar(folder: Path) -> None:
    write_cifar(folder / "cifar-10-batches-py")


def _cifar100(folder: Path) -> None:
    write_cifar100(folder / "cifar-100-python")


def _cifar100_binary(folder: Path) -> None:
    write_binary(folder / "cifar-100-binary", {"train": 12, "test": 5}, coarse=True)


def _archive(folder: Path) -> None:
    """An archive of CIFAR-10 with one batch alone."""
    content = python2_batch(*cifar_batches()["data_batch_1"])
    with tarfile.open(folder / "cifar-10-python.tar.gz", "w:gz") as tar:
        member = tarfile.TarInfo("cifar-10-batches-py/data_batch_1")
        member.size = len(content)
        tar.addfile(member, io.BytesIO(content))


def svhn(given: str, **arrays: np.ndarray) -> Row:
    def harm(folder: Path) -> None:
        write_svhn(folder)
        savemat(folder / "train_32x32.mat", arrays)

    return load("svhn", given, harm, verify=False)


IMAGES, LABELS = np.zeros((32, 32, 3, 2), np.uint8), np.ones((2, 1), np.uint8)


class Plain(Source):
    """A data set of a user's own, of which each row has another fault."""

    split: Any = Arrays(np.zeros((2, 3, 8, 8), np.uint8), np.arange(2))

    def read(self) -> tuple[Arrays, Arrays]:
        return self.split, self.split


def own(given: str, sizes: tuple[int, int] = (2, 2), **changes: Any) -> Row:
    def make() -> None:
        record = DataRecord(Embedded, f"{__name__}:Plain", 2, (3, 8, 8), sizes)
        settings = {"data": {"name": "plain", "limit": 0, "cutout": 0, "augment": False}, "data_dir": "."}
        with contextlib.ExitStack() as stack:
            stack.enter_context(mock.patch.dict(DATA, plain=record))
            for name, value in changes.items():
                stack.enter_context(mock.patch.object(Plain, name, value))
            Plain(settings).load(torch.device("cpu"))

    return row("a data set of your own", given, make)


def _arrays(inputs: Any, labels: Any) -> Any:
    return Arrays(inputs, labels)


PIXELS = Plain.split.inputs

# --- pictures -----------------------------------------------------------------------------------------------------


def _tree(folder: Path) -> None:
    write_tree(folder / "cifar10", {"train": 2, "test": 1})


def pictures(given: str, harm: Harm, name: str = "cifar10", write: Harm = _tree, **chosen: Any) -> Row:
    def both(folder: Path) -> None:
        write(folder)
        harm(folder)

    return load(name, given, both, **chosen)


def _moved(folder: Path, path: str, name: str) -> None:
    (folder / path).rename((folder / path).with_name(name))


def _other_size(folder: Path) -> None:
    Image.new("RGB", (32, 31)).save(folder / "cifar10/train/class4/0001.jpg")


def _no_folder(folder: Path) -> None:
    _moved(folder, "cifar10/test", "elsewhere")


def _empty(folder: Path) -> None:
    _no_folder(folder)
    (folder / "cifar10/test").mkdir()


def _packed(folder: Path) -> None:
    (folder / "imagenet").mkdir()
    (folder / "imagenet/ILSVRC2012_img_train.tar").touch()


# --- sentences ----------------------------------------------------------------------------------------------------


def glue(task: str, given: str, change: Callable[[str], str]) -> Row:
    """A task whose training file is another."""

    def harm(folder: Path) -> None:
        path = glue_files.write_task(folder, task) / "train.tsv"
        path.write_bytes(change(path.read_text(encoding="utf-8")).encode(errors="surrogateescape"))

    return load("glue", f"{task}, {given}", harm, task=task)


def glue_line(task: str, given: str, line: str) -> Row:
    return glue(task, given, lambda text: "\n".join([*text.split("\n")[:3], line, *text.split("\n")[4:]]))


def _dev_is_a_folder(folder: Path) -> None:
    path = glue_files.write_task(folder, "wnli") / "dev.tsv"
    path.unlink()
    path.mkdir()


def mrpc(given: str, ids: str | None) -> Row:
    """MRPC in Microsoft's own file."""

    def harm(folder: Path) -> None:
        place = glue_files.write_task(folder, "mrpc")
        (place / "train.tsv").rename(place / "msr_paraphrase_train.txt")
        (place / "dev.tsv").unlink()
        if ids is not None:
            (place / "dev_ids.tsv").write_text(ids)

    return load("glue", given, harm, task="mrpc")


def imdb(given: str, harm: Harm) -> Row:
    return pictures(given, harm, "imdb", glue_files.write_imdb)


def vocabulary(given: str, content: bytes | None) -> Row:
    def make(folder: Path) -> None:
        if content is not None:
            (folder / "vocab.txt").write_bytes(content)
        wordpiece.in_folder(folder)

    return row("main.py data.tokenizer=", given, make)


# --- what is not installed ----------------------------------------------------------------------------------------


def not_installed(package: str, ask: Callable[[], object]) -> Row:
    def make() -> None:
        with (
            mock.patch.object(importlib.util, "find_spec", lambda name: None),
            mock.patch.dict("sys.modules", {package: None}),
        ):
            ask()

    return row(f"the package {package}", "not installed", make)


def _few_sources(folder: Path, found: str) -> None:
    """A Python whose library has one file for each split."""
    for name in filter(None, found.split()):
        (folder / name).write_text("x = 1\n")
    with (
        mock.patch.object(text.sysconfig, "get_path", lambda name: str(folder)),
        mock.patch.object(text.sys, "version_info", (3, 99)),
    ):
        data.load(resolving.resolve({"data": "text"}), "cpu")


def _torchvision() -> Any:
    """torchvision's table of MNIST where there is no network."""
    no_network = RuntimeError("Error downloading:\nName or service not known")
    files = [(f"{TRAIN}.gz", "0" * 32)]
    table = mock.Mock(side_effect=no_network, mirrors=["https://example.org/"], resources=files)
    return mock.patch.object(data_files, "_table", lambda origin: table)


def _not_the_original(folder: Path) -> None:
    replaced(_mnist_gz, f"mnist/{TRAIN}.gz", b"other")(folder)
    with _torchvision():
        data.load(resolving.resolve({"data": "mnist", "data_dir": "."}), "cpu")


def _unreachable(folder: Path) -> None:
    del folder  # it runs there
    with _torchvision(), contextlib.redirect_stdout(io.StringIO()):
        data.load(resolving.resolve({"data": "mnist", "data_dir": ".", "data.download": True}), "cpu")


ROWS = [
    load("mnist", "not there"),
    mnist("pictures of 27x28", TRAIN, np.zeros((12, 27, 28))),
    mnist("fewer labels than pictures", "train-labels-idx1-ubyte", np.zeros(11)),
    mnist("a label of 10", "t10k-labels-idx1-ubyte", np.full(12, 10)),
    load("mnist", "cut short", replaced(_mnist, f"mnist/{TRAIN}", lambda whole: whole[:-1])),
    load("mnist", "an empty file", replaced(_mnist, f"mnist/{TRAIN}", b"")),
    load("mnist", "a damaged gzip", replaced(_mnist_gz, f"mnist/{TRAIN}.gz", b"\x1f\x8b"), verify=False),
    row("main.py data=mnist", "not the original", _not_the_original),
    row("main.py data.download=true", "without a network", _unreachable),
    load("fashion_mnist", "not there", lambda folder: write_mnist(folder / "MNIST/raw")),
    load("cifar10", "not there"),
    load("cifar10", "a batch is not there", without(_cifar, "cifar-10-batches-py/test_batch")),
    load("cifar10", "an archive of one batch", _archive, verify=False),
    load(
        "cifar10",
        "an archive cut short",
        replaced(_archive, "cifar-10-python.tar.gz", lambda whole: whole[:2000]),
        verify=False,
    ),
    cifar10("no pickle", lambda images, labels: b"{"),
    cifar10("a pickle of a list", lambda images, labels: [1, 2]),
    cifar10("pictures of another size", lambda images, labels: {"data": images[:, 1:], "labels": labels.tolist()}),
    cifar10("fewer labels than pictures", lambda images, labels: {"data": images, "labels": [1]}),
    cifar10("a label of 10", lambda images, labels: {"data": images, "labels": [10] * len(images)}),
    cifar10("fewer pictures than other batches", lambda images, labels: {"data": images[:1], "labels": [1]}),
    cifar10("a pickle that makes a folder", lambda images, labels: b"cos\nmkdir\n(S'made'\ntR."),
    row(
        "a pickle of a data set",
        "an array of objects",
        lambda: pickles.load_arrays(pickle.dumps(np.array([None], dtype=object))),
    ),
    row(
        "a pickle of a data set",
        "text in another encoding",
        lambda: pickles.load_arrays(b"c_codecs\nencode\n(Va\nVutf8\ntR."),
    ),
    row("a pickle of a data set", "more values than bytes", lambda: pickles.load_arrays(b"\x80\x02Nrecon.")),
    load("cifar100", "pickles of CIFAR-10", lambda folder: write_cifar(folder / "cifar-100-python")),
    load(
        "cifar100",
        "pictures cut short",
        replaced(_cifar100_binary, "cifar-100-binary/test.bin", lambda whole: whole[:-1]),
    ),
    load(
        "cifar100",
        "a label of 100",
        replaced(_cifar100_binary, "cifar-100-binary/test.bin", lambda whole: b"\x13\x64" + whole[2:]),
    ),
    load("svhn", "not there"),
    load("svhn", "an empty file", replaced(write_svhn, "test_32x32.mat", b""), verify=False),
    svhn("without labels", X=IMAGES),
    svhn("labels that are texts", X=IMAGES, y=np.array(["a", "b"])),
    svhn("a label of 11", X=IMAGES, y=np.array([[1], [11]])),
    svhn("more pictures than labels", X=np.zeros((32, 32, 3, 3), np.uint8), y=LABELS),
    load("logreg5", "data.data_seed=-1", data_seed=-1),
    row("train.data.load(config)", "a name that is none", lambda: data.source_of({"data": {"name": "mist"}})),
    # data sets of one's own
    own("labels in a list", split=_arrays(PIXELS, [0, 1])),
    own("pixels of float64", split=_arrays(PIXELS.astype(np.float64), np.arange(2))),
    own("labels of int32", split=_arrays(PIXELS, np.arange(2, dtype=np.int32))),
    own("a label of 7", split=_arrays(PIXELS, np.array([0, 7]))),
    own("other sizes than its record", sizes=(2, 3)),
    own("a normalization of one channel", normalization=Normalization((0.5,), (0.2,))),
    # pictures
    pictures("an empty picture", replaced(lambda folder: None, "cifar10/train/class4/0001.jpg", b"")),
    pictures("a picture of 32x31", _other_size),
    pictures("a class with fewer pictures", lambda folder: (folder / "cifar10/train/class3/0001.jpg").unlink()),
    pictures("a class that is missing", lambda folder: shutil.rmtree(folder / "cifar10/train/class3")),
    pictures("an empty class", lambda folder: [path.unlink() for path in (folder / "cifar10/train/class3").iterdir()]),
    pictures("another name of a class", lambda folder: _moved(folder, "cifar10/train/class3", "class3x")),
    pictures("no test pictures", _no_folder),
    pictures("no class of test pictures", _empty),
    load("imagenet", "not there"),
    load("imagenet", "still packed", _packed),
    load("folder", "not there", path="insects", size=32),
    load("cifar10", "data.cutout=33", cutout=33, stand_in=True),
    # sentences
    load("glue", "not there"),
    load(
        "glue",
        "without the file of dev",
        without(lambda folder: glue_files.write_task(folder, "mnli"), "glue/MNLI/dev_matched.tsv"),
        task="mnli",
    ),
    load("glue", "a folder in place of a file", _dev_is_a_folder, task="wnli"),
    glue("wnli", "bytes that are no UTF-8", lambda text: text.replace("cat", "c\udce9t")),
    glue("wnli", "without a column", lambda text: text.replace("label", "answer", 1)),
    glue("wnli", "a column twice", lambda text: text.replace("index", "label", 1)),
    glue("wnli", "no rows", lambda text: text.split("\n")[0]),
    glue_line("mnli", "a line cut short", ""),
    glue_line("cola", "a label that is none", "gj04\t2\t\tA cat."),
    glue_line("stsb", "a score of 'five'", glue_files.row("stsb", 1).rpartition("\t")[0] + "\tfive"),
    glue_line("stsb", "a score of nan", glue_files.row("stsb", 1).rpartition("\t")[0] + "\tnan"),
    glue_line("rte", "a label that is none", "1\ta\tb\tmaybe"),
    glue_line("stsb", "a score above 5", glue_files.row("stsb", 1).rpartition("\t")[0] + "\t5.2"),
    mrpc("Microsoft's file without GLUE's list", None),
    mrpc("a list of other pairs", "x\ty\n"),
    load("imdb", "not there"),
    imdb("a folder in place of a review", lambda folder: (folder / "aclImdb/test/pos/6_8.txt").mkdir()),
    imdb("bytes that are no UTF-8", lambda folder: (folder / "aclImdb/test/pos/3_9.txt").write_bytes(b"caf\xe9")),
    vocabulary("not there", None),
    vocabulary("without [SEP]", b"[PAD]\n[UNK]\n[CLS]\nthe\n"),
    vocabulary("a token twice", b"[PAD]\n[UNK]\n[CLS]\n[SEP]\nthe\nthe\n"),
    vocabulary("bytes that are no UTF-8", b"[PAD]\n\xff\n"),
    row("main.py data=text", "a Python without sources", lambda folder: _few_sources(folder, "")),
    row("main.py data=text", "a Python with few sources", lambda folder: _few_sources(folder, "a.py b.py c.py d.py")),
    not_installed("tokenizers", wordpiece.library),
    not_installed("scikit-learn", digits._bundled_file),
    not_installed("torchvision", torchvision_import.torchvision.__wrapped__),
]
