"""A job, or an element of an array, as the controller knows it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.virtual_slurm.processes import Life

ENDED = {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "OUT_OF_MEMORY"}


@dataclass
class Ending:
    """What becomes of a job when its processes are gone."""

    state: str
    requeue: bool = False
    hold: bool = False


@dataclass
class Job:
    """An element of an array, or a job without one (``index`` None)."""

    array: int
    index: int | None
    options: Mapping[str, str]
    file: str  # the path of the script as it was given
    script: str
    queued: float
    number: int
    state: str = "PENDING"
    reason: str = "None"
    held: bool = False
    eligible: float = 0.0
    nodes: tuple[str, ...] = ()
    start: float | None = None
    end: float | None = None
    restarts: int = 0
    exit_code: str = "0:0"
    ending: Ending | None = None
    life: Life | None = None
    has_begun: bool = False
    may_requeue: bool = True
    recalled: bool = False  # cancelled for good by a test
    revived: bool = False  # queued again by an administrator after its end

    @property
    def name(self) -> str:
        return f"{self.array}" if self.index is None else f"{self.array}_{self.index}"

    @property
    def shown(self) -> str:
        return "COMPLETING" if self.ending else self.state

    @property
    def is_over(self) -> bool:
        return self.state in ENDED and self.ending is None

    @property
    def log(self) -> Path:
        pattern = self.options.get("output", os.devnull).replace("%%", "\0").replace("%A", str(self.array))
        return Path(pattern.replace("%a", str(self.index)).replace("%j", str(self.number)).replace("\0", "%"))

    def record(self) -> dict[str, Any]:
        return {"name": self.name, "state": self.shown, "reason": self.reason, "restarts": self.restarts,
                "nodes": list(self.nodes), "start": self.start, "end": self.end, "task": self.index}  # fmt: skip
