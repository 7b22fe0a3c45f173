"""CIFAR-100: names of its files, and its constants; ``train.data.cifar`` reads them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from . import cifar
from .dataset import DataSet, Normalization
from .sources import Origin

NORMALIZATION = Normalization(mean=(0.5071, 0.4865, 0.4409), std=(0.2673, 0.2564, 0.2762))  # of all training pixels
CIFAR100 = cifar.Cifar(
    "CIFAR-100",
    Origin("cifar100", "CIFAR100", size_mb=169),
    num_classes=100,
    normalization=NORMALIZATION,
    batches={"train": ("train",), "test": ("test",)},
    folder="cifar-100-python",
    archive="cifar-100-python.tar.gz",
    label_key="fine_labels",
    binary_folder="cifar-100-binary",
    binary_labels=2,  # the coarse label, then the fine one
)


def load(config: Mapping[str, Any], device: torch.device) -> DataSet:
    """The data set CIFAR-100: 50,000 training and 10,000 test images of 32x32 pixels in 100 (fine) classes."""
    return cifar.load(CIFAR100, config, device)
