"""The figures of a sweep as compressed vector graphics, small enough for hundreds on one page."""

from __future__ import annotations

import io
import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib import rc_context

from analysis.figures import ACROSS, Named, named
from analysis.logs.load import Logs
from analysis.plots.curves import Means
from analysis.plots.finished import laid_out
from analysis.plots.forked import each
from analysis.plots.style import WIDTHS
from analysis.report.page import packed

_PIXELS_PER_POINT = {"column": 4 / 3 * 1.08, "page": 2.2}  # three of one column, or one of the page, beside each other
_PAGE_POINTS = 400
MOST = 80
MANY_GROUPS, MOST_OF_MANY = 8, 24  # a page of more groups than that has so many figures
_DROPPED = re.compile(r"<\?xml.*?\?>|<!DOCTYPE.*?>|<metadata>.*?</metadata>|<!--.*?-->", re.DOTALL)
# a hundredth of a point is enough for any screen; scales (0.015625) stay
_DIGITS = re.compile(r"(?<![\d.])([1-9]\d*\.\d\d)\d+")
_SIZE = re.compile(r'width="([\d.]+)pt" height="([\d.]+)pt"')


@dataclass(frozen=True)
class Picture:
    """A drawn figure as ``packed`` SVG, its width and height in points, or a sentence why there is no picture."""

    name: str
    title: str
    section: str
    packed: str = ""
    width: float = 0.0
    height: float = 0.0
    sentence: str = ""

    @property
    def is_wide(self) -> bool:
        """Whether it takes the width of the page."""
        return self.width > _PAGE_POINTS

    @property
    def pixels(self) -> tuple[int, int]:
        """Its width and height on the screen."""
        scale = _PIXELS_PER_POINT["page" if self.is_wide else "column"]
        return round(self.width * scale), round(self.height * scale)


@dataclass(frozen=True)
class Pictures:
    """The figures that were drawn, in their order, and the kinds (``est_var-time``) of the others by section."""

    drawn: tuple[Picture, ...]
    left_out: dict[str, list[str]]


def draw(
    logs: Logs,
    *,
    width: str = "column",
    most: int | None = None,
    budget_bytes: int = 5_000_000,
    processes: int | None = None,
    means: Sequence[Means] | None = None,
) -> Pictures:
    """Every figure, or the ``most`` that tell most (0: all; None: as many as a page needs), in so many bytes of text.

    A page of many groups has one overview for each of the first groups: the other quantities and axes are in its
    curves.  ``processes``: see ``analysis.plots.forked``; ``means``: as for ``analysis.figures.named``.
    """
    figures = list(named(logs, WIDTHS[width], means=means))
    order = _by_importance(figures)
    chosen = order[: _enough(figures) if most is None else most or None]
    found = dict(zip(chosen, each(picture, [figures[index] for index in chosen], processes), strict=True))
    room, kept = budget_bytes, []
    for index in chosen:
        room -= len(found[index].packed)
        if room >= 0:
            kept.append(index)
    left_out: dict[str, list[str]] = {}
    for index in sorted(set(range(len(figures))) - set(kept)):
        left_out.setdefault(figures[index].section, []).append(figures[index].kind)
    return Pictures(tuple(found[index] for index in sorted(kept)), left_out)


def _enough(figures: Sequence[Named]) -> int:
    several = len({figure.section for figure in figures} - {ACROSS}) > MANY_GROUPS
    return MOST_OF_MANY if several else MOST


def _by_importance(figures: Sequence[Named]) -> list[int]:
    """The positions of the figures by importance.

    First comes an overview, then figures of the whole sweep, other groups' overviews against the step, and one of each
    in turn.
    """
    sections: dict[str, list[int]] = {}
    for index, figure in enumerate(figures):
        sections.setdefault(figure.section, []).append(index)
    across = sections.pop(ACROSS, [])
    for positions in sections.values():
        positions.sort(key=lambda index: not figures[index].kind.startswith("overview"))
    rounds = itertools.zip_longest(*sections.values())
    order = [index for positions in rounds for index in positions if index is not None]
    order[1:1] = across
    return order


def picture(figure: Named) -> Picture:
    """One figure as a picture."""
    drawn = figure.make()
    if isinstance(drawn, str):
        return Picture(figure.name, figure.title, figure.section, sentence=drawn)
    stream = io.StringIO()
    with rc_context({**laid_out(), "svg.hashsalt": figure.name}):
        drawn.savefig(stream, format="svg", metadata={"Date": None})
    text = small(stream.getvalue())
    size = _SIZE.search(text)
    width, height = (float(size[1]), float(size[2])) if size else (0.0, 0.0)
    return Picture(figure.name, figure.title, figure.section, packed(text), width, height)


def small(svg: str) -> str:
    """A picture without the comments, metadata, line breaks and digits that nobody sees."""
    return re.sub(r">\s+<", "><", re.sub(r"\s*\n\s*", " ", _DIGITS.sub(r"\1", _DROPPED.sub("", svg)))).strip()
