"""Layer-wise against entire-model compression (Dutta et al., AAAI 2020): a method applied to every tensor by itself, or
to one flat vector.

The settings are those of its authors' code: 512 images a worker, the rate going up from 0 to .4 in five epochs and down
to 0 at the end, 24 epochs, 40 for RandomK and ThresholdV; no feedback; cutout. An epoch is counted for one worker:
50,000 // 512 = 97 steps.

Differences: the workers share an epoch's images, where its code lets each see all of them; its masks of RandomK differ
among workers, ours are the same on all, and like its are not scaled by 1 / ratio; QSGD with 255 states takes nine bits,
ours are 127 states in eight; its momentum is 0 unless given, ours .9 with Nesterov's, as in the recipe that it starts
from; ImageNet has one image size, not three.
"""

from __future__ import annotations

from collections.abc import Sequence

from grid import cifar10_cpu as small
from grid.demo import digits
from grid.engine.sweep import Point, Sweep, axis, needs, point, product, union, where_read
from grid.engine.sweeps.epochs import at_epochs, steps_per_epoch
from grid.nuq import ALONE, SUPERSGD

RATIOS = [0.001, 0.01, 0.1, 0.5]
WORKERS = 4
EPOCHS, LONG = 24, 40  # the latter for RandomK and ThresholdV
WHOLE = 2**31 - 1  # coordinates of a bucket: all that there are

TOPK = point("TopK", method="topk")
RANDOMK = point("RandomK", {"method.scaled": False}, method="randomk")
THRESHOLDV = point("ThresholdV", {"method.threshold": 0.001}, method="thresholdv")
ADAPTIVE = point("AdaptiveThreshold", method="adaptive_threshold")
TERNGRAD = point("TernGrad", {**ALONE, "method.bucket_size": WHOLE}, method="trn")
QSGD = point(
    "QSGD", {**ALONE, "method.bits": 8, "method.form": "magnitude", "method.bucket_size": WHOLE}, method="qsgd"
)

SCOPES = union(
    where_read({"method.scope": "tensor"}, "layer-wise"), where_read({"method.scope": "model"}, "entire-model")
)
PLAIN = point("", {"feedback.kind": "none"})


def methods(ratios: Sequence[float]) -> tuple[list[Point], list[Point]]:
    """Every method in both scopes: those trained for 24 epochs, and for 40."""
    by_ratio = axis("method.ratio", ratios)
    usual = union(product(TOPK, by_ratio), ADAPTIVE, TERNGRAD, QSGD)
    long = union(product(RANDOMK, by_ratio), THRESHOLDV)
    return product(PLAIN, usual, SCOPES), product(PLAIN, long, SCOPES)


# --- the paper's --------------------------------------------------------------------------------------------------


def _trained(epochs: int, epoch: int, peak: float) -> Point:
    """So many epochs of ``epoch`` steps, the rate in straight lines from 0 to ``peak`` and back."""
    return point(
        "",
        {
            "optim": "sgd",
            "optim.lr": peak,
            "schedule": "piecewise_linear",
            "schedule.at": at_epochs([0, 5, epochs], epoch),
            "schedule.factors": [0.0, 1.0, 0.0],
        },
        steps=epochs * epoch,
        eval_every=epoch,
    )


def _cifar10(model: str) -> list[Point]:
    epoch = steps_per_epoch("cifar10", 512, workers=1)
    task = point(
        "",
        {"optim.momentum": 0.9, "optim.nesterov": True, "optim.weight_decay": 5e-4, "data.cutout": 8},
        data="cifar10",
        model=model,
        workers=WORKERS,
        batch_size=512,
    )
    usual, long = methods(RATIOS)
    short_runs = product(task, _trained(EPOCHS, epoch, 0.4), union(SUPERSGD, usual))
    long_runs = product(task, _trained(LONG, epoch, 0.4), union(product(SUPERSGD, point(f"{LONG} epochs")), long))
    return union(short_runs, long_runs)


def cifar10_resnet9() -> Sweep:
    """CIFAR-10, ResNet-9 of the 24-epoch recipe: six methods, TopK and RandomK at .1 % to 50 %, layer-wise and
    entire-model.
    """
    return Sweep(_cifar10("resnet9"))


def cifar10_alexnet() -> Sweep:
    """CIFAR-10, AlexNet, trained alike."""
    return Sweep(_cifar10("alexnet"))


def imagenet_resnet50() -> Sweep:
    """ImageNet, ResNet-50, 35 epochs of 64 images on 8 workers, rate to 1 and back: the same methods, TopK and RandomK
    at 1 % and 10 %.
    """
    epoch = steps_per_epoch("imagenet", 64, workers=8)
    task = point(
        "",
        {"optim.momentum": 0.9, "optim.nesterov": True, "optim.weight_decay": 5e-5},
        data="imagenet",
        model="resnet50",
        workers=8,
        batch_size=64,
        eval_train=False,
    )
    usual, long = methods([0.01, 0.1])
    points = product(
        task, _trained(35, epoch, 1.0), union(SUPERSGD, usual, long), point(eval_every=epoch), needs(gpus=1)
    )
    return Sweep(points)


# --- without a GPU ------------------------------------------------------------------------------------------------

SMALL_RATIOS = [0.01, 0.1]


def _together(ratios: Sequence[float]) -> list[Point]:
    return union(SUPERSGD, *methods(ratios))


def cifar10_cpu() -> Sweep:
    """Real data without a GPU: the six methods, TopK and RandomK at 1 % and 10 %, layer-wise and entire-model, all
    trained equally long.
    """
    task = small.images("resnet8", workers=WORKERS, batch_size=16, steps=600, lr=0.05, eval_every=300)
    return Sweep(product(task, _together(SMALL_RATIOS)), seeds=(1, 2))


def cpu() -> Sweep:
    """The same on the embedded digits, seconds a run."""
    return Sweep(product(digits(steps=80), _together(SMALL_RATIOS)))
