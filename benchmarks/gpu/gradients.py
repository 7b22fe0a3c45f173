"""Gradients of two large models at three ages, and what the main methods make of them:
``python -m benchmarks.gpu.gradients``.

A ResNet-50 on CIFAR-10 (random pictures of its size where it is not there; then nothing is claimed of errors) and a
GPT of 124 million parameters on text, trained in full precision by the ``train`` package. At each age: the error ``|x
- C(x)|^2 / |x|^2`` of one gradient as decoded from its bytes, and bits per coordinate of whole messages, as
``benchmarks.methods`` measures them; adaptive methods learn from the two gradients before. Where the time is short, a
gradient is younger than wanted, and methods that were not reached are told. ``--device cpu --small``: two small
models, in a few steps. The last line is one JSON object; exit code 1 where a method failed.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from typing import Any

import torch

from benchmarks.methods import Contender
from benchmarks.model_gradient import Gradients, trained
from settings import resolving
from train.steps.trainer import Trainer

AGES = (20, 200, 1000)
SMALL_AGES = (3, 6, 9)
MODELS: dict[str, dict[str, Any]] = {
    "ResNet-50 on CIFAR-10": {"data": "cifar10", "model": "cifar_resnet50", "batch_size": 128},
    "GPT of 124 million on text": {
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
    "ResNet-8 on CIFAR-10": {"data": "cifar10", "model": "resnet8", "batch_size": 4},
    "GPT on text": {
        **MODELS["GPT of 124 million on text"],
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
    """On random pictures where the real ones are not there."""
    given = {"method": "supersgd", "workers": 1, "seed": 1, **settings}
    try:
        return Trainer(resolving.resolve(given), device=torch.device(device))
    except FileNotFoundError:
        return Trainer(resolving.resolve(given | {"stand_in": True}), device=torch.device(device))


def errors(gradients: Gradients, until: float) -> dict[str, Any]:
    """Of every case: error and bits, or why not."""
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


def of_model(title: str, settings: dict[str, Any], ages: Sequence[int], device: str, until: float) -> dict[str, Any]:
    """Age by age, as far as the time goes."""
    trainer = trainer_of(settings, device)
    found: dict[str, Any] = {
        "stand_in": trainer.data.is_stand_in,
        "coordinates": sum(p.numel() for p in trainer.parameters.values()),
    }
    print(f"{title}: {found['coordinates']:,} coordinates{', random data' if found['stand_in'] else ''}", flush=True)
    found["ages"] = {}
    for number, age in enumerate(ages):
        began, left = time.monotonic(), until - time.monotonic()
        while trainer.step < age - 2 and time.monotonic() - began < left / (len(ages) - number + 1):
            trainer.train_step()
        at = trainer.step + 2  # younger than wanted, where the time was short
        gradients = trained(trainer, (at - 2, at - 1), (at,), title)
        training_s = time.monotonic() - began
        half = time.monotonic() + max(until - time.monotonic(), 0) / (len(ages) - number)
        found["ages"][str(at)] = {"training_s": training_s, "methods": errors(gradients, half)}
        for case, row in found["ages"][str(at)]["methods"].items():
            told = row.get("failed") or row.get("skipped") or f"error {row['error']:.4g} at {row['bits']:.3f} bits"
            print(f"  step {at:5} {case:18} {told}", flush=True)
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Print every row, then one JSON object; the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu.gradients", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--small", action="store_true", help="two small models in a few steps")
    parser.add_argument("--seconds", type=float, default=180.0, help="for both models (180)")
    chosen = parser.parse_args(arguments)
    models, ages = (SMALL_MODELS, SMALL_AGES) if chosen.small else (MODELS, AGES)
    began, found = time.monotonic(), {}
    for number, (title, settings) in enumerate(models.items()):
        found[title] = of_model(
            title, settings, ages, chosen.device, began + chosen.seconds * (number + 1) / len(models)
        )
    rows = [row for model in found.values() for age in model["ages"].values() for row in age["methods"].values()]
    print(json.dumps({"device": chosen.device, "models": found}))
    return int(any("failed" in row for row in rows))


if __name__ == "__main__":
    sys.exit(main())
