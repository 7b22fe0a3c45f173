"""A small GPT on text (characters of the standard library's own sources): full precision against ALQ, QSGDinf, DGC and
PowerSGD.

The recipe is the usual one of transformers: AdamW without decay of norms and biases, a warm-up, half a cosine, the mean
gradient clipped to norm 1. Momentum correction belongs to SGD, so that DGC has error feedback here.
"""

from __future__ import annotations

from grid.engine.sweep import Point, Settings, Sweep, needs, point, product, union, where_read
from grid.nuq import L2, SUPERSGD, updates

BITS = 3
WORKERS = 4
RATIO = 0.01
RANK = 4
SEEDS = (1, 2)


def recipe(own: Settings, *, lr: float, steps: int, warmup_steps: int, batch_size: int) -> Point:
    """A GPT's training on text; ``own``: settings of data, model and measurements."""
    return point(
        "",
        {
            "optim": "adamw",
            "optim.lr": lr,
            "optim.beta2": 0.99,  # a batch of few characters: a longer mean of squares
            "optim.weight_decay": 0.1,
            "optim.decay_norms": False,
            "optim.clip_norm": 1.0,
            "schedule": "cosine",
            "schedule.warmup_steps": warmup_steps,
            "schedule.warmup_factor": 0.01,
            **own,
        },
        data="text",
        model="gpt",
        workers=WORKERS,
        batch_size=batch_size,
        steps=steps,
        eval_train=False,
    )


def methods(bucket_size: int, ratio_warmup: int) -> list[Point]:
    """The methods; ``ratio_warmup`` steps of each of DGC's first ratios."""
    quantizer = where_read({**L2, "method.bits": BITS, "method.bucket_size": bucket_size})
    dgc = point(
        "DGC", {"method.ratio": RATIO, "method.warmup_every": ratio_warmup, "feedback.kind": "error"}, method="dgc"
    )
    powersgd = point("PowerSGD", {"method.rank": RANK}, method="powersgd")
    quantizers = union(point("ALQ", method="alq"), point("QSGDinf", method="qsgdinf"))
    return product(quantizer, union(SUPERSGD, quantizers, dgc, powersgd))


def text() -> Sweep:
    """A GPT of 10.8 million parameters on five million characters, 4 workers x 16 windows of 256, 5,000 steps; on a
    GPU.
    """
    own = {
        "data.length": 256,
        "data.num_train": 20_000,
        "data.num_test": 2000,
        "model.layers": 6,
        "model.heads": 6,
        "model.width": 384,
        "model.dropout": 0.2,
        "measure.every": 500,
        "eval_every": 250,
    }
    task = recipe(own, lr=1e-3, steps=5000, warmup_steps=100, batch_size=16)
    return Sweep(product(task, updates([20, 100], 500), methods(8192, 100), needs(gpus=1)), seeds=SEEDS)


# --- without a GPU ------------------------------------------------------------------------------------------------


def cpu() -> Sweep:
    """The same with 200,000 parameters on half a million characters, less than half a minute a run on two cores."""
    task = recipe({"eval_every": 50}, lr=3e-3, steps=200, warmup_steps=20, batch_size=8)
    return Sweep(product(task, updates([10, 50], 100), methods(1024, 10)))
