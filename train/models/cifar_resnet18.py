"""ImageNet's ResNet-18 with a stem for small images: ATOMO's network for CIFAR-10 and SVHN, 11,173,962 parameters for 10 classes.

He, Zhang, Ren, Sun, "Deep residual learning" (2015), Table 1, with one 3x3 convolution in place of the 7x7 convolution of stride 2 and the
maximum, as is customary for 32x32 pixels.  Unlike the paper's own networks for CIFAR (``cifar_resnet``) it has 64 to 512 channels, and
a 1x1 convolution in each shortcut that changes the shape.  Weights start from PyTorch's own law.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

STAGES = (64, 128, 256, 512)  # channels of two blocks each; every stage but the first halves the image


class Block(nn.Module):
    """relu(shortcut(x) + norm(conv(relu(norm(conv(x))))))."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.shortcut = nn.Sequential()
        if stride > 1 or inputs != outputs:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        out = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))
        return F.relu(out + self.shortcut(x))


class CifarResNet18(nn.Module):
    """3x3 stem of 64 channels, four stages of two blocks, a mean over the image, one linear layer."""

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, STAGES[0], 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(STAGES[0])
        blocks, inputs = [], STAGES[0]
        for outputs in STAGES:
            blocks += [Block(inputs, outputs, 1 if outputs == STAGES[0] else 2), Block(outputs, outputs, 1)]
            inputs = outputs
        self.blocks = nn.Sequential(*blocks)
        self.output = nn.Linear(inputs, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.blocks(F.relu(self.norm(self.conv(x))))
        return self.output(x.mean(dim=(2, 3)))
