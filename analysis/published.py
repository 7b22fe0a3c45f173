"""Results that the paper's figures show, to stand beside our numbers.

Final test accuracy in percent, read from the curves of Faghri et al., "Adaptive Gradient Quantization for Data-Parallel
SGD" (NeurIPS 2020), to +-.05; the estimator variances are those on the common SGD trajectory, relative to SuperSGD's.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from analysis.groups.tensor_formats import compressor, everywhere, keeps

_ACCURACY = """
                        supersgd  sgd    alq    alq_n  amq    amq_n  qsgdinf  trn    nuqsgd
cifar10_full_resnet110  92.20     93.79  92.75  92.83  92.53  91.90  89.9     90.3   85.86
cifar10_full_resnet32   92.25     -      91.35  91.99  91.05  91.00  89.96    89.61  83.77
cifar10_full_resnet8    88.07     88.28  88.17  88.22  87.92  87.51  85.84    86.05  75.0
imagenet_full           70.07     65.86  68.88  69.04  68.32  68.45  68.12    65.1   35.53
"""
_METHODS, *_ROWS = (line.split() for line in _ACCURACY.strip().splitlines())
ACCURACY: dict[str, dict[str, float]] = {
    sweep: {name: float(value) for name, value in zip(_METHODS, values, strict=True) if value != "-"}
    for sweep, *values in _ROWS
}

# Deep Gradient Compression at ratio .001 on ImageNet (the table of its authors' code, top-1): (GPUs, workers that
# compress, schedule).  Where workers are fewer than GPUs, each stands for a machine; dense: their uncompressed
# training.
DGC_MODELS = ("resnet50", "vgg16_bn")
DGC_DENSE = (76.2, 73.4)
DGC: dict[tuple[int, int, str], tuple[float, float]] = {
    (8, 8, "step"): (76.6, 74.1),
    (16, 16, "step"): (76.5, 73.8),
    (32, 32, "step"): (76.3, 73.3),
    (32, 32, "cosine"): (76.7, 74.4),
    (64, 64, "step"): (76.8, 74.2),
    (64, 8, "step"): (76.6, 73.8),
    (128, 16, "step"): (76.4, 73.1),
    (256, 32, "step"): (75.9, 71.7),
}
DGC_SWEEPS = ("dgc_imagenet_resnet50", "dgc_imagenet_vgg16bn")
DGC_BATCH = 32  # images of one GPU

# SmaQ's table, every tensor in the format: ResNet-34's top-1 in percent and BERT's correlation on STS-B, each with the
# ratio of 32 bits to those that a number takes on average (SmaQ's at most 32 / 6 = 5.33).  FP8 is e5m2; casts are
# unscaled.
SMAQ_TASKS = (("cifar10", "resnet34"), ("glue", "bert"))  # data and model of its columns
SMAQ_SWEEPS = ("smaq_cifar10_resnet34", "smaq_bert_stsb")
SMAQ: dict[str, tuple[tuple[float, float], tuple[float, float]]] = {
    "smaq": ((84.74, 4.92), (0.794, 4.95)),
    "s2fp8": ((20.32, 3.87), (math.nan, math.nan)),
    "fp8": ((18.80, 4.0), (0.766, math.nan)),
    "fp16": ((22.38, 2.0), (0.793, math.nan)),
    "bf16": ((89.00, 2.0), (0.791, math.nan)),
    "supersgd": ((89.20, 1.0), (0.793, math.nan)),
}

_TASKS = {  # data, model, bits of those that have bits
    "cifar10_full_resnet110": ("cifar10", "resnet110", 3),
    "cifar10_full_resnet32": ("cifar10", "resnet32", 3),
    "cifar10_full_resnet8": ("cifar10", "resnet8", 3),
    "imagenet_full": ("imagenet", "resnet18", 3),
}
STEPS = {sweep: 600000 if sweep == "imagenet_full" else 80000 for sweep in _TASKS}

# method -> est_var / super_var on CIFAR-10, measured on the SGD trajectory of this model at 3 bits
VARIANCES_MODEL = "ResNet-110"
VARIANCES = {"alq": 1.9, "amq": 3.5, "qsgdinf": 8.4, "trn": 11.0, "nuqsgd": 271.0}
RELATIVE_VARIANCE = {("cifar10", "resnet110"): VARIANCES}  # by data and model

_AS_PUBLISHED = {
    "method.solver": ("paper",),
    "method.fit": ("mixture",),
    "method.rounding": ("stochastic",),
    "method.norm": ("l2",),
    "method.rotation": ("none",),
    "method.bits": (3,),
    "feedback.kind": ("auto", "none"),
}


def has_variance(settings: Mapping[str, Any]) -> bool:
    """Whether these settings (dotted names) are those of a method on CIFAR-10 in ``VARIANCES``, as it is published."""
    told = {name: value for name in _AS_PUBLISHED if (value := settings.get(name)) is not None and value == value}
    as_published = all(value in _AS_PUBLISHED[name] for name, value in told.items())
    return as_published and settings.get("data.name") == "cifar10" and settings.get("method.name") in VARIANCES


def accuracy(sweep: str, settings: Mapping[str, Any]) -> dict[str, float] | None:
    """The paper's accuracies by method for these settings (dotted names); None for a task that is not the paper's."""
    if settings.get("trajectory") == "sgd":
        return None
    if sweep in DGC_SWEEPS:
        return _dgc(settings)
    if sweep == SMAQ_SWEEPS[0]:
        row = smaq_row(sweep, settings)
        return {row: SMAQ[row][0][0]} if row else {}
    if sweep not in _TASKS:
        return None
    data, model, bits = _TASKS[sweep]
    own = settings.get("method.bits")
    same = own == bits or not isinstance(own, int)
    same &= (settings.get("data.name"), settings.get("model.name")) == (data, model)
    return ACCURACY[sweep] if same else None


def dgc_row(settings: Mapping[str, Any]) -> tuple[int, int, str]:
    """The (GPUs, workers that compress, schedule) of these settings; a GPU has ``DGC_BATCH`` of a step's images."""
    batches = settings.get("compute.accumulate", 1)
    images = settings["batch_size"] * (1 if math.isnan(batches) else batches)  # runs from before it have none
    return int(settings["workers"] * images) // DGC_BATCH, int(settings["workers"]), str(settings.get("schedule.name"))


