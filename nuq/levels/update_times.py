"""The schedule by which the levels of an adaptive method are updated."""

from __future__ import annotations

from nuq.settings.quantizers import Adaptive


def next_update(settings: Adaptive, step: int) -> int | None:
    """The first update at or after ``step``; None where there is none."""
    listed = [at for at in settings.update_at if at >= step]
    period = settings.update_every
    if period:
        listed.append(max(-(-step // period), 1) * period)
    return min(listed, default=None)
