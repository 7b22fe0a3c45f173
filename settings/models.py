"""The catalog of models: one record for each, and the dataclasses of their settings.  Imports no torch.

Adding a model is one file in ``train/models/`` and one line of ``MODELS``, with settings of its own only where none of
these fits; ``--help``, the trainer, the tests and docs/experiments.md read this table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from nuq.settings import plugins, setting
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


# --- the catalog --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Inputs:
    """The inputs that a model takes, in words, and whether those of a shape are among them."""

    words: str
    fit: Callable[[tuple[int, ...]], bool]
    tokens: bool = False  # a text or sentences, and nothing else


@dataclass(frozen=True)
class ModelRecord:
    """A line of the catalog."""

    settings: type
    # ``module:function or class``: it gets those that it names of the settings, what is fixed, ``settings`` as a
    # whole, ``input_shape``, ``num_classes`` and ``num_tokens``
    code: str
    takes: Inputs
    fixed: Mapping[str, Any] = field(default_factory=dict)
    large: str = ""  # for images of at least 64x64 pixels it is torchvision's model of this name


def _images(words: str, fit: Callable[[int, int, int], bool]) -> Inputs:
    return Inputs(f"images {words}", lambda shape: len(shape) == 3 and fit(*shape))


ANYTHING = Inputs("any input but text", lambda shape: True)
IMAGES = _images("of at least 8x8 pixels", lambda channels, height, width: min(height, width) >= 8)
# below 16 nothing is left of them, from 64 on LeNet has 10^7 parameters
SMALL = _images(
    "of 16x16 to 63x63 pixels", lambda channels, height, width: 16 <= min(height, width) <= max(height, width) < 64
)
COLOUR = _images(
    "with 3 channels of at least 32x32 pixels",
    lambda channels, height, width: channels == 3 and min(height, width) >= 32,
)
MNIST = _images("with 1 channel of 28x28 pixels", lambda *shape: shape == (1, 28, 28))
CIFAR = _images("with 3 channels of 32x32 pixels", lambda *shape: shape == (3, 32, 32))
TEXT = Inputs("a text (data=text)", lambda shape: len(shape) == 1, tokens=True)
SENTENCES = Inputs("sentences (data=glue, data=imdb)", lambda shape: len(shape) == 2, tokens=True)

_ROOM = "train.models."
TORCHVISION = f"{_ROOM}imagenet_resnet:build"


def _vgg(depth: int, batch_norm: bool) -> ModelRecord:
    settings = TorchvisionModel if batch_norm and depth == 16 else Model
    name = f"vgg{depth}{'_bn' * batch_norm}"
    return ModelRecord(settings, f"{_ROOM}classic:VGG", COLOUR, {"depth": depth, "batch_norm": batch_norm}, name)


MODELS: dict[str, ModelRecord] = {
    "cnn": ModelRecord(Model, f"{_ROOM}small:CNN", IMAGES),
    "mlp": ModelRecord(Model, f"{_ROOM}small:mlp", ANYTHING),
    "logreg": ModelRecord(Model, f"{_ROOM}small:logreg", ANYTHING),
    "mnist_cnn": ModelRecord(Model, f"{_ROOM}original:MnistConvnet", MNIST, {"first": 10, "second": 20, "hidden": 50}),
    "mnist_convnet": ModelRecord(Model, f"{_ROOM}original:MnistConvnet", MNIST, {"first": 64, "second": 128}),
    "bigcnn": ModelRecord(Model, f"{_ROOM}original:MnistConvnet", MNIST, {"first": 1000, "second": 1000}),
    "mnist_mlp": ModelRecord(Model, f"{_ROOM}original:dropout_mlp", MNIST, {"width": 1024}),
    "smlp": ModelRecord(Model, f"{_ROOM}original:dropout_mlp", MNIST, {"width": 50}),
    "ssmlp": ModelRecord(Model, f"{_ROOM}original:dropout_mlp", MNIST, {"width": 20}),
    "cifar_cnn": ModelRecord(Model, f"{_ROOM}original:CifarConvnet", CIFAR),
    "cifar_mlp": ModelRecord(Model, f"{_ROOM}original:dropout_mlp", CIFAR, {"width": 1024}),
    "lenet": ModelRecord(Model, f"{_ROOM}classic:LeNet", SMALL),
    **{
        f"resnet{depth}": ModelRecord(BatchNormModel, f"{_ROOM}cifar_resnet:CifarResNet", COLOUR, {"depth": depth})
        for depth in (8, 20, 32, 44, 56, 110, 1202)
    },
    "resnet9": ModelRecord(Model, f"{_ROOM}resnet9:ResNet9", COLOUR),
    "wide_resnet": ModelRecord(WideResNet, f"{_ROOM}wide_resnet:WideResNet", COLOUR),
    **{
        f"cifar_resnet{depth}": ModelRecord(
            ResidualModel, f"{_ROOM}cifar_stem_resnet:CifarStemResNet", COLOUR, {"depth": depth}
        )
        for depth in (18, 34, 50, 101, 110, 152)
    },
    "alexnet": ModelRecord(TorchvisionModel, f"{_ROOM}classic:AlexNet", COLOUR, large="alexnet"),
    **{f"vgg{depth}": _vgg(depth, False) for depth in (11, 13, 16, 19)},
    **{f"vgg{depth}_bn": _vgg(depth, True) for depth in (11, 13, 16, 19)},
    "inception": ModelRecord(Model, f"{_ROOM}inception:CifarInception", COLOUR, large="googlenet"),
    **dict.fromkeys(("resnet18", "resnet34", "resnet50"), ModelRecord(TorchvisionResNet, TORCHVISION, COLOUR)),
    "torchvision": ModelRecord(AnyTorchvisionModel, f"{_ROOM}imagenet_resnet:by_name", COLOUR),
    "gpt": ModelRecord(Gpt, f"{_ROOM}gpt:build", TEXT),
    "bert": ModelRecord(Bert, f"{_ROOM}bert:build", SENTENCES),
}
plugins.TABLES["model"] = MODELS, ModelRecord


def check_model(model: Mapping[str, Any]) -> None:
    """Raise ValueError where settings of a model do not go with one another."""
    if "heads" in model and model["width"] % model["heads"]:
        raise ValueError(f"model.width={model['width']}: must be a multiple of model.heads={model['heads']}")
