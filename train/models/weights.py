"""Weights of any model from a local file: a state_dict of ``torch.save``, or a run's own ``checkpoint.pt``."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from nuq.exchange import agreement
from nuq.exchange.transport import Transport
from train.process.checkpoint import UNREADABLE, reason

# torchvision's files of GoogLeNet and Inception hold classifiers that only training had
AUXILIARY = ("aux1.", "aux2.", "AuxLogits.")
FLAG = "transform_input"  # of these two: pictures are taken as those weights know them


_SAVED = (b"PK", b"\x80")  # archives and pickles, as torch.save writes them since 1.6 and wrote them before


class WeightsError(ValueError):
    """A weights file that is not there, cannot be read or does not fit."""


def state_of(model: nn.Module) -> dict[str, Any]:
    """The part of a checkpoint that belongs to a model."""
    return {"model": model.state_dict(), **({FLAG: True} if getattr(model, FLAG, False) else {})}


def restore(model: nn.Module, state: Mapping[str, Any]) -> None:
    """Put what ``state_of`` gave into a model of the same settings; RuntimeError where it is another's."""
    model.load_state_dict(state["model"])
    if hasattr(model, FLAG):
        setattr(model, FLAG, bool(state.get(FLAG, False)))


def ended(state: dict[str, Any]) -> dict[str, Any]:
    """A checkpoint with the model to evaluate or to take weights from: local steps that have ended have another one."""
    return {**state, "model": state["finished"]} if "finished" in state else state


def check_weights_file(path: str, transport: Transport) -> None:
    """Raise WeightsError, on all ranks, where they read other bytes from ``path``: nothing later would tell of it."""
    if path and transport.world > 1:
        with open(path, "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        try:
            agreement.check_settings(transport, {f"the SHA-256 of model.weights_file={path}": digest})
        except ValueError as error:
            raise WeightsError(str(error)) from error


def load_weights(model: nn.Module, name: str, path: Path) -> None:
    """Copy the state_dict in ``path`` into ``model``; the file is data only and cannot run code.

    A file with auxiliary classifiers is torchvision's own of GoogLeNet or Inception: they are left out, and the model
    is told to take pictures as those weights know them (``transform_input``).

    Raises WeightsError that names the first entries that do not fit.
    """

    def unfit(words: str) -> WeightsError:
        return WeightsError(f"model.weights_file={path}: {words}")

    expected = f"expected a state_dict of {name}, as torch.save writes it"
    if not path.is_file():
        found = "not a regular file" if path.exists() else "no such file"
        raise unfit(f"{found}; {expected}")
    try:
        with warnings.catch_warnings(action="ignore"):  # torch warns of formats that are not read either
            content = torch.load(path, map_location="cpu", weights_only=True)
    except (*UNREADABLE, OSError) as error:
        if not isinstance(error, OSError) and (start := _no_saved(path)):
            raise unfit(f"no file of torch.save, for it begins with {start!r}; {expected}") from error
        raise unfit(f"cannot be read as a state_dict of tensors: {reason(error)}") from error
    state = content if _is_checkpoint(content) else {"model": content}
    weights = ended(state)["model"]
    if not isinstance(weights, Mapping) or not all(
        isinstance(key, str) and _is_plain(value) for key, value in weights.items()
    ):
        raise unfit(f"expected a state_dict (names and dense tensors), found {_outline(weights)}")
    own = model.state_dict()
    if hasattr(model, FLAG) and any(key.startswith(AUXILIARY) for key in weights):
        weights = {key: value for key, value in weights.items() if not key.startswith(AUXILIARY)}
        state = {FLAG: True}
    # torchvision's oldest files lack them
    counters = {key: value for key, value in own.items() if key.endswith("num_batches_tracked")}
    weights = {**counters, **weights}
    absent, strange = sorted(set(own) - set(weights)), sorted(set(weights) - set(own))
    if absent or strange:
        parts = [
            f"{len(keys)} {what} ({', '.join(keys[:3])}{', ...' * (len(keys) > 3)})"
            for what, keys in (("missing", absent), ("unknown", strange))
            if keys
        ]
        raise unfit(f"not the weights of {name}: {' and '.join(parts)} of {len(own)} entries")
    for key, value in own.items():
        if weights[key].shape != value.shape:
            shapes = f"{list(weights[key].shape)}, but this {name} needs {list(value.shape)}"
            raise unfit(f"{key} has shape {shapes}")
    restore(model, {**state, "model": weights})


def _no_saved(path: Path) -> bytes:
    """The start of a file that ``torch.save`` cannot have written; empty for one that it can have written."""
    with path.open("rb") as file:
        start = file.read(16)
    return b"" if start.startswith(_SAVED) else start


def _is_checkpoint(content: Any) -> bool:
    """Whether the content is what ``train.process.checkpoint`` saves of a run."""
    return isinstance(content, Mapping) and {"identity", "step", "model"} <= set(content)


def _is_plain(value: object) -> bool:
    """Whether the value is a tensor of real numbers that are all there."""
    return (
        isinstance(value, Tensor)
        and value.layout == torch.strided
        and not (value.is_meta or value.is_complex() or value.is_quantized)
    )


def _outline(content: object) -> str:
    if isinstance(content, Mapping):
        return f"a mapping with {', '.join(_described(*item) for item in list(content.items())[:4]) or 'nothing in it'}"
    return f"a {type(content).__name__}"


def _described(key: object, value: object) -> str:
    if not isinstance(value, Tensor) or _is_plain(value):
        return str(key)
    kind = "meta" if value.is_meta else value.layout if value.layout != torch.strided else value.dtype
    return f"{key} ({str(kind).removeprefix('torch.')})"
