"""checkpoint.pt: everything that the next step depends on, written aside and renamed.

Random numbers and data order are functions of (seed, step), so there is no generator to save.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch

FILE = "checkpoint.pt"


def save(run_dir: Path, state: dict[str, Any]) -> None:
    """Write aside, flush to disk, rename: the file is the old one or the new one, never half of one."""
    aside = run_dir / f".{FILE}.{os.getpid()}.tmp"
    try:
        with open(aside, "wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, run_dir / FILE)
    finally:
        aside.unlink(missing_ok=True)


def load(run_dir: Path, identity: str, device: torch.device) -> dict[str, Any] | None:
    """The last checkpoint; None where there is none.  ValueError where it belongs to other settings or is damaged."""
    path = run_dir / FILE
    if not path.exists():
        return None
    try:
        state = torch.load(path, map_location=device, weights_only=True)
    except (RuntimeError, EOFError, ValueError, OSError) as error:
        raise ValueError(f"{path} is damaged ({error}): move it away to start this run anew") from error
    if state["identity"] != identity:
        raise ValueError(
            f"{path} was written with other settings (identity {state['identity']}, this run is {identity}): use another run_dir"
        )
    return state
