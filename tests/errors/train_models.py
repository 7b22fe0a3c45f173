"""Errors of models: names, sizes that do not fit, and files of weights."""

from __future__ import annotations

import builtins
import json
import pickle
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn

from settings import resolving
from tests.errors.rows import Row, row
from train import models
from train.models import bert, imagenet_resnet, weights

CONFIG = {
    "model_type": "bert",
    "vocab_size": 9,
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 24,
}


def config_json(given: str, text: str | None = None, **changes: Any) -> Row:
    """A folder of BERT's weights whose config.json is another, for 9 tokens in sentences of 24."""

    def make(folder: Path) -> None:
        (folder / "config.json").write_text(text if text is not None else json.dumps({**CONFIG, **changes}))
        with mock.patch.object(bert, "_check") if given.startswith("fewer") else mock.MagicMock():
            bert._sizes(folder, 9, 24)

    return row("model.weights: config.json", given, make)


def _small_bert() -> nn.Module:
    return nn.ModuleDict({"bert": nn.ModuleDict({"encoder": nn.Linear(2, 2)})})


WEIGHTS: dict[str, Any] = {"bert.encoder.weight": torch.zeros(2, 2), "bert.encoder.bias": torch.zeros(2)}


def bert_weights(given: str, content: object) -> Row:
    """A file of weights for a model with one layer, of two inputs and two outputs."""

    def make(folder: Path) -> None:
        torch.save(content, folder / "pytorch_model.bin")
        bert._load(_small_bert(), folder)

    return row("model.weights: pytorch_model.bin", given, make)


def _garbled(folder: Path) -> None:
    (folder / "pytorch_model.bin").write_bytes(b"garbled")
    bert._load(_small_bert(), folder)


def weights_file(given: str, content: object) -> Row:
    """A file for a linear model of two inputs and two outputs: bytes as they are, else what ``torch.save`` makes."""

    def make(folder: Path) -> None:
        if isinstance(content, bytes):
            (folder / "start.pt").write_bytes(content)
        elif content is not None:
            torch.save(content, folder / "start.pt")
        weights.load_weights(nn.Linear(2, 2), "mlp", Path("start.pt"))

    return row("main.py model.weights_file=", given, make)


def _other_bytes(folder: Path) -> None:
    (folder / "start.pt").write_bytes(b"a")
    told = ValueError("rank 1 has another file")
    with mock.patch.object(weights.agreement, "check_settings", mock.Mock(side_effect=told)):
        weights.check_weights_file("start.pt", SimpleNamespace(world=2))  # pyright: ignore[reportArgumentType]


class Small(nn.Module):
    """A model of a size that pictures do not have."""

    def forward(self, x: Tensor) -> Tensor:
        raise ValueError("the pictures are too small")


def arch(name: str, given: str, shape: tuple[int, ...] = (3, 32, 32)) -> Row:
    """A model of a torchvision that has two."""
    listed = SimpleNamespace(list_models=lambda module: ["resnet18", "vit_b_16"], get_model=lambda name, **how: Small())

    def make() -> None:
        with mock.patch.object(imagenet_resnet, "torchvision", lambda: SimpleNamespace(models=listed)):
            imagenet_resnet.by_name(name, shape, 10)

    return row("main.py model.arch=", given, make)


def _no_transformers() -> None:
    real = builtins.__import__

    def absent(name: str, *rest: Any, **named: Any) -> Any:
        if name == "transformers":
            raise ImportError("No module named 'transformers'")
        return real(name, *rest, **named)

    with mock.patch.object(builtins, "__import__", absent), mock.patch.object(bert, "torchvision"):
        bert._transformers()


def built(shape: tuple[int, ...], **settings: Any) -> Callable[[], object]:
    config = resolving.resolve({key.replace("__", "."): value for key, value in settings.items()})
    return lambda: models.without_weights_file(config, shape, 10)


def unknown(config: Mapping[str, Any]) -> Callable[[], object]:
    return lambda: models.without_weights_file(config, (1, 8, 8), 10)


ROWS = [
    row(
        "train.models.build(config)",
        "a name that is none",
        unknown({"model": {"name": "cnm"}, "data": {"name": "digits"}}),
    ),
    row("main.py model=", "resnet8, of digits", built((1, 8, 8), model="resnet8")),
    row(
        "main.py model.zero_init=",
        "True, of a model without blocks",
        lambda: models.zero_residuals(nn.Linear(2, 2), "mlp"),
    ),
    arch("resnet19", "'resnet19'"),
    arch("vit_b_16", "'vit_b_16', of pictures of 32x30", (3, 32, 30)),
    arch("resnet18", "'resnet18', of pictures that it cannot take"),
    row("the package transformers", "not installed", _no_transformers),
    row("model.weights: config.json", "not there", lambda folder: bert._sizes(folder, 9, 24)),
    config_json("cut short", '{"model_type": '),
    config_json("of another network", model_type="gpt2"),
    config_json("a size of -4", hidden_size=-4),
    config_json("heads that do not divide the width", num_attention_heads=5),
    config_json("an epsilon of 'x'", layer_norm_eps="x"),
    config_json("fewer tokens than the vocabulary", vocab_size=8),
    config_json("fewer places than data.length", max_position_embeddings=8),
    row("model.weights: pytorch_model.bin", "not there", lambda folder: bert._load(_small_bert(), folder)),
    row("model.weights: pytorch_model.bin", "garbled", _garbled),
    bert_weights("a list", [1]),
    bert_weights("entries that are missing", {}),
    bert_weights("a layer too many", {**WEIGHTS, "bert.encoder.more": torch.zeros(2)}),
    bert_weights("another shape", {**WEIGHTS, "bert.encoder.bias": torch.zeros(3)}),
    bert_weights("nan", {**WEIGHTS, "bert.encoder.bias": torch.full((2,), torch.nan)}),
    weights_file("not there", None),
    weights_file("text", b"state = 3, and more of it"),
    weights_file("a pickle of something else", pickle.dumps(CONFIG.get, 2)),
    weights_file("a list", [1]),
    weights_file("a sparse tensor", {"weight": torch.zeros(2, 2).to_sparse(), "bias": torch.zeros(2)}),
    weights_file("of another model", {"conv1.weight": torch.zeros(2)}),
    weights_file("another shape", {"weight": torch.zeros(2, 3), "bias": torch.zeros(2)}),
    row("main.py model.weights_file=", "other bytes on another rank", _other_bytes),
]

HELD = {"train/models/bert.py:_tensors 1": "tests/train/models/test_bert.py::test_a_folder_that_does_not_fit_is_named"}
