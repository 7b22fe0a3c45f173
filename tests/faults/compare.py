"""Whether two run folders ended alike: every bit of the checkpoints, every row of the merged logs."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import torch

from analysis.logs.reading import Files, attempt, read_runs
from settings import run_identity
from train.process import checkpoint

TIMES = ("update_s", "measure_s")  # of the totals in a checkpoint; in the logs they begin with time/


def differences(run: Path, undisturbed: Path, config: dict[str, Any]) -> list[str]:
    """The differences from the undisturbed run, or from what a finished run leaves, in a few words each."""
    found = []
    status = json.loads((run / "status.json").read_text())
    if (status["state"], status["step"], status["saved_step"]) != ("done", config["steps"], config["steps"]):
        found.append(f"state {status['state']} at step {status['step']}, saved {status['saved_step']}")
    if left := [path.name for path in run.glob(".checkpoint*")]:
        found.append(f"left behind: {', '.join(left)}")
    mine, theirs = (flat(saved(folder, config)) for folder in (run, undisturbed))
    found += [f"checkpoint: {name}" for name in sorted({*mine, *theirs}) if mine.get(name) != theirs.get(name)]
    mine, theirs = logged(run), logged(undisturbed)
    found += [
        f"log: {tag} at {step}"
        for tag, step in sorted({*mine, *theirs})
        if mine.get((tag, step)) != theirs.get((tag, step))
    ]
    return found


def saved(run: Path, config: dict[str, Any]) -> dict[str, Any]:
    """The newest generation, which must be whole."""
    found = checkpoint.find(run, run_identity.identity(config), torch.device("cpu"))
    if found is None or found.damage:
        raise AssertionError(f"{run}: {found.damage if found else 'no checkpoint'}")
    return found.state


def flat(value: Any, name: str = "") -> dict[str, bytes]:
    """Name -> bits of everything in a state, but for times."""
    if isinstance(value, torch.Tensor):
        return {
            name: repr((value.dtype, tuple(value.shape))).encode()
            + value.contiguous().view(-1).view(torch.uint8).numpy().tobytes()
        }
    if isinstance(value, dict):
        rows = [flat(item, f"{name}.{key}") for key, item in value.items() if not (name == ".totals" and key in TIMES)]
        return {key: item for row in rows for key, item in row.items()}
    if isinstance(value, list | tuple):
        return {key: item for number, one in enumerate(value) for key, item in flat(one, f"{name}[{number}]").items()}
    return {name: repr(value).encode()}


def logged(run: Path) -> dict[tuple[str, int], bytes]:
    """Tag and step -> bits of the value, merged over all attempts as the analysis does; each once, times left out."""
    paths = sorted(map(str, run.glob("events.out.tfevents.*")), key=lambda path: attempt(Path(path).name))
    part, *_ = read_runs([Files(paths, sum(Path(path).stat().st_size for path in paths), {})])
    rows: dict[tuple[str, int], bytes] = {}
    at = 0
    for _, tag, _, count in part.spans.tolist():
        for number in range(at, at + count):
            key = (part.tags[tag], int(part.step[number]))
            if key in rows:
                raise AssertionError(f"{run}: {key[0]} at step {key[1]} is there twice")
            if not key[0].startswith("time/"):
                rows[key] = struct.pack("<d", float(part.value[number]))
        at += count
    return rows
