"""One rank of ``benchmarks.wire``, which answers commands until its input ends; each is a line of JSON.

- ``{"do": "prepare", "model", "variants", "batch", "steps"}``: a copy of the model under DDP for every variant, and its
  first steps; seconds by variant that adaptive levels took in them.
- ``{"do": "measure", "variant", "batch", "steps"}``: seconds of a step, bytes of it by the interface and by the
  variant's own count; of ``nothing`` also when the gradients of each bucket are there, and its coordinates.
"""

from __future__ import annotations

import copy
import inspect
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import nuq
from benchmarks import baselines
from benchmarks.network import read_counters
from train.data.text import NUM_CODES
from train.models import imagenet_resnet
from train.models.gpt import GPT

LENGTH = 128  # characters of a GPT's window
LEVEL_UPDATE = (
    2  # the step whose statistics set the adaptive levels: after DDP has rebuilt its buckets, before anything is timed
)
OF_HOOK = "hook:"  # before a method: the hook with that method's defaults
TIMEOUT = timedelta(minutes=2)  # a rank that is lost ends the others
_parameters = inspect.signature(DistributedDataParallel.__init__).parameters
# before torch 2.13
LOCAL_BUFFERS = "forward_sync_buffers" if "forward_sync_buffers" in _parameters else "broadcast_buffers"


def mlp() -> nn.Module:
    """An MLP of 11,157,770 parameters."""
    layers = [nn.Linear(3072, 2560), nn.ReLU(), nn.Linear(2560, 1280), nn.ReLU(), nn.Linear(1280, 10)]
    return nn.Sequential(nn.Flatten(), *layers)


def resnet18() -> nn.Module:
    """The ResNet-18 of torchvision, with the first layer that images of 32x32 take; 11,173,962 parameters."""
    model = imagenet_resnet.build("resnet18", 10)
    model.conv1, model.maxpool = nn.Conv2d(3, 64, 3, padding=1, bias=False), nn.Identity()
    return model


def gpt() -> nn.Module:
    """A GPT of six blocks of width 384, for windows of 128 characters of ``data=text``; 10,771,200 parameters."""
    return GPT(NUM_CODES, LENGTH, layers=6, heads=6, width=384, dropout=0.0, tied=False)


MODELS: dict[str, Callable[[], nn.Module]] = {"mlp": mlp, "resnet18": resnet18, "gpt": gpt}


@dataclass(frozen=True)
class Replica:
    """A variant's own copy of the model; ``sent`` counts in ``bytes_sent``, and may have ``seconds`` by stage."""

    model: DistributedDataParallel
    optimizer: torch.optim.Optimizer
    sent: Any


def batch_of(model: nn.Module, size: int) -> tuple[Tensor, Tensor]:
    """The inputs and labels of this rank's own, the same at every call.

    They are images and classes, or windows of characters and those that follow.
    """
    generator = torch.Generator().manual_seed(10 + dist.get_rank())
    if isinstance(model, GPT):
        text = torch.randint(NUM_CODES, (size, LENGTH + 1), generator=generator)
        return text[:, :-1], text[:, 1:]
    return torch.randn(size, 3, 32, 32, generator=generator), torch.randint(10, (size,), generator=generator)


def replica_of(model: nn.Module, variant: str) -> Replica:
    """A replica of the model for a variant.

    Batch-norm's buffers stay local: their broadcast is no gradient's, and the same for every variant.
    """
    local: dict[str, Any] = {LOCAL_BUFFERS: False}
    own = DistributedDataParallel(copy.deepcopy(model), **local)
    sent: Any
    if variant.startswith(OF_HOOK):
        sent = nuq.CompressionState(own, method=variant.removeprefix(OF_HOOK))
        own.register_comm_hook(sent, nuq.compress_hook)
    elif variant.startswith("alq"):
        how: dict[str, Any] = (
            {"collective": "two_stage", "second_bits": 4} if dist.get_world_size() > 2 else {"collective": "gather"}
        )
        sent = nuq.CompressionState(
            own, method="alq", bits=3, gate=variant == "alq_gate", update_at=[LEVEL_UPDATE], **how
        )
        own.register_comm_hook(sent, nuq.compress_hook)
    else:
        sent = baselines.with_baseline(own, variant)
    return Replica(own, torch.optim.SGD(own.parameters(), lr=1e-4), sent)


def prepare(name: str, variants: Iterable[str], batch: int, steps: int) -> dict[str, Replica]:
    """The replicas of all variants, which start with the same weights."""
    torch.manual_seed(1)
    model = MODELS[name]()
    replicas = {variant: replica_of(model, variant) for variant in variants}
    inputs, targets = batch_of(model, batch)
    for replica in replicas.values():
        for _ in range(steps):
            step(replica, inputs, targets)
    return replicas


def step(replica: Replica, inputs: Tensor, targets: Tensor) -> None:
    replica.optimizer.zero_grad()
    nn.functional.cross_entropy(replica.model(inputs).flatten(0, -2), targets.flatten()).backward()
    replica.optimizer.step()


def stages_of(replica: Replica) -> dict[str, float]:
    """The seconds so far of encoding, sending and other stages; baselines tell none."""
    return dict(getattr(replica.sent, "seconds", {}))


def measure(replica: Replica, variant: str, batch: int, steps: int) -> dict[str, Any]:
    """The figures of some steps; a barrier's own bytes (some hundreds) are counted by the interface."""
    inputs, targets = batch_of(replica.model.module, batch)
    dist.barrier()
    interface, own, stages = read_counters(), replica.sent.bytes_sent, stages_of(replica)
    buckets: list[list[tuple[float, int]]] = []  # of each step
    start = time.perf_counter()
    for _ in range(steps):
        begun = time.perf_counter()
        step(replica, inputs, targets)
        buckets.append([(there - begun, size) for there, size in getattr(replica.sent, "buckets", ())])
    seconds = (time.perf_counter() - start) / steps
    own = replica.sent.bytes_sent - own
    if variant == "fp32":
        num_bytes = 4 * sum(parameter.numel() for parameter in replica.model.parameters())
        own = steps * baselines.ring_bytes(num_bytes, dist.get_world_size())
    dist.barrier()
    return {
        "step_s": seconds,
        "interface_bytes": read_counters().payload_since(interface) / steps,
        "own_bytes": own / steps,
        "buckets": [
            (statistics.fmean(there for there, _ in times), times[0][1]) for times in zip(*buckets, strict=True)
        ],
        "stages_s": {stage: (value - stages.get(stage, 0.0)) / steps for stage, value in stages_of(replica).items()},
    }


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=TIMEOUT)
    replicas: dict[str, Replica] = {}
    for line in sys.stdin:
        command = json.loads(line)
        answer: dict[str, Any] = {}
        if command["do"] == "prepare":
            replicas = prepare(command["model"], command["variants"], command["batch"], command["steps"])
            answer = {name: stages_of(replica).get("levels", 0.0) for name, replica in replicas.items()}
        else:
            variant = command["variant"]
            answer = measure(replicas[variant], variant, command["batch"], command["steps"])
        print(json.dumps(answer), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
