"""The factor on the loss that keeps gradients within the range of float16 (``compute.precision=fp16``).

Micikevicius et al., "Mixed precision training" (ICLR 2018), Section 3.2: the loss is multiplied by a power of two
before the backward pass, the gradient divided by it after, which is exact.  Where a gradient overflows, on any worker,
no worker's is used: the step is skipped and the factor halved; after ``GROW_AFTER`` steps without that it doubles.
Difference from torch's GradScaler: the gradients of the workers are exchanged unscaled, and a gradient that is not
finite at a factor of 1 ends the run instead of being skipped for ever.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from nuq.exchange.exchanged import BadGradientError, Exchanged

FIRST, LARGEST = 2.0**16, 2.0**24
GROW_AFTER = 2000  # steps; GradScaler's own figure


@dataclass
class LossScale:
    """The factor on the loss, and its counts.

    value: a power of two; steps: since it changed; skipped: in the whole run.
    """

    value: float = FIRST
    steps: int = 0
    skipped: int = 0

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Go on from saved values; ValueError for a factor that no run has."""
        if saved["value"] not in {2.0**power for power in range(int(math.log2(LARGEST)) + 1)}:
            raise ValueError(f"its loss_scale.value is {saved['value']!r:.60}; legal: a power of two, 1 to {LARGEST:g}")
        vars(self).update(saved)

    def taken(self) -> None:
        """Note a step with finite gradients."""
        self.steps += 1
        if self.steps >= GROW_AFTER:
            self.value, self.steps = min(2 * self.value, LARGEST), 0

    def may_skip(self) -> bool:
        """Whether a smaller factor is left to try."""
        return self.value > 1

    def skip(self) -> None:
        """Note a step whose gradients overflowed."""
        self.value, self.steps, self.skipped = self.value / 2, 0, self.skipped + 1

    def scalars(self) -> dict[str, float]:
        """The scalars for the log."""
        return {"compute/loss_scale": self.value, "compute/skipped_steps": self.skipped}


def skipped(scale: LossScale | None, error: BadGradientError) -> Exchanged:
    """Note a step without an update, its loss scaled too far up; raises the error where that was not its cause."""
    if scale is None or not scale.may_skip() or not all(map(math.isfinite, error.losses)):
        raise error
    scale.skip()
    return Exchanged(torch.empty(0, dtype=torch.float32, device="cpu"), error.losses, 0, error.stop)


def unscaled(gradient: Tensor, scale: float) -> Tensor:
    """The gradient of the loss itself, in place."""
    return gradient.mul_(1 / scale) if scale != 1 else gradient


def skipped_steps(state: Mapping[str, Any]) -> int:
    """The steps without an update in a run's state, as far as it says."""
    of_scale = state.get("loss_scale")
    count = of_scale.get("skipped", 0) if isinstance(of_scale, dict) else 0
    return count if type(count) is int else 0
