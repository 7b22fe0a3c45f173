"""ResNet-9, the network of the layer-wise paper's experiments.

David Page, "How to train your ResNet" (DAWNBench, 2018).  The layers are prep 64, layer1 128 + residual, layer2 256,
layer3 512 + residual: each a 3x3 convolution, batch normalisation and a rectifier, with a maximum over 2x2 at the end
of each of the three layers (before its residual); then the maximum over the image and one linear layer without bias,
its output times 1/8.  6,573,120 parameters for 10 classes; 94 % on CIFAR-10 after 24 epochs by its own recipe, which is

    data.cutout=8  optim.lr=0.4 optim.nesterov=true optim.weight_decay=5e-4  schedule=piecewise_linear  steps=2328, 512
    samples a step

Weights start from PyTorch's own distribution, as there.  Differences from the original recipe: crops are padded with
black instead of mirrored pixels, cutout is the paper's (``train.data.augment.Cutout``), and the loss is a mean over the
batch where Page's is a sum, so that his rate lr / 512 and weight decay 5e-4 * 512 are our lr and 5e-4.
"""

from __future__ import annotations

from collections import OrderedDict

import torch.nn.functional as F
from torch import Tensor, nn

CHANNELS = (64, 128, 256, 512)
SCALE = 0.125


def block(inputs: int, outputs: int, *, pool: bool = False) -> nn.Sequential:
    """The layers relu(norm(conv(x))), and the maximum over 2x2 of that with ``pool``."""
    parts: list[tuple[str, nn.Module]] = [
        ("conv", nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)),
        ("norm", nn.BatchNorm2d(outputs)),
        ("relu", nn.ReLU()),
    ]
    if pool:
        parts.append(("pool", nn.MaxPool2d(2)))
    return nn.Sequential(OrderedDict(parts))


class Residual(nn.Module):
    """The block x + block(block(x)): the sum is not rectified, its second term is."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.block1 = block(channels, channels)
        self.block2 = block(channels, channels)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.block2(self.block1(x))


class ResNet9(nn.Module):
    """A map from colour images of at least 32x32 pixels to logits; a larger image only enlarges the last maximum."""

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        prep, first, second, third = CHANNELS
        self.prep = block(3, prep)
        self.layer1 = nn.Sequential(block(prep, first, pool=True), Residual(first))
        self.layer2 = block(first, second, pool=True)
        self.layer3 = nn.Sequential(block(second, third, pool=True), Residual(third))
        self.output = nn.Linear(third, num_classes, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        x = self.layer3(self.layer2(self.layer1(self.prep(x))))
        return SCALE * self.output(F.max_pool2d(x, x.shape[2:]).flatten(1))
