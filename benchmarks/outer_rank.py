"""One rank of ``benchmarks.outer``, which answers commands until its input ends; each is a line of JSON.

- ``{"do": "begin", "size"}``: the text, and the parameters of a GPT of this ``benchmarks.outer_ways.Size``.
- ``{"do": "train", "way", "name", "seed"}``: a training from scratch by a ``benchmarks.outer_ways.Way`` of some name;
  held-out losses by step, and bytes of a round.
- ``{"do": "time", "name"}``: one more round of the last training of this name; its seconds, and bytes.
"""

from __future__ import annotations

import json
import math
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from itertools import islice
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

import nuq
from benchmarks import baselines
from benchmarks.network import Counters, read_counters
from benchmarks.outer_ways import Size, Way
from benchmarks.time_to_accuracy_rank import batch_of
from settings import resolving
from settings.optim import Muon
from train import data
from train.data.dataset import DataSet
from train.models.gpt import GPT
from train.steps.muon import MuonAndAdamW, hidden_matrices
from train.steps.order import Order

TEST_BATCH = 16
CLIP_NORM = 1.0
TIMEOUT = timedelta(minutes=5)  # a rank that is lost ends the others


@dataclass(frozen=True)
class Training:
    """A training of one rank; ``sent`` counts ``bytes_sent``, and ``done`` has the steps that were taken."""

    way: Way
    model: nn.Module  # what takes the inputs: under DDP the replica
    advance: Callable[[], Any]  # the optimizer's step, and what comes with it
    schedule: torch.optim.lr_scheduler.LRScheduler
    sent: Any
    batch: Callable[[int], tuple[Tensor, Tensor]]

    def step(self) -> None:
        x, y = self.batch(self.schedule.last_epoch)
        self.model.zero_grad()
        cross_entropy(self.model(x).flatten(0, 1), y.flatten()).backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), CLIP_NORM)
        self.advance()
        self.schedule.step()

    def close(self) -> None:
        if isinstance(self.sent, nuq.OuterLoop):
            self.sent.close()


def data_of(size: Size) -> DataSet:
    chosen = {"method": "supersgd", "data": "text", "model": "gpt", "data.num_test": size.test}
    return data.load(resolving.resolve(chosen), torch.device("cpu"))


def model_of(size: Size, dataset: DataSet) -> nn.Module:
    """The GPT of a size, with heads of 64 (one where it is narrower), without dropout."""
    heads, (length,) = max(size.width // 64, 1), dataset.input_shape
    return GPT(dataset.num_classes, length, layers=size.layers, heads=heads, width=size.width, dropout=0.0, tied=False)


def optimizer_of(model: nn.Module, way: Way, lr: float) -> torch.optim.Optimizer:
    """AdamW, or Muon for the hidden matrices, at its own default rate, and AdamW for all else."""
    if way.inner == "adamw":
        return torch.optim.AdamW(model.parameters(), lr=lr)
    matrices = hidden_matrices(model, spared=())
    kept = {id(p) for p in matrices}
    others = {"params": [p for p in model.parameters() if id(p) not in kept], "weight_decay": 0.01}
    return MuonAndAdamW(vars(Muon(adamw_lr=lr)), matrices, [others])


def begun(size: Size, dataset: DataSet, way: Way, seed: int) -> Training:
    """A training from scratch: weights, minibatches and learning rates are the same whatever the way."""
    rank, world = dist.get_rank(), dist.get_world_size()
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = model_of(size, dataset)
    optimizer, last = optimizer_of(model, way, size.lr), way.num_steps(size)

    def rate(step: int) -> float:
        falls = 0.55 + 0.45 * math.cos(math.pi * min(step / last, 1.0))
        return min((step + 1) / size.warm_up, 1.0) * falls

    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, rate)
    order = Order(dataset.num_train, size.batch, world, seed, "train")

    def batch(step: int) -> tuple[Tensor, Tensor]:
        return batch_of(dataset, order, seed, step, rank)

    if way.settings:
        loop = nuq.OuterLoop(model, optimizer, every=way.every, **way.settings)
        return Training(way, model, loop.step, schedule, loop, batch)
    replica = DistributedDataParallel(model)
    return Training(way, replica, optimizer.step, schedule, baselines.with_baseline(replica, "bf16"), batch)


@torch.no_grad()
def held_out_loss(model: nn.Module, dataset: DataSet) -> float:
    """The mean loss of a character (nats): every rank evaluates its share of the test windows by its own model."""
    rank, world = dist.get_rank(), dist.get_world_size()
    total = torch.zeros(2, dtype=torch.float64)
    for x, y in islice(dataset.batches("test", TEST_BATCH), rank, None, world):
        total[0] += cross_entropy(model(x).flatten(0, 1), y.flatten(), reduction="sum").double()
        total[1] += y.numel()
    dist.all_reduce(total)
    return float(total[0] / total[1])


def trained(training: Training, size: Size, dataset: DataSet) -> dict[str, Any]:
    """The held-out losses by step, at ends of rounds alone, and the bytes of a round."""
    last, losses = training.way.num_steps(size), {}
    begin = training.sent.bytes_sent
    for step in range(1, last + 1):
        training.step()
        if step % math.lcm(size.eval_every, training.way.every) == 0 or step == last:
            whole = training.model.module if isinstance(training.model, DistributedDataParallel) else training.model
            losses[step] = held_out_loss(whole, dataset)
    return {"losses": losses, "bytes": (training.sent.bytes_sent - begin) * training.way.every / last}


def timed(training: Training) -> dict[str, Any]:
    """The seconds and the bytes of a round, by the own count and the interface's, and the median of a step's."""
    dist.barrier()
    own, interface, begin = training.sent.bytes_sent, _counters(), time.perf_counter()
    steps = []
    for _ in range(training.way.every):
        started = time.perf_counter()
        training.step()
        steps.append(time.perf_counter() - started)
    told = {"round_s": time.perf_counter() - begin, "step_s": statistics.median(steps)}
    dist.barrier()
    after = _counters()
    told["interface_bytes"] = after.payload_since(interface, with_repeats=True) if after and interface else None
    return told | {"bytes": training.sent.bytes_sent - own}


def _counters() -> Counters | None:
    """The counters of the simulated network's interface; None on the loopback."""
    try:
        return read_counters()
    except ValueError:
        return None


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=TIMEOUT)
    trainings: dict[str, Training] = {}
    for line in sys.stdin:
        command = json.loads(line)
        if command["do"] == "begin":
            size = Size(**command["size"])
            dataset = data_of(size)
            parameters = sum(p.numel() for p in model_of(size, dataset).parameters())
            answer = {"parameters": parameters, "data": dataset.name, "is_stand_in": dataset.is_stand_in}
        elif command["do"] == "train":
            name = command["name"]
            if name in trainings:
                trainings.pop(name).close()
            trainings[name] = begun(size, dataset, Way(**command["way"]), command["seed"])
            answer = trained(trainings[name], size, dataset)
        else:
            answer = timed(trainings[command["name"]])
        print(json.dumps(answer), flush=True)
    for training in trainings.values():
        training.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
