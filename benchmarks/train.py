"""The cost of training with us beside a bare PyTorch loop.

Run it as ``python -m benchmarks.train [--model NAME ..] [--device D] [--seconds S]``.

The benchmark compares our step (``Trainer.train_step``: the workers' gradients, their exchange as messages, the
optimizer, all checks) with a bare loop's: the same M forward and backward passes on the same batches, gradients summed
by ``backward``, ``optim.SGD``.  They go in turns within one process, each first every other time; a ratio is taken pair
by pair. overhead = median ratio - 1, with the quartiles.  A GPT's images are windows of text.

- Both take the same batches from memory, normalised, augmented and channels-last beforehand: what data costs is told
  apart.
- Memory that is freed stays with the process (``train.process.memory``), as in every run of ours, for both.
- The bare loop's model is channels-last too, which is faster, and its optimizer has the same settings.  Before anything
  is timed both take three steps, after which parameters and momenta have to agree: that they do the same work is
  checked.
- With one thread its own time counts, which others on the machine change little; with more, wall time.
- share_updates: the statistics behind one level update and the update, times the updates in the default ``steps``,
  beside that many steps.  share_measurement: the estimator's, as often as by default (never).  share_paper: both at the
  paper's 80,000 steps, measured every 1,000.

``--device cuda`` is wall time with the GPU's work; ``--data imagenet`` has random pictures of its size where there are
none; ``--settings compute.precision=bf16 compute.cuda_graphs=true`` are the trainer's, and the bare loop casts as they
say.

``--options`` sets ``compute.*`` and ``threads`` beside the defaults, step by step: above 1 is faster.
(``benchmarks.train_options``)

Claims: overhead_sgd (method=supersgd) <= 3 %, overhead_alq_3bit <= 10 %, share_updates + share_measurement <= 2 %.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import functools
import json
import os
import statistics
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from benchmarks.timing import own_seconds, spread
from benchmarks.train_turns import (
    CHECKED_STEPS,
    METHODS,
    Prepared,
    batches_of,
    data_of,
    in_pairs,
    trainer_of,
)
from nuq import native
from nuq.exchange.level_updates import next_update
from settings import command_line, resolving, sections
from train.process.memory import keep_freed_memory
from train.steps.gradients import DTYPES
from train.steps.trainer import Trainer

LIMITS = {"overhead_sgd": 0.03, "overhead_alq_3bit": 0.10, "share_updates_and_measurement": 0.02}
AGREEMENT = {"fp32": 1e-3, "bf16": 0.1, "fp16": 0.1}  # kernels chosen differently round differently
PAPER = {"steps": 80_000, "measure_every": 1000}


class Bare:
    """The loop that anyone would write, started from the trainer's present model."""

    def __init__(self, trainer: Trainer, batches: Sequence[Sequence[tuple[Tensor, Tensor]]]) -> None:
        self.model = copy.deepcopy(trainer.model).train()
        dtype = DTYPES.get(trainer.config["compute"]["precision"])
        self._autocast = (
            functools.partial(torch.autocast, trainer.device.type, dtype) if dtype else contextlib.nullcontext
        )
        values = trainer.config["optim"]
        options = {key: values[key] for key in ("lr", "momentum", "nesterov", "weight_decay")}
        self.optimizer = torch.optim.SGD(self.model.parameters(), **options)
        self.batches, self.steps = batches, 0

    def step(self) -> None:
        self.optimizer.zero_grad()
        minibatches = self.batches[self.steps % len(self.batches)]
        for x, y in minibatches:
            with self._autocast():
                logits = self.model(x)
            loss = cross_entropy(logits.float().flatten(0, -2), y.flatten())  # a text has a label at every place
            (loss / len(minibatches)).backward()
        self.optimizer.step()
        self.steps += 1


def disagreement(trainer: Trainer, bare: Bare) -> float:
    """The largest difference between parameters of the two loops, as a share of the largest parameter."""
    pairs = list(zip(trainer.model.parameters(), bare.model.parameters(), strict=True))
    return max(float((a - b).detach().abs().max()) for a, b in pairs) / max(
        float(a.detach().abs().max()) for a, _ in pairs
    )


