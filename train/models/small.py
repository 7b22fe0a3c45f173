"""Small models: a CNN and an MLP that fit any data set of their kind, logistic regression, and the MNIST CNN."""

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
    layers = [
        nn.Flatten(),
        nn.Linear(math.prod(input_shape), 128),
        nn.ReLU(),
        nn.Linear(128, 128),
        nn.ReLU(),
        nn.Linear(128, num_classes),
    ]
    return nn.Sequential(*layers)


def logreg(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """A network of one linear layer: multinomial logistic regression under cross-entropy."""
    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(input_shape), num_classes))


class MnistCNN(nn.Module):
    """The original's MNIST network: 5x5 convolutions of 10 and 20 channels, 50 hidden units, dropout at two places.

    It has 21,840 parameters.  In training mode dropout draws from torch's global generator of the device: the caller
    forks and seeds it (``torch.random.fork_rng``) around each worker's forward pass, so that every split of workers
    gives the same bits.
    """

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 10, 5)
        self.conv2 = nn.Conv2d(10, 20, 5)
        self.hidden = nn.Linear(20 * 4 * 4, 50)
        self.output = nn.Linear(50, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(F.max_pool2d(self.conv1(x), 2))
        x = F.relu(F.max_pool2d(F.dropout2d(self.conv2(x), training=self.training), 2))
        x = F.dropout(F.relu(self.hidden(x.flatten(1))), training=self.training)
        return self.output(x)
