"""The functions that the notebook calls: figures by name, as pictures."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence

from matplotlib import rc_context
from matplotlib.figure import Figure

from analysis.axes import AXES
from analysis.figures import Named
from analysis.plots.style import RC

DPI = 160  # a column of 3.4 inches is 544 pixels wide


def chosen(figures: Sequence[Named], name: str) -> list[Named]:
    """The figures of this name (``accuracy``, ``accuracy-bytes``), from every group of runs that has one."""
    return [figure for figure in figures if _of_group(figure.name, name)]


def _of_group(whole: str, name: str) -> bool:
    """Whether the whole name is a group's figure ``name``.

    ``accuracy-bits=3`` is a group's ``accuracy``; ``accuracy-bytes`` is another figure.
    """
    rest = whole.removeprefix(name)
    return whole.startswith(name) and (not rest or (rest[0] == "-" and rest[1:].partition("-")[0] not in AXES))


def drawn(figures: Sequence[Named], *names: str) -> Iterator[tuple[str, bytes | str]]:
    """The title and PNG of each figure of these names, in their order.

    A sentence replaces the PNG where there is nothing to draw.
    """
    for name in names:
        found = chosen(figures, name)
        several = len({figure.section for figure in found}) > 1
        for figure in found:
            picture = figure.make()
            title = f"{figure.title} ({figure.section})" if several else figure.title
            yield title, png(picture) if isinstance(picture, Figure) else f"{figure.name}: not drawn, {picture}"
        if not found:
            yield (
                name,
                f"{name}: no figure of this sweep has that name (they are called "
                f"{', '.join(figure.name for figure in figures)})",
            )


def png(figure: Figure) -> bytes:
    """A figure as the bytes of a PNG file."""
    stream = io.BytesIO()
    with rc_context(RC):
        figure.savefig(stream, format="png", dpi=DPI)
    return stream.getvalue()