def overhead(trainer: Trainer, budget_s: float, *, exact: bool) -> dict[str, float]:
    """The cost of the trainer's step beside the bare one.

    exact: the method rounds nothing, so both have to stay together (``AGREEMENT``).
    """
    prepared = Prepared(trainer)
    data_s = min(own_seconds(lambda: batches_of(trainer, 0)) for _ in range(3))
    trainer.gradients.data = prepared  # type: ignore[assignment]
    bare = Bare(trainer, prepared.steps)
    for _ in range(CHECKED_STEPS):
        trainer.train_step()
        bare.step()
    apart = disagreement(trainer, bare)
    if exact and apart > AGREEMENT[trainer.config["compute"]["precision"]]:
        raise AssertionError(
            f"after {CHECKED_STEPS} steps the two differ by {apart:.1e} of the largest parameter: not the same work"
        )
    ours, theirs = in_pairs(trainer.train_step, bare.step, budget_s)
    ratio, low, high = spread(ours, theirs)
    images = trainer.config["batch_size"] * len(prepared.steps[0])
    return {
        "overhead": ratio - 1,
        "low": low - 1,
        "high": high - 1,
        "images_per_s": images / statistics.median(ours),
        "bare_images_per_s": images / statistics.median(theirs),
        "data_images_per_s": images / data_s,
        "disagreement": apart,
        "pairs": len(ours),
    }


