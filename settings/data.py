"""Settings of data sets: one dataclass for each kind, and the table of their names. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass

from nuq.settings import setting
from settings.text import Glue, Imdb, OnDisk

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
class Embedded:
    """Data that every installation has: scikit-learn's digits."""


@dataclass
class Synthetic:
    """Points of a random linear model with label noise; drawn from its own seed, so every run sees the same task."""

    num_train: int = setting(10000, "training points", low=1)
    num_test: int = setting(2000, "test points", low=1)
    num_features: int = setting(100, "coordinates of a point", low=1)
    noise: float = setting(0.1, "share of labels drawn at random", low=0, high=1)
    data_seed: int = setting(0, "seed of the task itself, apart from the seed of the run", low=0)


@dataclass
class SourceText:
    """Characters of the standard library's own sources, each to be predicted from those before it in its window."""

    length: int = setting(
        64, "characters of a window, which is a model's context; two lines of code", low=1, high=100_000
    )
    num_train: int = setting(8192, "training windows, one after another; half a megabyte of text", low=1, high=10**9)
    num_test: int = setting(512, "test windows, from other files", low=1, high=10**9)


@dataclass
class Files(OnDisk):
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


DATA: dict[str, type] = {
    "digits": Embedded,
    **{f"logreg{classes}": Synthetic for classes in (2, 5, 10)},
    "text": SourceText,
    "mnist": Mnist,
    "fashion_mnist": FashionMnist,
    "cifar10": Downloadable,
    "cifar100": Downloadable,
    "svhn": Svhn,
    "imagenet": Pictures,
    "folder": Folder,
    "glue": Glue,
    "imdb": Imdb,
}
