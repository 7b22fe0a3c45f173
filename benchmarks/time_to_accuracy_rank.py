"""One rank of ``benchmarks.time_to_accuracy``, which trains every method from every seed.

Rank 0 prints a line of JSON per evaluation.

The clock runs while steps are taken, between two barriers; evaluations, by rank 0, are off it, and so is what a process
pays once (the first steps of a training that is thrown away).  Its argument is a JSON object: ``task`` (as ``Task``),
``methods``, ``seeds``.
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

import nuq
from benchmarks import baselines
from nuq.registry import METHODS
from settings import resolving
from train import data
from train.data.dataset import DataSet
from train.models.gpt import GPT
from train.steps.order import Order, generator

DENSE = "supersgd"
WARM_UP_STEPS = 4
TEST_BATCH = 1000


@dataclass(frozen=True)
class Task:
    """The task to learn.

    target: accuracy in percent, of images or of characters that are told from those before them.

    model: ``mlp`` has two hidden layers of ``width``, and SGD with momentum .9; ``gpt`` four blocks of it, and AdamW.
    The learning rate rises over ``warm_up`` steps; the mean gradient is cut to the norm ``clip_norm``.
    """

    data: str
    model: str
    width: int
    lr: float
    batch_size: int
    steps: int
    eval_every: int
    target: float
    levels_at: tuple[int, ...]
    warm_up: int = 1
    clip_norm: float | None = None


def data_of(task: Task) -> DataSet:
    few = {"data.num_test": 128} if task.data == "text" else {}
    return data.load(
        resolving.resolve({"method": DENSE, "data": task.data, "model": task.model, **few}), torch.device("cpu")
    )


def model_of(task: Task, dataset: DataSet) -> nn.Module:
    shape, width, num_classes = dataset.input_shape, task.width, dataset.num_classes
    if task.model == "gpt":
        return GPT(num_classes, shape[0], layers=4, heads=4, width=width, dropout=0.0, tied=False)
    layers = [
        nn.Linear(math.prod(shape), width),
        nn.ReLU(),
        nn.Linear(width, width),
        nn.ReLU(),
        nn.Linear(width, num_classes),
    ]
    return nn.Sequential(nn.Flatten(), *layers)


def optimizer_of(task: Task, model: nn.Module) -> torch.optim.Optimizer:
    if task.model == "gpt":
        return torch.optim.AdamW(model.parameters(), lr=task.lr)
    return torch.optim.SGD(model.parameters(), lr=task.lr, momentum=0.9)


def with_method(model: DistributedDataParallel, name: str, task: Task, seed: int) -> Any:
    """Register the hook of a method; returns the object that counts the bytes."""
    if name == DENSE:
        return baselines.with_baseline(model, "bf16")
    settings: dict[str, Any] = {"update_at": list(task.levels_at)} if METHODS[name].adaptive else {}
    bits = {} if name == "trn" else {"bits": 3}
    state = nuq.CompressionState(model, method=name, seed=seed, **bits, **settings)
    model.register_comm_hook(state, nuq.compress_hook)
    return state


def accuracy(model: nn.Module, dataset: DataSet) -> float:
    """The accuracy on the test images or characters, in percent."""
    right = count = 0
    with torch.no_grad():
        for x, y in dataset.batches("test", TEST_BATCH):
            right += int((model(x).argmax(dim=-1) == y).sum())
            count += y.numel()
    return 100 * right / count


def trained(task: Task, dataset: DataSet, name: str, seed: int) -> Iterator[dict[str, Any]]:
    """The rows of one training: the same weights and minibatches whatever the method."""
    rank, world = dist.get_rank(), dist.get_world_size()
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = model_of(task, dataset)
    replica = DistributedDataParallel(model)
    sent = with_method(replica, name, task, seed)
    optimizer = optimizer_of(task, replica)
    warm_up = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / task.warm_up))
    order = Order(dataset.num_train, task.batch_size, world, seed, "train")
    seconds = 0.0
    for step in range(task.steps):
        if step % task.eval_every == 0:
            dist.barrier()
            started = time.perf_counter()
        x, y = batch_of(dataset, order, seed, step, rank)
        optimizer.zero_grad()
        cross_entropy(replica(x).flatten(0, -2), y.flatten()).backward()
        if task.clip_norm is not None:
            nn.utils.clip_grad_norm_(replica.parameters(), task.clip_norm)
        optimizer.step()
        warm_up.step()
        if (step + 1) % task.eval_every == 0:
            dist.barrier()
            seconds += time.perf_counter() - started
            row = {
                "data": task.data,
                "method": name,
                "seed": seed,
                "step": step + 1,
                "seconds": seconds,
                "bytes_sent": sent.bytes_sent,
            }
            yield row | {"accuracy": accuracy(model, dataset) if rank == 0 else None}
    if name != DENSE:
        sent.close()


def batch_of(dataset: DataSet, order: Order, seed: int, step: int, rank: int) -> tuple[Tensor, Tensor]:
    return dataset.train_batch(order.indices(step, rank), generator(seed, step, rank, "train"))


def main() -> None:
    torch.set_num_threads(1)
    wanted = json.loads(sys.argv[1])
    task = Task(**wanted["task"])
    dataset = data_of(task)
    dist.init_process_group("gloo")
    for seed in wanted["seeds"]:
        for name in wanted["methods"]:
            for _ in trained(
                replace(task, steps=WARM_UP_STEPS, eval_every=WARM_UP_STEPS, levels_at=(2,)), dataset, name, seed
            ):
                pass
            for row in trained(task, dataset, name, seed):
                if dist.get_rank() == 0:
                    print(json.dumps(row), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
