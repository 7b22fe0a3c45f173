"""A small run in this process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from settings import resolving
from train import launch

BASE: dict[str, Any] = {
    "data": "digits",
    "model": "cnn",
    "method": "alq",
    "method.bucket_size": 1024,
    "method.update_at": [1],
    "batch_size": 8,
    "workers": 2,
    "steps": 4,
    "eval_every": 2,
    "checkpoint_every": 2,
    "log_every": 1,
    "eval_train": False,
}


def run(run_dir: Path, **more: Any) -> int:
    """The exit code of these four steps."""
    return launch.launch(resolving.resolve(BASE | {"run_dir": str(run_dir)} | more))
