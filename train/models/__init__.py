"""The models: ``build`` makes one for the shape of a data set.

Adding a model is one function or class in a file here, one line in ``MODELS`` and its settings in ``task_settings.MODELS``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn

from nuq.settings import unknown

from . import small
from .cifar_resnet import CifarResNet

__all__ = ["MODELS", "build", "legal_models"]

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Model:
    """One line of the table: how it is made, which inputs it takes, and the same in words."""

    make: Callable[[Mapping[str, Any], Shape, int], nn.Module]
    takes: Callable[[Shape], bool]
    needs: str


def _is_image(shape: Shape) -> bool:
    return len(shape) == 3 and min(shape[1:]) >= 8


def _is_colour_image(shape: Shape) -> bool:
    return len(shape) == 3 and shape[0] == 3 and min(shape[1:]) >= 32


def _cifar_resnet(depth: int) -> Model:
    def make(settings: Mapping[str, Any], shape: Shape, num_classes: int) -> nn.Module:
        return CifarResNet(depth, num_classes, batch_norm=settings["batch_norm"])

    return Model(make, _is_colour_image, "images with 3 channels of at least 32x32 pixels")


def _imagenet_resnet(settings: Mapping[str, Any], shape: Shape, num_classes: int) -> nn.Module:
    from . import imagenet_resnet  # torchvision takes a second to import, so only its own models pay for it

    return imagenet_resnet.build(settings["name"], num_classes, settings["weights_file"])


MODELS: dict[str, Model] = {
    "cnn": Model(lambda _, shape, classes: small.CNN(shape, classes), _is_image, "images of at least 8x8 pixels"),
    "mlp": Model(lambda _, shape, classes: small.mlp(shape, classes), lambda shape: True, "any input"),
    "logreg": Model(lambda _, shape, classes: small.logreg(shape, classes), lambda shape: True, "any input"),
    "mnist_cnn": Model(
        lambda _, shape, classes: small.MnistCNN(classes), lambda shape: shape == (1, 28, 28), "images with 1 channel of 28x28 pixels"
    ),
    **{f"resnet{depth}": _cifar_resnet(depth) for depth in (8, 20, 32, 44, 56, 110)},
    **{
        name: Model(_imagenet_resnet, _is_colour_image, "images with 3 channels of at least 32x32 pixels")
        for name in ("resnet18", "resnet34")
    },
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
