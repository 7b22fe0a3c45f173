"""The small networks of the original experiments (Faghri et al. 2020).

Its ``cnn`` and ``mlp`` were one for MNIST and another for CIFAR.  In training mode their dropout draws from torch's
global generator of the device, which the caller forks and seeds.
"""

from __future__ import annotations

import math

import torch.nn.functional as F
from torch import Tensor, nn


class MnistConvnet(nn.Module):
    """The network for MNIST: two 5x5 convolutions, each with a maximum over 2x2, and hidden units.

    Half of the second's maps and of the units are dropped.  (64, 128) channels: its ``cnn``, 2,265,602 parameters;
    (1000, 1000): its ``bigcnn``, 41,038,010; (10, 20) and 50 units: ``mnist_cnn``, 21,840.
    """

    def __init__(self, first: int, second: int, num_classes: int, hidden: int = 1000) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, first, 5)
        self.conv2 = nn.Conv2d(first, second, 5)
        self.hidden = nn.Linear(second * 4 * 4, hidden)
        self.output = nn.Linear(hidden, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(F.max_pool2d(self.conv1(x), 2))
        x = F.relu(F.max_pool2d(F.dropout2d(self.conv2(x), training=self.training), 2))
        x = F.dropout(F.relu(self.hidden(x.flatten(1))), training=self.training)
        return self.output(x)


class CifarConvnet(nn.Module):
    """The network for CIFAR: two 5x5 convolutions of 64 and 128 channels, and 1000 hidden units.

    Each convolution has a maximum over 2x2; there are 3,420,802 parameters.  In training a fifth of the colour planes
    is dropped, and half of the inputs of both linear layers.
    """

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 5)
        self.conv2 = nn.Conv2d(64, 128, 5)
        self.hidden = nn.Linear(128 * 5 * 5, 1000)
        self.output = nn.Linear(1000, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        x = F.dropout2d(x, 0.2, self.training)
        x = F.relu(F.max_pool2d(self.conv1(x), 2))
        x = F.relu(F.max_pool2d(self.conv2(x), 2))
        x = F.dropout(x.flatten(1), training=self.training)
        x = F.dropout(F.relu(self.hidden(x)), training=self.training)
        return self.output(x)


def dropout_mlp(input_shape: tuple[int, ...], width: int, num_classes: int) -> nn.Module:
    """A network of two hidden layers of ``width`` units.

    In training a fifth of the inputs and half of the units are dropped.  Srivastava and others, "Dropout" (2014), Table
    2.  The original's ``mlp`` has 1024 units, for MNIST its ``smlp`` 50 and ``ssmlp`` 20.
    """
    return nn.Sequential(
        *(nn.Flatten(), nn.Dropout(0.2), nn.Linear(math.prod(input_shape), width), nn.ReLU()),
        *(nn.Dropout(), nn.Linear(width, width), nn.ReLU()),
        *(nn.Dropout(), nn.Linear(width, num_classes)),
    )
