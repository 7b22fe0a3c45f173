"""Runs of Smart Quantization: settings in Lightning's ``hparams.yaml`` (older: ``meta_tags.csv``) beside the events."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from analysis.logs.foreign.values import literal, plain_yaml
from files.plain import read_bytes

SYSTEM = "smaq"
_FORMATS = ("fp32", "fp8", "smaq", "s2fp8", "fp16", "bf16", "fp32")  # CompressionType of its first versions, by number
_RESNETS = ("resnet18", "resnet34", "resnet50", "resnet101", "resnet152")  # ResNetModelType, by number
_RENAMED = {
    "batch_size": "batch_size",
    "seed": "seed",
    "learning_rate": "optim.lr",
    "momentum": "optim.momentum",
    "weight_decay": "optim.weight_decay",
    "max_steps": "steps",
    "task_name": "data.task",
}
_OWN = """
num_bits_main num_bits_outlier main_std_dev_threshold outlier_std_dev_threshold stochastic_rounding num_samples
"""


def read(folder: Path) -> dict[str, Any]:
    """The settings of a run: flat dotted names, None for what is unknown; empty for a folder of another system."""
    places = (folder, folder.parent) if folder.name == "tf" else (folder,)
    for place in places:
        for name, parse in (("hparams.yaml", plain_yaml), ("meta_tags.csv", _csv)):
            try:
                options = parse(read_bytes(place / name).decode(errors="replace"))
            except (OSError, ValueError):
                continue
            # a dict of a class of its own
            if isinstance(options, dict) and isinstance(items := options.get("dictitems"), dict):
                options = items
            if isinstance(options, dict) and ("compression_cls" in options or "compress" in options):
                return {"system": SYSTEM, **_settings(options)}
    return {}


def _csv(text: str) -> dict[str, Any]:
    return {row[0]: literal(row[1]) for row in csv.reader(io.StringIO(text)) if len(row) >= 2}


def _word(value: Any, choices: tuple[str, ...] = ()) -> str:
    """The last part of a class's or choice's name, in small letters; a choice may be kept by its number."""
    if isinstance(value, list | tuple) and len(value) == 1:
        value = value[0]
    if isinstance(value, int) and not isinstance(value, bool):
        return choices[value] if 0 <= value < len(choices) else ""
    found = re.findall(r"\w+", value) if isinstance(value, str) else []
    return found[-1].lower() if found else ""


def _settings(options: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {ours: options.get(theirs) for theirs, ours in _RENAMED.items()}
    data = _word(options.get("dataset_cls", options.get("dataset_type")), ("cifar10", "cifar100"))
    found["data.name"] = data.removesuffix("datamodule") or None
    found["model.name"] = _model(options)
    found["method.name"] = method = _method(options)
    if method == "smaq":
        found |= {f"method.{name}": options.get(name) for name in _OWN.split()}
    optimizer = _word(options.get("make_optimizer_fn", options.get("optimizer_type")))
    found["optim.name"] = optimizer.removeprefix("make_").removesuffix("_optimizer") or None
    if options.get("scheduler_type") == "multi_step":  # its milestones are epochs
        found |= {"schedule.name": "step", "schedule.factor": options.get("scheduler_gamma")}
    gpus, nodes = options.get("gpus", ""), options.get("num_nodes", 1)
    if gpus is None or gpus == 0:
        found["workers"] = 1
    elif isinstance(gpus, int) and gpus > 0 and isinstance(nodes, int):
        found["workers"] = gpus * nodes
    return found


def _model(options: Mapping[str, Any]) -> str | None:
    module = _word(options.get("model_cls", options.get("model_type"))).removesuffix("module")
    if module == "resnet" or "resnet_model" in options:
        return _word(options.get("resnet_model"), _RESNETS) or module or None
    return module or None


def _method(options: Mapping[str, Any]) -> str | None:
    if options.get("compress") is False:
        return "fp32"
    name = _word(options.get("compression_cls", options.get("compress")), _FORMATS)
    ours = {"smartfp": "smaq", "smart": "smaq", "smartcompress": "smaq", "nocompression": "fp32"}
    return ours.get(name, name) or None
