"""Small models: a CNN and an MLP that fit any data set of their kind, and logistic regression."""

from __future__ import annotations

import math

import torch.nn.functional as F
from torch import Tensor, nn


class CNN(nn.Module):
    """A network of two 3x3 convolutions (16 and 32 channels), a maximum over 2x2, a mean, and 64 hidden units.

    The mean leaves about 4x4.  38,282 parameters for the 8x8 digits; the mean is the identity there.
    """

    def __init__(self, input_shape: tuple[int, ...], num_classes: int) -> None:
        super().__init__()
        channels, height, width = input_shape
        self.conv1 = nn.Conv2d(channels, 16, 3, padding=1)
        self.conv2 = nn.Conv2d(16, 32, 3, padding=1)
        self.pool = (max(1, height // 8), max(1, width // 8))
        self.hidden = nn.Linear(32 * (height // 2 // self.pool[0]) * (width // 2 // self.pool[1]), 64)
        self.output = nn.Linear(64, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.conv2(F.relu(self.conv1(x)))), 2)
        x = F.avg_pool2d(x, self.pool).flatten(1)
        return self.output(F.relu(self.hidden(x)))


def mlp(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """A network of two hidden layers of 128 units."""
    return nn.Sequential(
        *(nn.Flatten(), nn.Linear(math.prod(input_shape), 128), nn.ReLU()),
        *(nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, num_classes)),
    )


def logreg(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """A network of one linear layer: multinomial logistic regression under cross-entropy."""
    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(input_shape), num_classes))
