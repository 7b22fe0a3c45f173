"""Run folders that other systems left: their settings and tags under our names.

``original`` (learning-to-quantize), ``dgc`` and ``smaq`` say what each leaves.  What a folder does not tell is absent.  A method that is
none of ours keeps its name there (``dgc``, ``smaq``, ``s2fp8``, ``fp32``), as do its own settings; ``system`` says whose run it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from analysis.foreign import dgc, original, smaq

# Their tag -> ours.  Lightning logs a value of a step and its mean over an epoch; accuracies of SmaQ are shares of one (FACTORS).
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
FACTORS = {tag: 100.0 for tag, ours in TAGS.items() if ours.endswith("acc") and tag != "acc/test_top1"}  # by which values are multiplied


def settings(folder: Path) -> dict[str, Any] | None:
    """Flat dotted names, lists as tuples; None for a folder that none of these systems left, or that tells nothing."""
    for read in (smaq.read, original.read, dgc.read):
        if found := read(folder):
            return {name: value for name, value in found.items() if isinstance(value, int | float | str | tuple)}
    return None


def inputs_per_step(settings: Mapping[str, Any], steps: np.ndarray) -> int | None:
    """By what to divide a run's x axis to have steps: 1, or of a DGC run what the log itself shows; None where it shows nothing.

    steps: int64, the x values of a tag that was logged at every step (``loss/train``).  They are multiples of the inputs of one step.
    """
    if settings.get("system") != dgc.SYSTEM:
        return 1
    return int(np.gcd.reduce(steps)) or None if len(steps) else None
