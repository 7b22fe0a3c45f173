"""The sweep behind ``make demo``: ten methods on the embedded digits, minutes on two cores."""

from __future__ import annotations

from grid.engine.sweep import Point, Sweep, point, product, union, where_read
from grid.nuq import L2, NUQSGD, QSGD, QSGDINF, SGD, SUPERSGD, TRN

BITS = 3
BUCKET_SIZE = 1024
STEPS = 200
BATCH_SIZE = 16
LR = 0.03
LR_DROPS = [150]
MEASURE_EVERY = 40
EVAL_EVERY = 25
UPDATE_AT = [10, 50]  # early, where the gradients still change
UPDATE_EVERY = 100
SEEDS = (1, 2, 3)

# The adaptive methods with their default fit and solver: the better ones, not the published ones.
ADAPTIVE = union(
    point("ALQ", method="alq"),
    point("ALQ-N", method="alq_n"),
    point("AMQ", method="amq"),
    point("AMQ-N", method="amq_n"),
)


def digits(steps: int, workers: int = 2) -> Point:
    """The small task of the papers' sweeps: seconds a run, without data or GPU."""
    return point(
        "",
        {"optim": "sgd", "optim.lr": LR},
        data="digits",
        model="cnn",
        workers=workers,
        batch_size=BATCH_SIZE,
        steps=steps,
        eval_every=max(1, steps // 4),
    )


def demo() -> Sweep:
    """Digits, a small cnn, 4 workers: the ten methods, three seeds."""
    task = point(
        "",
        {"optim": "sgd", "optim.lr": LR, "schedule": "step", "schedule.at": LR_DROPS, "measure.every": MEASURE_EVERY},
        data="digits",
        model="cnn",
        workers=4,
        batch_size=BATCH_SIZE,
        steps=STEPS,
        eval_every=EVAL_EVERY,
    )
    quantizer = where_read(
        {
            **L2,  # as in the paper
            "method.bits": BITS,
            "method.bucket_size": BUCKET_SIZE,
            "method.update_at": UPDATE_AT,
            "method.update_every": UPDATE_EVERY,
        }
    )
    return Sweep(product(task, quantizer, union(SGD, SUPERSGD, QSGD, QSGDINF, NUQSGD, TRN, ADAPTIVE)), seeds=SEEDS)
