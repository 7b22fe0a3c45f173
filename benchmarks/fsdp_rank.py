"""One rank of ``benchmarks.fsdp``, which answers commands until its input ends; each is a line of JSON.

- ``{"do": "prepare", "model", "variants", "small", "steps"}``: a copy of the model under FSDP2 for every variant, and
  its first steps.
- ``{"do": "train", "variant", "seed", "steps"}``: the held-out loss of the small GPT after a training on text.
- ``{"do": "measure", "variant", "steps"}``: seconds of a step, and bytes of it by the interface.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

import nuq
from benchmarks import time_to_accuracy_rank
from benchmarks.network import read_counters
from benchmarks.wire_rank import TIMEOUT, batch_of, gpt, mlp
from settings import resolving
from train import data
from train.data.text import NUM_CODES
from train.models.gpt import GPT
from train.steps.order import Order

BATCHES = {"mlp": 32, "gpt": 4}  # images, windows; of steps that are measured
BUCKET = 128  # coordinates: of a whole layer's 8192 the largest leaves 4 bits too little for the others
WINDOWS, HELD_OUT, LEARNING_RATE = 8, 256, 2e-3  # of the training on text: windows a rank, windows in all


@dataclass(frozen=True)
class Training:
    """The model of a variant under FSDP2, its optimizer, and a rank's own batch."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    inputs: Tensor
    targets: Tensor

    def step(self) -> None:
        self.optimizer.zero_grad()
        outputs = self.model(self.inputs).flatten(0, -2).float()
        nn.functional.cross_entropy(outputs, self.targets.flatten()).backward()
        self.optimizer.step()


def built(name: str, *, small: bool) -> tuple[nn.Module, list[nn.Module]]:
    """A model of that name, and its parts that are sharded by themselves: blocks of the GPT, layers of the MLP."""
    if name == "gpt":
        model: Any = GPT(NUM_CODES, 128, layers=2, heads=2, width=32, dropout=0.0, tied=False) if small else gpt()
        return model, list(model.blocks)
    layers = nn.Sequential(nn.Flatten(), nn.Linear(3072, 8), nn.ReLU(), nn.Linear(8, 10)) if small else mlp()
    return layers, [layer for layer in layers.children() if isinstance(layer, nn.Linear)]


def sharded(name: str, variant: str, *, small: bool, seed: int = 1) -> nn.Module:
    """The model of a variant under FSDP2; all variants of a seed start with the same weights."""
    torch.manual_seed(seed)
    model, parts = built(name, small=small)
    how: dict[str, Any] = {"mesh": init_device_mesh("cpu", (dist.get_world_size(),))}
    if variant != "float32":
        # messages are made of float32, whatever computes
        reduced = torch.bfloat16 if variant == "bf16" else torch.float32
        how["mp_policy"] = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=reduced)
    for part in [*parts, model]:
        fully_shard(part, **how)
    if variant.endswith(" bits"):
        bits = int(variant.removesuffix(" bits"))
        nuq.compress_fsdp(model, "qsgdinf", bits=bits, bucket_size=BUCKET, feedback="average")
        nuq.compress_fsdp_weights(model, "qsgdinf", bits=bits, bucket_size=BUCKET)
    return model


def training(name: str, variant: str, *, small: bool) -> Training:
    """The training of a variant, whose steps are measured."""
    batch = batch_of(built(name, small=small)[0], BATCHES[name])
    model = sharded(name, variant, small=small)
    return Training(model, torch.optim.AdamW(model.parameters(), lr=1e-4), *batch)


def loss_after(variant: str, seed: int, steps: int) -> float:
    """The loss of held-out text, in nats a character, after a training of the small GPT; alike on all ranks."""
    chosen = {"method": "supersgd", "data": "text", "model": "gpt", "data.length": 128, "data.num_test": HELD_OUT}
    dataset, rank = data.load(resolving.resolve(chosen), torch.device("cpu")), dist.get_rank()
    order = Order(dataset.num_train, WINDOWS, dist.get_world_size(), seed, "train")
    model = sharded("gpt", variant, small=True, seed=seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE)
    for step in range(steps):
        inputs, targets = time_to_accuracy_rank.batch_of(dataset, order, seed, step, rank)
        Training(model, optimizer, inputs, targets).step()
    with torch.no_grad():
        losses = [
            nn.functional.cross_entropy(model(inputs).flatten(0, 1).float(), targets.flatten()).item()
            for inputs, targets in dataset.batches("test", HELD_OUT // 8)
        ]
    return statistics.fmean(losses)


def measure(measured: Training, steps: int) -> dict[str, float]:
    interface = os.environ["GLOO_SOCKET_IFNAME"]
    dist.barrier()
    before, start = read_counters(interface), time.perf_counter()
    for _ in range(steps):
        measured.step()
    seconds = (time.perf_counter() - start) / steps
    dist.barrier()
    num_bytes = read_counters(interface).payload_since(before, with_repeats=True)
    return {"step_s": seconds, "interface_bytes": num_bytes / steps}


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=TIMEOUT)
    trained: dict[str, Training] = {}
    for line in sys.stdin:
        command = json.loads(line)
        answer: dict[str, float] = {}
        if command["do"] == "prepare":
            how = {"small": command["small"]}
            trained = {variant: training(command["model"], variant, **how) for variant in command["variants"]}
            for each in trained.values():
                for _ in range(command["steps"]):
                    each.step()
        elif command["do"] == "train":
            answer = {"loss": loss_after(command["variant"], command["seed"], command["steps"])}
        else:
            answer = measure(trained[command["variant"]], command["steps"])
        print(json.dumps(answer), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
