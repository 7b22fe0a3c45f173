"""The live line of one run on a terminal: its steps, phase, steps per second, last logged loss and time left."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from files.live_line import LiveLine, duration

DRAW_S = 0.25
KNOWN_S = 2.0  # of steps measured before a rate is told


class StepLine:
    """The line; its rate is the mean since the first step of this process, evaluations and checkpoints included.

    The first step itself, which warms up, is not in it.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._line = clock, LiveLine()
        self._first: tuple[float, int] | None = None  # time and number of the first step
        self._drawn = -math.inf
        self.loss = math.nan  # as last logged

    def draw(self, step: int, steps: int, phase: str = "") -> None:
        """Show this step, at most every ``DRAW_S``; a phase is shown at once."""
        now = self._clock()
        began, first = self._first = self._first or (now, step)
        if not phase and now - self._drawn < DRAW_S:
            return
        self._drawn = now
        words = [f"step {step}/{steps}", *([phase] if phase else [])]
        known = now - began >= KNOWN_S and step > first
        words += [f"ETA {duration((steps - step) * (now - began) / (step - first))}"] if known else []
        words += [f"{_digits((step - first) / (now - began))} steps/s"] if known else []
        words += [f"loss {self.loss:.4g}"] if not math.isnan(self.loss) else []
        self._line.show(", ".join(words))

    def close(self) -> None:
        """Take the line away."""
        self._line.close()


def _digits(rate: float) -> str:
    return f"{rate:.0f}" if rate >= 100 else f"{rate:.3g}"
