"""checkpoint.pt: everything that the next step depends on, written aside and renamed.

Random numbers and data order are functions of (seed, step), so there is no generator to save.
"""

from __future__ import annotations

import os
import pickle
import zipfile
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


class CheckpointError(ValueError):
    """A checkpoint that is damaged, or belongs to other settings."""


def load(run_dir: Path, identity: str, device: torch.device) -> dict[str, Any] | None:
    """The last checkpoint, its checksums verified; None where there is none.  A stranger's file runs no code."""
    path = run_dir / FILE
    if not path.exists():
        return None
    try:
        with zipfile.ZipFile(path) as records:
            if bad := records.testzip():
                raise CheckpointError(f"the checksum of {bad} does not fit")
        state = torch.load(path, map_location=device, weights_only=True)
        found = state["identity"]
    except (RuntimeError, EOFError, ValueError, TypeError, KeyError, OSError, pickle.UnpicklingError, zipfile.BadZipFile) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise CheckpointError(f"{path} is damaged ({reason}): move it away to start this run anew") from error
    if found != identity:
        raise CheckpointError(f"{path} was written with other settings (identity {found}, this run is {identity}): use another run_dir")
    return state
