"""Gradients of large models at three ages, and the errors and bits of the main methods on them.

Run it as ``python -m benchmarks.gpu.gradients [--model NAME]``.

The models are a ResNet-50 on CIFAR-10 (random pictures of its size where it is not there; then nothing is claimed of
errors) and a GPT of 124 million parameters on text, trained in full precision by the ``train`` package. At each age it
measures the error ``|x - C(x)|^2 / |x|^2`` of one gradient as decoded from its bytes, and bits per coordinate of whole
messages, as ``benchmarks.errors methods`` measures them; adaptive methods learn from the two gradients before. If the
time is short, a gradient is younger than wanted, and methods that were not reached are told. ``--device cpu --small``
takes small models, in a few steps. After each age, and at last, a line is the JSON object of what is known; the exit
code is 1 if a model or a method failed.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from benchmarks.errors.contenders import Contender
from benchmarks.errors.gradients import Gradients, Run, trained
from settings import resolving
from train.steps.trainer import Trainer

AGES = (20, 200, 1000)
SMALL_AGES = (3, 6, 9)
MODELS: dict[str, dict[str, Any]] = {
    "resnet": {"data": "cifar10", "model": "cifar_resnet50", "batch_size": 128},
    "gpt": {
        "data": "text",
        "data.length": 256,
        "model": "gpt",
        "model.layers": 16,
        "model.heads": 10,
        "model.width": 800,
        "batch_size": 16,
        "optim": "adamw",
        "optim.lr": 3e-4,
        "compute.precision": "bf16",
    },
}
SMALL_MODELS: dict[str, dict[str, Any]] = {
    "resnet": {"data": "cifar10", "model": "resnet8", "batch_size": 4},
    "gpt": {
        **MODELS["gpt"],
        "data.length": 32,
        "model.layers": 2,
        "model.width": 60,
        "batch_size": 2,
    },
}
CASES = (
    *(f"{name} bits={bits}" for name in ("qsgdinf", "nuqsgd", "alq", "amq", "eden") for bits in (2, 3, 4)),
    *(f"ecdq bits={bits}" for bits in (1, 2, 3)),
    "trn",
    "natural",
    "fp8",
    "sign",
    *(f"topk ratio={ratio}" for ratio in (0.001, 0.01)),
    "powersgd rank=4",
)


def trainer_of(settings: dict[str, Any], device: str) -> Trainer:
    """A trainer with these settings, on random pictures where the real ones are not there."""
    given = {"method": "supersgd", "workers": 1, "seed": 1, **settings}
    try:
        return Trainer(resolving.resolve(given), device=torch.device(device))
    except FileNotFoundError:
        return Trainer(resolving.resolve(given | {"stand_in": True}), device=torch.device(device))


def errors(gradients: Gradients, until: float) -> dict[str, Any]:
    """The error and bits of every case, or the reason why there are none."""
    found: dict[str, Any] = {}
    for case in CASES:
        if time.monotonic() > until:
            found[case] = {"skipped": "no time was left"}
            continue
        try:
            (error,), bits = Contender(case, gradients).accuracy()
        except Exception as failure:  # noqa: BLE001  whatever a device refuses, the other methods are measured
            found[case] = {"failed": f"{type(failure).__name__}: {failure}"[:300]}
        else:
            found[case] = {"error": error, "bits": bits}
    return found


def of_model(
    title: str, settings: dict[str, Any], ages: Sequence[int], device: str, until: float
) -> Iterator[dict[str, Any]]:
    """The results of one model, age by age, as far as the time goes."""
    trainer = trainer_of(settings, device)
    found: dict[str, Any] = {
        "model": settings["model"],
        "stand_in": trainer.data.is_stand_in,
        "coordinates": sum(p.numel() for p in trainer.parameters.values()),
        "ages": {},
    }
    print(f"{title}: {found['coordinates']:,} coordinates{', random data' if found['stand_in'] else ''}", flush=True)
    for number, age in enumerate(ages):
        began, left = time.monotonic(), until - time.monotonic()
        while trainer.step < age - 2 and time.monotonic() - began < left / (len(ages) - number + 1):
            trainer.train_step()
        at = trainer.step + 2  # younger than wanted, where the time was short
        gradients = trained(trainer, Run(title, {}, (at - 2, at - 1), (at,)), title)
        training_s = time.monotonic() - began
        share = time.monotonic() + max(until - time.monotonic(), 0) / (len(ages) - number)
        found["ages"][str(at)] = {"training_s": training_s, "methods": errors(gradients, share)}
        for case, row in found["ages"][str(at)]["methods"].items():
            told = row.get("failed") or row.get("skipped") or f"error {row['error']:.4g} at {row['bits']:.3f} bits"
            print(f"  step {at:5} {case:18} {told}", flush=True)
        yield found


def main(arguments: Sequence[str] | None = None) -> int:
    """Print every row and the JSON objects, and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu.gradients", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--model", nargs="+", choices=tuple(MODELS), default=list(MODELS))
    parser.add_argument("--small", action="store_true", help="small models in a few steps")
    parser.add_argument("--seconds", type=float, default=90.0, help="for each model (90)")
    chosen = parser.parse_args(arguments)
    models, ages = (SMALL_MODELS, SMALL_AGES) if chosen.small else (MODELS, AGES)
    told: dict[str, Any] = {"device": chosen.device, "models": {}}
    for title in chosen.model:
        found = told["models"][title] = {}
        try:
            for known in of_model(title, models[title], ages, chosen.device, time.monotonic() + chosen.seconds):
                found |= known
                print(json.dumps(told), flush=True)
        except Exception as error:  # noqa: BLE001  the other model and the ages before are told
            traceback.print_exc()
            found["failed"] = f"{type(error).__name__}: {error}"[:300]
    print(json.dumps(told))
    rows = [
        row
        for model in told["models"].values()
        for age in model.get("ages", {}).values()
        for row in age["methods"].values()
    ]
    return int(any("failed" in one for one in (*told["models"].values(), *rows)))


if __name__ == "__main__":
    sys.exit(main())
