"""The machine where a run runs and the code from which it runs, as a report says them."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import re
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import torch

GIT_S = 0.5  # a checkout on a slow file system stays unnamed; the run does not wait for it
MANIFEST = ".snapshot.json"  # the manifest of a copy of the code that jobs run from


def describe(device: torch.device, root: Path) -> dict[str, Any]:
    """A description of the origin: python, torch, cpu, cores, gpu, commit and dirty.

    The cores are those that this process may use; gpu is "" without, commit is "" where unknown.
    root: the checkout, for a process that runs from it and not from a snapshot (``NUQ_CODE``).
    """
    commit, dirty = _code(root)
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cpu": _cpu(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 0,
        "gpu": _gpu(device),
        "commit": commit,
        "dirty": dirty,
    }


def _cpu() -> str:
    """The name of the CPU model, as Linux tells it; elsewhere what Python knows."""
    with contextlib.suppress(OSError):
        if found := re.search(r"^model name\s*:(.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE):
            return found[1].strip()
    return platform.processor() or platform.machine()


def _gpu(device: torch.device) -> str:
    """The names of the devices that this process sees, as in ``2 x NVIDIA H200``."""
    names = Counter[str]()
    if device.type == "cuda":
        with contextlib.suppress(RuntimeError, AssertionError):
            names.update(map(torch.cuda.get_device_name, range(torch.cuda.device_count())))
    return ", ".join(f"{count} x {name}" if count > 1 else name for name, count in names.items())


def _code(root: Path) -> tuple[str, bool]:
    """The commit of the code, and whether the files differ from it."""
    if snapshot := os.environ.get("NUQ_CODE"):
        try:
            manifest = json.loads((Path(snapshot) / MANIFEST).read_text())
            return str(manifest["commit"]), bool(manifest["dirty"])
        except (OSError, ValueError, KeyError, TypeError):
            return "", False
    if not (root / ".git").exists():
        return "", False
    command = ["git", "--no-optional-locks", "status", "--porcelain=v2", "--branch", "--untracked-files=no"]
    try:
        told = subprocess.run(
            command, cwd=root, capture_output=True, text=True, errors="replace", timeout=GIT_S, check=True
        ).stdout.splitlines()
    except (OSError, subprocess.SubprocessError):
        return "", False
    commit = next((line.removeprefix("# branch.oid ") for line in told if line.startswith("# branch.oid ")), "")
    return ("" if commit == "(initial)" else commit), any(not line.startswith("#") for line in told)