def shares(trainer: Trainer, step_s: float) -> dict[str, float]:
    """The shares of updates and measurements in the whole, at the default schedule and at the paper's.

    step_s: of one training step.
    """
    defaults = resolving.resolve({"method": "alq"})
    gradients = {worker: trainer.gradient(worker, 0, trainer.order, "train")[0] for worker in trainer.trained.hosted}
    observe_s = statistics.median(own_seconds(lambda: trainer.workers.observe(gradients, 0)) for _ in range(5))
    updates_s = []
    for _ in range(5):
        trainer.workers.observe(gradients, 0)
        updates_s.append(own_seconds(trainer.workers.update_levels))
    update_s = statistics.median(updates_s)
    one_update_s = defaults["method"]["num_samples"] * observe_s + update_s
    measure_s = own_seconds(trainer.measure)
    settings = sections.named_method(defaults)

    def share(steps: int, every: int) -> tuple[float, float]:
        updates = sum(next_update(settings, step) == step for step in range(steps))
        measurements = -(-steps // every) if every else 0
        return updates * one_update_s / (steps * step_s), measurements * measure_s / (steps * step_s)

    updates, measurement = share(defaults["steps"], defaults["measure"]["every"])
    return {
        "share_updates": updates,
        "share_measurement": measurement,
        "share_paper": sum(share(PAPER["steps"], PAPER["measure_every"])),
        "update_ms": 1e3 * one_update_s,
        "measure_ms": 1e3 * measure_s,
    }


def measured(
    model: str, batch_size: int, workers: int, threads: int, budget_s: float, device: str, settings: Any
) -> dict[str, Any]:
    """The figures of one model: both overheads, and the shares.

    settings: more of the trainer's.
    """
    found: dict[str, Any] = {}
    for name, method in METHODS.items():
        trainer = trainer_of(model, batch_size, workers, threads, method, device, **settings)
        found[name] = overhead(trainer, budget_s, exact=name == "sgd")
        found["stand_in"] = trainer.data.is_stand_in
        if name != "sgd":
            step_s = batch_size * workers / found[name]["images_per_s"]
            found |= shares(trainer, step_s)
    return found


def line(title: str, row: dict[str, Any]) -> str:
    """The line of one model in the table."""
    told = [f"{title:24}"]
    for name in METHODS:
        one = row[name]
        told.append(f"{one['bare_images_per_s']:9.0f}{one['images_per_s']:9.0f}{100 * one['overhead']:8.2f} %")
        told.append(f"({100 * one['low']:.2f} .. {100 * one['high']:.2f})".rjust(18))
    share = 100 * (row["share_updates"] + row["share_measurement"])
    return "".join(told) + f"{share:9.3f} %{100 * row['share_paper']:9.3f} %"


HEAD = (
    f"{'images/s':24}"
    + "".join(f"{'bare':>9}{name:>9}{'overhead':>10}{'quartiles':>18}" for name in METHODS)
    + f"{'updates':>11}{'paper':>11}"
)


def claims(rows: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The worst of the models, and whether it is within the limit; null where the images are a stand-in."""
    worst = {f"overhead_{name}": max(row[name]["overhead"] for row in rows.values()) for name in METHODS}
    worst["share_updates"] = max(row["share_updates"] for row in rows.values())
    worst["share_measurement"] = max(row["share_measurement"] for row in rows.values())
    held = worst | {"share_updates_and_measurement": worst["share_updates"] + worst["share_measurement"]}
    return {**worst, "claims": {name: held[name] <= limit for name, limit in LIMITS.items()}}


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table, then one JSON object."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.train", description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--model",
        nargs="+",
        default=["resnet8", "resnet32", "gpt"],
        metavar="NAME",
        help="models that take CIFAR's images, and gpt",
    )
    parser.add_argument("--workers", type=int, default=4, help="workers, all in this process")
    parser.add_argument(
        "--batch",
        type=int,
        default=128,
        help="images per worker and step; 128 is batch_size's default, fewer show more of what a step costs beside "
        "its passes",
    )
    parser.add_argument("--threads", type=int, default=1, help="CPU threads; of 1 its own time counts, else wall time")
    parser.add_argument("--seconds", type=float, default=20.0, help="of pairs, for each model and method")
    parser.add_argument(
        "--options", action="store_true", help="the settings compute.* and threads beside the defaults, instead"
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--data", help="in place of cifar10, or of text for gpt")
    parser.add_argument(
        "--settings",
        nargs="+",
        default=[],
        metavar="NAME=VALUE",
        help="more of the trainer's, such as compute.precision=bf16",
    )
    chosen = parser.parse_args(arguments)
    try:
        settings = {**command_line.parse_overrides(chosen.settings), **({"data": chosen.data} if chosen.data else {})}
        for model in chosen.model:
            own = {"data": data_of(model), "model": model, "workers": chosen.workers, "batch_size": chosen.batch}
            resolving.resolve(own | settings | {"device": chosen.device})
    except ValueError as error:
        parser.error(str(error))
    torch.set_num_threads(chosen.threads)
    keep_freed_memory()  # every run does so; here it holds for both sides
    sets = native.instruction_sets()
    how = (
        "1 thread, its own time"
        if chosen.threads == 1 and chosen.device == "cpu"
        else f"{chosen.threads} threads, wall time"
    )
    device = torch.cuda.get_device_name() if chosen.device == "cuda" else "CPU"
    how += "".join(f"; {words}" for words in (device, *chosen.settings))
    told: dict[str, Any] = {
        "device": device,
        "settings": chosen.settings,
        "batch": chosen.batch,
        "workers": chosen.workers,
        "threads": chosen.threads,
        "load": os.getloadavg()[0],
    }
    print(
        f"{chosen.workers} workers of {chosen.batch} images; {how}; {sets[-1] if sets else 'no C++ kernels'}; load "
        f"{told['load']:.1f}"
    )
    if chosen.options:
        from benchmarks import train_options  # it compiles

        print(
            json.dumps(
                {
                    **told,
                    "options": train_options.table(
                        chosen.model, chosen.batch, chosen.workers, chosen.threads, chosen.seconds
                    ),
                }
            )
        )
        return
    rows: dict[str, dict[str, Any]] = {}
    print(HEAD, flush=True)
    for model in chosen.model:
        try:
            rows[model] = measured(
                model, chosen.batch, chosen.workers, chosen.threads, chosen.seconds, chosen.device, settings
            )
        except ValueError as error:
            parser.error(str(error))
        print(line(model, rows[model]), flush=True)
    print(json.dumps({**told, **claims(rows), "models": rows}))


if __name__ == "__main__":
    main()
