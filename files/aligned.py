"""Tables and lists in plain text."""

from __future__ import annotations

from collections.abc import Sequence


def aligned(rows: Sequence[Sequence[str]], words: int = 1, *, ruled: bool = False) -> str:
    """Lines of columns of equal width: the first ``words`` columns to the left, the others to the right.

    ruled: dashes stand below the first line.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    dashes = [["-" * width for width in widths]] * ruled
    lines = []
    for row in [*rows[:1], *dashes, *rows[1:]]:
        pairs = enumerate(zip(row, widths, strict=True))
        lines.append("  ".join(cell.ljust(size) if k < words else cell.rjust(size) for k, (cell, size) in pairs))
    return "\n".join(map(str.rstrip, lines))


def some(names: Sequence[str]) -> str:
    """The first three names, with dots for the others."""
    return ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
