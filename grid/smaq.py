"""SmaQ (Shoghi, Bersatti, Qureshi and Kim, 2021): every large tensor of training kept in a format, at one worker.

The formats are those of the paper's table, casts unscaled and FP8 e5m2 as there, and five of ours: SmaQ with a mask of
its zeros, NNW-BDI, e4m3 with a scale a bucket, SmaQ beside a float32 copy of the weights that takes the updates, and
SmaQ whose gradients are clamped later.  BERT's settings are those of its authors' command; for the images their code's
defaults, with the weight decay of a log that it left:  128 images, rate .1, a tenth of it after 100, 150 and 200
epochs.

Differences: they train to some epoch that is not told, we to 250; their ResNets are torchvision's, as here, with its
stem for large images;  their code crops and flips the test images, ours those that are trained on; biases and batch
norms stay in float32.
"""

from __future__ import annotations

from collections.abc import Sequence

from grid import cifar10_cpu as small
from grid.demo import digits
from grid.engine.sweep import Point, Sweep, axis, needs, point, product, union
from grid.engine.sweeps.epochs import at_epochs, steps_per_epoch

KINDS = ("weights", "activations", "activation_gradients", "moments")


def everywhere(label: str, method: str, **own: str) -> Point:
    """All five kinds of tensors in one format: gradients as a method, the others by its name with the same settings."""
    given = " ".join([method, *(f"{name}={value}" for name, value in own.items())])
    return point(
        label, {f"method.{name}": value for name, value in own.items()}, **{"method": method, "tensors.all": given}
    )


FP32 = point("FP32", method="supersgd")
SMAQ = everywhere("SmaQ", "smaq")
# the paper's own: no mask, 6 or 8 bits for every number
PUBLISHED = everywhere("SmaQ, zeros coded", "smaq", zeros="coded")
MASTER = product(SMAQ, point("master weights", {"tensors.master": True}))
# Gradients have tails: what is clamped at 2.5 standard deviations is lost anew at every layer.  As many bits, in wider
# steps.
TAILS = point(
    "SmaQ, gradients to 16 sigma",
    {"method.outlier_limit": 16.0, "tensors.all": "smaq", "tensors.activation_gradients": "smaq outlier_limit=16.0"},
    method="smaq",
)
BASELINES = union(
    everywhere("FP16", "fp16", scale="none"),
    everywhere("BF16", "bf16"),
    everywhere("FP8", "fp8", table="e5m2", scale="none"),
    everywhere("S2FP8", "s2fp8"),
)
FORMATS = union(
    FP32,
    BASELINES,
    SMAQ,
    PUBLISHED,
    everywhere("NNW-BDI", "nnw_bdi"),
    everywhere("FP8 e4m3 scaled", "fp8"),
    MASTER,
    TAILS,
)


def one_at_a_time() -> list[Point]:
    """SmaQ for each of the five kinds of tensors alone."""
    kept = [
        point(f"SmaQ {kind.replace('_', ' ')} only", {f"tensors.{kind}": "smaq"}, method="supersgd") for kind in KINDS
    ]
    return union(point("SmaQ gradients only", method="smaq"), kept)


# --- the paper's --------------------------------------------------------------------------------------------------

EPOCHS = 250


def _images(data: str, models: Sequence[str]) -> list[Point]:
    epoch = steps_per_epoch(data, 128, workers=1)
    task = point(
        "",
        {
            "optim": "sgd",
            "optim.lr": 0.1,
            "optim.momentum": 0.9,
            "optim.weight_decay": 5e-5,
            "schedule": "step",
            "schedule.at": at_epochs([100, 150, 200], epoch),
            "schedule.factor": 0.1,
            "measure.every": 0,
        },
        data=data,
        workers=1,
        batch_size=128,
        steps=EPOCHS * epoch,
        eval_every=epoch,
        eval_train=False,
    )
    return product(task, axis("model", models) if len(models) > 1 else point(model=models[0]), FORMATS, needs(gpus=1))


def cifar10_resnet34() -> Sweep:
    """CIFAR-10, ResNet-34: the formats of the published table, NNW-BDI, e4m3, and SmaQ with master weights or wider
    gradients.
    """
    return Sweep(_images("cifar10", ["resnet34"]))


def cifar10_others() -> Sweep:
    """CIFAR-10, ResNet-18, ResNet-50 and Inception: the same formats."""
    return Sweep(_images("cifar10", ["resnet18", "resnet50", "inception"]))


def cifar100() -> Sweep:
    """CIFAR-100, all four models: the same formats."""
    return Sweep(_images("cifar100", ["resnet18", "resnet34", "resnet50", "inception"]))


BERT = "bert-base-uncased"  # a folder with its weights and vocabulary, seen from where runs start


def _bert(name: str, data: Point) -> list[Point]:
    epoch = steps_per_epoch(name, 10, workers=1)
    task = point(
        "",
        {"data.tokenizer": BERT, "model.weights": BERT, "optim": "adamw", "optim.lr": 2e-5, "optim.weight_decay": 0.01},
        model="bert",
        workers=1,
        batch_size=10,
        steps=6 * epoch,
        eval_every=epoch,
        eval_train=False,
    )
    return product(data, task, FORMATS, needs(gpus=1))


def bert_stsb() -> Sweep:
    """BERT on STS-B, 6 epochs: the same formats."""
    return Sweep(_bert("stsb", point("", {"data.task": "stsb"}, data="glue")))


def bert_imdb() -> Sweep:
    """BERT on IMDB's reviews, trained alike: the same formats."""
    return Sweep(_bert("imdb", point(data="imdb")))


# --- without a GPU ------------------------------------------------------------------------------------------------


def _comparison() -> list[Point]:
    return union(FORMATS, one_at_a_time())


def cifar10_cpu() -> Sweep:
    """Real data without a GPU: all formats everywhere, SmaQ with master weights or wider gradients, and for each kind
    of tensors alone.
    """
    # three quarters of an epoch
    task = small.images("resnet8", workers=1, batch_size=64, steps=600, lr=0.05, eval_every=300)
    histograms = point("", {"tensors.histogram_every": 300})
    return Sweep(product(task, histograms, _comparison()), seeds=(1, 2))


def cpu() -> Sweep:
    """The same on the embedded digits, seconds a run."""
    task = product(digits(steps=100, workers=1), point("", {"tensors.histogram_every": 50}))
    return Sweep(product(task, _comparison()))
