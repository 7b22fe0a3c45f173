"""The cost of training with us beside a bare PyTorch loop, of its settings, and of the statistics behind an update.

``train`` compares our step (``Trainer.train_step``: the workers' gradients, their exchange as messages, the optimizer,
all checks) with a bare loop's: the same M forward and backward passes on the same batches, gradients summed by
``backward``, ``optim.SGD``.  They go in turns within one process, each first every other time; a ratio is taken pair by
pair. overhead = median ratio - 1, with the quartiles.  A GPT's images are windows of text.

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

Claims: overhead_sgd (method=supersgd) <= 3 %, overhead_alq_3bit <= 10 %, share_updates + share_measurement <= 2 %.

``train_options`` sets ``compute.*`` and ``threads`` beside the defaults, step by step: above 1 is faster.

``sampling``: in the ten steps before an update every worker's gradient goes into a histogram (``fit=histogram``), or
its buckets' moments do (``mixture``).  They are timed in turns with whole training steps of the same trainer, of four
workers on tensors of CIFAR-10's shape.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import os
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from benchmarks.timing import in_turns, own_seconds, print_rows, seconds, spread
from nuq.exchange.level_updates import next_update
from settings import command_line, resolving, sections
from train.process.memory import keep_freed_memory
from train.steps.gradients import DTYPES
from train.steps.trainer import Trainer

METHODS: dict[str, dict[str, Any]] = {"sgd": {"method": "supersgd"}, "alq_3bit": {"method": "alq", "method.bits": 3}}
PREPARED_STEPS, CHECKED_STEPS, WARM_UP = 4, 3, 2
LIMITS = {"overhead_sgd": 0.03, "overhead_alq_3bit": 0.10, "share_updates_and_measurement": 0.02}
AGREEMENT = {"fp32": 1e-3, "bf16": 0.1, "fp16": 0.1}  # kernels chosen differently round differently
PAPER = {"steps": 80_000, "measure_every": 1000}
OPTIONS: dict[str, dict[str, Any]] = {
    "compute.precision=bf16": {"compute.precision": "bf16"},
    "compute.precision=fp16": {"compute.precision": "fp16"},
    "compute.compile=true": {"compute.compile": True},
    "compute.channels_last=false": {"compute.channels_last": False},
    "compute.cuda_graphs=true": {"compute.cuda_graphs": True},
    "compute.accumulate=4": {"compute.accumulate": 4},
}
THREADS = (2, 4)
SAMPLED = (("resnet8", 16), ("resnet8", 64), ("resnet20", 32))  # models and batch sizes


# --- steps in turns -----------------------------------------------------------------------------------------------


class Prepared:
    """The first training batches of a data set, as the passes take them.

    The batches that the trainer asks for come from memory, in turn.
    """

    def __init__(self, trainer: Trainer) -> None:
        self.steps = [batches_of(trainer, step) for step in range(PREPARED_STEPS)]
        self._next, self._workers = 0, len(self.steps[0])
        self.is_stand_in = trainer.data.is_stand_in

    def train_batch(self, indices: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        del indices, generator
        step, worker = divmod(self._next, self._workers)
        self._next += 1
        return self.steps[step % PREPARED_STEPS][worker]


def batches_of(trainer: Trainer, step: int) -> list[tuple[Tensor, Tensor]]:
    """The minibatch of every worker at a step."""
    return [trainer.gradients.batch(worker, step, trainer.order, "train") for worker in trainer.trained.hosted]


def data_of(model: str) -> str:
    return "text" if model == "gpt" else "cifar10"


def trainer_of(
    model: str, batch_size: int, workers: int, threads: int, method: dict[str, Any], device: str = "cpu", **more: Any
) -> Trainer:
    """A trainer on CIFAR-10, or of a GPT on text; on a stand-in of its shape where the data is not there.

    No level is updated of the trainer's own accord.
    """
    quiet = {"method.update_at": [], "method.update_every": 0} if "method.bits" in method else {}
    settings = {
        "data": data_of(model),
        "model": model,
        "batch_size": batch_size,
        "workers": workers,
        "threads": threads,
        **method,
        **quiet,
    }
    try:
        return Trainer(resolving.resolve(settings | more), device=torch.device(device))
    except FileNotFoundError:
        return Trainer(resolving.resolve(settings | more | {"stand_in": True}), device=torch.device(device))


def in_pairs(
    ours: Callable[[], object], theirs: Callable[[], object], budget_s: float, *, wall: bool = False
) -> tuple[list[float], list[float]]:
    """The times of both calls, one pair after another, until the time is up; at least three pairs."""
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(WARM_UP):
        ours()
        theirs()
    began, turn = time.perf_counter(), 0
    while turn < 3 or time.perf_counter() - began < budget_s:
        for which in (0, 1) if turn % 2 else (1, 0):
            times[which].append(own_seconds((ours, theirs)[which], wall=wall))
        turn += 1
    return times


# --- beside a bare loop -------------------------------------------------------------------------------------------


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


def claims(rows: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The worst of the models, and whether it is within the limit; null where the images are a stand-in."""
    worst = {f"overhead_{name}": max(row[name]["overhead"] for row in rows.values()) for name in METHODS}
    worst["share_updates"] = max(row["share_updates"] for row in rows.values())
    worst["share_measurement"] = max(row["share_measurement"] for row in rows.values())
    held = worst | {"share_updates_and_measurement": worst["share_updates"] + worst["share_measurement"]}
    return {**worst, "claims": {name: held[name] <= limit for name, limit in LIMITS.items()}}


