"""One rank, which answers commands until its input ends; each is a line of JSON.

- ``{"do": "prepare", "name", "spec", "steps"}``: a training, as ``spec.Spec`` says, and its first steps; what it is
  made of.
- ``{"do": "measure", "name", "steps", "batch"}``: seconds and bytes of a step, by the own count and the interface's.
- ``{"do": "train", "name", "steps", "eval_every"}``: a row for each evaluation, with the seconds and bytes until then.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cache
from itertools import islice
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

import nuq
from benchmarks.errors.contenders import named
from benchmarks.links import baselines
from benchmarks.links.models import LOCAL_BUFFERS, batch_of, model_of
from benchmarks.links.network import Counters, read_counters
from benchmarks.links.spec import Spec
from settings import resolving
from settings.optim import Muon
from train import data
from train.data.dataset import DataSet
from train.models.gpt import GPT
from train.steps.muon import MuonAndAdamW, hidden_matrices
from train.steps.order import Order, generator

TIMEOUT = timedelta(minutes=5)  # a rank that is lost ends the others
TEST_BATCH = 32  # under FSDP2 every forward pass sends, so that it is a part of what is measured


@dataclass(frozen=True)
class Training:
    """A training of one rank.

    model: what takes the inputs; advance: the optimizer's step, and what comes with it; sent: counts ``bytes_sent``,
    and may have ``seconds`` by stage; uncounted: bytes of a step that it does not see; batch: inputs and targets by
    step.
    """

    spec: Spec
    model: nn.Module
    advance: Callable[[], Any]
    schedule: torch.optim.lr_scheduler.LRScheduler
    sent: Any
    uncounted: int
    batch: Callable[[int], tuple[Tensor, Tensor]]

    @property
    def whole(self) -> nn.Module:
        """The model itself."""
        return self.model.module if isinstance(self.model, DistributedDataParallel) else self.model

    @property
    def stages_s(self) -> dict[str, float]:
        """The seconds so far of encoding, sending and other stages; baselines tell none."""
        return dict(getattr(self.sent, "seconds", {}))

    def step(self) -> None:
        inputs, targets = self.batch(self.schedule.last_epoch)
        self.model.zero_grad()
        cross_entropy(self.model(inputs).flatten(0, -2).float(), targets.flatten()).backward()
        if self.spec.clip_norm is not None:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.spec.clip_norm)
        self.advance()
        self.schedule.step()
        if self.uncounted:
            self.sent.bytes_sent += self.uncounted

    def close(self) -> None:
        if isinstance(self.sent, nuq.OuterLoop | nuq.CompressionState):
            self.sent.close()


@cache
def data_of(spec_data: str, model: str) -> DataSet:
    name, given = named(spec_data)
    chosen = {"method": "supersgd", "data": name, "model": model.split()[0]}
    of_data = {f"data.{key}": value for key, value in given.items()}
    return data.load(resolving.resolve(chosen | of_data), torch.device("cpu"))


def optimizer_of(text: str, model: nn.Module) -> torch.optim.Optimizer:
    """SGD or AdamW, or Muon for the hidden matrices, at its own default rate, and AdamW for all others."""
    name, given = named(text)
    if name == "muon":
        matrices = hidden_matrices(model, spared=())
        kept = {id(p) for p in matrices}
        others = {"params": [p for p in model.parameters() if id(p) not in kept], "weight_decay": 0.01}
        return MuonAndAdamW(vars(Muon(adamw_lr=given["lr"])), matrices, [others])
    return {"sgd": torch.optim.SGD, "adamw": torch.optim.AdamW}[name](model.parameters(), **given)


def sharded(model: nn.Module, compute: str, **messages: Any) -> nn.Module:
    """The model under FSDP2; messages of gradients and weights are made of float32, whatever computes."""
    how: dict[str, Any] = {"mesh": init_device_mesh("cpu", (dist.get_world_size(),))}
    if compute == "bf16":
        reduced = torch.float32 if messages else torch.bfloat16
        how["mp_policy"] = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=reduced)
    blocks = model.blocks if isinstance(model, GPT) else model.children()
    for part in [*(part for part in blocks if any(True for _ in part.parameters())), model]:
        fully_shard(part, **how)
    if messages:
        nuq.compress_fsdp(model, **messages, feedback="average")
        nuq.compress_fsdp_weights(model, **messages)
    return model


def begun(spec: Spec) -> Training:
    """A training from scratch."""
    rank, world = dist.get_rank(), dist.get_world_size()
    dataset = data_of(spec.data, spec.model) if spec.data else None
    with torch.random.fork_rng():
        torch.manual_seed(spec.seed)
        model = model_of(spec.model, dataset.input_shape, dataset.num_classes) if dataset else model_of(spec.model)
    kind, given = named(spec.variant)
    num_bytes, sent = 4 * sum(parameter.numel() for parameter in model.parameters()), baselines.Sent()
    if kind == "fsdp":
        model = sharded(model, **given)
    optimizer = optimizer_of(spec.optimizer, model)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, spec.rate)
    advance: Callable[[], Any] = optimizer.step
    if kind == "outer":
        sent = nuq.OuterLoop(model, optimizer, **given)
        advance = sent.step
    elif kind != "fsdp":
        # batch-norm's buffers stay local: their broadcast is no gradient's
        local: dict[str, Any] = {LOCAL_BUFFERS: False}
        model = DistributedDataParallel(model, **local)
        if kind == "hook":
            sent = nuq.CompressionState(model, **given)
            model.register_comm_hook(sent, nuq.compress_hook)
        else:
            sent = baselines.with_baseline(model, kind)
    if dataset:
        order = Order(dataset.num_train, spec.batch, world, spec.seed, "train")

        def batch(step: int) -> tuple[Tensor, Tensor]:
            return dataset.train_batch(order.indices(step, rank), generator(spec.seed, step, rank, "train"))
    else:
        same = batch_of(model.module if isinstance(model, DistributedDataParallel) else model, spec.batch)

        def batch(step: int) -> tuple[Tensor, Tensor]:
            return same

    uncounted = baselines.ring_bytes(num_bytes, world) if kind == "fp32" else 0
    return Training(spec, model, advance, schedule, sent, uncounted, batch)


def prepared(spec: Spec, steps: int) -> tuple[Training, dict[str, Any]]:
    training = begun(spec)
    for _ in range(steps):
        training.step()
    told: dict[str, Any] = {"stages_s": training.stages_s}
    told["parameters"] = sum(parameter.numel() for parameter in training.whole.parameters())
    if spec.data:
        dataset = data_of(spec.data, spec.model)
        told |= {"data": dataset.name, "is_stand_in": dataset.is_stand_in}
    return training, told


def counters() -> Counters | None:
    """The counters of the simulated network's interface; None on the loopback, which carries all ranks' bytes."""
    interface = os.environ["GLOO_SOCKET_IFNAME"]
    return None if interface == "lo" else read_counters(interface)


def measured(training: Training, steps: int, with_repeats: bool = False) -> dict[str, Any]:
    """The figures of some steps; a barrier's own bytes (some hundreds) are counted by the interface."""
    dist.barrier()
    interface, own, stages = counters(), training.sent.bytes_sent, training.stages_s
    buckets: list[list[tuple[float, int]]] = []  # of each step
    each = []
    start = time.perf_counter()
    for _ in range(steps):
        begun = time.perf_counter()
        training.step()
        buckets.append([(there - begun, size) for there, size in getattr(training.sent, "buckets", ())])
        each.append(time.perf_counter() - begun)
    seconds = (time.perf_counter() - start) / steps
    own = training.sent.bytes_sent - own
    dist.barrier()
    after = counters()
    return {
        "step_s": seconds,
        "median_step_s": statistics.median(each),
        "own_bytes": own / steps,
        "interface_bytes": after.payload_since(interface, with_repeats=with_repeats) / steps
        if after and interface
        else None,
        "buckets": [
            (statistics.fmean(there for there, _ in times), times[0][1]) for times in zip(*buckets, strict=True)
        ],
        "stages_s": {stage: (value - stages.get(stage, 0.0)) / steps for stage, value in training.stages_s.items()},
    }


