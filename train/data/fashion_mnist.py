"""Fashion-MNIST from its original idx files, in torchvision's folder or one called fashion_mnist.

Xiao, Rasul, Vollgraf, 2017.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from . import idx
from .augment import Augmentation
from .dataset import DataSet, Normalization
from .sources import Origin

FASHION_MNIST = idx.Idx(
    "Fashion-MNIST",
    Origin("fashion_mnist", "FashionMNIST", size_mb=31),
    ("fashion_mnist", "fashion_mnist/raw", "fashion_mnist/FashionMNIST/raw", "FashionMNIST/raw", "FashionMNIST"),
    Normalization(mean=(0.2860,), std=(0.3530,)),  # mean and std of all training pixels
    Augmentation(padding=2, flip=True),
)


def load(config: Mapping[str, Any], device: torch.device) -> DataSet:
    """The data set Fashion-MNIST: 60,000 training and 10,000 test images of 28x28 pixels, 10 kinds of clothing."""
    return idx.load(FASHION_MNIST, config, device)
