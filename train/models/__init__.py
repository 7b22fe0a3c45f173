"""The models: ``build`` makes one for the shape of a data set.

Adding a model is one function or class in a file here, one line in ``MODELS`` and its settings in ``task_settings.MODELS``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from nuq.settings import unknown

from . import classic, small
from .cifar_resnet import CifarResNet
from .cifar_resnet18 import CifarResNet18
from .resnet9 import ResNet9

__all__ = ["MODELS", "build", "legal_models"]

Shape = tuple[int, ...]
Make = Callable[[Mapping[str, Any], Shape, int], nn.Module]  # of settings, the shape of an input and the number of classes


@dataclass(frozen=True)
class Model:
    """One line of the table: how it is made, which inputs it takes, and the same in words."""

    make: Make
    takes: Callable[[Shape], bool]
    needs: str


def _is_image(shape: Shape) -> bool:
    return len(shape) == 3 and min(shape[1:]) >= 8


def _is_colour_image(shape: Shape) -> bool:
    return len(shape) == 3 and shape[0] == 3 and min(shape[1:]) >= 32


def _fits_lenet(shape: Shape) -> bool:
    return len(shape) == 3 and min(shape[1:]) >= 16 and max(shape[1:]) < 64  # below 16 nothing is left, from 64 on 10^7 parameters


def _for_colour_images(make: Make) -> Model:
    return Model(make, _is_colour_image, "images with 3 channels of at least 32x32 pixels")


def _cifar_resnet(depth: int) -> Model:
    return _for_colour_images(lambda settings, _, classes: CifarResNet(depth, classes, batch_norm=settings["batch_norm"]))


def _torchvision(settings: Mapping[str, Any], shape: Shape, num_classes: int) -> nn.Module:
    from . import imagenet_resnet  # torchvision takes a second to import, so only its own models pay for it

    return imagenet_resnet.build(settings["name"], num_classes, settings["weights_file"])


def _two_forms(small_form: Make) -> Model:
    """A network that has a customary form for small images, beside the one for images of at least 64x64 pixels, which is torchvision's."""

    def make(settings: Mapping[str, Any], shape: Shape, num_classes: int) -> nn.Module:
        if min(shape[1:]) >= 64:
            return _torchvision(settings, shape, num_classes)
        model = small_form(settings, shape, num_classes)
        if settings["weights_file"]:
            from .imagenet_resnet import load_weights

            load_weights(model, settings["name"], Path(settings["weights_file"]))
        return model

    return _for_colour_images(make)


MODELS: dict[str, Model] = {
    "cnn": Model(lambda _, shape, classes: small.CNN(shape, classes), _is_image, "images of at least 8x8 pixels"),
    "mlp": Model(lambda _, shape, classes: small.mlp(shape, classes), lambda shape: True, "any input"),
    "logreg": Model(lambda _, shape, classes: small.logreg(shape, classes), lambda shape: True, "any input"),
    "mnist_cnn": Model(
        lambda _, shape, classes: small.MnistCNN(classes), lambda shape: shape == (1, 28, 28), "images with 1 channel of 28x28 pixels"
    ),
    "lenet": Model(lambda _, shape, classes: classic.LeNet(shape, classes), _fits_lenet, "images of 16x16 to 63x63 pixels"),
    **{f"resnet{depth}": _cifar_resnet(depth) for depth in (8, 20, 32, 44, 56, 110)},
    "resnet9": _for_colour_images(lambda _, shape, classes: ResNet9(classes)),
    "cifar_resnet18": _for_colour_images(lambda _, shape, classes: CifarResNet18(classes)),
    "alexnet": _two_forms(lambda _, shape, classes: classic.AlexNet(shape, classes)),
    "vgg16_bn": _two_forms(lambda _, shape, classes: classic.VGG16BN(classes)),
    **{name: _for_colour_images(_torchvision) for name in ("resnet18", "resnet34", "resnet50")},
}


def legal_models(input_shape: Shape) -> list[str]:
    """The names of the models that take such inputs."""
    return [name for name, model in MODELS.items() if model.takes(tuple(input_shape))]


def build(config: Mapping[str, Any], input_shape: Shape, num_classes: int) -> nn.Module:
    """The model of a resolved configuration, giving logits (batch, num_classes) for inputs (batch, *input_shape).

    Its weights come from torch's global generator, which the caller forks and seeds.  Raises ValueError, with the
    legal models, for a model that cannot take the data set's shape.
    """
    settings, shape = config["model"], tuple(input_shape)
    name = settings["name"]
    if name not in MODELS:
        raise unknown("model", name, MODELS)
    model = MODELS[name]
    if not model.takes(shape):
        raise ValueError(
            f"model={name} needs {model.needs}, but data={config['data']['name']} has the shape {'x'.join(map(str, shape))} "
            f"(legal: {', '.join(legal_models(shape))})"
        )
    return model.make(settings, shape, num_classes)
