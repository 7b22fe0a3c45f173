"""The models: ``build`` makes one for the shape of a data set.

Adding a model is one function or class in a file here and one line in the catalog, ``settings.models.MODELS``.

This room may import ``train.data`` and the rooms below it.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from nuq.settings import plugins, unknown
from settings.data import DATA
from settings.models import MODELS, TORCHVISION
from train import data

from .weights import WeightsError, check_weights_file, ended, load_weights, restore, state_of

__all__ = [
    "WeightsError",
    "build",
    "check_weights_file",
    "ended",
    "legal_models",
    "load_weights_file",
    "restore",
    "state_of",
    "without_weights_file",
]


def legal_models(input_shape: tuple[int, ...], *, tokens: bool = False) -> list[str]:
    """The names of the models that take such inputs; ``tokens``: the inputs are a text or sentences."""
    takes = {name: record.takes for name, record in MODELS.items() if record.takes.tokens == tokens}
    return [name for name, inputs in takes.items() if inputs.fit(tuple(input_shape))]


def build(config: Mapping[str, Any], input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """The model of a resolved configuration, giving logits (batch, num_classes) for inputs (batch, *input_shape).

    For a text logits are (batch, length, num_classes).  The model's weights come from torch's global generator, which
    the caller forks and seeds, or from ``weights_file``.  Raises ValueError, with the legal models, for a model that
    cannot take the data set's shape; for a file see ``load_weights``.
    """
    made = without_weights_file(config, input_shape, num_classes)
    load_weights_file(config, made)
    return made


def load_weights_file(config: Mapping[str, Any], model: nn.Module) -> None:
    """Load ``model.weights_file``, where the configuration names one (see ``load_weights``)."""
    settings = config["model"]
    if settings["weights_file"]:
        load_weights(model, settings.get("arch", settings["name"]), Path(settings["weights_file"]))


def without_weights_file(config: Mapping[str, Any], input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """``build`` for callers that may have a checkpoint, which is newer than the file: the file may be gone."""
    settings, shape = config["model"], tuple(input_shape)
    name, data_name = settings["name"], config["data"]["name"]
    if name not in MODELS:
        raise unknown("model", name, MODELS)
    record, legal = MODELS[name], legal_models(shape, tokens=DATA[data_name].tokens)
    if name not in legal:
        has = f"data={data_name} has the shape {'x'.join(map(str, shape))}"
        raise ValueError(f"model={name} needs {record.takes.words}, but {has} (legal: {', '.join(legal)})")
    given = {**settings, **record.fixed, "settings": settings, "input_shape": shape, "num_classes": num_classes}
    given["num_tokens"] = data.source_of(config).num_tokens()
    code = record.code
    if record.large and min(shape[1:]) >= 64:
        code, given["name"] = TORCHVISION, record.large
    make = plugins.imported(code)
    made = make(**{key: given[key] for key in inspect.signature(make).parameters if key in given})
    if settings.get("zero_init"):
        zero_residuals(made, settings.get("arch", name))
    return made


def zero_residuals(model: nn.Module, name: str) -> None:
    """Zero the last gain of every residual block (Goyal et al. 2017, Section 5.1); ValueError where there is none."""
    last = {"BasicBlock": "bn2", "Bottleneck": "bn3"}  # torchvision's
    found = 0
    for module in model.modules():
        if hasattr(module, "zero_init"):
            module.zero_init()  # type: ignore[operator]
        elif type(module).__name__ in last and type(module).__module__ == "torchvision.models.resnet":
            nn.init.zeros_(getattr(module, last[type(module).__name__]).weight)
        else:
            continue
        found += 1
    if not found:
        why = f"{name} has no residual blocks that end with a batch normalization"
        raise ValueError(f"model.zero_init=True: {why}; legal: False")
