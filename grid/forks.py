"""Forks: another method from the middle of a training on, on the same minibatches as the run that was left.

Full runs and forks of the same methods, so that the intervals of both can be compared.
"""

from __future__ import annotations

from grid.demo import ADAPTIVE, AS_PUBLISHED
from grid.engine.sweep import Sweep, after, point, product, union
from grid.gpt import recipe
from grid.nuq import FIXED, SUPERSGD, quantizer, updates

METHODS = ("QSGDinf", "NUQSGD", "TRN", "ALQ")
STEPS, AT = 200, 100


def cpu() -> Sweep:
    """The GPT of ``gpt cpu``: 200 steps of SuperSGD, left at step 100 for four methods and for itself.

    Five seeds, 50 runs, a quarter of an hour on two cores.
    """
    task = recipe({"eval_every": STEPS // 20}, lr=3e-3, steps=STEPS, warmup_steps=20, batch_size=8)
    quantized = product(AS_PUBLISHED, quantizer(3, 1024), updates([0, 10, 50], 100), union(FIXED, ADAPTIVE))
    methods = [item for item in quantized if item.label in METHODS]
    start = product(SUPERSGD, point("", {"checkpoint_at": [AT]}))
    left = product(point("forked", {"fork.run": "{after}", "fork.at": AT}), after("SuperSGD"))
    return Sweep(product(task, union(start, methods, product(left, union(SUPERSGD, methods)))), seeds=5)
