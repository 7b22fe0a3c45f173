"""When the levels of an adaptive method are updated, and from which steps' gradients."""

from __future__ import annotations

from nuq.settings.quantizers import Adaptive


def next_update(settings: Adaptive, step: int) -> int | None:
    """The first update at or after ``step``; None where there is none."""
    listed = [at for at in settings.update_at if at >= step]
    period = settings.update_every
    if period:
        listed.append(max(-(-step // period), 1) * period)
    return min(listed, default=None)


def collects(settings: Adaptive, step: int) -> bool:
    """Whether the training gradients of this step are among those behind the next update."""
    due = next_update(settings, step)
    return due is not None and settings.statistics == "running" and step > due - settings.num_samples