@torch.no_grad()
def evaluated(training: Training) -> dict[str, float]:
    """The mean loss (nats) and the accuracy (percent) on the test data, of which each rank evaluates a share.

    Under FSDP2 every rank evaluates all, because a forward pass is collective.
    """
    alike, model = isinstance(training.model, FSDPModule), training.whole
    rank, world = (0, 1) if alike else (dist.get_rank(), dist.get_world_size())
    total = torch.zeros(3, dtype=torch.float64)
    batches = data_of(training.spec.data, training.spec.model).batches("test", TEST_BATCH)
    for inputs, targets in islice(batches, rank, None, world):
        outputs, labels = model(inputs).flatten(0, -2).float(), targets.flatten()
        total[0] += cross_entropy(outputs, labels, reduction="sum").double()
        total[1] += (outputs.argmax(dim=-1) == labels).sum()
        total[2] += labels.numel()
    if not alike:
        dist.all_reduce(total)
    loss, right, count = total.tolist()
    return {"loss": loss / count, "accuracy": 100 * right / count}


def trained(training: Training, steps: int, eval_every: int) -> list[dict[str, Any]]:
    """A row for each evaluation; the clock runs while steps are taken, between two barriers."""
    rows: list[dict[str, Any]] = []
    before, seconds, begun = training.sent.bytes_sent, 0.0, None
    for step in range(1, steps + 1):
        if begun is None:
            dist.barrier()
            begun = time.perf_counter()
        training.step()
        if step % eval_every == 0 or step == steps:
            dist.barrier()
            seconds, begun = seconds + time.perf_counter() - begun, None
            sent = training.sent.bytes_sent - before
            rows.append({"step": step, "seconds": seconds, "bytes_sent": sent, **evaluated(training)})
    return rows


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=TIMEOUT)
    trainings: dict[str, Training] = {}
    for line in sys.stdin:
        match json.loads(line):
            case {"do": "prepare", "name": name, "spec": spec, "steps": steps}:
                if name in trainings:
                    trainings.pop(name).close()
                trainings[name], answer = prepared(Spec(**spec), steps)
            case {"do": "measure", "name": name, "steps": steps, "batch": batch, "with_repeats": with_repeats}:
                training = trainings[name]
                if batch is not None:
                    same = batch_of(training.whole, batch)
                    training = replace(training, batch=lambda _, same=same: same)
                answer = measured(training, steps, with_repeats)
            case {"do": "train", "name": name, "steps": steps, "eval_every": eval_every}:
                answer = {"rows": trained(trainings[name], steps, eval_every)}
            case other:
                raise ValueError(f"{other!r} is no command")
        print(json.dumps(answer), flush=True)
    for training in trainings.values():
        training.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
