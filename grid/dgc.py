"""Deep Gradient Compression (Lin et al., ICLR 2018): one coordinate in a thousand, with momentum correction and a
warm-up of the ratio.

The settings are those of its authors' code: batches per worker, a rate of ``lr * workers`` that is reached in five
epochs, values in half precision, indices of four bytes. Its three warm-ups of the ratio, by their names there: wm0 has
none; wm5 goes down by equal factors over five epochs, .001^(k/6); wm5o leaves five epochs dense. The paper's own has
four, .25 .0625 .015625 .004.

As there, ResNet-50's last batch-norm gain of every block starts at zero, and one worker that stands for a machine of
eight goes through eight batches a step (``num_batches_per_step``).

Differences: where batch norms do not decay (ResNet-50), the last layer's bias does not either.
"""

from __future__ import annotations

from grid import cifar10_cpu as small
from grid.demo import digits
from grid.engine.sweep import Point, Settings, Sweep, needs, point, product, union
from grid.engine.sweeps.epochs import at_epochs, steps_per_epoch
from grid.nuq import SUPERSGD

RATIO = 0.001
DGC = point("DGC", {"method.ratio": RATIO}, method="dgc")
TOPK = point("TopK", {"method.ratio": RATIO, "method.scope": "tensor"}, method="topk")
WARMUP_EPOCHS = 5
ON_THE_WIRE = point("", {"method.values": "fp16", "method.indices": "int32"})

# Ratios of the warm-up's epochs.
WM5 = [RATIO ** (epoch / (WARMUP_EPOCHS + 1)) for epoch in range(1, WARMUP_EPOCHS + 1)]
WM5O = [1.0] * WARMUP_EPOCHS
PAPER = [0.25, 0.0625, 0.015625, 0.004]


def warmup(label: str, ratios: list[float], every: int) -> Point:
    """DGC whose ratio goes through ``ratios``, ``every`` steps each."""
    return point(label, {"method.warmup_every": every, "method.warmup_ratios": ratios})


def warmups(every: int) -> list[Point]:
    """Every warm-up, as its code sends it; wm5 also in the fewest bytes that full precision takes here."""
    found = product(DGC, ON_THE_WIRE, union(point("wm0"), warmup("wm5", WM5, every), warmup("wm5o", WM5O, every)))
    paper = product(DGC, ON_THE_WIRE, warmup("paper's warm-up", PAPER, every))
    return union(found, paper, product(DGC, warmup("wm5", WM5, every), point("fp32", {"method.indices": "auto"})))


# --- CIFAR-10 -----------------------------------------------------------------------------------------------------


def _cifar10(model: str) -> list[Point]:
    points = []
    for workers in (4, 8):
        epoch = steps_per_epoch("cifar10", 128, workers)
        task = point(
            f"workers={workers}",
            {
                "optim": "sgd",
                "optim.lr": 0.1 * workers,
                "optim.momentum": 0.9,
                "optim.weight_decay": 1e-4,
                "schedule": "cosine",
                "schedule.warmup_steps": WARMUP_EPOCHS * epoch,
                "schedule.warmup_factor": 1 / workers,
            },
            data="cifar10",
            model=model,
            workers=workers,
            batch_size=128,
            steps=200 * epoch,
            eval_every=epoch,
        )
        points += product(task, union(SUPERSGD, warmups(epoch)))
    return points


def cifar10_resnet20() -> Sweep:
    """CIFAR-10, ResNet-20, 200 epochs, 4 and 8 workers: dense, and every warm-up of the ratio."""
    return Sweep(_cifar10("resnet20"))


def cifar10_resnet110() -> Sweep:
    """CIFAR-10, ResNet-110, 200 epochs, 4 and 8 workers: dense, and every warm-up of the ratio."""
    return Sweep(_cifar10("resnet110"))


# --- ImageNet -----------------------------------------------------------------------------------------------------

GPUS_PER_NODE = 8
BATCH = 32  # of a GPU