# --- the cases ----------------------------------------------------------------------------------------------------


def about(model: Sequence[str], **how: Any) -> dict[str, Any]:
    """Prepare the process; returns how it measures, and the load.  ValueError for an unknown model or setting."""
    settings = settings_of(how.pop("data", None), how.get("settings", ()))
    for name in model:
        own = {"data": data_of(name), "model": name, "workers": how["workers"], "batch_size": how["batch"]}
        resolving.resolve(own | settings | {"device": how["device"]})
    torch.set_num_threads(how["threads"])
    keep_freed_memory()  # every run does so; here it holds for both sides
    how["device"] = torch.cuda.get_device_name() if how["device"] == "cuda" else "CPU"
    print(", ".join(f"{name} {value}" for name, value in how.items()))
    return {**how, "load": os.getloadavg()[0]}


def settings_of(data: str | None, words: Sequence[str]) -> dict[str, Any]:
    return {**command_line.parse_overrides(words), **({"data": data} if data else {})}


def figures(
    model: Sequence[str],
    workers: int,
    batch: int,
    threads: int,
    seconds: float,
    device: str,
    data: str | None,
    settings: Sequence[str],
) -> dict[str, Any]:
    """The figures of every model: both overheads and the shares; then the worst of them."""
    how = about(model, device=device, settings=settings, batch=batch, workers=workers, threads=threads, data=data)
    more = settings_of(data, settings)
    rows: dict[str, dict[str, Any]] = {}
    for name in model:
        rows[name] = measured(name, batch, workers, threads, seconds, device, more)
        print_rows(name, {method: rows[name][method] for method in METHODS})
    found = {**how, **claims(rows), "models": rows}
    print_rows("", {name: {"found": found[name]} for name in found if name.startswith(("overhead", "share"))})
    return found


def options(model: Sequence[str], workers: int, batch: int, threads: int, seconds: float) -> dict[str, Any]:
    """The images per second of every way to compute over the default's; null, and why, where there is none."""
    how = about(model, device="cpu", settings=[], batch=batch, workers=workers, threads=threads)
    found: dict[str, dict[str, Any]] = {}
    for name in model:
        ours = _prepared(trainer_of(name, batch, workers, threads, METHODS["sgd"]))
        rows = found[name] = {}
        for option, changed in OPTIONS.items():
            try:
                other = _prepared(trainer_of(name, batch, workers, threads, METHODS["sgd"], **changed))
                rows[option] = _speedup(ours, other.train_step, seconds, other.config["compute"]["accumulate"])
            except (ValueError, RuntimeError) as error:
                rows[option] = {"speedup": None, "low": None, "high": None, "why": str(error).splitlines()[0]}
        for more in THREADS:
            step = functools.partial(with_threads, ours, more)
            rows[f"threads={more}"] = _speedup(ours, step, seconds, wall=True)
        print_rows(f"{name}: images/s over the default's", rows)
    return {**how, "options": found}


def _prepared(trainer: Trainer) -> Trainer:
    trainer.gradients.data = Prepared(trainer)  # type: ignore[assignment]
    return trainer


def _speedup(
    ours: Trainer, step: Callable[[], object], budget_s: float, images: int = 1, *, wall: bool = False
) -> dict[str, Any]:
    theirs, mine = in_pairs(step, ours.train_step, budget_s, wall=wall)
    middle, low, high = spread(mine, theirs)
    return {"speedup": images * middle, "low": images * low, "high": images * high, "why": ""}


def with_threads(trainer: Trainer, threads: int) -> None:
    """Take one step with so many threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        trainer.train_step()
    finally:
        torch.set_num_threads(before)


def sampling(turns: int) -> dict[str, Any]:
    """The medians of a step, of its sample and of an update in ms, and the sample as a fraction of the step."""
    torch.set_num_threads(1)
    rows: dict[str, dict[str, float]] = {}
    for model, batch in SAMPLED:
        for fit in ("histogram", "mixture"):
            method = {"method": "alq", "method.bits": 3, "method.fit": fit}
            trainer = trainer_of(model, batch, 4, 1, method, stand_in=True, seed=1)
            rows[f"{model}, batch {batch}, {fit}"] = _sampled(trainer, turns)
    print_rows("", rows)
    worst = max(row["fraction"] for name, row in rows.items() if name.endswith("histogram"))
    return {"sampling_fraction_of_step": round(worst, 5), "figures": rows}


def _sampled(trainer: Trainer, turns: int) -> dict[str, float]:
    hosted = {worker: trainer.gradient(worker, 0, trainer.order, "train")[0] for worker in trainer.trained.hosted}
    measures = {
        "step_ms": lambda: seconds(trainer.train_step),
        "sample_ms": lambda: statistics.median(seconds(lambda: trainer.workers.observe(hosted, 0)) for _ in range(5)),
        "update_ms": lambda: seconds(trainer.workers.update_levels),
    }
    times = in_turns(measures, turns, warm_up=2)
    fraction, low, high = spread(times["sample_ms"], times["step_ms"])
    medians = {name: 1e3 * statistics.median(values) for name, values in times.items()}
    return {**medians, "fraction": fraction, "low": low, "high": high}
