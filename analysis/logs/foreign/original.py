"""Runs of the original code (learning-to-quantize: NUQSGD, ALQ, AMQ).

``log.txt`` begins with the time and all options as a Python dict.  Where that is missing, the folder's own name,
``PREFIX_NUMBER_option_value,option_value,..``, has the options that its sweep varies.  Tags and steps are ours.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from analysis.logs.foreign.values import literal
from files.plain import opened

SYSTEM = "learning-to-quantize"
_METHODS = {
    "none": "supersgd",
    "q": "qsgd",
    "qinf": "qsgdinf",
    "nuq": "nuqsgd",
    "trn": "trn",
    "alq_nb": "alq",
    "alq": "alq_n",
    "alqg_nb": "alq_g",
    "alqg": "alq_gn",
    "amq_nb": "amq",
    "amq": "amq_n",
}
_NUM_TRAIN = {"mnist": 60_000, "cifar10": 50_000, "cifar100": 50_000}  # converts lengths that are given in epochs
_RENAMED = {
    "dataset": "data.name",
    "batch_size": "batch_size",
    "seed": "seed",
    "optim": "optim.name",
    "lr": "optim.lr",
    "momentum": "optim.momentum",
    "nesterov": "optim.nesterov",
    "weight_decay": "optim.weight_decay",
    "gvar_log_iter": "measure.every",
    "gvar_estim_iter": "measure.num_samples",
    "chkpt_iter": "eval_every",
    "untrain_steps": "untrain.steps",
    "untrain_lr": "untrain.lr",
    "untrain_std": "untrain.std",
}
_OTHER = """
arch epochs niters epoch_iters lr_decay_epoch lr_decay_rate exp_lr pretrained train_accuracy num_class g_estim g_optim
g_optim_start g_epoch g_osnap_iter g_bsnap_iter gvar_start no_batch_norm nodropout data_aug nuq_method nuq_bits
nuq_bucket_size nuq_ngpu nuq_mul nuq_layer nuq_ig_sm_bkts nuq_truncated_interval nuq_number_of_samples nuq_cd_epochs
nuq_amq_lr nuq_amq_epochs nuq_sym nuq_inv nuq_parallel nuq_learning_rate dist_num workers log_interval tblog_interval
test_batch_size
"""
_ANY = "|".join(sorted([*_RENAMED, *_OTHER.split()], key=len, reverse=True))  # lr_decay_rate comes before lr
_NAME = re.compile(rf"\d{{3,}}_(?=(?:{_ANY})_)")
_OPTION = re.compile(rf"({_ANY})_(.*)", re.DOTALL)
_SWEEP = re.compile(rf"runs_({'|'.join((*_NUM_TRAIN, 'imagenet', 'svhn'))})_")


def read(folder: Path) -> dict[str, Any]:
    """The settings of a run: flat dotted names, None for what is unknown; empty for a folder of another system."""
    options = _logged_options(folder / "log.txt") or _named_options(folder)
    return {"system": SYSTEM, **_settings(options)} if options else {}


def _logged_options(path: Path) -> dict[str, Any]:
    """The dict in the first line of ``log.txt``; empty where there is none."""
    try:
        with opened(path) as file:
            line = file.readline(1 << 16).decode(errors="replace")
        options = ast.literal_eval(line[line.index("{") : line.rindex("}") + 1])
    except (OSError, ValueError, SyntaxError, MemoryError, RecursionError):
        return {}
    return options if isinstance(options, dict) and {"g_estim", "dataset"} <= options.keys() else {}


def _named_options(folder: Path) -> dict[str, Any]:
    """The options in a folder's name; a switch has an empty value there, and one that is off is not named."""
    found = _NAME.search(folder.name)
    if not found:
        return {}
    options: dict[str, Any] = {}
    last = ""
    for part in folder.name[found.end() :].split(","):
        if named := _OPTION.fullmatch(part):
            last = named[1]
            options[last] = named[2]
        elif last:  # a value with commas
            options[last] += f",{part}"
    options = {name: True if value == "" else literal(value) for name, value in options.items()}
    if "g_estim" not in options:
        return {}
    if sweep := _SWEEP.match(folder.parent.name):
        options.setdefault("dataset", sweep[1])
    return {"g_optim": False, "nuq_sym": False, "nuq_inv": False, **options}


