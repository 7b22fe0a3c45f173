"""Residual networks for CIFAR: He, Zhang, Ren, Sun, "Deep residual learning" (2015), Section 4.2.

Depth 6n + 2: one convolution, then three stages of n blocks with 16, 32 and 64 channels, each block two 3x3
convolutions, then the mean over the image and one linear layer.  Shortcuts have no parameters (the paper's option A):
where a stage halves the image, they take every second pixel and add channels of zeros, half of them on each side.

Differences from the paper: the weights of the convolutions and of the linear layer start from He's normal distribution
with the fan-in, as in the original experiments.  Without batch normalisation nothing takes its place, again as there.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn


def _norm(channels: int, batch_norm: bool) -> nn.Module:
    return nn.BatchNorm2d(channels) if batch_norm else nn.Identity()


class Block(nn.Module):
    """The block relu(shortcut(x) + norm(conv(relu(norm(conv(x))))))."""

    def __init__(self, inputs: int, outputs: int, stride: int, batch_norm: bool) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
        self.norm1 = _norm(outputs, batch_norm)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norm2 = _norm(outputs, batch_norm)
        self.stride = stride
        self.added_channels = (outputs - inputs) // 2

    def zero_init(self) -> None:
        assert isinstance(self.norm2, nn.BatchNorm2d)
        nn.init.zeros_(self.norm2.weight)

    def residual(self, x: Tensor) -> Tensor:
        return self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))

    def forward(self, x: Tensor) -> Tensor:
        out = self.residual(x)
        if self.stride > 1:
            x = F.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, self.added_channels, self.added_channels))
        return F.relu(out + x)


class CifarResNet(nn.Module):
    """A residual network of depth = 6n + 2: three stages of n blocks, a mean over the image, one linear layer."""

    def __init__(self, depth: int, num_classes: int, *, batch_norm: bool = True) -> None:
        super().__init__()
        blocks = (depth - 2) // 6
        assert depth == 6 * blocks + 2
        self.conv = nn.Conv2d(3, 16, 3, padding=1, bias=False)
        self.norm = _norm(16, batch_norm)
        stages, inputs = [], 16
        for outputs in (16, 32, 64):
            for place in range(blocks):
                stages.append(Block(inputs, outputs, 2 if place == 0 and outputs > 16 else 1, batch_norm))
                inputs = outputs
        self.blocks = nn.Sequential(*stages)
        self.output = nn.Linear(64, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d | nn.Linear):
                nn.init.kaiming_normal_(module.weight)

    def forward(self, x: Tensor) -> Tensor:
        x = self.blocks(F.relu(self.norm(self.conv(x))))
        return self.output(x.mean(dim=(2, 3)))
