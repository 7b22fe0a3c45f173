"""CIFAR-10: names of its files, and its constants; ``train.data.cifar`` reads them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from . import cifar
from .dataset import DataSet, Normalization
from .sources import Origin

# the original's: std within one image
NORMALIZATION = Normalization(mean=(0.4914, 0.4822, 0.4465), std=(0.2023, 0.1994, 0.2010))
CIFAR10 = cifar.Cifar(
    "CIFAR-10",
    Origin("cifar10", "CIFAR10", size_mb=170),
    num_classes=10,
    normalization=NORMALIZATION,
    batches={"train": tuple(f"data_batch_{number}" for number in range(1, 6)), "test": ("test_batch",)},
    folder="cifar-10-batches-py",
    archive="cifar-10-python.tar.gz",
    label_key="labels",
    binary_folder="cifar-10-batches-bin",
    binary_labels=1,
)


def load(config: Mapping[str, Any], device: torch.device) -> DataSet:
    """The data set CIFAR-10: 50,000 training and 10,000 test images of 32x32 pixels in 10 classes."""
    return cifar.load(CIFAR10, config, device)