def _settings(options: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {ours: options.get(theirs) for theirs, ours in _RENAMED.items()}
    arch = options.get("arch")
    found["model.name"] = "mnist_cnn" if (arch, options.get("dataset")) == ("cnn", "mnist") else arch
    if "no_batch_norm" in options and str(arch).startswith("resnet"):
        found["model.batch_norm"] = not options["no_batch_norm"]
    if "g_optim" in options:
        found["trajectory"] = "method" if options["g_optim"] else "sgd"
    return {**found, **_length_and_rates(options), **_method(options)}


def _length_and_rates(options: Mapping[str, Any]) -> dict[str, Any]:
    """The steps and the schedule, by niters or else epochs; one decay epoch means every multiple of it."""
    found: dict[str, Any] = {}
    unit = 1
    if not (steps := _whole(options, "niters")):
        num_train, batch = _NUM_TRAIN.get(str(options.get("dataset")), 0), _whole(options, "batch_size")
        unit = _whole(options, "epoch_iters") or (math.ceil(num_train / batch) if batch else 0)
        steps = unit * _whole(options, "epochs")
    if not steps:
        return found
    found["steps"] = steps
    if options.get("exp_lr") or "lr_decay_epoch" not in options:
        return found
    at = [epoch * unit for epoch in _numbers(options["lr_decay_epoch"])]
    if len(at) == 1 and at[0]:
        at = list(range(at[0], steps, at[0]))
    if at := tuple(step for step in at if step < steps):
        found |= {"schedule.name": "step", "schedule.at": at, "schedule.factor": options.get("lr_decay_rate")}
    return found


def _whole(options: Mapping[str, Any], name: str) -> int:
    """The whole number of this option; 0 where it is missing or no whole number."""
    value = options.get(name)
    return value if isinstance(value, int) else 0


def _numbers(text: Any) -> list[int]:
    return [int(part) for part in str(text).split(",") if part.strip().isdecimal()]


def _method(options: Mapping[str, Any]) -> dict[str, Any]:
    estimator, name = options.get("g_estim"), str(options.get("nuq_method", ""))
    if estimator == "sgd":
        return {"method.name": "sgd", "workers": 1}
    if estimator not in ("nuq", "none") or (estimator == "nuq" and not name):
        return {}
    ours = "supersgd" if estimator == "none" else _METHODS.get(name, name)
    found: dict[str, Any] = {"method.name": ours, "workers": options.get("nuq_ngpu")}
    if ours == "supersgd":
        return found
    found["method.bucket_size"] = options.get("nuq_bucket_size")
    if "nuq_layer" in options:
        found["method.scope"] = "model" if options["nuq_layer"] else "tensor"
    if ours != "trn":  # TRN ignores the option
        found["method.bits"] = options.get("nuq_bits")
    if ours == "nuqsgd":
        found["method.p"] = options.get("nuq_mul")
    return found | (_adaptive(options, ours) if ours.startswith(("alq", "amq")) else {})


def _adaptive(options: Mapping[str, Any], ours: str) -> dict[str, Any]:
    mixture = not ours.endswith("n")
    found: dict[str, Any] = {"method.fit": "mixture" if mixture else "normal", "method.statistics": "fresh"}
    found["method.num_samples"] = options.get("nuq_number_of_samples")
    found["method.solver"] = "exact" if options.get("nuq_inv") else "paper"
    if mixture:
        found |= {"method.weights": "norm", "method.num_components": options.get("dist_num")}
    if ours.startswith("amq"):
        found["method.symmetric"] = True
    elif "nuq_sym" in options:
        found["method.symmetric"] = bool(options["nuq_sym"])
    if "g_osnap_iter" in options:
        at = _numbers(options["g_osnap_iter"])
        found |= {"method.update_at": tuple(at[:-1]), "method.update_every": at[-1]} if at else {}
    return found
