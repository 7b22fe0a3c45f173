"""One rank of ``benchmarks.time_to_accuracy``: trains every method from every seed, rank 0 prints a line of JSON per evaluation.

The clock runs while steps are taken, between two barriers; evaluations, by rank 0, are off it, and so is what a process pays once (the
first steps of a training that is thrown away).  Its argument is a JSON object: ``task`` (as ``Task``), ``methods``, ``seeds``.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

import args
import nuq
from benchmarks import rivals
from nuq.registry import METHODS
from train import data
from train.data.dataset import DataSet
from train.order import Order, generator

DENSE = "supersgd"
WARM_UP_STEPS = 4
TEST_BATCH = 1000


@dataclass(frozen=True)
class Task:
    """What is learned, and how: an MLP of two equal hidden layers, SGD with momentum .9.  target: accuracy in percent."""

    data: str
    hidden: int
    lr: float
    batch_size: int
    steps: int
    eval_every: int
    target: float
    levels_at: tuple[int, ...]


def mlp(shape: tuple[int, ...], hidden: int, num_classes: int) -> nn.Module:
    layers = [nn.Linear(math.prod(shape), hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, num_classes)]
    return nn.Sequential(nn.Flatten(), *layers)


def with_method(model: DistributedDataParallel, name: str, task: Task, seed: int) -> Any:
    """Register the hook; what counts the bytes."""
    if name == DENSE:
        return rivals.with_rival(model, "bf16")
    settings = {"update_at": list(task.levels_at)} if METHODS[name].adaptive else {}
    bits = {} if name == "trn" else {"bits": 3}
    state = nuq.CompressionState(model, method=name, seed=seed, **bits, **settings)
    model.register_comm_hook(state, nuq.compress_hook)
    return state


def accuracy(model: nn.Module, dataset: DataSet) -> float:
    """Of the test images, in percent."""
    with torch.no_grad():
        right = sum(int((model(x).argmax(dim=1) == y).sum()) for x, y in dataset.batches("test", TEST_BATCH))
    return 100 * right / dataset.num_test


def trained(task: Task, dataset: DataSet, name: str, seed: int) -> Iterator[dict[str, Any]]:
    """Rows of one training: the same weights and minibatches whatever the method."""
    rank, world = dist.get_rank(), dist.get_world_size()
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = mlp(dataset.input_shape, task.hidden, dataset.num_classes)
    replica = DistributedDataParallel(model)
    sent = with_method(replica, name, task, seed)
    optimizer = torch.optim.SGD(replica.parameters(), lr=task.lr, momentum=0.9)
    order = Order(dataset.num_train, task.batch_size, world, seed, "train")
    seconds = 0.0
    for step in range(task.steps):
        if step % task.eval_every == 0:
            dist.barrier()
            started = time.perf_counter()
        x, y = batch_of(dataset, order, seed, step, rank)
        optimizer.zero_grad()
        cross_entropy(replica(x), y).backward()
        optimizer.step()
        if (step + 1) % task.eval_every == 0:
            dist.barrier()
            seconds += time.perf_counter() - started
            row = {"data": task.data, "method": name, "seed": seed, "step": step + 1, "seconds": seconds, "bytes_sent": sent.bytes_sent}
            yield row | {"accuracy": accuracy(model, dataset) if rank == 0 else None}
    if name != DENSE:
        sent.close()


def batch_of(dataset: DataSet, order: Order, seed: int, step: int, rank: int) -> tuple[Tensor, Tensor]:
    return dataset.train_batch(order.indices(step, rank), generator(seed, step, rank, "train"))


def main() -> None:
    torch.set_num_threads(1)
    wanted = json.loads(sys.argv[1])
    task = Task(**wanted["task"])
    config = args.resolve({"method": "supersgd", "data": task.data, "model": "mlp"})
    dataset = data.load(config, torch.device("cpu"))
    dist.init_process_group("gloo")
    for seed in wanted["seeds"]:
        for name in wanted["methods"]:
            for _ in trained(replace(task, steps=WARM_UP_STEPS, eval_every=WARM_UP_STEPS, levels_at=(2,)), dataset, name, seed):
                pass
            for row in trained(task, dataset, name, seed):
                if dist.get_rank() == 0:
                    print(json.dumps(row), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
