"""Published tables beside our runs, as aligned text."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from analysis.aggregate import Estimate

MISSING = "-"


def aligned(headings: Sequence[str], rows: Sequence[Sequence[str]], words: int) -> str:
    """Lines of columns; the first ``words`` columns are words, the others numbers."""
    widths = [max(len(line[k]) for line in [headings, *rows]) for k in range(len(headings))]
    lines = [
        "  ".join(
            part.ljust(width) if k < words else part.rjust(width)
            for k, (part, width) in enumerate(zip(line, widths, strict=True))
        )
        for line in [headings, ["-" * width for width in widths], *rows]
    ]
    return "\n".join(line.rstrip() for line in lines)


def written(ours: Estimate, digits: int = 2) -> str:
    """An estimate as text, such as ``76.50 +- 6.35 (n=2)``; a dash where we have no run."""
    if not ours.n:
        return MISSING
    interval = f" +- {ours.half_width:.{digits}f}" if np.isfinite(ours.half_width) else ""
    return f"{ours.mean:.{digits}f}{interval} (n={ours.n})"
