"""The ancestor paper's experiments: NUQSGD (Ramezani-Kebrya et al., 2019), at 4 bits and bucket 8192."""

from __future__ import annotations

from grid.engine.sweep import Sweep, axis, point, product, union
from grid.nuq import NUQSGD, QSGD, QSGDINF, SGD, SUPERSGD, WHOLE, cifar10, imagenet, quantizer

BASELINES = union(SUPERSGD, QSGD, QSGDINF, NUQSGD)
# steps between two measurements: about one epoch of 50,000 images in batches of 128 (391), and a divisor of 80,000
EPOCH = 400


def cifar10_full() -> Sweep:
    """CIFAR-10, ResNet-110, 4 bits: SGD alone, the baselines with 4 and with 8 workers."""
    methods = union(SGD, product(BASELINES, axis("workers", [4, 8])))
    return Sweep(product(cifar10("resnet110", WHOLE), quantizer(4, 8192), methods), folder="cifar10_full")


def imagenet_full() -> Sweep:
    """ImageNet, ResNet-34, rate 0.02, 2 workers, 4 bits."""
    task = point("", {"optim.lr": 0.02, "measure.every": 1000}, workers=2)
    return Sweep(product(imagenet("resnet34", 600_000, WHOLE), task, quantizer(4, 8192), union(SGD, BASELINES)))


def cifar10_first_epoch() -> Sweep:
    """Variance of the estimators at every tenth step of the first epoch, on the SGD trajectory."""
    study = point("", {"measure.every": 10}, trajectory="sgd", steps=391, eval_every=391)
    return Sweep(
        product(cifar10("resnet110", WHOLE), study, quantizer(4, 8192), union(SGD, BASELINES)),
        folder="cifar10_first_epoch",
    )


def cifar10_last_epoch() -> Sweep:
    """Variance of the estimators once an epoch over the whole SGD trajectory; its last points are the last epoch's."""
    study = point("", {"measure.every": EPOCH}, trajectory="sgd")
    return Sweep(
        product(cifar10("resnet110", WHOLE), study, quantizer(4, 8192), union(SGD, BASELINES)),
        folder="cifar10_last_epoch",
    )
