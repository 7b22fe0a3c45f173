"""Local steps: a small GPT on text, trained in rounds of 1 to 128 steps by methods at matched bytes.

A round of one step is data-parallel training, without an outer optimizer.  ALQ, QSGDinf and PowerSGD of rank 4 send 3.0
to 3.2 bits a coordinate in every exchange; PowerSGD of rank 1 and TopK 1.2.  TopK is in SparseLoCo's form, with two
bits a value and a residual that decays (Sarfi et al., 2025).  All take the mean of the moves as it is, as SparseLoCo
does; SuperSGD also has DiLoCo's outer optimizer (Douillard et al., 2023).
"""

from __future__ import annotations

from collections.abc import Sequence

from grid.engine.sweep import Point, Settings, Sweep, point, product, union, where_read
from grid.gpt import recipe
from grid.nuq import SUPERSGD, updates

ROUNDS = (1, 4, 16, 64, 128)
SEEDS = (1, 2, 3)
MEAN = {"exchange.outer_lr": 1.0, "exchange.outer_momentum": 0.0, "exchange.nesterov": False}


def rounds(lengths: Sequence[int], outer: Settings, label: str = "") -> list[Point]:
    """Rounds of these lengths; ``outer``: settings of the outer optimizer, where there is one."""
    return [
        point(f"{label}H={every}", {"exchange.local_steps": every, **(outer if every > 1 else {})}) for every in lengths
    ]


def gpt_cpu() -> Sweep:
    """The GPT of ``gpt cpu``, 512 steps, evaluated every 128: half a minute a run on one core, 102 runs."""
    own = {"eval_every": max(ROUNDS), "log_every": 16}
    task = recipe(own, lr=3e-3, steps=512, warmup_steps=32, batch_size=8)
    quantizers = union(point("ALQ", method="alq"), point("QSGDinf", method="qsgdinf"))
    quantizers = product(where_read({"method.norm": "linf", "method.bits": 3, "method.bucket_size": 1024}), quantizers)
    levels = updates([0, 2, 8, 32, 128], 0)  # exchanges: a round of 128 steps is one of four
    powersgd = [point(f"PowerSGD rank {rank}", {"method.rank": rank}, method="powersgd") for rank in (4, 1)]
    sparse = {"method.ratio": 0.21, "method.values": "2bit", "feedback.decay": 0.95}
    topk = point("TopK", sparse, method="topk")
    methods = product(union(SUPERSGD, product(quantizers, levels), powersgd, topk), rounds(ROUNDS, MEAN))
    diloco = product(SUPERSGD, rounds(ROUNDS[1:], {}, "DiLoCo "))
    return Sweep(product(task, union(methods, diloco)), seeds=SEEDS)
