"""A few tiny steps of any experiment on this machine, whatever its data set or device: ``python -m train.dry_run OVERRIDES``.

The real code runs end to end: data (marked stand-in tensors of the same shape where the files are not here), one level
update, one measurement where the experiment measures, one evaluation, one checkpoint written and resumed.  Then time,
memory and bytes of the full run are estimated from what was seen, on this machine's device.
"""

from __future__ import annotations

import itertools
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import args
from nuq.ops import NonFiniteError
from train import data, status
from train.data.dataset import DataSet, Split
from train.launch import choose_device
from train.log import Log
from train.trainer import Preempted, Trainer

STEPS = 4
BATCH_SIZE = 4
EVAL_BATCHES = 1


class FewBatches:
    """A data set whose evaluation ends after a few batches."""

    def __init__(self, whole: DataSet) -> None:
        self._whole = whole

    def __getattr__(self, name: str) -> Any:
        return getattr(self._whole, name)

    def batches(self, split: Split, batch_size: int) -> Iterator[tuple[Tensor, Tensor]]:
        return itertools.islice(self._whole.batches(split, batch_size), EVAL_BATCHES)


def shrunk(config: dict[str, Any]) -> dict[str, Any]:
    """The same experiment in a handful of steps with tiny batches."""
    method = dict(config["method"])
    if "update_at" in method:
        method.update(update_at=[STEPS // 2], update_every=0, num_samples=min(method["num_samples"], 2))
    measure = {"every": STEPS if config["measure"]["every"] else 0, "num_samples": 2}
    untrain = {**config["untrain"], "steps": min(config["untrain"]["steps"], 1)}
    small = {"steps": STEPS, "batch_size": min(BATCH_SIZE, config["batch_size"]), "eval_batch_size": BATCH_SIZE, "eval_every": STEPS}
    every_step = {"log_every": 1, "checkpoint_every": STEPS // 2}
    return {**config, "method": method, "measure": measure, "untrain": untrain, **small, **every_step}


def _load(config: dict[str, Any], device: torch.device) -> DataSet:
    """The real data where it is here, else stand-ins, said aloud."""
    try:
        return data.load(config, device)
    except FileNotFoundError as error:
        print(f"dry run: marked stand-in tensors in place of data={config['data']['name']}: {error}")
        return data.stand_in(config, device)


def _attempt(trainer: Trainer, run_dir: Path, stop_at: int) -> float:
    """One attempt of the run, stopped as by a signal after ``stop_at`` steps; seconds of its last step."""
    reporter = status.Status(run_dir, STEPS, str(trainer.device), trainer.config["threads"])
    log = Log(run_dir, reporter.attempt)
    began = [time.perf_counter()]

    def stop() -> bool:  # asked before every step
        began.append(time.perf_counter())
        return trainer.step == stop_at - 1

    try:
        trainer.run(run_dir, reporter, log, stop)
    except Preempted:
        pass
    finally:
        log.close()
    return began[-1] - began[-2]


def _seconds(action: Callable[[], Any]) -> float:
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def dry_run(config: dict[str, Any]) -> dict[str, float]:
    """Run it; estimate seconds, GB of memory and GB sent of the full run, assuming that a pass grows with its samples."""
    wanted = "auto" if config["device"] == "cuda" and not torch.cuda.is_available() else config["device"]
    device = choose_device(wanted, 0)
    torch.set_num_threads(config["threads"])
    dataset = FewBatches(_load(config, device))
    tiny = shrunk(config)
    with tempfile.TemporaryDirectory(prefix="dry-run-") as folder:
        _attempt(Trainer(tiny, device=device, dataset=dataset), Path(folder), STEPS // 2)  # type: ignore[arg-type]
        trainer = Trainer(tiny, device=device, dataset=dataset)  # type: ignore[arg-type]
        _attempt(trainer, Path(folder), STEPS + 1)
        assert trainer.step == STEPS

    samples = tiny["batch_size"]
    pass_s = _seconds(lambda: trainer.gradient(0, 0, trainer.order, "dry run"))
    workers = trainer.trained.num_workers
    exchange_s = max(_seconds(trainer.train_step) - workers * pass_s, 0.0)
    evaluation_s = _seconds(lambda: trainer.evaluate("test")) / samples
    scale = config["batch_size"] / samples
    evaluations = -(-config["steps"] // config["eval_every"])
    evaluated = dataset.num_test + (dataset.num_train if config["eval_train"] else 0)
    measurements = -(-config["steps"] // config["measure"]["every"]) if config["measure"]["every"] else 0
    measured_passes = config["measure"]["num_samples"] * config["workers"]
    train_s = config["steps"] * (workers * pass_s * scale + exchange_s)
    measure_s = measurements * measured_passes * (pass_s * scale + exchange_s / workers)
    eval_s = evaluations * evaluated * evaluation_s
    return {
        "train_s": train_s,
        "measure_s": measure_s,
        "evaluate_s": eval_s,
        "seconds": train_s + measure_s + eval_s,
        "memory_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9,
        "sent_gb": config["steps"] * trainer.totals.bytes / trainer.step / 1e9,
    }


def main(overrides: list[str]) -> int:
    """The command line; the exit code as main.py's."""
    try:
        config = args.resolve(args.parse_overrides(overrides))
        estimate = dry_run(config)
    except (ValueError, FileNotFoundError) as error:
        print(f"dry run: {error}", file=sys.stderr)
        return status.EXIT_BAD_SETTINGS
    except NonFiniteError as error:
        print(f"dry run: {error}", file=sys.stderr)
        return status.EXIT_DIVERGED
    hours = {key: estimate[key] / 3600 for key in ("seconds", "train_s", "measure_s", "evaluate_s")}
    print(f"dry run of {args.run_name(config)}: {STEPS} steps, level update, evaluation, checkpoint and resume went well")
    print(
        f"  full run, all {config['workers']} workers in one process on this machine: about {hours['seconds']:.2g} h "
        f"(training {hours['train_s']:.2g}, measuring {hours['measure_s']:.2g}, evaluating {hours['evaluate_s']:.2g})"
    )
    print(f"  memory of this dry run at its peak: {estimate['memory_gb']:.2f} GB; a larger batch takes more")
    print(f"  sent by one worker over the full run: {estimate['sent_gb']:.3g} GB")
    return status.EXIT_DONE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
