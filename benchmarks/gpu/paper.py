"""The paper's runs on CIFAR-10, side by side on one device:
``python -m benchmarks.gpu.paper [--steps N] [--runs NAME ..]``.

The points of ``grid.nuq.cifar10_full_resnet32`` (nine methods, 4 workers of 128 images, 3 bits) with their steps and
the two drops of the learning rate shortened alike, each in a process of its own. Random pictures where CIFAR-10 is
not there (``NUQ_DATA``): then the seconds count and the accuracy says nothing. A run that ``--seconds`` does not
suffice for is told with the steps that it took. The last line is one JSON object; exit code 1 where a run failed.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from typing import Any

import torch

from grid.engine.sweep import Sweep
from grid.nuq import cifar10_full_resnet32
from train.steps.trainer import Trainer

LEFT_S = 8.0  # for the last evaluation


def shortened(steps: int, model: str, batch_size: int) -> Sweep:
    """The sweep in so many steps."""
    drops = [max(1, steps // 2), max(2, steps * 3 // 4)]
    changed = {
        "steps": steps,
        "schedule.at": drops,
        "eval_every": steps,
        "measure.every": 0,
        "model": model,
        "batch_size": batch_size,
    }
    return cifar10_full_resnet32().override(changed)


def train(config: dict[str, Any], device: str, until: float) -> dict[str, Any]:
    """One run.  until: by ``time.time``, the same in every process."""
    torch.set_num_threads(1)
    began = time.time()
    try:
        trainer = Trainer(config, device=torch.device(device))
    except FileNotFoundError:
        trainer = Trainer({**config, "stand_in": True}, device=torch.device(device))
    trainer.begin()
    started, loss, num_bytes = time.time(), float("nan"), 0
    while trainer.step < config["steps"] and time.time() < until - LEFT_S:
        result = trainer.train_step()
        loss, num_bytes = sum(result.losses) / len(result.losses), trainer.totals.bytes
    trained_s = time.time() - started
    return {
        "steps": trainer.step,
        "whole": trainer.step == config["steps"],
        "stand_in": trainer.data.is_stand_in,
        "accuracy": trainer.evaluate("test")["Vacc"],
        "last_loss": loss,
        "mb_encoded_per_worker": num_bytes / 1e6,
        "start_s": started - began,
        "training_s": trained_s,
        "step_ms": 1e3 * trained_s / max(trainer.step, 1),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """A line for each run as it ends, then one JSON object; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu.paper", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--steps", type=int, default=400, help="of each run (the paper's: 80,000)")
    parser.add_argument("--model", default="resnet32")
    parser.add_argument("--batch", type=int, default=128, help="images of a worker")
    parser.add_argument(
        "--runs", nargs="+", metavar="NAME", help="of the nine, by their names in the sweep: SuperSGD, ALQ, ..."
    )
    parser.add_argument("--at-once", type=int, default=min(9, os.cpu_count() or 1), help="side by side")
    parser.add_argument("--seconds", type=float, default=105.0, help="for all of them")
    chosen = parser.parse_args(arguments)
    began, until = time.monotonic(), time.time() + chosen.seconds
    experiments = {one.label: one for one in shortened(chosen.steps, chosen.model, chosen.batch).experiments()}
    for name in chosen.runs or ():
        if name not in experiments:
            parser.error(f"{name!r} is no run of this sweep; legal here: {', '.join(experiments)}")
    found: dict[str, Any] = {}
    with ProcessPoolExecutor(chosen.at_once, get_context("spawn")) as pool:
        running: dict[Future[dict[str, Any]], str] = {
            pool.submit(train, {**experiments[name].config, "threads": 1}, chosen.device, until): name
            for name in chosen.runs or experiments
        }
        for future in as_completed(running):
            label = running[future]
            try:
                found[label] = future.result()
            except Exception as error:  # noqa: BLE001  whatever one run failed with, the others are told
                found[label] = {"failed": f"{type(error).__name__}: {error}"[:300]}
            print(f"{label}: {json.dumps(found[label])}", flush=True)
    told = {
        "device": chosen.device,
        "model": chosen.model,
        "steps": chosen.steps,
        "batch": chosen.batch,
        "at_once": chosen.at_once,
    }
    print(json.dumps({**told, "seconds": round(time.monotonic() - began, 1), "runs": found}))
    return int(any("failed" in row for row in found.values()))


if __name__ == "__main__":
    sys.exit(main())
