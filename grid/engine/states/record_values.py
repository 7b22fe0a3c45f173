"""Values from a run's record, which may hold anything: each is checked for its kind, and some are put into words."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def number(value: Any) -> float:
    """The value where it is a finite number, otherwise 0."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0.0
    return float(value) if -1e15 < value < 1e15 else 0.0


def text(value: Any) -> str:
    """The value where it is a text, otherwise the empty text."""
    return value if isinstance(value, str) else ""


def number_text(value: Any) -> str:
    """A number of SLURM's as a text without leading zeros; empty for anything else."""
    return (
        str(int(value)) if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 20 else ""
    )


def data_told(values: Any) -> str:
    """The data of a run in words, such as ``45d9852abc54d5 (1442 training and 355 test examples)``.

    They come from what the run notes of its data, and are empty where it notes nothing.
    """
    if not isinstance(values, Mapping) or not (fingerprint := text(values.get("fingerprint"))):
        return ""
    return (
        f"{fingerprint} ({number(values.get('num_train')):.0f} training and {number(values.get('num_test')):.0f} "
        f"test examples)"
    )


def own_element(record: Mapping[str, Any]) -> str | None:
    """The array element (or plain job) that wrote this record; None outside SLURM."""
    ids = record.get("slurm")
    if not isinstance(ids, Mapping):
        return None
    job, array, task = (number_text(ids.get(f"SLURM_{name}")) for name in ("JOB_ID", "ARRAY_JOB_ID", "ARRAY_TASK_ID"))
    return f"{array}_{task}" if array and task else job or None


def process_alive(host: str, pid: int) -> bool | None:
    """Whether the process exists and has not ended (a zombie has); None where it belongs to another machine."""
    if host != socket.gethostname() or pid <= 0:
        return None
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):  # the latter where it goes while its file is read
        return not Path("/proc/self").exists()  # gone since, unless this system has no /proc
    return fields[:1] != [b"Z"]