def _dgc(settings: Mapping[str, Any]) -> dict[str, float] | None:
    """The row of DGC's table for these settings, by method."""
    model, workers, batch = settings.get("model.name"), settings.get("workers"), settings.get("batch_size")
    if settings.get("data.name") != "imagenet" or model not in DGC_MODELS or not workers or not batch:
        return None
    row = DGC.get(dgc_row(settings))
    column = DGC_MODELS.index(str(model))
    warm = settings.get("method.warmup_every")  # without a warm-up of the ratio nothing is published
    found = {"supersgd": DGC_DENSE[column]}
    return found | ({"dgc": row[column]} if row and warm and settings.get("method.ratio") == 0.001 else {})


def smaq_row(sweep: str, settings: Mapping[str, Any]) -> str:
    """The row of SmaQ's table for these settings (dotted names), the format of all their tensors; empty without one.

    A run of its own code says nothing of tensors, and keeps all of them in its format.
    """
    if (settings.get("data.name"), settings.get("model.name")) != SMAQ_TASKS[SMAQ_SWEEPS.index(sweep)]:
        return ""
    method = compressor(settings)
    if settings.get("system") == "smaq":
        return "supersgd" if method == "fp32" else method if method in SMAQ else ""
    whole = not keeps(settings) if method == "supersgd" else everywhere(settings) == method
    other = method == "fp8" and settings.get("method.table") != "e5m2"
    other |= method == "smaq" and settings.get("method.outlier_limit", 2.5) != 2.5
    other |= method == "smaq" and settings.get("method.zeros", "masked") != "coded"  # a mask of zeros is ours
    return method if method in SMAQ and whole and not other else ""


def relative_variance(settings: Mapping[str, Any]) -> dict[str, float] | None:
    """The paper's variances relative to SuperSGD's on the SGD trajectory, by method; None for a task without."""
    if settings.get("trajectory") != "sgd":
        return None
    return RELATIVE_VARIANCE.get((str(settings.get("data.name")), str(settings.get("model.name"))))


# (data, model, bits) -> method -> the levels it learned, all of them, ascending
LEVELS_BUCKET = 16384  # bucket size of the runs that learned them
_ALQ = (0.005, 0.018, 0.13, 1.0)
_AMQ = tuple(0.233**power for power in (3, 2, 1, 0))
LEVELS: dict[tuple[str, str, int], dict[str, tuple[float, ...]]] = {
    ("cifar10", "resnet32", 3): {
        method: (*(-level for level in reversed(positive)), *positive)
        for method, positive in (("alq", _ALQ), ("amq", _AMQ))
    }
}


def levels(settings: Mapping[str, Any]) -> dict[str, tuple[float, ...]]:
    """The levels that the paper shows for these settings (dotted names), by method; none for other tasks."""
    task = settings.get("data.name"), settings.get("model.name"), settings.get("method.bits")
    return LEVELS.get(task, {})  # type: ignore[arg-type]
