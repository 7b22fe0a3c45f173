"""Real data without a GPU: ResNet-8 on CIFAR-10, one run in a few minutes on two cores.

The published order of estimator variances belongs to the original's solver; beside it stand the exact solution of the
same fit, which is worse for ALQ because real coordinates have heavier tails than any normal, and of the measured
histogram, which is our default.
"""

from __future__ import annotations

from grid.engine.sweep import Point, Sweep, point, product, union
from grid.nuq import ALONE, ALQ_N, AMQ_N, CLOSED_FORM, FIXED, L2, mixture, quantizer, updates

NUM_COMPONENTS = 80
HISTOGRAM = {**L2, **ALONE, "method.fit": "histogram", "method.solver": "exact"}


def images(model: str, *, workers: int, batch_size: int, steps: int, lr: float, eval_every: int) -> Point:
    """CIFAR-10 for the other papers' sweeps: SGD with momentum .9, the rate falling to zero along a cosine, nothing
    measured.
    """
    return point(
        "",
        {"optim": "sgd", "optim.lr": lr, "schedule": "cosine"},
        data="cifar10",
        model=model,
        workers=workers,
        batch_size=batch_size,
        steps=steps,
        eval_every=eval_every,
        eval_train=False,  # a pass over 50,000 images takes as long as 200 steps
    )


def cifar10_cpu() -> Sweep:
    """ResNet-8 on CIFAR-10, 4 workers: the ten methods with the original's solver; ALQ and AMQ with exact solutions of
    two fits.
    """
    task = point(
        "",
        {"optim": "sgd", "optim.lr": 0.05, "schedule": "step", "schedule.at": [750], "measure.every": 200},
        data="cifar10",
        model="resnet8",
        workers=4,
        batch_size=16,
        steps=1000,
        eval_every=250,
        eval_train=False,  # a pass over 50,000 images takes as long as 200 steps
        trajectory="method",  # sgd: every method measured on the same weights, none of them trained
    )
    quantized = product(quantizer(3, 16384), updates([50, 200], 400))
    adaptive = union(mixture("ALQ", "alq", NUM_COMPONENTS), ALQ_N, mixture("AMQ", "amq", NUM_COMPONENTS), AMQ_N)
    exact = union(
        mixture("ALQ exact mixture", "alq", NUM_COMPONENTS, CLOSED_FORM),
        mixture("AMQ exact mixture", "amq", NUM_COMPONENTS, CLOSED_FORM),
        point("ALQ exact histogram", HISTOGRAM, method="alq"),
        point("AMQ exact histogram", HISTOGRAM, method="amq"),
    )
    return Sweep(product(task, quantized, union(FIXED, adaptive, exact)))
