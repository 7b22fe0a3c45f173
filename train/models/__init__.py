"""The models: ``build`` makes one for the shape of a data set.

Adding a model is one function or class in a file here, one line in ``MODELS`` and its settings in
``settings.models.MODELS``.

This room may import ``train.data`` and the rooms below it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from nuq.settings import unknown
from train import data

from . import bert, classic, gpt, original, small
from .cifar_resnet import CifarResNet
from .cifar_stem_resnet import CifarStemResNet
from .inception import CifarInception
from .resnet9 import ResNet9
from .weights import WeightsError, load_weights, restore, state_of
from .wide_resnet import WideResNet

__all__ = [
    "MODELS",
    "WeightsError",
    "build",
    "legal_models",
    "load_weights_file",
    "restore",
    "state_of",
    "without_weights_file",
]

Shape = tuple[int, ...]
# a function of settings, the shape of an input and the number of classes
Make = Callable[[Mapping[str, Any], Shape, int], nn.Module]


@dataclass(frozen=True)
class Model:
    """A line of the table: how a model is made, which inputs it takes, and the same in words."""

    make: Make
    takes: Callable[[Shape], bool]
    needs: str
    tokens: bool = False  # takes a text or sentences, and nothing else


def _is_image(shape: Shape) -> bool:
    return len(shape) == 3 and min(shape[1:]) >= 8


def _is_colour_image(shape: Shape) -> bool:
    return len(shape) == 3 and shape[0] == 3 and min(shape[1:]) >= 32


def _fits_lenet(shape: Shape) -> bool:
    # below 16 nothing is left, from 64 on 10^7 parameters
    return len(shape) == 3 and min(shape[1:]) >= 16 and max(shape[1:]) < 64


def _for_colour_images(make: Make) -> Model:
    return Model(make, _is_colour_image, "images with 3 channels of at least 32x32 pixels")


def _for_mnist(make: Make) -> Model:
    return Model(make, lambda shape: shape == (1, 28, 28), "images with 1 channel of 28x28 pixels")


def _for_cifar(make: Make) -> Model:
    return Model(make, lambda shape: shape == (3, 32, 32), "images with 3 channels of 32x32 pixels")


def _for_anything(make: Make) -> Model:
    return Model(make, lambda shape: True, "any input but text")


def _mlp_for_mnist(width: int) -> Model:
    return _for_mnist(lambda _, shape, classes: original.dropout_mlp(math.prod(shape), width, classes))


def _cifar_resnet(depth: int) -> Model:
    return _for_colour_images(
        lambda settings, _, classes: CifarResNet(depth, classes, batch_norm=settings["batch_norm"])
    )


def _cifar_stem_resnet(depth: int) -> Model:
    return _for_colour_images(lambda _, shape, classes: CifarStemResNet(depth, classes))


def _torchvision(name: str) -> Make:
    def make(settings: Mapping[str, Any], shape: Shape, num_classes: int) -> nn.Module:
        from . import imagenet_resnet  # torchvision takes a second to import, so only its own models pay for it

        return imagenet_resnet.build(name, num_classes)

    return make


def _torchvision_by_name(settings: Mapping[str, Any], shape: Shape, num_classes: int) -> nn.Module:
    from . import imagenet_resnet

    return imagenet_resnet.by_name(settings["arch"], shape, num_classes)


def _two_forms(name: str, small_form: Make) -> Model:
    """A network with a customary form for small images.

    For images of at least 64x64 pixels it is torchvision's ``name``.
    """

    def make(settings: Mapping[str, Any], shape: Shape, num_classes: int) -> nn.Module:
        form = _torchvision(name) if min(shape[1:]) >= 64 else small_form
        return form(settings, shape, num_classes)

    return _for_colour_images(make)


def _vgg(depth: int, batch_norm: bool) -> Model:
    name = f"vgg{depth}{'_bn' * batch_norm}"
    return _two_forms(name, lambda _, shape, classes: classic.VGG(depth, classes, batch_norm=batch_norm))


def _wide_resnet(settings: Mapping[str, Any], shape: Shape, num_classes: int) -> nn.Module:
    return WideResNet(settings["depth"], settings["widen"], settings["dropout"], num_classes)


def _gpt(settings: Mapping[str, Any], shape: Shape, num_classes: int) -> nn.Module:
    chosen = {key: settings[key] for key in ("layers", "heads", "width", "dropout", "tied")}
    return gpt.GPT(num_classes, shape[0], **chosen)


def _bert(settings: Mapping[str, Any], shape: Shape, num_classes: int) -> nn.Module:
    return bert.build(settings, settings["num_tokens"], shape[1], num_classes)


MODELS: dict[str, Model] = {
    "cnn": Model(lambda _, shape, classes: small.CNN(shape, classes), _is_image, "images of at least 8x8 pixels"),
    "mlp": _for_anything(lambda _, shape, classes: small.mlp(shape, classes)),
    "logreg": _for_anything(lambda _, shape, classes: small.logreg(shape, classes)),
    "mnist_cnn": _for_mnist(lambda _, shape, classes: small.MnistCNN(classes)),
    "mnist_convnet": _for_mnist(lambda _, shape, classes: original.MnistConvnet(64, 128, classes)),
    "bigcnn": _for_mnist(lambda _, shape, classes: original.MnistConvnet(1000, 1000, classes)),
    "mnist_mlp": _mlp_for_mnist(1024),
    "smlp": _mlp_for_mnist(50),
    "ssmlp": _mlp_for_mnist(20),
    "cifar_cnn": _for_cifar(lambda _, shape, classes: original.CifarConvnet(classes)),
    "cifar_mlp": _for_cifar(lambda _, shape, classes: original.dropout_mlp(math.prod(shape), 1024, classes)),
    "lenet": Model(
        lambda _, shape, classes: classic.LeNet(shape, classes), _fits_lenet, "images of 16x16 to 63x63 pixels"
    ),
    **{f"resnet{depth}": _cifar_resnet(depth) for depth in (8, 20, 32, 44, 56, 110, 1202)},
    "resnet9": _for_colour_images(lambda _, shape, classes: ResNet9(classes)),
    "wide_resnet": _for_colour_images(_wide_resnet),
    **{f"cifar_resnet{depth}": _cifar_stem_resnet(depth) for depth in (18, 34, 50, 101, 110, 152)},
    "alexnet": _two_forms("alexnet", lambda _, shape, classes: classic.AlexNet(shape, classes)),
    **{f"vgg{depth}": _vgg(depth, False) for depth in (11, 13, 16, 19)},
    **{f"vgg{depth}_bn": _vgg(depth, True) for depth in (11, 13, 16, 19)},
    "inception": _two_forms("googlenet", lambda _, shape, classes: CifarInception(classes)),
    **{name: _for_colour_images(_torchvision(name)) for name in ("resnet18", "resnet34", "resnet50")},
    "torchvision": _for_colour_images(_torchvision_by_name),
    "gpt": Model(_gpt, lambda shape: len(shape) == 1, "a text (data=text)", tokens=True),
    "bert": Model(_bert, lambda shape: len(shape) == 2, "sentences (data=glue, data=imdb)", tokens=True),
}


def legal_models(input_shape: Shape, *, tokens: bool = False) -> list[str]:
    """The names of the models that take such inputs; ``tokens``: the inputs are a text or sentences."""
    return [name for name, model in MODELS.items() if model.tokens == tokens and model.takes(tuple(input_shape))]


def build(config: Mapping[str, Any], input_shape: Shape, num_classes: int) -> nn.Module:
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


def without_weights_file(config: Mapping[str, Any], input_shape: Shape, num_classes: int) -> nn.Module:
    """``build`` for callers that may have a checkpoint, which is newer than the file: the file may be gone."""
    settings, shape = config["model"], tuple(input_shape)
    name = settings["name"]
    if name not in MODELS:
        raise unknown("model", name, MODELS)
    model, tokens = MODELS[name], data.holds_tokens(config)
    if model.tokens != tokens or not model.takes(shape):
        raise ValueError(
            f"model={name} needs {model.needs}, but data={config['data']['name']} has the shape "
            f"{'x'.join(map(str, shape))} (legal: {', '.join(legal_models(shape, tokens=tokens))})"
        )
    made = model.make({**settings, "num_tokens": data.num_tokens(config)}, shape, num_classes)
    if settings.get("zero_init"):
        zero_residuals(made, settings.get("arch", name))
    return made


def zero_residuals(model: nn.Module, name: str) -> None:
    """Let every residual block start as its shortcut: the last batch-norm gain of each is set to zero.

    Goyal and others 2017, Section 5.1.

    Raises ValueError for a model without such blocks.
    """
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
        raise ValueError(
            f"model.zero_init=True: {name} has no residual blocks that end with a batch normalization; legal: False"
        )
