"""The figures of a sweep as compressed vector graphics, small enough for hundreds on one page."""

from __future__ import annotations

import base64
import gzip
import io
import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib import rc_context

from analysis.figures import ACROSS, Named, named
from analysis.logs.load import Logs
from analysis.plots.forked import each
from analysis.plots.style import RC, WIDTHS

_DROPPED = re.compile(r"<\?xml.*?\?>|<!DOCTYPE.*?>|<metadata>.*?</metadata>|<!--.*?-->", re.DOTALL)
_DIGITS = re.compile(r"(?<![\d.])([1-9]\d*\.\d\d)\d+")  # a hundredth of a point is enough for any screen; scales (0.015625) stay
_SIZE = re.compile(r'width="([\d.]+)pt" height="([\d.]+)pt"')


@dataclass(frozen=True)
class Picture:
    """A drawn figure.

    ``packed``: SVG, gzip, base64.  ``width``, ``height`` in points.  ``sentence``: why there is no picture, where there is none.
    """

    name: str
    title: str
    section: str
    packed: str = ""
    width: float = 0.0
    height: float = 0.0
    sentence: str = ""


@dataclass(frozen=True)
class Pictures:
    """What was drawn, in the order of the figures; ``left_out``: how many were not, by section."""

    drawn: tuple[Picture, ...]
    left_out: dict[str, int]


def draw(logs: Logs, *, width: str = "column", most: int = 0, budget_bytes: int = 5_000_000, processes: int | None = None) -> Pictures:
    """Every figure, or the ``most`` that tell most (0: all), within so many bytes of text.

    ``processes``: see ``analysis.plots.forked``.
    """
    figures = list(named(logs, WIDTHS[width]))
    chosen = _chosen(figures, most)
    found = dict(zip(chosen, each(picture, [figures[index] for index in chosen], processes), strict=True))
    room, kept = budget_bytes, []
    for index in chosen:
        room -= len(found[index].packed)
        if room >= 0:
            kept.append(index)
    left_out: dict[str, int] = {}
    for index in sorted(set(range(len(figures))) - set(kept)):
        left_out[figures[index].section] = left_out.get(figures[index].section, 0) + 1
    return Pictures(tuple(found[index] for index in sorted(kept)), left_out)


def _chosen(figures: Sequence[Named], most: int) -> list[int]:
    """Positions by importance: the first overview, figures of the whole sweep, the other overviews, then one of each section in turn."""
    sections: dict[str, list[int]] = {}
    for index, figure in enumerate(figures):
        sections.setdefault(figure.section, []).append(index)
    across = sections.pop(ACROSS, [])
    for positions in sections.values():
        positions.sort(key=lambda index: not figures[index].name.startswith("overview"))
    rounds = itertools.zip_longest(*sections.values())
    order = [index for positions in rounds for index in positions if index is not None]
    order[1:1] = across
    return order[:most] if most else order


def picture(figure: Named) -> Picture:
    """One figure, drawn."""
    drawn = figure.make()
    if isinstance(drawn, str):
        return Picture(figure.name, figure.title, figure.section, sentence=drawn)
    stream = io.StringIO()
    with rc_context({**RC, "svg.hashsalt": figure.name}):
        drawn.savefig(stream, format="svg", metadata={"Date": None})
    text = small(stream.getvalue())
    size = _SIZE.search(text)
    width, height = (float(size[1]), float(size[2])) if size else (0.0, 0.0)
    packed = base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()
    return Picture(figure.name, figure.title, figure.section, packed, width, height)


def small(svg: str) -> str:
    """The same picture without comments, metadata, line breaks and digits that nobody sees."""
    return re.sub(r">\s+<", "><", re.sub(r"\s*\n\s*", " ", _DIGITS.sub(r"\1", _DROPPED.sub("", svg)))).strip()
