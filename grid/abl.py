"""The paper's ablations, all on ResNet-8 and CIFAR-10: bucket size, bits, and how often the levels are updated."""

from __future__ import annotations

from grid.engine.sweep import Point, Sweep, axis, product, union, where_read
from grid.nuq import SGD, SUPERSGD, cifar10, updates, variants

BUCKET_SIZES = [16, *(2**power for power in range(6, 16))]  # 16, 64, 128 .. 32768
NUM_COMPONENTS = 350


def _bucket_sizes() -> list[Point]:
    return product(
        where_read({"method.bits": 3}),
        updates([100, 2000], 10000),
        union(SGD, SUPERSGD, product(variants(NUM_COMPONENTS), axis("method.bucket_size", BUCKET_SIZES))),
    )


def bucket_size() -> Sweep:
    """Ten variants x 11 bucket sizes at 3 bits, measured on the SGD trajectory."""
    return Sweep(product(cifar10("resnet8", trajectory="sgd"), _bucket_sizes()), folder="bucket_size")


def bucket_size_trained() -> Sweep:
    """The same 112 points, each trained with its own gradient: accuracy against bucket size."""
    return Sweep(product(cifar10("resnet8"), _bucket_sizes()), folder="bucket_size_trained")


def bits() -> Sweep:
    """Ten variants x 2..7 bits at bucket 16384, trained; TRN has no bits, so its six points are one run."""
    methods = union(SGD, SUPERSGD, product(variants(NUM_COMPONENTS), axis("method.bits", range(2, 8))))
    return Sweep(
        product(cifar10("resnet8"), where_read({"method.bucket_size": 16384}), updates([100, 2000], 10000), methods),
        folder="bits",
    )


def interval() -> Sweep:
    """Three schedules of level updates (once, rarely, often) at 3 bits, bucket 16384, trained; fixed levels have no
    schedule.
    """
    schedules = union(
        updates([0], 80000, "once"),
        updates([40000, 60000], 80000, "rarely"),
        updates([100, 1000, 2000, 40000, 60000], 80000, "often"),
    )
    methods = union(SGD, SUPERSGD, variants(NUM_COMPONENTS))
    quantizer = where_read({"method.bits": 3, "method.bucket_size": 16384})
    return Sweep(product(cifar10("resnet8"), quantizer, methods, schedules), folder="interval")
