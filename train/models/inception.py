"""GoogLeNet for CIFAR, as SmaQ's Inception.

Szegedy and others, "Going deeper with convolutions" (2014), Table 1, from its third stage on.  A 3x3 convolution of 192
channels stands in for the stem of stride 8 and its maxima, and there are no auxiliary classifiers.  As is customary
since "Rethinking the Inception architecture" (2015), every 5x5 convolution is two of 3x3 and each convolution is
followed by batch normalization (hence without a bias, see ``classic.VGG``).  Weights start from PyTorch's own
distribution.  6,158,346 parameters for 10 classes.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

STEM = 192
# The columns of the paper's table: 1x1; 3x3 and its reduction; 5x5 and its reduction; what follows the maximum.
MODULES = {
    "3a": (64, 96, 128, 16, 32, 32),
    "3b": (128, 128, 192, 32, 96, 64),
    "4a": (192, 96, 208, 16, 48, 64),
    "4b": (160, 112, 224, 24, 64, 64),
    "4c": (128, 128, 256, 24, 64, 64),
    "4d": (112, 144, 288, 32, 64, 64),
    "4e": (256, 160, 320, 32, 128, 128),
    "5a": (256, 160, 320, 32, 128, 128),
    "5b": (384, 192, 384, 48, 128, 128),
}
HALVED_BEFORE = ("4a", "5a")


def _convolutions(*sizes: tuple[int, int, int]) -> list[nn.Module]:
    """The layers relu(norm(conv)) for each (inputs, outputs, side)."""
    layers: list[nn.Module] = []
    for inputs, outputs, side in sizes:
        layers += [nn.Conv2d(inputs, outputs, side, padding=side // 2, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]
    return layers


class Module(nn.Module):
    """A module of four branches side by side, their channels one after another."""

    def __init__(
        self, inputs: int, one: int, before_three: int, three: int, before_five: int, five: int, pooled: int
    ) -> None:
        super().__init__()
        self.one = nn.Sequential(*_convolutions((inputs, one, 1)))
        self.three = nn.Sequential(*_convolutions((inputs, before_three, 1), (before_three, three, 3)))
        self.five = nn.Sequential(*_convolutions((inputs, before_five, 1), (before_five, five, 3), (five, five, 3)))
        self.pooled = nn.Sequential(nn.MaxPool2d(3, stride=1, padding=1), *_convolutions((inputs, pooled, 1)))
        self.outputs = one + three + five + pooled

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.one(x), self.three(x), self.five(x), self.pooled(x)], dim=1)


class CifarInception(nn.Module):
    """GoogLeNet for CIFAR: stem, nine modules, a mean over the image, one linear layer."""

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        layers, inputs = _convolutions((3, STEM, 3)), STEM
        for name, widths in MODULES.items():
            if name in HALVED_BEFORE:
                layers.append(nn.MaxPool2d(3, stride=2, padding=1))
            module = Module(inputs, *widths)
            layers.append(module)
            inputs = module.outputs
        self.features = nn.Sequential(*layers)
        self.output = nn.Linear(inputs, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.output(self.features(x).mean(dim=(2, 3)))
