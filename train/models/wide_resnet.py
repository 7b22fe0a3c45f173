"""Wide residual networks: Zagoruyko, Komodakis, "Wide residual networks" (2016), WRN-depth-widen.

Depth 6n + 4: a 3x3 convolution of 16 channels, three stages of n blocks with 16, 32 and 64 times ``widen`` channels,
normalization, a rectifier, the mean over the image and one linear layer.  A block normalizes and rectifies before each
of its two 3x3 convolutions; where it changes the shape, its shortcut is a 1x1 convolution of the rectified input.
Dropout, where it is asked for, lies between the two.  Convolutions start from He's normal distribution with the
fan-out.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

CHANNELS = (16, 32, 64)


class Block(nn.Module):
    """The block shortcut + conv(relu(norm(conv(relu(norm(x))))))."""

    def __init__(self, inputs: int, outputs: int, stride: int, dropout: float) -> None:
        super().__init__()
        self.norm1 = nn.BatchNorm2d(inputs)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.dropout = nn.Dropout(dropout)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.shortcut = (
            nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False) if stride > 1 or inputs != outputs else None
        )

    def zero_init(self) -> None:
        """Start the last convolution at zero: a gain of zero before a rectifier would have no gradient ever."""
        nn.init.zeros_(self.conv2.weight)

    def forward(self, x: Tensor) -> Tensor:
        h = F.relu(self.norm1(x))
        shortcut = x if self.shortcut is None else self.shortcut(h)
        return shortcut + self.conv2(self.dropout(F.relu(self.norm2(self.conv1(h)))))


class WideResNet(nn.Module):
    """A map from colour images to logits; depth = 6n + 4."""

    def __init__(self, depth: int, widen: int, dropout: float, num_classes: int) -> None:
        super().__init__()
        count = (depth - 4) // 6
        assert depth == 6 * count + 4
        inputs = CHANNELS[0]
        self.conv = nn.Conv2d(3, inputs, 3, padding=1, bias=False)
        blocks = []
        for channels in CHANNELS:
            for place in range(count):
                blocks.append(
                    Block(inputs, widen * channels, 2 if place == 0 and channels > CHANNELS[0] else 1, dropout)
                )
                inputs = widen * channels
        self.blocks = nn.Sequential(*blocks)
        self.norm = nn.BatchNorm2d(inputs)
        self.output = nn.Linear(inputs, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out")
        nn.init.zeros_(self.output.bias)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.norm(self.blocks(self.conv(x))))
        return self.output(x.mean(dim=(2, 3)))
