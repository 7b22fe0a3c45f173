"""Weights from a local file, for any model: a state_dict as ``torch.save`` writes it, or a run's own ``checkpoint.pt``."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

AUXILIARY = ("aux1.", "aux2.", "AuxLogits.")  # torchvision's files of GoogLeNet and Inception hold classifiers that only training had


def load_weights(model: nn.Module, name: str, path: Path) -> None:
    """Copy the state_dict in ``path`` into ``model``; the file is data only and cannot run code.

    A file with auxiliary classifiers is torchvision's own of GoogLeNet or Inception: they are left out, and the model is told to take
    pictures as those weights know them (``transform_input``).

    Raises FileNotFoundError, or ValueError that names the first entries that do not fit.
    """
    if not path.is_file():
        expected = f"a state_dict of {name}, as torch.save writes it"
        raise FileNotFoundError(f"model.weights_file={path}: no such file; expected {expected}")
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError, KeyError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ValueError(f"model.weights_file={path}: cannot be read as a state_dict of tensors: {reason}") from error
    weights = content["model"] if _is_checkpoint(content) else content
    if not isinstance(weights, Mapping) or not all(isinstance(value, Tensor) for value in weights.values()):
        raise ValueError(f"model.weights_file={path}: expected a state_dict (names and tensors), found {_outline(weights)}")
    own = model.state_dict()
    if hasattr(model, "transform_input") and any(key.startswith(AUXILIARY) for key in weights):
        weights = {key: value for key, value in weights.items() if not key.startswith(AUXILIARY)}
        model.transform_input = True  # type: ignore[assignment]
    counters = {key: value for key, value in own.items() if key.endswith("num_batches_tracked")}  # torchvision's oldest files lack them
    weights = {**counters, **weights}
    absent, strange = sorted(set(own) - set(weights)), sorted(set(weights) - set(own))
    if absent or strange:
        parts = [
            f"{len(keys)} {what} ({', '.join(keys[:3])}{', ...' * (len(keys) > 3)})"
            for what, keys in (("missing", absent), ("unknown", strange))
            if keys
        ]
        raise ValueError(f"model.weights_file={path}: not the weights of {name}: {' and '.join(parts)} of {len(own)} entries")
    for key, value in own.items():
        if weights[key].shape != value.shape:
            shapes = f"{list(weights[key].shape)}, but this {name} needs {list(value.shape)}"
            raise ValueError(f"model.weights_file={path}: {key} has shape {shapes}")
    model.load_state_dict(weights)


def _is_checkpoint(content: Any) -> bool:
    """Whether it is what ``train.checkpoint`` saves of a run."""
    return isinstance(content, Mapping) and {"identity", "step", "model"} <= set(content)


def _outline(content: object) -> str:
    if isinstance(content, Mapping):
        return f"a mapping with {', '.join(map(str, list(content)[:4])) or 'nothing in it'}"
    return f"a {type(content).__name__}"
