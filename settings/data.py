"""The catalog of data sets: one record for each, and the dataclasses of their settings.  Imports no torch.

Adding a data set is one file in ``train/data/`` and one line of ``DATA``, with settings of its own only where none of
these fits; ``--help``, the orchestrator's checks, the dry run, the tests and docs/experiments.md read this table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nuq.settings import plugins, setting
from settings.limit import Limited, check_within
from settings.text import TASKS, Glue, Imdb

CUTOUT = (
    "side in pixels of a square that is blanked at a random place of each training image (0: none; 8 in ResNet-9's "
    "recipe)"
)
VERIFY = (
    "hold original archives, and SVHN's .mat files, against torchvision's checksums; false reads others of the same "
    "form"
)
DECODE = (
    "full: as torchvision does; fast: a JPEG at least twice as large as needed is decoded at 1/2, 1/4 or 1/8, nearly "
    "the same picture"
)


@dataclass
class Embedded(Limited):
    """Data that every installation has: scikit-learn's digits."""


@dataclass
class Synthetic(Limited):
    """Points of a random linear model with label noise; drawn from its own seed, so every run sees the same task."""

    num_train: int = setting(10000, "training points", low=1)
    num_test: int = setting(2000, "test points", low=1)
    num_features: int = setting(100, "coordinates of a point", low=1)
    noise: float = setting(0.1, "share of labels drawn at random", low=0, high=1)
    data_seed: int = setting(0, "seed of the task itself, apart from the seed of the run", low=0)


@dataclass
class SourceText(Limited):
    """Characters of the standard library's own sources, each to be predicted from those before it in its window."""

    length: int = setting(
        64, "characters of a window, which is a model's context; two lines of code", low=1, high=100_000
    )
    num_train: int = setting(8192, "training windows, one after another; half a megabyte of text", low=1, high=10**9)
    num_test: int = setting(512, "test windows, from other files", low=1, high=10**9)


@dataclass
class Files(Limited):
    """Pictures read from ``data_dir``."""

    augment: bool = setting(True, "random crop and flip of training images, as in the paper")
    cutout: int = setting(0, CUTOUT, low=0, identity="unless default")


@dataclass
class Downloadable(Files):
    download: bool = setting(
        False, "fetch the original files where they are missing; never without being asked", identity=False
    )
    verify: bool = setting(True, VERIFY, identity=False)


@dataclass
class Mnist(Downloadable):
    augment: bool = setting(
        False, "MNIST is trained without augmentation, as in the paper; true crops, and never flips a digit"
    )


@dataclass
class FashionMnist(Downloadable):
    augment: bool = setting(False, "as MNIST, whose place it takes; true crops and flips")


@dataclass
class Svhn(Downloadable):
    augment: bool = setting(False, "trained without augmentation by custom; true crops, and never flips a digit")


@dataclass
class Pictures(Files):
    """Pictures in one folder per class, in train/ and val/."""

    decode: str = setting("full", DECODE, choices=("full", "fast"), identity="unless default")


@dataclass
class Folder(Pictures):
    """Any pictures in one folder per class, in train/ and test/ (or val/)."""

    path: str = setting(
        "", "the folder that holds train/ and test/ (or val/), seen from data_dir; empty: data_dir itself"
    )
    size: int = setting(
        32, "side in pixels that pictures are brought to; up to 64 they live decoded in memory", low=8, high=4096
    )


@dataclass(frozen=True)
class DataRecord:
    """A line of the catalog: a data set with all that is known of it before it is read."""

    settings: type[Limited]
    code: str  # ``module:class``, a ``train.data.source.Source``
    # of a folder of pictures in its stand-in (the true ones are the folder's); of GLUE those of a score
    num_classes: int
    input_shape: tuple[int, ...] | None = None  # (channel, height, width); None where settings give it
    sizes: tuple[int, int] | None = None  # examples to train and to test; None where settings or files give them
    # where its files may lie below data_dir, {NAME} being a setting: one of these is there; none: it needs no files
    places: tuple[str, ...] = ()
    in_memory: bool = True  # decoded on the training device; False: read from disk, batch by batch
    num_stand_ins: int = 1024  # training examples of a stand-in; a quarter as many to test
    # inputs are int64 tokens: of a text (length,), with a label at every place, or of sentences (2, length)
    tokens: bool = False


