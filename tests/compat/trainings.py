"""Trainings whose arithmetic is the same on every machine: tests go on with what ``write.py`` stopped in the middle.

The loss of a step is a sum of products, element by element, and an update is a multiplication and a subtraction, so
that no product of matrices, whose last bits depend on the processor, takes part.  All numbers come from integers.  What
depends on the processor is the factor of a memory's message, a quotient of scalar products: ``arithmetic`` tells.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

import nuq
from nuq import native

RATE = 0.125
STOPPED, STEPS = 5, 9  # steps before the state was written, and at the end
BUCKETS: dict[str, Any] = {"bucket_size": 64}
HOOKS: dict[str, dict[str, Any]] = {
    "alq": {"method": "alq", **BUCKETS, "update_at": [2, 7], "num_samples": 3, "update_every": 0},
    "amq, error, rans": {
        "method": "amq",
        **BUCKETS,
        "update_at": [1, 6],
        "num_samples": 4,
        "update_every": 0,
        "feedback": "error",
        "coding": "rans",
        "collective": "gather",
    },
    "topk": {"method": "topk", "ratio": 0.1, "collective": "gather"},
    "dgc": {"method": "dgc", "ratio": 0.1, "momentum": 0.75, "nesterov": True, "collective": "gather"},
    "ef21": {"method": "topk", "ratio": 0.1, "feedback": "ef21", "collective": "gather"},
    "powersgd": {"method": "powersgd", "rank": 2},
    "both": {
        "method": "qsgdinf",
        **BUCKETS,
        "bits": 2,
        "feedback": "error",
        "both": True,
        "collective": "two_stage",
        "second_bits": 2,
    },
    "ef21, both": {
        "method": "qsgdinf",
        **BUCKETS,
        "bits": 2,
        "feedback": "ef21",
        "both": True,
        "collective": "server",
        "second_bits": 2,
    },
    "casq": {"method": "casq", "clusters": 4, "refresh_every": 4, "collective": "gather"},
    "layers": {
        "method": "qsgdinf",
        **BUCKETS,
        "bits": 3,
        "collective": "gather",
        "feedback": "error",
        "layers": ["second.* = topk ratio=0.1"],
    },
}
PICKLED = ("alq", "topk", "dgc", "ef21", "powersgd", "both")  # a pickle holds the settings beside the same state
FSDP: dict[str, dict[str, Any]] = {
    "fsdp": {
        "gradients": {"method": "qsgdinf", **BUCKETS, "bits": 3},
        "weights": {"method": "qsgdinf", **BUCKETS, "bits": 4},
    },
    "fsdp, average": {
        "gradients": {"method": "qsgdinf", **BUCKETS, "bits": 2, "feedback": "average"},
        "weights": {"method": "qsgdinf", **BUCKETS, "bits": 4},
    },
}
LOOPS: dict[str, dict[str, Any]] = {
    "outer, topk": {"method": "topk", "ratio": 0.1, "decay": 0.75, "every": 3, "collective": "gather"},
    "outer, pending": {
        "method": "qsgdinf",
        **BUCKETS,
        "bits": 4,
        "every": 4,
        "fragments": 2,
        "overlap": 2,
        "feedback": "error",
        "collective": "gather",
    },
}


def numbers(count: int, seed: int) -> Tensor:
    """Numbers of either sign, few of them large: float32[count], exact on every machine."""
    mixed = (torch.arange(1, count + 1, dtype=torch.int64) + 1_000_003 * seed) * 2_654_435_761 % 2**32
    mixed = (mixed ^ (mixed >> 15)) * 1_540_483_477 % 2**32
    value = ((mixed ^ (mixed >> 13)) % 2001 - 1000).to(torch.float32) / 1024
    return value * value * value


class Sums(nn.Module):
    """Parameters that are multiplied, number by number, with what a rank has in a step."""

    def __init__(self, seed: int, **shapes: tuple[int, ...]) -> None:
        super().__init__()
        for place, (name, shape) in enumerate(shapes.items()):
            self.register_parameter(name, nn.Parameter(numbers(math.prod(shape), seed + place).view(shape)))

    def forward(self, rank: int, step: int) -> Tensor:
        """The sum of p g + p p / 8, so that the gradient of p is g + p / 4."""
        loss = torch.zeros((), dtype=torch.float32)
        for place, p in enumerate(self.parameters()):
            given = numbers(p.numel(), 100 + 7 * place + 50 * step + rank).view(p.shape)
            loss = loss + (p * given + p * p / 8).sum()
        return loss


class Two(nn.Module):
    """Two modules of a matrix and a vector each."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = Sums(1, weight=(24, 20), bias=(24,)), Sums(5, weight=(16, 24), bias=(16,))

    def forward(self, rank: int, step: int) -> Tensor:
        return self.first(rank, step) + self.second(rank, step + 20)


