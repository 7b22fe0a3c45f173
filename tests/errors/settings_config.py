"""Errors of an experiment's settings: names, values, and values that do not go together."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

from settings import fork, limit, resolving, run
from tests import own_package
from tests.errors.rows import Row, row

SERVER = {"exchange.collective": "server"}
TWO_STAGE = {"exchange.collective": "two_stage"}
TOPK, TWO_WAYS = {"method": "topk"}, {**TWO_STAGE, "feedback.both": True}
ON_SGD = {"trajectory": "sgd", "measure.every": 3}
LINES = {"schedule": "piecewise_linear"}
LOCAL = {"exchange.local_steps": 5}
BERT = {"data": "glue", "model": "bert"}


def config(*parts: dict[str, Any]) -> Row:
    """Settings as an experiment has them; the last one is the bad one."""
    settings = {key: value for part in parts for key, value in part.items()}
    *beside, (name, value) = settings.items()
    given = ", ".join([repr(value), *(f"{key}={text}" for key, text in beside)])
    return row(f"main.py {name}=", given, lambda: resolving.resolve(settings))


def _without_effect(folder: Path) -> None:
    own_package.write(folder)
    sys.path.insert(0, str(folder))
    try:
        with own_package.restored():
            resolving.resolve({"plugins": ["my_package"]})
    finally:
        sys.path.remove(str(folder))


ROWS = [
    # names
    config({"method": "alqn"}),
    config({"method": "alg"}),
    config({"method": "qsgq"}),
    config({"method": 3}),
    config({"method": None}),
    config({"data": "cifar"}),
    config({"model": "resnet19"}),
    config({"optim": "adamx"}),
    config({"schedule": "cosinus"}),
    config({"exchange": "gather"}),
    config({"step": 3}),
    config({"lr": 0.1}),
    config({"bits": 3}),
    config({"optim.lrr": 0.1}),
    config({"optimizer.lr": 0.1}),
    config({"method.bit": 3}),
    config({"method.name": "qsgd"}),
    config({"measure.evry": 3}),
    config({"method": "trn"}, {"method.bits": 3}),
    config({"method": "sgd"}, {"method.bits": 3}),
    config({"method": "qsgd"}, {"method.fit": "normal"}),
    config({"data.augment": True}),
    config({"data": "glue"}, {"data.download": True}),
    config({"data.cutout": 2}),
    config({"optim": "adamw"}, {"optim.momentum": 0.9}),
    config(LINES, {"schedule.warmup_steps": 5}),
    config({"plugins": ["nothing_here"]}),
    config({"plugins": ["json"]}),
    row("main.py plugins=", "of which the experiment has nothing", _without_effect),
    # values
    config({"method": "alq_n"}, {"method.fit": "mixture"}),
    config({"method": "alq"}, {"method.weights": "norm"}),
    config({"method": "optimal", "method.num_levels": 7}, {"method.bits": 5}),
    config({"method.bits": 0}),
    config({"method.bits": 9}),
    config({"method.bits": True}),
    config({"method.bits": "three"}),
    config({"method.bits": [3]}),
    config({"method.bucket_size": 0}),
    config({"method.update_at": [100, -1]}),
    config({"method.update_at": [1.5]}),
    config({"method.update_at": 100}),
    config({"method.symmetric": "False"}),
    config({"method.norm": "l1"}),
    config({"method": "nuqsgd"}, {"method.p": 1.0}),
    config({"method": "dgc", "method.warmup_every": 5}, {"method.warmup_ratios": []}),
    config({"method": "casq", "method.cells": 9}, {"method.cells_ratio": 0.1}),
    config({"workers": 0}),
    config({"steps": 10.0}),
    config({"steps": math.nan}),
    config({"label_smoothing": 1.5}),
    config({"device": "tpu"}),
    config({"run_dir": None}),
    config({"data": "cifar10"}, {"data.cutout": -1}),
    config({"optim.lr": -0.1}),
    config({"optim.lr": math.nan}),
    config({"optim.lr": math.inf}),
    config({"optim.scale_lr": "cubic"}),
    config({"optim.clip_norm": -1}),
    config({"optim": "adamw"}, {"optim.clip_value": "1"}),
    config({"schedule": "cosine"}, {"schedule.warmup_factor": 2}),
    config(LINES, {"schedule.factors": [0, -1, 0]}),
    config({"exchange.timeout_s": 0}),
    config({"exchange.collective": "ring"}),
    # the exchange and its memory
    config({"trajectory": "sgd"}),
    config({"exchange.num_aggregate": 2}),
    config(SERVER, {"exchange.num_aggregate": 5}),
    config({"exchange.second_bits": 5}),
    config(SERVER, {"method": "supersgd"}, {"exchange.second_bits": 5}),
    config({"method": "sgd"}, SERVER),
    config(ON_SGD, SERVER),
    config({"method": "dgc", "optim.momentum": 0.0}, {"feedback.masking": False}),
    config(ON_SGD, TOPK, {"feedback.kind": "error"}),
    config({"method": "dgc"}, {"optim": "adam"}),
    config(TOPK, {"feedback.masking": False}),
    config(TOPK, {"feedback.clip_norm": 1}),
    config(TOPK, {"feedback.kind": "none"}, {"feedback.clip_value": 1}),
    config(TOPK, {"feedback.both": True}),
    config(TOPK, {"feedback.kind": "ef21"}, {"feedback.decay": 0.9}),
    config({"method": "qsgd"}, {"feedback.decay": 0.9}),
    config(TOPK, {"feedback.kind": "none"}, TWO_WAYS),
    config({"method": "supersgd"}, {"feedback.kind": "error"}),
    config({"method": "qsgd"}, TWO_WAYS),
    config({"method": "qsgd", "layers": ["fc = trn"]}, TWO_WAYS),
    config({"method": "powersgd"}, TWO_WAYS),
    config({"method": "powersgd", "exchange.collective": "auto"}, {"feedback.both": True}),
    # optimizer and schedule
    config({"method": "dgc", "optim.momentum": 0}, {"optim.nesterov": True}),
    config({"optim": "adam"}, {"optim.decay_norms": False}),
    config({"method": "sgd"}, {"optim.scale_lr": "sqrt"}),
    config(ON_SGD, {"optim.scale_lr": "linear"}),
    config({"schedule": "step"}, {"schedule.warmup_factor": 0.5}),
    config({"schedule.warmup_factor": 0.5}),
    config(LINES, {"schedule.at": [5, 5, 9]}),
    config(LINES, {"schedule.at": []}),
    config(LINES, {"schedule.at": [0, 9]}),
    # data and model
    config({"data.limit": 100}),
    config({"workers": 200}, {"data.limit": 100}),
    config({"batch_size": 100}, {"data.limit": 10**6}),
    row("train.data(limit=)", "above what the files hold", lambda: limit.check_within({"limit": 9, "name": "idx"}, 8)),
    config(BERT, {"model.width": 33}),
    config(BERT, {"label_smoothing": 0.1}),
    config(BERT, {"model.weights": "bert-base"}),
    # passes
    config({"device": "cpu"}, {"compute.cuda_graphs": True}),
    config({"compute.compile": True}, {"compute.cuda_graphs": True}),
    config({"tensors.master": True}),
    config({"optim.momentum": 0}, {"tensors.moments": "fp16"}),
    config(TOPK, {"feedback.kind": "momentum"}, {"tensors.moments": "fp16"}),
    config({"optim": "adam", "optim.beta1": 0.999, "optim.beta2": 0.9}, {"tensors.moments": "fp16"}),
    config({"compute.compile": True}, {"tensors.activations": "smaq"}),
    # local steps
    config({"method": "sgd"}, LOCAL),
    config(LOCAL, {"method.statistics": "fresh"}),
    config({"method": "dgc"}, LOCAL),
    config(LOCAL, {"optim.scale_lr": "linear"}),
    config(LOCAL, {"measure.every": 5}),
    config(LOCAL, {"compute.precision": "fp16"}),
    config(LOCAL, {"tensors.weights": "smaq"}),
    config(LOCAL, {"steps": 1001}),
    # forks
    config({"fork.at": 5}),
    config({"steps": 100, "fork.run": "runs/main/one"}, {"fork.at": 100}),
    config({"steps": 100}, {"checkpoint_at": [50, 200]}),
    row(
        "main.py fork=",
        "another batch size than the run's",
        lambda: fork.check_alike(
            resolving.resolve({"batch_size": 64, "fork.run": "runs/main/one", "fork.at": 5}), resolving.resolve({})
        ),
    ),
    row("NUQ_LAG_S", "'soon'", lambda: run.lag_s("soon")),
]
