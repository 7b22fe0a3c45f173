"""The sweeps behind ``make demo``: ten methods on the embedded digits, minutes on two cores; and half a minute's."""

from __future__ import annotations

from grid.engine.sweep import Point, Sweep, point, product, union, where_read
from grid.nuq import ALONE, FIXED, L2, quantizer, updates

BATCH_SIZE = 16
LR = 0.03

# The adaptive methods with their default fit and solver: the better ones, not the published ones.
ADAPTIVE = union(
    point("ALQ", method="alq"),
    point("ALQ-N", method="alq_n"),
    point("AMQ", method="amq"),
    point("AMQ-N", method="amq_n"),
)
AS_PUBLISHED = where_read({**L2, **ALONE})  # the paper's norm and rounding
QUICK = ("SuperSGD", "QSGDinf", "NUQSGD", "TRN", "ALQ", "AMQ")  # few: a run so short is mostly its start, 4 s of a core


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
        {"optim": "sgd", "optim.lr": LR, "schedule": "step", "schedule.at": [150], "measure.every": 40},
        data="digits",
        model="cnn",
        workers=4,
        batch_size=BATCH_SIZE,
        steps=200,
        eval_every=25,
    )
    # updates early, where the gradients still change
    quantized = product(AS_PUBLISHED, quantizer(3, 1024), updates([10, 50], 100))
    return Sweep(product(task, quantized, union(FIXED, ADAPTIVE)), seeds=(1, 2, 3))


def quick() -> Sweep:
    """A look at the demo in half a minute: six of its methods, one seed, 80 steps."""
    task = product(digits(80, 4), point("", {"measure.every": 16}))
    quantized = product(AS_PUBLISHED, quantizer(3, 1024), updates([10], 40))
    methods = [item for item in union(FIXED, ADAPTIVE) if item.label in QUICK]
    return Sweep(product(task, quantized, methods))
