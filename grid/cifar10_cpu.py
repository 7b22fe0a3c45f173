"""Real data without a GPU: ResNet-8 on CIFAR-10, one run in a few minutes on two cores.

The published order of estimator variances belongs to the original's solver; beside it stand the exact solution of the
same fit, which is worse for ALQ because real coordinates have heavier tails than any normal, and of the measured
histogram, which is our default.
"""

from __future__ import annotations

from grid.engine.sweep import Point, Sweep, point, product, union, where_read
from grid.nuq import ALQ_N, AMQ_N, CLOSED_FORM, L2, NUQSGD, QSGD, QSGDINF, SGD, SUPERSGD, TRN, mixture

BITS = 3
BUCKET_SIZE = 16384
NUM_COMPONENTS = 80
STEPS = 1000
BATCH_SIZE = 16
LR = 0.05
LR_DROPS = [750]
TRAJECTORY = "method"  # sgd: every method measured on the same weights, none of them trained
MEASURE_EVERY = 200
EVAL_EVERY = 250
UPDATE_AT = [50, 200]
UPDATE_EVERY = 400
SEEDS = (1,)

HISTOGRAM = {**L2, "method.fit": "histogram", "method.solver": "exact"}


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
        {"optim": "sgd", "optim.lr": LR, "schedule": "step", "schedule.at": LR_DROPS, "measure.every": MEASURE_EVERY},
        data="cifar10",
        model="resnet8",
        workers=4,
        batch_size=BATCH_SIZE,
        steps=STEPS,
        eval_every=EVAL_EVERY,
        eval_train=False,  # a pass over 50,000 images takes as long as 200 steps
        trajectory=TRAJECTORY,
    )
    quantizer = where_read(
        {
            "method.bits": BITS,
            "method.bucket_size": BUCKET_SIZE,
            "method.update_at": UPDATE_AT,
            "method.update_every": UPDATE_EVERY,
        }
    )
    adaptive = union(mixture("ALQ", "alq", NUM_COMPONENTS), ALQ_N, mixture("AMQ", "amq", NUM_COMPONENTS), AMQ_N)
    exact = union(
        mixture("ALQ exact mixture", "alq", NUM_COMPONENTS, CLOSED_FORM),
        mixture("AMQ exact mixture", "amq", NUM_COMPONENTS, CLOSED_FORM),
        point("ALQ exact histogram", HISTOGRAM, method="alq"),
        point("AMQ exact histogram", HISTOGRAM, method="amq"),
    )
    methods = union(SGD, SUPERSGD, QSGD, QSGDINF, NUQSGD, TRN, adaptive, exact)
    return Sweep(product(task, quantizer, methods), seeds=SEEDS)
