"""The memory of a run's processes, as /proc tells it: among runs that share a job, it names the one that ran out."""

from __future__ import annotations

import os
import re
from pathlib import Path


def peak_bytes() -> int:
    """The sum of the peak memory of each process of this run on this machine; 0 where there is no /proc.

    They are this process, the other ranks of its torchrun, and what all of these have started; pages that they share
    count for each.
    """
    left, total = [os.getppid() if "TORCHELASTIC_RUN_ID" in os.environ else os.getpid()], 0
    while left:
        pid = left.pop()
        total += process_peak_bytes(pid)
        for path in Path(f"/proc/{pid}/task").glob("*/children"):
            left += map(int, _read(path).split())
    return total


def process_peak_bytes(pid: int | None = None) -> int:
    """The peak memory of one process, by default this one; 0 where it is not to be had."""
    found = re.search(r"^VmHWM:\s+(\d+) kB", _read(Path(f"/proc/{pid or 'self'}/status")), re.MULTILINE)
    return 1024 * int(found[1]) if found else 0


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:  # it has ended meanwhile
        return ""
