"""The functions that the notebook calls: figures by name, as pictures."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence

from matplotlib import rc_context
from matplotlib.figure import Figure

from analysis.axes import AXES
from analysis.figures import Named
from analysis.plots.style import rc

DPI = 160  # a column of 3.4 inches is 544 pixels wide


def chosen(figures: Sequence[Named], name: str) -> list[Named]:
    """The figures of this name (``accuracy``, ``accuracy-bytes``), from every group of runs that has one."""
    return [figure for figure in figures if _of_group(figure.name, name)]


def _of_group(whole: str, name: str) -> bool:
    """Whether a whole name is a group's ``name``: ``accuracy-bits=3`` is an ``accuracy``, not ``accuracy-bytes``."""
    rest = whole.removeprefix(name)
    return whole.startswith(name) and (not rest or (rest[0] == "-" and rest[1:].partition("-")[0] not in AXES))


def drawn(figures: Sequence[Named], *names: str) -> Iterator[tuple[str, bytes | str]]:
    """The title of each figure of these names, in their order, with its PNG or a sentence why there is none."""
    for name in names:
        found = chosen(figures, name)
        several = len({figure.section for figure in found}) > 1
        for figure in found:
            picture = figure.make()
            title = f"{figure.title} ({figure.section})" if several else figure.title
            yield title, png(picture) if isinstance(picture, Figure) else f"{figure.name}: not drawn, {picture}"
        if not found:
            there = ", ".join(figure.name for figure in figures)
            yield name, f"{name}: no figure of this sweep has that name (they are called {there})"


def png(figure: Figure) -> bytes:
    """A figure as the bytes of a PNG file."""
    stream = io.BytesIO()
    with rc_context(rc()):
        figure.savefig(stream, format="png", dpi=DPI)
    return stream.getvalue()
