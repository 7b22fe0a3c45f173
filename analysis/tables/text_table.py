"""Estimates of our runs as text, for the cells beside published ones."""

from __future__ import annotations

import numpy as np

from analysis.aggregate import Estimate

MISSING = "-"


def written(ours: Estimate, digits: int = 2) -> str:
    """An estimate as text, such as ``76.50 +- 6.35 (n=2)``; a dash where we have no run."""
    if not ours.n:
        return MISSING
    interval = f" +- {ours.half_width:.{digits}f}" if np.isfinite(ours.half_width) else ""
    return f"{ours.mean:.{digits}f}{interval} (n={ours.n})"
