"""LeNet, and the CIFAR forms of AlexNet and VGG; from 64 pixels on the last two are torchvision's.

In training mode AlexNet's dropout draws from torch's global generator of the device, which the caller forks and seeds.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn


class LeNet(nn.Module):
    """Caffe's LeNet, ATOMO's network for MNIST.

    It has 5x5 convolutions of 20 and 50 channels, each with a maximum over 2x2, and 500 hidden units.  431,080
    parameters for MNIST.  LeCun, Bottou, Bengio, Haffner, "Gradient-based learning applied to document recognition"
    (1998), in the form of Caffe's example.  Rectified after both maxima, as in ATOMO, and after the hidden layer, as in
    Caffe.
    """

    def __init__(self, input_shape: tuple[int, ...], num_classes: int) -> None:
        super().__init__()
        channels, height, width = input_shape
        self.conv1 = nn.Conv2d(channels, 20, 5)
        self.conv2 = nn.Conv2d(20, 50, 5)
        rows, columns = (((side - 4) // 2 - 4) // 2 for side in (height, width))
        self.hidden = nn.Linear(50 * rows * columns, 500)
        self.output = nn.Linear(500, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(F.max_pool2d(self.conv1(x), 2))
        x = F.relu(F.max_pool2d(self.conv2(x), 2))
        return self.output(F.relu(self.hidden(x.flatten(1))))


class AlexNet(nn.Module):
    """AlexNet for CIFAR, as in the layer-wise paper.

    It has 3x3 convolutions of 64, 192, 384, 256, 256 channels, then 2 x 4096 units.  23,272,266 parameters for 32x32
    pixels, 90 % of them in the linear layers.  Krizhevsky, Sutskever, Hinton (2012), with the first convolution of 3x3
    and stride 2 in place of 11x11 and stride 4.  No batch normalisation, so rates near .01 rather than .1.
    """

    def __init__(self, input_shape: tuple[int, ...], num_classes: int) -> None:
        super().__init__()
        _, height, width = input_shape
        rows, columns = ((side + 1) // 2 // 8 for side in (height, width))
        self.features = nn.Sequential(
            *(nn.Conv2d(3, 64, 3, stride=2, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(64, 192, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(192, 384, 3, padding=1), nn.ReLU()),
            *(nn.Conv2d(384, 256, 3, padding=1), nn.ReLU()),
            *(nn.Conv2d(256, 256, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        )
        self.classifier = nn.Sequential(
            *(nn.Dropout(), nn.Linear(256 * rows * columns, 4096), nn.ReLU()),
            *(nn.Dropout(), nn.Linear(4096, 4096), nn.ReLU()),
            nn.Linear(4096, num_classes),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.features(x).flatten(1))


VGG_CHANNELS = (64, 128, 256, 512, 512)
# convolutions of each stage
VGG_COUNTS = {11: (1, 1, 2, 2, 2), 13: (2, 2, 2, 2, 2), 16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}


class VGG(nn.Module):
    """VGG for CIFAR: 8 to 16 convolutions of 3x3, five maxima over 2x2, one linear layer.

    VGG-16 with norms has 14,724,042 parameters.  Simonyan, Zisserman (2014), configurations A, B, D and E, less their
    two hidden layers, as is customary for CIFAR. With batch normalisation the convolutions have no bias: it takes it
    out again, and its gradient, which is rounding noise alone, would be sent as a tensor of its own.  Convolutions
    start from He's normal distribution with the fan-out and the linear layer from N(0, .01^2), as torchvision's do.
    """

    def __init__(self, depth: int, num_classes: int, *, batch_norm: bool) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        inputs = 3
        for outputs, count in zip(VGG_CHANNELS, VGG_COUNTS[depth], strict=True):
            for _ in range(count):
                layers.append(nn.Conv2d(inputs, outputs, 3, padding=1, bias=not batch_norm))
                layers += [nn.BatchNorm2d(outputs), nn.ReLU()] if batch_norm else [nn.ReLU()]
                inputs = outputs
            layers.append(nn.MaxPool2d(2))
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Linear(inputs, num_classes)
        for module in self.features:
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        nn.init.normal_(self.classifier.weight, std=0.01)
        nn.init.zeros_(self.classifier.bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.features(x).mean(dim=(2, 3)))  # the mean is over one pixel below 64
