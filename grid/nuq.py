"""The paper's main experiments: Faghri et al., Adaptive Gradient Quantization for Data-Parallel SGD, NeurIPS 2020.

The settings are the published ones, the original's solver and weights included (``solver=paper weights=norm``); the
rows marked "closed form" solve the same fit exactly.  The folders of their runs are older than other files of sweeps,
and named by the function alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from grid.engine.sweep import Point, Sweep, axis, point, product, union, where_read

L2 = {"method.norm": "l2"}  # the paper's norm, which is not our default
ALONE = {"method.rounding": "stochastic"}  # each worker rounds by itself, as in all papers; our default is correlated
ORIGINAL = {**L2, **ALONE, "method.fit": "mixture", "method.solver": "paper", "method.weights": "norm"}
CLOSED_FORM = {**ORIGINAL, "method.solver": "exact"}
NORMAL = {**L2, **ALONE, "method.solver": "paper"}  # the -N variants have one fit, and no weights to choose
# every level of ALQ by itself: only so the original's solver ends at the published levels
FREE = {"method.symmetric": False}

SGD = point("SGD", method="sgd")
SUPERSGD = point("SuperSGD", method="supersgd")
QSGD = point("QSGD", ALONE, method="qsgd")
QSGDINF = point("QSGDinf", ALONE, method="qsgdinf")
NUQSGD = point("NUQSGD", ALONE, method="nuqsgd")
TRN = point("TRN", ALONE, method="trn")
FIXED = union(SGD, SUPERSGD, QSGD, QSGDINF, NUQSGD, TRN)  # those whose levels do not adapt
ALQ_N = point("ALQ-N", {**NORMAL, **FREE}, method="alq_n")
AMQ_N = point("AMQ-N", NORMAL, method="amq_n")
ALQ_GN = point("ALQ-GN", {**NORMAL, **FREE}, method="alq_gn")

# The optimisation that all CIFAR-10 and ImageNet runs share; schedules are given per task.
TRAINING = {"workers": 4, "optim": "sgd", "optim.lr": 0.1, "optim.momentum": 0.9, "optim.weight_decay": 1e-4}
WHOLE = where_read({"method.scope": "model"})
FRESH = where_read({"method.statistics": "fresh", "method.num_samples": 10, "method.scope": "model"})  # adaptive levels


def mixture(label: str, method: str, num_components: int, settings: Mapping[str, object] = ORIGINAL) -> Point:
    """An adaptive method fitted to the mixture of the buckets of largest norm (the original's dist_num)."""
    free = FREE if method.startswith("alq") else {}
    return point(label, {**settings, **free, "method.num_components": num_components}, method=method)


def updates(at: Iterable[int], every: int, label: str = "") -> Point:
    """The steps at which an adaptive method updates its levels; the other methods have no such setting."""
    return where_read({"method.update_at": list(at), "method.update_every": every}, label)


def cifar10(model: str, levels: Point = FRESH, **settings: object) -> list[Point]:
    """CIFAR-10 as in the paper: 80,000 steps of 128 images on each of 4 workers; measured as often as the original
    logs.  ``levels``: WHOLE where no method's levels adapt.
    """
    return product(
        point(
            "",
            {
                **TRAINING,
                "schedule": "step",
                "schedule.at": [40000, 60000],
                "schedule.factor": 0.1,
                "measure.every": 100,
            },
            data="cifar10",
            model=model,
            batch_size=128,
            steps=80000,
            eval_every=2000,
            **settings,
        ),
        levels,
    )


def imagenet(model: str, steps: int, levels: Point = FRESH) -> list[Point]:
    """ImageNet in ``steps`` steps of 64 images a worker, the rate dropping at one half and three quarters."""
    return product(
        point(
            "",
            {**TRAINING, "schedule": "step", "schedule.at": [steps // 2, steps * 3 // 4], "schedule.factor": 0.1},
            data="imagenet",
            model=model,
            batch_size=64,
            steps=steps,
            # the training set has 1.28 million images: a pass every 2000 steps would cost more than training
            eval_every=10000,
        ),
        levels,
    )


def published(num_components: int) -> list[Point]:
    """The nine methods of the paper's tables."""
    return union(
        SGD,
        SUPERSGD,
        NUQSGD,
        QSGDINF,
        TRN,
        mixture("ALQ", "alq", num_components),
        ALQ_N,
        mixture("AMQ", "amq", num_components),
        AMQ_N,
    )


def variants(num_components: int) -> list[Point]:
    """The ten quantized variants of the ablations: six methods, and ALQ x {original, closed form} x {free, symmetric
    levels}.
    """
    symmetry = union(point("", FREE), point("symmetric", {"method.symmetric": True}))
    solver = union(mixture("", "alq", num_components), mixture("closed form", "alq", num_components, CLOSED_FORM))
    return union(
        AMQ_N,
        mixture("AMQ", "amq", num_components),
        ALQ_N,
        QSGDINF,
        TRN,
        NUQSGD,
        product(point("ALQ"), solver, symmetry),
    )


def quantizer(bits: int, bucket_size: int) -> Point:
    """Bits and bucket size, for the methods that have them."""
    return where_read({"method.bits": bits, "method.bucket_size": bucket_size})


def mnist() -> Sweep:
    """MNIST, the small cnn, 30 epochs: SGD against QSGD, QSGDinf and NUQSGD at 4 bits, three bucket sizes, 2 and 4
    workers.

    An epoch is counted for one worker, its last incomplete batch included: ceil(60000 / 128) = 469 steps, 30 of them
    14070.
    """
    task = point(
        "",
        {"optim": "sgd", "optim.lr": 0.1, "optim.momentum": 0.0, "optim.weight_decay": 0.0, "measure.every": 100},
        data="mnist",
        model="mnist_cnn",
        batch_size=128,
        steps=30 * 469,
        eval_every=469,
    )
    quantized = product(
        union(QSGD, QSGDINF, NUQSGD),
        where_read({"method.bits": 4}),
        axis("method.bucket_size", [1024, 4096, 8192]),
        axis("workers", [2, 4]),
    )
    return Sweep(product(task, union(product(SGD, point(workers=1)), quantized)), folder="mnist")


def cifar10_full_resnet110() -> Sweep:
    """CIFAR-10, ResNet-110, 3 bits, bucket 16384: the nine methods."""
    return Sweep(
        product(cifar10("resnet110"), quantizer(3, 16384), updates([100, 2000], 10000), published(150)),
        folder="cifar10_full_resnet110",
    )


def cifar10_full_resnet32() -> Sweep:
    """CIFAR-10, ResNet-32, 3 bits, bucket 8192: the nine methods."""
    return Sweep(
        product(cifar10("resnet32"), quantizer(3, 8192), updates([100, 2000], 10000), published(50)),
        folder="cifar10_full_resnet32",
    )


def cifar10_full_resnet8() -> Sweep:
    """CIFAR-10, ResNet-8, 3 bits, bucket 16384: the nine methods, ALQ-G and ALQ-GN."""
    methods = union(published(80), mixture("ALQ-G", "alq_g", 80), ALQ_GN)
    return Sweep(
        product(cifar10("resnet8"), quantizer(3, 16384), updates([100, 2000], 10000), methods),
        folder="cifar10_full_resnet8",
    )


def imagenet_half() -> Sweep:
    """ImageNet, ResNet-18, 300,000 steps, 4 bits, bucket 8192: variance only, every method measured on the same SGD
    trajectory.
    """
    measured = point("", {"measure.every": 100}, trajectory="sgd")
    methods = union(SGD, SUPERSGD, variants(350))
    return Sweep(
        product(imagenet("resnet18", 300_000), measured, quantizer(4, 8192), updates([100, 2000], 10000), methods),
        folder="imagenet_half",
    )


def imagenet_full() -> Sweep:
    """ImageNet, ResNet-18, 600,000 steps, 3 bits, bucket 8192: the nine methods."""
    measured = point("", {"measure.every": 1000})
    return Sweep(
        product(
            imagenet("resnet18", 600_000), measured, quantizer(3, 8192), updates([100, 2000], 50000), published(350)
        ),
        folder="imagenet_full",
    )
