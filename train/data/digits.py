"""Handwritten digits, 8x8 pixels, 1797 images: bundled with scikit-learn, so every installation has them."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np

from .dataset import Arrays, Normalization
from .source import Source, Splits

TEST_EVERY = 5  # every fifth image of each class is a test image


def _bundled_file() -> Path:
    """The path of scikit-learn's file, without an import that would take longer than a run's first hundred steps."""
    package = importlib.util.find_spec("sklearn")
    if package is None or package.origin is None:
        raise FileNotFoundError(
            "data=digits reads the file that scikit-learn bundles, and scikit-learn is not installed: run make setup"
        )
    return Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz"


class Digits(Source):
    """The 1442 training and 355 test images: a stratified split without random numbers, the same everywhere."""

    normalization = Normalization(mean=(0.3053,), std=(0.3760,), top=16.0)  # of all pixels, in units of a full pixel

    def read(self) -> Splits:
        table = np.loadtxt(_bundled_file(), delimiter=",", dtype=np.uint8)
        images = table[:, :-1].reshape(-1, 1, 8, 8)
        labels = table[:, -1].astype(np.int64)
        test = np.zeros(len(labels), dtype=bool)
        for label in range(10):
            test[np.flatnonzero(labels == label)[TEST_EVERY - 1 :: TEST_EVERY]] = True
        return Arrays(images[~test], labels[~test]), Arrays(images[test], labels[test])
