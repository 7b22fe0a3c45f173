"""Run folders that other systems left: their settings and tags under our names.

``original`` (learning-to-quantize), ``dgc`` and ``smaq`` say what each leaves. A setting that a folder does not tell is
absent. A method that is none of ours keeps its name there (``dgc``, ``smaq``, ``s2fp8``, ``fp32``), as do its own
settings; ``system`` says whose run it is.

This room may import ``analysis.logs`` and ``files``.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from analysis.logs.foreign import dgc, original, smaq

# Their tag -> ours.  Lightning logs a value of a step and its mean over an epoch.
TAGS = {
    "loss/train": "loss",
    "acc/test_top1": "Vacc",
    "train_loss": "loss",
    "train_loss_step": "loss",
    "train_loss_epoch": "Tloss",
    "train_accuracy_correct_1_epoch": "Tacc",
    "train_correct_1_epoch": "Tacc",
    "val_loss": "Vloss",
    "val_loss_epoch": "Vloss",
    "val_accuracy": "Vacc",
    "val_accuracy_epoch": "Vacc",
    "val_accuracy_correct_1_epoch": "Vacc",
    "val_correct_1_epoch": "Vacc",
}


def settings(folder: Path) -> dict[str, Any] | None:
    """The settings of another system's run: flat dotted names, lists as tuples; None where a folder tells nothing."""
    for read in (smaq.read, original.read, dgc.read):
        if found := read(folder):
            return {name: value for name, value in found.items() if isinstance(value, int | float | str | tuple)}
    return None


def inputs_per_step(of: Mapping[str, Any], steps: np.ndarray) -> int | None:
    """The number by which a run's x axis is divided to have steps: 1, or what a DGC run's log shows; None if nothing.

    of: the run's settings; steps: int64, the x values of its ``loss``, which DGC logs at every step: multiples of the
    inputs of one step.
    """
    if of.get("system") != dgc.SYSTEM:
        return 1
    return int(np.gcd.reduce(steps)) or None if len(steps) else None


def in_our_units(
    of: Mapping[str, Any], tag: str, steps: np.ndarray, values: np.ndarray, inputs: int | None
) -> tuple[np.ndarray, np.ndarray]:
    """The steps (int64) and values (float64) of one tag, under our name, in our units: steps, accuracies in per cent.

    inputs: see ``inputs_per_step``; where it is None, a DGC run stays on its axis.
    """
    if inputs and inputs != 1:
        steps = steps // inputs
    if of.get("system") == smaq.SYSTEM and tag in ("Vacc", "Tacc"):
        values = 100 * values
    return steps, values