def _imagenet(model: str, own: Settings, workers: int, schedule: str = "step", per_worker: int = 1) -> Point:
    """ImageNet in 90 epochs, ``own`` the model's settings; ``per_worker`` GPUs' batches of 32 are one worker's, one
    after another.
    """
    gpus = workers * per_worker
    epoch = steps_per_epoch("imagenet", BATCH, workers, per_worker)
    drops = {"schedule.at": at_epochs([30, 60, 80], epoch), "schedule.factor": 0.1} if schedule == "step" else {}
    label = (
        f"gpus={gpus}"
        + (f" as {workers} nodes" if per_worker > 1 else "")
        + (" cosine" if schedule == "cosine" else "")
    )
    return point(
        label,
        {
            "optim": "sgd",
            "optim.lr": 0.0125 * gpus,
            "optim.momentum": 0.9,
            **own,
            "schedule": schedule,
            **drops,
            "schedule.warmup_steps": WARMUP_EPOCHS * epoch,
            "schedule.warmup_factor": 1 / gpus,
            **({"compute.accumulate": per_worker} if per_worker > 1 else {}),
        },
        data="imagenet",
        model=model,
        workers=workers,
        batch_size=BATCH,
        steps=90 * epoch,
        eval_every=epoch,
        eval_train=False,
    )


def _published(model: str, own: Settings) -> list[Point]:
    """The rows of the published table, dense runs beside the first and the largest that need no nodes, and one run
    without warm-up.
    """
    points = []
    flat = [_imagenet(model, own, workers) for workers in (8, 16, 32, 64)] + [_imagenet(model, own, 32, "cosine")]
    nodes = [_imagenet(model, own, workers, per_worker=GPUS_PER_NODE) for workers in (8, 16, 32)]
    for task in flat + nodes:
        epoch = steps_per_epoch("imagenet", BATCH, task.settings["workers"], task.settings.get("compute.accumulate", 1))
        points += product(task, DGC, ON_THE_WIRE, warmup("wm5", WM5, epoch))
    points += product(flat[0], SUPERSGD) + product(flat[2], SUPERSGD)
    points += product(flat[2], DGC, ON_THE_WIRE, point("wm0"))
    return product(points, needs(gpus=1))


def imagenet_resnet50() -> Sweep:
    """ImageNet, ResNet-50, 90 epochs, 8 to 256 GPUs: the rows of the published table; dense at 8 and 32, and 32 without
    warm-up.
    """
    own = {"optim.weight_decay": 1e-4, "optim.decay_norms": False, "optim.nesterov": True, "model.zero_init": True}
    return Sweep(_published("resnet50", own))


def imagenet_vgg16bn() -> Sweep:
    """ImageNet, VGG-16 with batch norm, 90 epochs, 8 to 256 GPUs: the same rows."""
    return Sweep(_published("vgg16_bn", {"optim.weight_decay": 5e-5}))


# --- without a GPU ------------------------------------------------------------------------------------------------
WARMUP_STEPS = 300  # of each of the warm-up's four ratios


def _comparison(warmup_steps: int) -> list[Point]:
    """The worth of the paper's parts: warm-up, factor masking (it takes the momentum of what is sent), momentum
    correction, feedback.
    """
    warm = point("", {"method.warmup_every": warmup_steps})
    return union(
        SUPERSGD,
        product(DGC, warm, point("with warm-up")),
        product(DGC, point("without warm-up")),
        product(DGC, warm, point("without factor masking", {"feedback.masking": False})),
        product(DGC, warm, point("with error feedback only", {"feedback.kind": "error"})),
        product(TOPK, point("with feedback", {"feedback.kind": "error"})),
        product(TOPK, point("without feedback", {"feedback.kind": "none"})),
    )


def cifar10_cpu() -> Sweep:
    """Real data without a GPU: dense, DGC with and without its warm-up and its momentum correction, TopK with and
    without feedback.
    """
    # about 8 epochs of a model that is quick here, and large enough that one parameter in a thousand tells something
    task = small.images("lenet", workers=4, batch_size=16, steps=6000, lr=0.02, eval_every=500)
    return Sweep(product(task, _comparison(WARMUP_STEPS)), seeds=(1, 2))


def cpu() -> Sweep:
    """The same comparison on the embedded digits, seconds a run."""
    return Sweep(product(digits(steps=120), _comparison(10)))
