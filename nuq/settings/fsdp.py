"""Settings of FSDP2's compressed collectives beside their method."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from nuq.settings import check, setting
from nuq.settings.exchange import Hook
from nuq.settings.feedback import check_leaves_out

FEEDBACK = (
    "average: a moving average of what earlier messages left out is added to each gradient (LoCo), in as much memory "
    "as the gradients take in float32; none: nothing is remembered"
)
BETA = "weight of the newest error in the average, DeepSpeed's for LoCo; 1: error feedback"
RESET_EVERY = "reduce-scatters of a module after which its memory is zero again, DeepSpeed's for LoCo; 0: never"
FULL_EVERY = "gathers of a module after which its shards are sent as they are: 1 in so many, and the first one"
_AVERAGE = ("feedback", "average")


def seed_and_timeout(seed: Any, timeout_s: Any) -> tuple[int, float | None]:
    """What both collectives take beside these settings; ValueError where ``nuq.CompressionState`` refuses it, too."""
    made = check(Hook, {"seed": seed, "timeout_s": timeout_s})
    return made["seed"], made["timeout_s"]


@dataclass
class Fsdp:
    """Settings of the reduce-scatter of gradients."""

    feedback: str = setting("none", FEEDBACK, choices=("none", "average"))
    beta: float = setting(0.2, BETA, low=1e-9, high=1, read_if=_AVERAGE)
    reset_every: int = setting(1024, RESET_EVERY, low=0, read_if=_AVERAGE)

    def check(self, method: str) -> None:
        """Raise ValueError for a memory of messages that leave nothing out."""
        if self.feedback != "none":
            check_leaves_out(f"feedback={self.feedback!r}", [method], "none")


@dataclass
class FsdpWeights:
    """Settings of the gather of parameters."""

    full_every: int = setting(1000, FULL_EVERY, low=1)
