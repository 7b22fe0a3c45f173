"""The models that are trained over links, by text such as ``"gpt layers=6 heads=6 width=384"``."""

from __future__ import annotations

import inspect
import itertools
import math
from collections.abc import Callable, Sequence
from functools import partial

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from benchmarks.errors.contenders import named
from train.data.text import NUM_CODES
from train.models import imagenet_resnet
from train.models.gpt import GPT

LENGTH = 128  # characters of a window of random text
_parameters = inspect.signature(DistributedDataParallel.__init__).parameters
# before torch 2.13
LOCAL_BUFFERS = "forward_sync_buffers" if "forward_sync_buffers" in _parameters else "broadcast_buffers"


def model_of(text: str, shape: Sequence[int] = (3, 32, 32), num_classes: int = 10) -> nn.Module:
    """A model for inputs of a shape; a GPT's are windows of so many characters, 128 by default."""
    name, given = named(text)
    if name == "gpt":
        length, codes = (shape[0], num_classes) if len(shape) == 1 else (LENGTH, NUM_CODES)
        return GPT(codes, length, dropout=0.0, tied=False, **given)
    if name == "resnet18":  # with the first layer that images of 32x32 take
        model = imagenet_resnet.build(name, num_classes)
        model.conv1, model.maxpool = nn.Conv2d(3, 64, 3, padding=1, bias=False), nn.Identity()
        return model
    sizes = itertools.pairwise([math.prod(shape), *given["widths"], num_classes])
    layers = [layer for inputs, outputs in sizes for layer in (nn.Linear(inputs, outputs), nn.ReLU())]
    return nn.Sequential(nn.Flatten(), *layers[:-1])


LARGE = {"mlp": "mlp widths=[2560,1280]", "resnet18": "resnet18", "gpt": "gpt layers=6 heads=6 width=384"}
MODELS: dict[str, Callable[[], nn.Module]] = {name: partial(model_of, text) for name, text in LARGE.items()}


def batch_of(model: nn.Module, size: int) -> tuple[Tensor, Tensor]:
    """Random inputs and labels of this rank's own, the same at every call: images, or windows of characters."""
    generator = torch.Generator().manual_seed(10 + dist.get_rank())
    if isinstance(model, GPT):
        text = torch.randint(NUM_CODES, (size, LENGTH + 1), generator=generator)
        return text[:, :-1], text[:, 1:]
    return torch.randn(size, 3, 32, 32, generator=generator), torch.randint(10, (size,), generator=generator)