def _idx(name: str, theirs: str) -> tuple[str, ...]:
    return name, f"{name}/raw", f"{name}/{theirs}/raw", f"{theirs}/raw", theirs


_DIGITS = (1, 28, 28), (60_000, 10_000)
_CIFAR = (3, 32, 32), (50_000, 10_000)
_CIFAR10 = ("cifar10", "cifar-10-batches-py", "cifar-10-batches-bin", "cifar-10-python.tar.gz")
_CIFAR100 = ("cifar100", "cifar-100-python", "cifar-100-binary", "cifar-100-python.tar.gz")
_SVHN = ("svhn/train_32x32.mat", "SVHN/train_32x32.mat", "train_32x32.mat")
_IMAGENET = (3, 224, 224), (1_281_167, 50_000), ("imagenet", "meta.bin")

DATA: dict[str, DataRecord] = {
    "digits": DataRecord(Embedded, "train.data.digits:Digits", 10, (1, 8, 8), (1442, 355)),
    **{f"logreg{classes}": DataRecord(Synthetic, "train.data.synthetic:Points", classes) for classes in (2, 5, 10)},
    "text": DataRecord(SourceText, "train.data.text:StandardLibrary", 97, tokens=True),
    "mnist": DataRecord(Mnist, "train.data.idx:Mnist", 10, *_DIGITS, _idx("mnist", "MNIST")),
    "fashion_mnist": DataRecord(
        FashionMnist, "train.data.idx:FashionMnist", 10, *_DIGITS, _idx("fashion_mnist", "FashionMNIST")
    ),
    "cifar10": DataRecord(Downloadable, "train.data.cifar:Cifar10", 10, *_CIFAR, _CIFAR10),
    "cifar100": DataRecord(Downloadable, "train.data.cifar:Cifar100", 100, *_CIFAR, _CIFAR100),
    "svhn": DataRecord(Svhn, "train.data.svhn:Svhn", 10, (3, 32, 32), (73_257, 26_032), _SVHN),
    "imagenet": DataRecord(
        Pictures, "train.data.imagenet:ImageNet", 1000, *_IMAGENET, in_memory=False, num_stand_ins=256
    ),
    "folder": DataRecord(Folder, "train.data.folder:Folder", 10, places=("{path}",), num_stand_ins=256),
    "glue": DataRecord(Glue, "train.data.glue:GlueTask", 1, places=("glue", "glue_data", "GLUE"), tokens=True),
    "imdb": DataRecord(
        Imdb, "train.data.imdb:Imdb", 2, None, (25_000, 25_000), ("aclImdb", "imdb/aclImdb", "imdb"), tokens=True
    ),
}
plugins.TABLES["data set"] = DATA, DataRecord


def check_limit(config: Mapping[str, Any]) -> None:
    """Raise ValueError for a limit that fills no step, or that is above the training examples as far as known here."""
    data, per_worker = config["data"], config["batch_size"] * config["compute"]["accumulate"]
    limit, per_step = data["limit"], per_worker * config["workers"]
    if 0 < limit < per_step:
        fits = limit // (config["workers"] * config["compute"]["accumulate"])
        smaller = f"; or set batch_size to at most {fits}" if fits else ""
        raise ValueError(
            f"data.limit={limit}: a step takes {per_step} samples (workers={config['workers']} with {per_worker} "
            f"each); legal: at least {per_step}, or 0 for all examples{smaller}"
        )
    if (num_train := _num_train(data)) is not None:
        check_within(data, num_train)


def _num_train(data: Mapping[str, Any]) -> int | None:
    """The training examples of a data set; None where only its files could tell."""
    if "task" in data:
        return TASKS[data["task"]].num_train
    sizes = DATA[data["name"]].sizes
    return sizes[0] if sizes else data.get("num_train")


def is_on_disk(config: Mapping[str, Any]) -> bool:
    """Whether a resolved configuration reads files of ``data_dir``."""
    return bool(DATA[config["data"]["name"]].places) and not config["stand_in"]
