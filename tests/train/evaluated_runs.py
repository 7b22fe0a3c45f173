"""The run that is evaluated, and what its evaluations wrote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from analysis.logs.load import load
from train import evaluator

STEPS = 6
SETTINGS: dict[str, Any] = {
    "data": "digits",
    "model": "cnn",
    "method": "alq",
    "method.bucket_size": 1024,
    "batch_size": 8,
    "workers": 2,
    "steps": STEPS,
    "eval_every": 2,
    "checkpoint_every": 2,
    "eval_train": False,
}


def results(run_dir: Path) -> dict[int, dict[str, float]]:
    return {row.pop("step"): row for row in json.loads((run_dir / evaluator.FOLDER / evaluator.RESULTS).read_text())}


def logged(run_dir: Path, tag: str) -> dict[int, float]:
    """The table that analysis makes of a run's logs."""
    table = load(run_dir.parents[1], run_dir.parent.name, cache=False).of_tag(tag)
    return table[run_dir.name].to_dict()
