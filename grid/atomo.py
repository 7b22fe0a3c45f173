"""ATOMO (Wang et al., NeurIPS 2018): singular vectors of every layer's gradient, kept at random so that the mean is
right.

The settings are those of its authors' code: 128 images a worker, rate .01, momentum .5, no weight decay, 100 epochs,
the rate shrinking by .95; kernels as matrices of half the outputs; QSGD in buckets of 512 with 4 bits for the
magnitude, so 5 with the sign. Differences: its code shrinks the rate at every 50th step, which ends training after a
few thousand, and says that it does so once an epoch; ours does that, smoothly. Four workers. SVHN is its 73,257
training pictures, without the extra ones. ResNet-32 is that of the ResNet paper for CIFAR, the others have ImageNet's
widths and a stem for small images (``train/models/cifar_stem_resnet.py``); VGG has 11 layers and batch norms.
"""

from __future__ import annotations

from collections.abc import Sequence

from grid import cifar10_cpu as small
from grid.demo import digits
from grid.engine.sweep import Point, Sweep, axis, point, product, union, where_read
from grid.engine.sweeps.epochs import steps_per_epoch
from grid.engine.sweeps.rates import Matrices, cifar_resnet, cnn_of_digits, factor_bits, sparse_ratio
from grid.nuq import ALONE, SUPERSGD

RANKS = [1, 2, 3, 4]
WORKERS = 4
EPOCHS = 100
ATOMO = point("ATOMO", method="atomo")
ENTRIES = point("ATOMO entries", {"method.atoms": "entries"}, method="atomo")
LAYERS = where_read({"method.scope": "tensor"})
TERNGRAD = product(point("TernGrad", ALONE, method="trn"), LAYERS)
QSGD = product(
    point("QSGD", {**ALONE, "method.bits": 5, "method.form": "magnitude", "method.bucket_size": 512}, method="qsgd"),
    LAYERS,
)
TOPK = product(point("TopK", method="topk"), LAYERS)


def ranks(values: Sequence[int]) -> list[Point]:
    """ATOMO with a budget of so many singular vectors a layer."""
    return product(ATOMO, axis("method.svd_rank", values))


def as_many_bytes(matrices: Matrices, values: Sequence[int]) -> list[Point]:
    """TopK with feedback, as in its paper, and without, as ATOMO is: at the ratios that send as much as these ranks of
    the matrices.
    """
    ratios = [(rank, sparse_ratio(factor_bits(matrices, rank))) for rank in values]
    by_rank = [point(f"bytes of rank {rank}", {"method.ratio": ratio}) for rank, ratio in ratios]
    return product(TOPK, by_rank, union(point(), point("without feedback", {"feedback.kind": "none"})))


# --- the paper's --------------------------------------------------------------------------------------------------


def paper(data: str, model: str) -> Point:
    """The training of ATOMO's own code."""
    epoch = steps_per_epoch(data, 128, WORKERS)
    return point(
        "",
        {
            "optim": "sgd",
            "optim.lr": 0.01,
            "optim.momentum": 0.5,
            "optim.weight_decay": 0.0,
            "schedule": "exponential",
            "schedule.factor": 0.95,
            "schedule.period": epoch,
        },
        data=data,
        model=model,
        workers=WORKERS,
        batch_size=128,
        steps=EPOCHS * epoch,
        eval_every=epoch,
    )


def _methods() -> list[Point]:
    topk = product(TOPK, axis("method.ratio", [0.01, 0.05]))
    atomo = product(
        union(ranks(RANKS), product(ranks([3]), point("4 bits", {"method.bits": 4}))),
        point("", {"method.matrix": "pairs"}),
    )
    return union(SUPERSGD, atomo, QSGD, TERNGRAD, topk)


def lenet_mnist() -> Sweep:
    """MNIST, LeNet, 100 epochs: ATOMO at ranks 1 to 4, factors in full and in 4 bits, against QSGD, TernGrad, TopK and
    full precision.
    """
    return Sweep(product(paper("mnist", "lenet"), _methods()))


def resnet18_cifar10() -> Sweep:
    """CIFAR-10, ResNet-18 for small images, 100 epochs: the same methods."""
    return Sweep(product(paper("cifar10", "cifar_resnet18"), _methods()))


NETWORKS = {
    "ResNet-18": "cifar_resnet18",
    "ResNet-32": "resnet32",
    "ResNet-50": "cifar_resnet50",
    "ResNet-110": "cifar_resnet110",
    "ResNet-152": "cifar_resnet152",
    "VGG-11": "vgg11_bn",
}


def _networks(data: str, names: Sequence[str]) -> list[Point]:
    tasks = [product(point(name), paper(data, NETWORKS[name])) for name in names]
    return product(union(*tasks), _methods())


def networks_cifar10() -> Sweep:
    """CIFAR-10, ResNet-32, -50, -110, -152 and VGG-11, 100 epochs: the same methods.

    ResNet-18 has a sweep of its own.
    """
    return Sweep(_networks("cifar10", [name for name in NETWORKS if name != "ResNet-18"]))


def svhn() -> Sweep:
    """SVHN, ResNet-18, -32, -50, -110, -152 and VGG-11, 100 epochs: the same methods."""
    return Sweep(_networks("svhn", list(NETWORKS)))


def cifar100() -> Sweep:
    """CIFAR-100, the same networks and methods."""
    return Sweep(_networks("cifar100", list(NETWORKS)))


# --- without a GPU ------------------------------------------------------------------------------------------------


def cifar10_cpu() -> Sweep:
    """Real data without a GPU: ATOMO-SVD against TopK at equal bytes, and against QSGD and TernGrad."""
    task = small.images("resnet8", workers=WORKERS, batch_size=16, steps=1500, lr=0.05, eval_every=500)
    methods = union(SUPERSGD, ranks([1, 3]), as_many_bytes(cifar_resnet(8), [1, 3]), QSGD, TERNGRAD)
    return Sweep(product(task, methods), seeds=(1, 2))


def cpu() -> Sweep:
    """The same on the embedded digits, and entry-wise atoms, seconds a run."""
    points = union(SUPERSGD, ranks([3]), ENTRIES, as_many_bytes(cnn_of_digits(), [3]), QSGD, TERNGRAD)
    return Sweep(product(digits(steps=100), points))