def descend(model: nn.Module, rank: int, steps: Iterable[int]) -> None:
    """Plain SGD."""
    for step in steps:
        model.zero_grad()
        model(rank, step).backward()
        with torch.no_grad():
            for p in model.parameters():
                assert p.grad is not None
                p.sub_(p.grad * RATE)


def weights(model: nn.Module) -> dict[str, Tensor]:
    """A copy of the parameters, those of FSDP2 gathered."""
    return {name: getattr(p, "full_tensor", p.clone)().detach() for name, p in model.named_parameters()}


def hooked(
    group: dist.ProcessGroup, settings: dict[str, Any], start: dict[str, Tensor] | None
) -> DistributedDataParallel:
    """A model under DDP; of one parameter for two stages, which cut DDP's buckets, and these begin anew."""
    model = Sums(1, weight=(24, 20)) if settings.get("collective") == "two_stage" else Two()
    if start is not None:
        model.load_state_dict(start)
    return DistributedDataParallel(model, process_group=group)


def new_state(model: DistributedDataParallel, settings: dict[str, Any]) -> nuq.CompressionState:
    return nuq.CompressionState(model, min_size=0, timeout_s=60.0, seed=3, **settings)


def compressed(
    group: dist.ProcessGroup, settings: dict[str, Any], start: dict[str, Tensor] | None
) -> tuple[nn.Module, nuq.FsdpState]:
    """A model under FSDP2 with compressed gradients and weights; and their state."""
    model = Two()
    if start is not None:
        model.load_state_dict(start)
    mesh = DeviceMesh.from_group(group, "cpu")
    for module in (model.first, model.second, model):
        fully_shard(module, mesh=mesh)
    how: dict[str, Any] = {"timeout_s": 60.0, "seed": 3}
    gradients = nuq.compress_fsdp(model, **how, **settings["gradients"])
    return model, nuq.FsdpState(model, [*gradients, *nuq.compress_fsdp_weights(model, **how, **settings["weights"])])


def looped(group: dist.ProcessGroup, settings: dict[str, Any]) -> tuple[Two, nuq.OuterLoop]:
    model = Two()
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    return model, nuq.OuterLoop(model, optimizer, group=group, min_size=0, timeout_s=60.0, seed=3, **settings)


def local_steps(model: nn.Module, loop: nuq.OuterLoop, rank: int, steps: Iterable[int]) -> None:
    for step in steps:
        model.zero_grad()
        model(rank, step).backward()
        loop.step()


def arithmetic() -> str:
    """A digest of what this processor and its libraries make of sums of products, exponentials and logarithms.

    Where it is the same, a training of ``logreg`` and the factors of a memory's messages have the same bits.
    """
    digest = hashlib.sha256(native.__name__.encode() if native.library() is not None else b"")
    for step in range(4):
        weight = (numbers(640, step).view(10, 64) / 8).requires_grad_()
        loss = F.cross_entropy(F.linear(numbers(512, 20 + step).view(8, 64).abs(), weight), torch.arange(8))
        loss.backward()
        assert weight.grad is not None
        many = F.linear(numbers(64 * 355, 30 + step).view(355, 64), weight.detach())
        dots = [torch.dot(many.view(-1)[:size], many.view(-1)[-size:]).view(1) for size in (16, 24, 384, 480, 650, 920)]
        mixed = torch.lerp(many[0], many[1], 0.5)
        for values in (loss.detach(), weight.grad, many, F.log_softmax(many, dim=1), *dots, mixed):
            digest.update(values.numpy().tobytes())
    for function in (np.exp, np.expm1, np.log1p):
        digest.update(function(numbers(1000, 40).abs().double().numpy()).tobytes())
    return digest.hexdigest()
