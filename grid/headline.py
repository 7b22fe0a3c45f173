"""The published methods, ours and their rivals on real data without a GPU, at matched bits.

The paper's ten methods are as published (their solver, its weights, the L2 norm, fresh samples for each update); the
others have our defaults but for what their labels say and for updates that come as early as so short a run needs.
Ended runs are kept in ``results/``, so that hours of them go on from any machine.
"""

from __future__ import annotations

from grid import cifar10_cpu as small
from grid.engine.sweep import Point, Sweep, axis, point, product, union, where_read
from grid.engine.sweeps.rates import cifar_resnet, factor_bits, sparse_ratio
from grid.nuq import ALONE, ALQ_N, AMQ_N, FRESH, NUQSGD, QSGD, QSGDINF, SGD, SUPERSGD, TRN, mixture, updates

TRIED_RATES = (0.02, 0.05, 0.1)
TRIED_STEPS, TRIED_SEED = 500, 1
STEPS, SEEDS = 1500, (2, 3, 4, 5, 6)
WHOLE = 1 << 20  # coordinates of a bucket that holds the whole gradient

ROTATED = {"method.rotation": "hadamard"}
TOGETHER = {"method.rounding": "correlated"}
LINF = {"method.norm": "linf"}
ENTROPY_CODED = {"method.coding": "rans", "method.bucket_size": WHOLE}


def published() -> list[Point]:
    """The paper's ten methods at 3 bits."""
    original = union(mixture("ALQ", "alq", 80), ALQ_N, mixture("AMQ", "amq", 80), AMQ_N)
    return union(SGD, SUPERSGD, QSGD, QSGDINF, NUQSGD, TRN, original)


def ours(bits: int) -> list[Point]:
    """Our packed methods, each worker by itself and together, and the entropy-coded lattice."""
    together = union(
        point("QSGDinf together", TOGETHER, method="qsgdinf"),
        point("ALQ linf together", {**LINF, **TOGETHER}, method="alq"),
        point("optimal linf rotated together", {**LINF, **ROTATED, **TOGETHER}, method="optimal"),
        point("ALQ linf together for the mean", {**LINF, **TOGETHER, "method.objective": "mean"}, method="alq"),
        point("ALQ linf", {**LINF, **ALONE}, method="alq"),
    )
    lattices = union(
        point("ECDQ dithered", ENTROPY_CODED, method="ecdq"),
        point("ECDQ together", {**ENTROPY_CODED, **TOGETHER, "method.dither": "none"}, method="ecdq"),
    )
    return product(union(together if bits > 1 else [], lattices), _bits(bits))


def rivals(bits: int) -> list[Point]:
    """EDEN packed and entropy coded, PowerSGD of the largest rank within the bits (or 1), TopK with feedback."""
    entropy_coded = {**ENTROPY_CODED, "method.levels": "uniform"}
    shapes = cifar_resnet(8)
    rank = max((rank for rank in range(1, 9) if factor_bits(shapes, rank) <= bits), default=1)
    eden = union(point("EDEN", method="eden"), point("EDEN entropy coded", entropy_coded, method="eden"))
    others = union(
        point(f"PowerSGD rank {rank}", {"method.rank": rank}, method="powersgd"),
        point(f"TopK with feedback {_words(bits)}", {"method.ratio": sparse_ratio(bits)}, method="topk"),
    )
    return union(product(eden, _bits(bits)), others)


def _bits(bits: int) -> Point:
    return where_read({"method.bits": bits}, _words(bits))


def _words(bits: int) -> str:
    return f"{bits} bit{'s' * (bits > 1)}"


def methods() -> list[Point]:
    """All of them: what is published at 3 bits, ours and the rivals at 3, 2 and 1."""
    at_three = product(published(), where_read({"method.bits": 3}), FRESH, updates([20, 100], 200))
    others = union(*(union(ours(bits), rivals(bits)) for bits in (3, 2, 1)))
    return union(at_three, product(others, updates([0, 20, 100], 200)))


def _images(steps: int) -> Point:
    """ResNet-8 on CIFAR-10, evaluated at the end; every run has a rate of its own."""
    return small.images("resnet8", workers=4, batch_size=16, steps=steps, lr=TRIED_RATES[0], eval_every=steps)


def rates_cpu() -> Sweep:
    """ResNet-8 on CIFAR-10, 4 workers x 16 images, 500 steps: every method at three learning rates, on one seed, from
    which the rate of its longer runs is chosen.
    """
    rates = axis("optim.lr", TRIED_RATES)
    return Sweep(product(_images(TRIED_STEPS), methods(), rates), seeds=(TRIED_SEED,), keep=True)


# The rate of the least validation loss at the end of ``rates_cpu`` (``results/headline_rates_cpu``).
CHOSEN_RATES = {
    0.02: ("SGD", "QSGD"),
    0.05: (
        "SuperSGD",
        "NUQSGD",
        "ALQ-N",
        "QSGDinf together 3 bits",
        "optimal linf rotated together 3 bits",
        "ALQ linf together for the mean 3 bits",
        "ALQ linf 3 bits",
        "ECDQ dithered 3 bits",
        "ECDQ together 3 bits",
        "EDEN entropy coded 3 bits",
        "PowerSGD rank 3",
        "ECDQ dithered 2 bits",
        "ECDQ together 2 bits",
        "EDEN 2 bits",
        "EDEN entropy coded 2 bits",
        "PowerSGD rank 2",
        "TopK with feedback 2 bits",
        "ECDQ dithered 1 bit",
        "ECDQ together 1 bit",
        "EDEN 1 bit",
        "PowerSGD rank 1",
    ),
    0.1: (
        "QSGDinf",
        "TRN",
        "ALQ",
        "AMQ",
        "AMQ-N",
        "ALQ linf together 3 bits",
        "EDEN 3 bits",
        "TopK with feedback 3 bits",
        "QSGDinf together 2 bits",
        "ALQ linf together 2 bits",
        "optimal linf rotated together 2 bits",
        "ALQ linf together for the mean 2 bits",
        "ALQ linf 2 bits",
        "EDEN entropy coded 1 bit",
        "TopK with feedback 1 bit",
    ),
}


def first_updates() -> list[Point]:
    """ALQ as published, but for its first update: at once, after ten steps, after a hundred."""
    moments = [updates(at, 200, f"first update {at[0]}") for at in ([0, 20, 100], [10, 20, 100], [100])]
    return product(mixture("ALQ", "alq", 80), where_read({"method.bits": 3}), FRESH, moments)


def cifar10_cpu() -> Sweep:
    """ResNet-8 on CIFAR-10, 4 workers x 16 images, 1,500 steps on five fresh seeds: every method at the rate that
    ``rates_cpu`` chose, measured every 250 steps, and ALQ with other first updates.
    """
    rate_of = {label: rate for rate, labels in CHOSEN_RATES.items() for label in labels}
    at_their_rates = union(*(product(own, point("", {"optim.lr": rate_of[own.label]})) for own in methods()))
    like_alq = product(first_updates(), point("", {"optim.lr": rate_of["ALQ"]}))
    images = product(_images(STEPS), point("", {"measure.every": 250}))
    runs = product(images, union(at_their_rates, like_alq))
    return Sweep(runs, seeds=SEEDS, keep=True)
