"""A few tiny steps of any experiment on this machine: ``python -m train.dry_run OVERRIDES``.

The experiment may have any data set and device.  The real code runs end to end: data (marked stand-in tensors of the
same shape where the files are not here), one level update, one measurement where the experiment measures, one
evaluation, one checkpoint written and resumed.  Then time, memory and bytes of the full run are estimated from what was
seen, on this machine's device.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nuq.errors import NonFiniteError
from settings import resolving, run_identity, sections
from train import data
from train.data.data_files import UNUSABLE
from train.data.dataset import DataSet, Split
from train.launch import choose_device
from train.logs.run_log import Log
from train.process import status
from train.steps.order import Order
from train.steps.train_loop import Preempted, run
from train.steps.trainer import Trainer

STEPS = 4
BATCH_SIZE = 4
# minibatches per worker and step are at most so many: the gradient that they are added to is in memory as in the full
# run
ACCUMULATE = 2
EVAL_BATCHES = 1
PASS_COPIES = 3  # copies of kept activations in a training pass: measured with ResNet-8 and -20, batch size 128, CPU
EVAL_COPIES = 3  # copies of the largest activation: a layer's input, its output and one on the way


class FewBatches:
    """A data set whose evaluation ends after a few batches."""

    def __init__(self, whole: DataSet) -> None:
        self._whole = whole

    def __getattr__(self, name: str) -> Any:
        return getattr(self._whole, name)

    def batches(self, split: Split, batch_size: int) -> Iterator[tuple[Tensor, Tensor]]:
        return itertools.islice(self._whole.batches(split, batch_size), EVAL_BATCHES)


def shrunk(config: dict[str, Any]) -> dict[str, Any]:
    """A configuration with a handful of steps and tiny batches."""
    method = dict(config["method"])
    if "update_at" in method:
        first = [at for at in method["update_at"] if at == 0]  # the first step is like no other
        method.update(update_at=[*first, STEPS // 2], update_every=0, num_samples=min(method["num_samples"], 2))
    return config | {
        "method": method,
        "measure": {"every": STEPS if config["measure"]["every"] else 0, "num_samples": 2},
        "untrain": config["untrain"] | {"steps": min(config["untrain"]["steps"], 1)},
        "compute": config["compute"] | {"accumulate": min(ACCUMULATE, config["compute"]["accumulate"])},
        "exchange": config["exchange"] | _few_local_steps(config["exchange"]),
        "steps": STEPS,
        "batch_size": min(BATCH_SIZE, config["batch_size"]),
        "eval_batch_size": BATCH_SIZE,
        "eval_every": STEPS,
        "log_every": 1,
        "checkpoint_every": STEPS // 2,
        "checkpoint_at": [],
        "fork": {"run": "", "at": 0},
    }


def _few_local_steps(exchange: Mapping[str, Any]) -> dict[str, int]:
    """A round in small: 1, 2 or 4 local steps, so that STEPS end with one, and parts in half of them."""
    every = min(STEPS, 1 << (exchange["local_steps"].bit_length() - 1))
    fragments, overlap = min(exchange["fragments"], max(every // 2, 1)), min(exchange["overlap"], every - 1)
    return {"local_steps": every, "fragments": fragments, "overlap": overlap}


def in_one_process(config: dict[str, Any]) -> dict[str, Any]:
    """The configuration with a collective that one process can simulate; a message tells where that is another one."""
    exchange = config["exchange"]
    if exchange["collective"] != "hierarchical":
        return config
    why = "hierarchical, which takes several processes: every worker counts as a machine"
    print(f"dry run: collective=auto in place of {why}")
    return {**config, "exchange": {**exchange, "collective": "auto"}}


def _load(config: dict[str, Any], device: torch.device) -> DataSet:
    """The real data where it is here, else stand-ins, with a message."""
    try:
        return data.load(config, device)
    except FileNotFoundError as error:
        print(f"dry run: marked stand-in tensors in place of data={config['data']['name']}: {error}")
        return data.stand_in(config, device)


def _attempt(trainer: Trainer, run_dir: Path, stop_at: int) -> None:
    """One attempt of the run, stopped as by a signal after ``stop_at`` steps."""
    reporter = status.Status(run_dir, STEPS, str(trainer.device), trainer.config["threads"])
    with contextlib.suppress(Preempted), contextlib.closing(Log(run_dir, reporter.attempt)) as log:
        run(trainer, run_dir, reporter, log, lambda: trainer.step == stop_at - 1)  # asked before every step


def _seconds(action: Callable[[], Any], device: torch.device) -> float:
    started = time.perf_counter()
    action()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - started


def num_updates(method: Mapping[str, Any], steps: int) -> int:
    """The number of level updates in so many steps or rounds (see ``LevelUpdater.next_update``); 0 for fixed levels."""
    if "update_at" not in method:
        return 0
    listed, period = {at for at in method["update_at"] if 0 <= at < steps}, method["update_every"]
    return len(listed.union(range(period, steps, period) if period else ()))


def _updates_s(trainer: Trainer, config: dict[str, Any], full_pass_s: float) -> float:
    """The seconds of all level updates of the full run; the passes count where samples are drawn afresh."""
    workers, total_s = trainer.workers, 0.0
    # the full run's, not the trial's
    of_encoders = [sections.named_method(config), *(layer.settings for layer in sections.named_layers(config))]
    for level_updater in workers.levels.every:
        settings = of_encoders[level_updater.encoder]
        gradient, _ = trainer.gradient(0, 0, trainer.order, "dry run")
        gradients = dict.fromkeys(workers.hosted, gradient)
        observed_s = _seconds(lambda of=gradients, one=level_updater: workers.observe(of, 0, [one]), trainer.device)
        observe_s = observed_s / len(gradients)
        solve_s = _seconds(lambda one=level_updater: workers.update_levels([one]), trainer.device)
        fresh = settings.statistics == "fresh" or not trainer.trains_on_method
        samples = settings.num_samples * workers.num_workers
        one_s = samples * (observe_s + (full_pass_s if fresh else 0.0)) + solve_s
        total_s += num_updates(vars(settings), _num_rounds(config)) * one_s
    return total_s


def _num_rounds(config: Mapping[str, Any]) -> int:
    return config["steps"] // config["exchange"]["local_steps"]


def _step_s(trainer: Trainer, every: int) -> float:
    """The seconds of a step of all workers in rounds of ``every``, from those of a round of the trial."""
    local_s, sent_s = [], []
    for _ in range(trainer.local_steps):
        before = trainer.totals.bytes
        seconds = _seconds(trainer.train_step, trainer.device)
        (sent_s if trainer.totals.bytes > before else local_s).append(seconds)
    alone_s = sum(local_s) / max(len(local_s), 1)
    return alone_s + sum(seconds - alone_s for seconds in sent_s) / every


def _samples(config: Mapping[str, Any]) -> int:
    """The number of samples that one worker goes through in a step."""
    return config["batch_size"] * config["compute"]["accumulate"]


def _activations(trainer: Trainer) -> list[int]:
    """The bytes per example of each tensor that the pass of a minibatch keeps for its way back, without parameters."""
    parameters = {p.untyped_storage().data_ptr() for p in trainer.parameters.values()}
    kept: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in parameters:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor.detach()  # an output that kept itself would never be freed

    batch_size = trainer.config["batch_size"]
    # accumulated minibatches come and go in turn
    alone = Order(trainer.data.num_train, batch_size, 1, trainer.config["seed"], "dry run")
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        trainer.gradient(0, 0, alone, "dry run")
    return [-(-size // batch_size) for size in kept.values()]


def _pass_bytes(config: dict[str, Any], activations: list[int]) -> int:
    """The bytes that come and go with a batch: those of one training pass, or of evaluation if that is more."""
    training = config["batch_size"] * PASS_COPIES * sum(activations)
    evaluating = config["eval_batch_size"] * EVAL_COPIES * max(activations, default=0)
    return max(training, evaluating)


def _peak_bytes(device: torch.device) -> int:
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def dry_run(config: dict[str, Any]) -> dict[str, float]:
    """Run the experiment in small and estimate the full run, assuming that a pass grows with its samples.

    The estimates are seconds, GB of memory and GB encoded by a worker.
    """
    wanted = "auto" if config["device"] == "cuda" and not torch.cuda.is_available() else config["device"]
    device = choose_device(wanted, 0)
    torch.set_num_threads(config["threads"])
    dataset = FewBatches(_load(config, device))
    tiny = shrunk(in_one_process(config))
    with tempfile.TemporaryDirectory(prefix="dry-run-") as folder:
        _attempt(Trainer(tiny, device=device, dataset=dataset), Path(folder), STEPS // 2)  # type: ignore[arg-type]
        trainer = Trainer(tiny, device=device, dataset=dataset)  # type: ignore[arg-type]
        _attempt(trainer, Path(folder), STEPS + 1)
        assert trainer.step == STEPS
        disk_bytes = sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())

    full = data.true_size(config)
    counted = full if dataset.is_stand_in else dataset
    pass_s = _seconds(lambda: trainer.gradient(0, 0, trainer.order, "dry run"), device)
    workers = trainer.trained.num_workers
    exchange_s = max(_step_s(trainer, config["exchange"]["local_steps"]) - workers * pass_s, 0.0)
    evaluation_s = _seconds(lambda: trainer.evaluate("test"), device) / min(EVAL_BATCHES * BATCH_SIZE, dataset.num_test)
    full_pass_s = pass_s * _samples(config) / _samples(tiny)
    evaluations = -(-config["steps"] // config["eval_every"]) if config["eval_every"] else 0
    evaluated = counted.num_test + (counted.num_train if config["eval_train"] else 0)
    measurements = -(-config["steps"] // config["measure"]["every"]) if config["measure"]["every"] else 0
    measured_passes = config["measure"]["num_samples"] * config["workers"]
    times = {
        "train_s": config["steps"] * (workers * full_pass_s + exchange_s),
        "update_s": _updates_s(trainer, config, full_pass_s),
        "measure_s": measurements * measured_passes * (full_pass_s + exchange_s / workers),
        "evaluate_s": evaluations * evaluated * evaluation_s,
    }
    activations = _activations(trainer)  # the rest, such as every worker's gradient, is as large in the tiny run
    growth_bytes = max(_pass_bytes(config, activations) - _pass_bytes(tiny, activations), 0)
    data_bytes = full.num_bytes if dataset.is_stand_in else 0
    return {
        **times,
        "seconds": sum(times.values()),
        "memory_gb": (_peak_bytes(device) + growth_bytes + data_bytes) / 1e9,
        "sent_gb": _num_rounds(config) * (trainer.totals.bytes / (trainer.step // trainer.local_steps)) / 1e9,
        "disk_gb": disk_bytes / 1e9,
    }


def duration(seconds: float) -> str:
    """A duration as two digits, in seconds, hours or, above 48 hours, days."""
    value, unit = (seconds, "s") if seconds < 120 else (seconds / 3600, "h")
    if unit == "h" and value > 48:
        value, unit = value / 24, "days"
    return f"{float(f'{value:.2g}'):g} {unit}"


def main(overrides: list[str]) -> int:
    """Run the command line; the exit code is as main.py's.  The estimates also go to the file NUQ_MEASURED, as JSON."""
    try:
        config = resolving.of_words(*overrides)
        estimate = dry_run(config)
    except (*UNUSABLE, NonFiniteError) as error:
        print(f"dry run: {error}", file=sys.stderr)
        return status.EXIT_DIVERGED if isinstance(error, NonFiniteError) else status.EXIT_BAD_SETTINGS
    except KeyboardInterrupt:
        print("dry run: interrupted", file=sys.stderr)
        return status.EXIT_INTERRUPTED
    names = {"training": "train_s", "level updates": "update_s", "measuring": "measure_s", "evaluating": "evaluate_s"}
    parts = ", ".join(f"{name} {duration(estimate[key])}" for name, key in names.items())
    went_well = f"{STEPS} steps, level update, evaluation, checkpoint and resume went well"
    print(f"dry run of {run_identity.run_name(config)}: {went_well}")
    everything = f"all {config['workers']} workers in one process on this machine"
    print(f"  full run, {everything}: about {duration(estimate['seconds'])} ({parts})")
    print(f"  memory: about {estimate['memory_gb']:.2g} GB for all workers in one process")
    print(f"  disk: {estimate['disk_gb']:.2g} GB for the checkpoints and the first lines of the logs")
    print(f"  encoded by one worker over the full run: {estimate['sent_gb']:.3g} GB, however often it is sent")
    if measured := os.environ.get("NUQ_MEASURED"):
        Path(measured).write_text(json.dumps(estimate))
    return status.EXIT_DONE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
