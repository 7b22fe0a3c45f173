"""The facts that ``benchmarks/gpu/run`` finds on a machine, and the C++ kernels that it compiles there."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from benchmarks.gpu import processes

ROOT = Path(__file__).parents[2]
START_S, BUILD_S = 120.0, 300.0  # limits of looking at the machine and of compiling the C++ kernels
PROBE = """
import json, platform, torch
from importlib import metadata
def version(name):
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
found = {"gpu": gpu, "torch": torch.__version__, "cuda": torch.version.cuda, "python": platform.python_version()}
print("FOUND " + json.dumps(found | {name: version(name) for name in ("triton", "numpy", "scipy", "torchvision")}))
"""
FOUND = "FOUND "
BUILT = "import sys; from nuq import native; sys.exit(native.library() is None)"

# device (a name), gpu (None without), torch, cuda, python, triton, numpy, scipy, torchvision, commit
Machine = dict[str, Any]


class CannotBegin(Exception):
    """A fact that a user has to change before anything can be measured, in one sentence."""


def machine(environment: Mapping[str, str]) -> Machine:
    """The machine as this Python's torch sees it.

    Raises CannotBegin where there is no torch.
    """
    ended, lines = processes.heard([sys.executable, "-c", PROBE], limit_s=START_S, folder=ROOT, environment=environment)
    told = [line.removeprefix(FOUND) for line in lines if line.startswith(FOUND)]
    if ended.exit_code or not told:
        why = f"{START_S:.0f} s were not enough" if ended.timed_out else (lines or ["no word"])[-1]
        raise CannotBegin(f"{sys.executable} cannot use torch ({why}): name another one with PYTHON=/path/to/python")
    found = json.loads(told[-1])
    return {"device": found["gpu"] or processor(), **found, "commit": _commit(environment)}


def processor() -> str:
    """The name of the processor."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return os.uname().machine


def _commit(environment: Mapping[str, str]) -> str | None:
    """The commit of this checkout; None where git or its folder did not travel with it."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    with suppress(OSError):
        if (ROOT / ".git").exists():
            ended, lines = processes.heard(command, limit_s=20.0, folder=ROOT, environment=environment)
            return lines[-1] if lines and not ended.exit_code else None
    return None


def build_kernels(environment: Mapping[str, str], limit_s: float = BUILD_S) -> str:
    """Compile the C++ kernels where they are not there.

    Returns a sentence if that fails, else nothing.
    """
    ended, lines = processes.heard([sys.executable, "-c", BUILT], limit_s=START_S, folder=ROOT, environment=environment)
    if ended.exit_code:
        ended, lines = processes.heard(
            [sys.executable, "-m", "nuq.native"], limit_s=limit_s, folder=ROOT, environment=environment
        )
    why = f"{limit_s:.0f} s were not enough" if ended.timed_out else (lines or ["no word"])[-1]
    return f"the C++ kernels were not built: {why}" if ended.exit_code else ""
