"""Settings of models: one dataclass for each kind, and the table of their names. Imports no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nuq.settings import setting
from settings.text import BertSettings

WEIGHTS = "start from this state_dict or checkpoint.pt (a local file, which cannot run code); empty: from scratch"
ZERO_INIT = "the last batch-norm gain of every residual block starts at zero (Goyal et al. 2017)"
DROPOUT = "share of activations that are dropped in training"


@dataclass
class Model:
    """A model with the settings that all have."""

    weights_file: str = setting("", WEIGHTS, identity="unless default")


@dataclass
class ResidualModel(Model):
    zero_init: bool = setting(False, ZERO_INIT, identity="unless default")


@dataclass
class BatchNormModel(Model):
    batch_norm: bool = setting(True, "false trains without batch normalisation, one of the paper's side experiments")
    zero_init: bool = setting(False, ZERO_INIT, identity="unless default", read_if=("batch_norm", True))


@dataclass
class WideResNet(Model):
    """WRN-depth-widen."""

    depth: int = setting(28, "layers, 6n + 4; WRN-28-10 is the paper's best", choices=tuple(range(10, 101, 6)))
    widen: int = setting(10, "channels of the stages, in units of 16, 32 and 64", low=1, high=64)
    dropout: float = setting(
        0.0, f"{DROPOUT}, between the convolutions of a block (the original experiments: .3)", low=0, high=1
    )
    zero_init: bool = setting(
        False, "the last convolution of every residual block starts at zero", identity="unless default"
    )


@dataclass
class TorchvisionModel:
    weights_file: str = setting("", WEIGHTS)


@dataclass
class TorchvisionResNet(TorchvisionModel):
    zero_init: bool = setting(False, ZERO_INIT, identity="unless default")


@dataclass
class AnyTorchvisionModel(TorchvisionResNet):
    """Any of torchvision's models for classification."""

    arch: str = setting(
        "mobilenet_v3_small",
        "its name there, such as resnext50_32x4d, vit_b_16 or inception_v3; a small one by default",
    )


@dataclass
class Gpt(Model):
    """A character-level GPT; its context is the text's ``data.length``."""

    layers: int = setting(4, "blocks of attention and a two-layer network", low=1, high=1000)
    heads: int = setting(4, "heads of an attention; they divide the width", low=1, high=1000)
    width: int = setting(64, "size of an embedding; 64 learns within a minute on a laptop", low=1, high=100_000)
    dropout: float = setting(0.0, f"{DROPOUT}; a text that is read once needs none", low=0, high=1)
    tied: bool = setting(False, "the output layer shares the weights of the token embedding, as in GPT-2")


@dataclass
class Bert(BertSettings, Model):
    """BERT with a head for sentences (data=glue, data=imdb); its context is ``data.length``."""


MODELS: dict[str, type] = {
    "cnn": Model,
    "mlp": Model,
    "logreg": Model,
    **dict.fromkeys(
        ("mnist_cnn", "mnist_convnet", "bigcnn", "mnist_mlp", "smlp", "ssmlp", "cifar_cnn", "cifar_mlp"), Model
    ),
    "lenet": Model,
    **{f"resnet{depth}": BatchNormModel for depth in (8, 20, 32, 44, 56, 110, 1202)},
    "resnet9": Model,
    "wide_resnet": WideResNet,
    **{f"cifar_resnet{depth}": ResidualModel for depth in (18, 34, 50, 101, 110, 152)},
    "alexnet": TorchvisionModel,
    **{f"vgg{depth}": Model for depth in (11, 13, 16, 19)},
    **{f"vgg{depth}_bn": TorchvisionModel if depth == 16 else Model for depth in (11, 13, 16, 19)},
    "inception": Model,
    **dict.fromkeys(("resnet18", "resnet34", "resnet50"), TorchvisionResNet),
    "torchvision": AnyTorchvisionModel,
    "gpt": Gpt,
    "bert": Bert,
}


def check_model(model: Mapping[str, Any]) -> None:
    """Raise ValueError where settings of a model do not go with one another."""
    if model["name"] in ("gpt", "bert") and model["width"] % model["heads"]:
        raise ValueError(f"model.width={model['width']}: must be a multiple of model.heads={model['heads']}")
