"""Deep Gradient Compression (Lin et al., ICLR 2018): one coordinate in a thousand, with momentum correction and a warm-up of the ratio."""

from __future__ import annotations

from grid.engine.sweep import Sweep, point, product, union
from grid.nuq import SUPERSGD

RATIO = 0.001
DGC = point("DGC", {"method.ratio": RATIO}, method="dgc")
TOPK = point("TopK", {"method.ratio": RATIO, "method.scope": "tensor"}, method="topk")

# CIFAR-10 without a GPU: about 4 epochs of 50,000 images.
MODEL = "resnet8"
WORKERS = 4
BATCH_SIZE = 16
STEPS = 3000
LR = 0.05
LR_DROPS = [2000, 2600]
WARMUP_STEPS = 100  # of each of the warm-up's four ratios
EVAL_EVERY = 250
SEEDS = (1, 2)


def cifar10_cpu() -> Sweep:
    """Real data without a GPU: dense, DGC with and without its warm-up and its momentum correction, TopK with and without feedback."""
    task = point(
        "",
        {"optim": "sgd", "optim.lr": LR, "schedule": "step", "schedule.at": LR_DROPS},
        data="cifar10",
        model=MODEL,
        workers=WORKERS,
        batch_size=BATCH_SIZE,
        steps=STEPS,
        eval_every=EVAL_EVERY,
        eval_train=False,  # a pass over 50,000 images takes as long as 200 steps
    )
    methods = union(
        SUPERSGD,
        product(DGC, point("with warm-up", {"method.warmup_every": WARMUP_STEPS})),
        product(DGC, point("without warm-up")),
        product(DGC, point("with error feedback only", {"method.warmup_every": WARMUP_STEPS, "feedback.kind": "error"})),
        product(TOPK, point("with feedback", {"feedback.kind": "error"})),
        product(TOPK, point("without feedback", {"feedback.kind": "none"})),
    )
    return Sweep(product(task, methods), seeds=SEEDS, folder="dgc_cifar10_cpu")
