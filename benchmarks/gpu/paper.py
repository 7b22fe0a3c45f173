"""The paper's runs on CIFAR-10, side by side on one device.

Run it as ``python -m benchmarks.gpu.paper [--steps N] [--runs NAME ..]``.

The runs are the points of ``grid.nuq.cifar10_full_resnet32`` (nine methods, 4 workers of 128 images, 3 bits) with their
steps and the two drops of the learning rate shortened alike. Each is in a process of its own, so that one that crashes
or hangs is alone in it. Random pictures replace CIFAR-10 where it is not there (``NUQ_DATA``): then the seconds count
and the accuracy says nothing. A run that ``--seconds`` does not suffice for is told with the steps that it took. The
last line is one JSON object; the exit code is 1 where a run failed or none took a step.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from grid.engine.sweep import Sweep
from grid.nuq import cifar10_full_resnet32
from train.steps.trainer import Trainer

ROOT = Path(__file__).parents[2]
LEFT_S = 8.0  # time for the last evaluation
LEAST_S = 1.0
GRACE = 0.1  # share of the time, beyond it: then a run that does not end is killed


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
    """The result of one run.

    until: by ``time.time``, the same in every process.
    """
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


def alone(words: Sequence[str], name: str, until: float, killed_at: float) -> dict[str, Any]:
    """The result of one run in a process of its own, or what became of it.

    until, killed_at: by ``time.time``.
    """
    command = [sys.executable, "-m", "benchmarks.gpu.paper", *words, "--alone", name, "--until", str(until)]
    left = max(killed_at - time.time(), LEAST_S)
    try:
        done = subprocess.run(
            command, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=left
        )
    except subprocess.TimeoutExpired:
        return {"failed": "it hung, and was killed"}
    if done.returncode == 0:
        with suppress(ValueError, IndexError):
            return json.loads(done.stdout.splitlines()[-1])
    return {"failed": f"exit code {done.returncode}: {(done.stderr.strip().splitlines() or ['no word'])[-1]}"[:300]}


def side_by_side(words: Sequence[str], names: Sequence[str], at_once: int, seconds: float) -> dict[str, Any]:
    """The results of the runs of these names, in their order; a line is printed for each as it ends."""
    found: dict[str, Any] = {}
    until = time.time() + seconds
    killed_at = until + GRACE * seconds
    with ThreadPoolExecutor(at_once) as pool:
        running = {pool.submit(alone, words, name, until, killed_at): name for name in names}
        for future in as_completed(running):
            found[running[future]] = future.result()
            print(f"{running[future]}: {json.dumps(found[running[future]])}", flush=True)
    return {name: found[name] for name in names}


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a line for each run as it ends, then one JSON object, and return the exit code."""
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
    parser.add_argument("--alone", metavar="NAME", help="one run, in this process")
    parser.add_argument(
        "--until", type=float, help="of such a run, by the clock, in seconds since 1970 (after --seconds)"
    )
    chosen = parser.parse_args(arguments)
    began = time.monotonic()
    experiments = {one.label: one for one in shortened(chosen.steps, chosen.model, chosen.batch).experiments()}
    names = [chosen.alone] if chosen.alone else list(dict.fromkeys(chosen.runs or experiments))
    for name in names:
        if name not in experiments:
            parser.error(f"{name!r} is no run of this sweep; legal here: {', '.join(experiments)}")
    if chosen.alone:
        until = chosen.until or time.time() + chosen.seconds
        print(json.dumps(train({**experiments[chosen.alone].config, "threads": 1}, chosen.device, until)))
        return 0
    settings = {"device": chosen.device, "steps": chosen.steps, "model": chosen.model, "batch": chosen.batch}
    words = [word for name, value in settings.items() for word in (f"--{name}", str(value))]
    found = side_by_side(words, names, chosen.at_once, chosen.seconds)
    told = {**settings, "at_once": chosen.at_once, "seconds": round(time.monotonic() - began, 1), "runs": found}
    print(json.dumps(told))
    return int(any("failed" in row for row in found.values()) or not any(row["steps"] for row in found.values()))


if __name__ == "__main__":
    sys.exit(main())
