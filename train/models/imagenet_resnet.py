"""torchvision's models for classification, without auxiliary classifiers; no weights are ever downloaded."""

from __future__ import annotations

import difflib
from typing import Any

import torch
from torch import nn
from torch.func import functional_call

from train.data.torchvision_import import torchvision

# built without their auxiliary classifiers, whose loss this trainer does not add
TWO_HEADED = ("googlenet", "inception_v3")


def build(name: str, num_classes: int, input_shape: tuple[int, ...] | None = None) -> nn.Module:
    """The model ``torchvision.models.<name>`` from scratch.

    It is for images of ``input_shape`` where the model is made for one size (ViT, MaxViT).  Raises ValueError for a
    name that torchvision does not have, with the nearest ones.
    """
    models = torchvision().models
    known = models.list_models(module=models)
    if name not in known:
        near = difflib.get_close_matches(name, known, n=3)
        hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else ""
        legal = f"legal: one of its {len(known)} models"
        raise ValueError(f"model.arch={name!r}: torchvision has no such model for classification{hint} ({legal})")
    more: dict[str, Any] = {}
    if name in TWO_HEADED:
        more = {"aux_logits": False, "init_weights": True}
    elif input_shape is not None and name.startswith("vit_"):
        more = {"image_size": input_shape[1]}
    elif input_shape is not None and name.startswith("maxvit"):
        more = {"input_size": input_shape[1:]}
    return models.get_model(name, weights=None, num_classes=num_classes, **more)


def by_name(arch: str, input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """The model of ``build``, after a try on shapes alone: ValueError where it cannot take ``input_shape``."""
    if arch.startswith("vit_") and input_shape[1] != input_shape[2]:
        raise _unfit(arch, input_shape, "it takes square images")
    try:
        model = build(arch, num_classes, input_shape).eval()
        shapes = {name: value.to("meta") for name, value in model.state_dict().items()}
        functional_call(model, shapes, (torch.empty(2, *input_shape, device="meta", dtype=torch.float32),))
    except (RuntimeError, AssertionError, ValueError) as error:
        if str(error).startswith("model.arch="):
            raise
        raise _unfit(arch, input_shape, str(error).splitlines()[0] if str(error) else type(error).__name__) from error
    return model.train()


def _unfit(arch: str, input_shape: tuple[int, ...], why: str) -> ValueError:
    return ValueError(f"model.arch={arch}: cannot take images of {'x'.join(map(str, input_shape))}: {why}")
