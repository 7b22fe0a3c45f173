"""The trainings of two tests: killed and stopped they end as undisturbed, and on any number of ranks as in one process.

Each kind of method, optimizer, collective and model, and whatever else a checkpoint holds, is in one of them at least.
"""

from __future__ import annotations

import hashlib
from typing import Any

import torch

from train.steps.trainer import Trainer

STEPS = 8
BASE: dict[str, Any] = {
    "data": "digits",
    "model": "cnn",
    "batch_size": 4,
    "workers": 4,
    "steps": STEPS,
    "eval_every": 4,
    "eval_train": False,
    "checkpoint_every": 3,
}
LEVELS = {"method.update_at": [0, 2, 6], "method.update_every": 0, "method.num_samples": 3, "method.bucket_size": 512}
PICTURES = {"data": "cifar10", "model": "resnet8", "stand_in": True, "batch_size": 1}  # with statistics of batches
TEXT = {"data": "text", "model": "gpt", "model.layers": 1, "model.width": 16, "model.dropout": 0.1, "data.length": 16}
TEXT |= {"data.num_train": 50, "data.num_test": 20}
WARM = {"schedule": "exponential", "schedule.period": 2, "schedule.warmup_steps": 5, "schedule.warmup_factor": 0}
RECIPE = WARM | {"optim.decay_norms": False, "optim.weight_decay": 0.1, "optim.scale_lr": "sqrt"}
CLIPPED = {"optim.clip_norm": 0.5, "optim.clip_value": 0.05}
ROUNDS = {"exchange.local_steps": 4}
STREAMING = ROUNDS | {"exchange.fragments": 3, "exchange.overlap": 2}
FORMATS = {"tensors.all": "smaq", "tensors.min_size": 64}
LAYERS = ["conv1 = dgc ratio=0.1", "*.bias = supersgd", "conv2 = topk ratio=0.1 scope=model"]

TRAININGS: dict[str, dict[str, Any]] = {
    "sgd": {"method": "sgd", "optim.nesterov": True},
    "supersgd two_stage": {"method": "supersgd", "optim": "adam", "exchange.collective": "two_stage", **PICTURES},
    "qsgdinf auto": {"method": "qsgdinf", "optim": "adamw", "exchange.collective": "auto", **RECIPE},
    "qsgdinf clipped two_stage": {"method": "qsgdinf", "exchange.collective": "two_stage", **CLIPPED},
    "qsgdinf muon": {"method": "qsgdinf", "model": "mlp", "optim": "muon", **RECIPE},
    "qsgdinf ef21 both": {
        "method": "qsgdinf",
        "feedback.kind": "ef21",
        "feedback.both": True,
        "exchange.collective": "two_stage",
    },
    "qsgdinf trajectory": {
        "method": "qsgdinf",
        "trajectory": "sgd",
        "measure.every": 4,
        "measure.num_samples": 2,
        **PICTURES,
    },
    "qsgdinf streaming": {"method": "qsgdinf", "feedback.kind": "ef21", **STREAMING},
    "trn server": {"method": "trn", "exchange.collective": "server"},
    "alq": {"method": "alq", "compute.precision": "fp16", **LEVELS},
    "alq fresh tensor": {"method": "alq", **LEVELS, "method.statistics": "fresh", "method.scope": "tensor"},
    "alq two_stage": {
        "method": "alq",
        **LEVELS,
        "method.coding": "rans",
        "exchange.collective": "two_stage",
        "exchange.second_bits": 5,
    },
    "alq server": {"method": "alq", "exchange.collective": "server", **LEVELS},
    "alq rounds": {"method": "alq", "exchange.collective": "two_stage", **LEVELS, **ROUNDS, **PICTURES},
    "alq streaming": {  # levels change while a part is on its way; the vector's order is not the model's
        "method": "alq",
        **LEVELS,
        **STREAMING,
        "layers": ["*conv1* = trn"],
        "exchange.mixing": 0.25,
    },
    "alq layers two_stage": {
        "method": "alq",
        "layers": [*LAYERS, "output = amq bits=4 update_at=[3] num_samples=2"],
        "exchange.collective": "two_stage",
        **LEVELS,
    },
    "amq paper": {"method": "amq", **LEVELS, "method.solver": "paper", "method.fit": "mixture", "method.bits": 4},
    "ecdq": {"method": "ecdq", "compute.precision": "bf16", "compute.accumulate": 2},
    "eden server": {"method": "eden", "exchange.collective": "server", "model": "logreg", "optim": "adam"},
    "sign": {"method": "sign", "optim": "signsgd", "optim.momentum": 0.9, "optim.lr": 0.01},
    "block8": {"method": "block8", "data": "mnist", "model": "mnist_cnn", "stand_in": True},  # with dropout
    "bf16": {"method": "bf16", "exchange.collective": "two_stage", "optim": "muon", "model": "mlp"},
    "smaq tensors": {"method": "smaq", "optim": "adamw", "tensors.master": True, "tensors.inference": True, **FORMATS},
    "nnw_bdi": {"method": "nnw_bdi", "tensors.moments": "bf16", "optim.momentum": 0.5, **FORMATS},
    "topk ef21": {"method": "topk", "feedback.kind": "ef21", **RECIPE},
    "topk rounds server": {
        "method": "topk",
        "method.values": "2bit",
        "optim": "adamw",
        "exchange.collective": "server",
        **ROUNDS,
    },
    "dgc": {"method": "dgc", "compute.accumulate": 2, **CLIPPED, **RECIPE},
    "demo": {"method": "demo", "feedback.decay": 0.9, "optim": "signsgd", "optim.momentum": 0.9, "optim.lr": 0.01},
    "atomo": {"method": "atomo", "optim": "adamw", **TEXT},
    "powersgd": {"method": "powersgd", "exchange.collective": "auto", "optim": "adam", **TEXT},
    "powersgd rounds": {"method": "powersgd", "method.rank": 2, "optim": "muon", "model": "mlp", **ROUNDS},
    "powersgd layers": {"method": "powersgd", "layers": LAYERS, "exchange.collective": "auto"},
    "casq": {"method": "casq", "method.refresh_every": 3, "method.sample_size": 256},
    "sketchml": {"method": "sketchml", "schedule": "cosine"},
}


def _flat(value: Any, name: str = "") -> dict[str, Any]:
    """The leaves of nested mappings and lists by their places."""
    if isinstance(value, dict | list | tuple):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        return {place: leaf for key, of in items for place, leaf in _flat(of, f"{name}.{key}").items()}
    return {name: value}


def digests(of: Trainer) -> dict[str, str]:
    """Digests of all that a checkpoint holds but counts and seconds: pytest compares megabytes letter by letter."""
    saved = {key: value for key, value in of.state_dict().items() if key not in ("identity", "totals", "evaluated")}
    data = {
        name: leaf.numpy().tobytes() if isinstance(leaf, torch.Tensor) else repr(leaf).encode()
        for name, leaf in _flat(saved).items()
    }
    return {name: hashlib.blake2b(one, digest_size=8).hexdigest() for name, one in data.items()}
