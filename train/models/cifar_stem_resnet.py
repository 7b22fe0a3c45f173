"""ImageNet's residual networks with a stem for small images: ATOMO's for CIFAR-10 and SVHN.

He, Zhang, Ren, Sun, "Deep residual learning" (2015), Table 1, with one 3x3 convolution in place of the 7x7 convolution
of stride 2 and the maximum, as is customary for 32x32 pixels.  Unlike the paper's own networks for CIFAR
(``cifar_resnet``) they have 64 to 512 channels, and a 1x1 convolution in each shortcut that changes the shape.  18 and
34 layers are of blocks with two 3x3 convolutions; the deeper ones of bottlenecks (1x1, 3x3, 1x1 with four times the
channels; the 3x3 one has the stride, as in torchvision).  Weights start from PyTorch's own distribution.

The paper has 18, 34, 50, 101 and 152 layers.  ATOMO lists "18/32/50/110/152": ``resnet32`` is the paper's own for
CIFAR, and a bottleneck network of 110 layers, which the paper does not have, is made here as 101 is made from 50: by
its third stage.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from . import cifar_resnet

STAGES = (64, 128, 256, 512)  # every stage but the first halves the image
BLOCKS = {
    18: (2, 2, 2, 2),
    34: (3, 4, 6, 3),
    50: (3, 4, 6, 3),
    101: (3, 4, 23, 3),
    110: (3, 4, 26, 3),
    152: (3, 8, 36, 3),
}
BOTTLENECKS_FROM = 50


def _shortcut(inputs: int, outputs: int, stride: int) -> nn.Sequential:
    if stride == 1 and inputs == outputs:
        return nn.Sequential()
    return nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False), nn.BatchNorm2d(outputs))


class Block(cifar_resnet.Block):
    """The block relu(shortcut(x) + norm(conv(relu(norm(conv(x))))))."""

    growth = 1

    def __init__(self, inputs: int, channels: int, stride: int) -> None:
        super().__init__(inputs, channels, stride, batch_norm=True)
        self.shortcut = _shortcut(inputs, channels, stride)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.residual(x) + self.shortcut(x))


class Bottleneck(nn.Module):
    """A block of three convolutions, 1x1, 3x3 and 1x1; the last has four times the channels of the others."""

    growth = 4

    def __init__(self, inputs: int, channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, channels, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, stride=stride, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(channels)
        self.conv3 = nn.Conv2d(channels, self.growth * channels, 1, bias=False)
        self.norm3 = nn.BatchNorm2d(self.growth * channels)
        self.shortcut = _shortcut(inputs, self.growth * channels, stride)

    def zero_init(self) -> None:
        nn.init.zeros_(self.norm3.weight)

    def forward(self, x: Tensor) -> Tensor:
        out = F.relu(self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x))))))
        return F.relu(self.norm3(self.conv3(out)) + self.shortcut(x))


class CifarStemResNet(nn.Module):
    """A residual network with a 3x3 stem of 64 channels, four stages, a mean over the image, one linear layer."""

    def __init__(self, depth: int, num_classes: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, STAGES[0], 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(STAGES[0])
        block = Bottleneck if depth >= BOTTLENECKS_FROM else Block
        blocks, inputs = [], STAGES[0]
        for channels, count in zip(STAGES, BLOCKS[depth], strict=True):
            for place in range(count):
                blocks.append(block(inputs, channels, 2 if place == 0 and channels > STAGES[0] else 1))
                inputs = block.growth * channels
        self.blocks = nn.Sequential(*blocks)
        self.output = nn.Linear(inputs, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.blocks(F.relu(self.norm(self.conv(x))))
        return self.output(x.mean(dim=(2, 3)))
