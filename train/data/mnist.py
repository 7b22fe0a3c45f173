"""MNIST from its original idx files, in torchvision's folder or one called mnist."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from . import idx
from .augment import Augmentation
from .dataset import DataSet, Normalization
from .sources import Origin

MNIST = idx.Idx(
    "MNIST",
    Origin("mnist", "MNIST", size_mb=12),
    ("mnist", "mnist/raw", "mnist/MNIST/raw", "MNIST/raw", "MNIST"),
    Normalization(mean=(0.1307,), std=(0.3081,)),  # mean and std of all training pixels; the original's constants
    Augmentation(padding=2, flip=False),  # a mirrored digit is another sign
)


def load(config: Mapping[str, Any], device: torch.device) -> DataSet:
    """The data set MNIST: 60,000 training and 10,000 test images of 28x28 handwritten digits."""
    return idx.load(MNIST, config, device)
