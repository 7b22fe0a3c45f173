"""Legends below a figure."""

from __future__ import annotations

import functools
import re
import textwrap
from collections.abc import Iterable
from typing import Any

from matplotlib import rcParams
from matplotlib.artist import Artist
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.lines import Line2D
from matplotlib.textpath import TextPath

from analysis.restyled import chosen

_LETTERS = 48  # of a label in one line
_KEPT = "\N{NO-BREAK SPACE}"


def broken(label: str, letters: int) -> str:
    """A label in lines of so many letters, broken between its settings, and within one that is longer."""
    parts = re.sub(r"(?<!,) (?!\()|(?<=,) (?=\d)", _KEPT, label).split(" ")
    kept = " ".join(part if len(part) <= letters else part.replace(_KEPT, " ") for part in parts)
    return textwrap.fill(kept, letters).replace(_KEPT, " ")


def legend_rows(figure: Figure, width: float) -> int:
    """The number of lines that a legend of all panels takes in ``width`` inches."""
    handles, columns = _fitted(figure, width - 0.1)
    return _lines(list(handles), columns)


def _fitted(figure: Figure, width: float) -> tuple[dict[str, Artist], int]:
    """The entries and the number of columns of a legend: labels are broken where it gets lower, or would not fit."""
    whole, in_lines = _legend_handles(figure, 1000), _legend_handles(figure, _LETTERS)
    ways = [(each, _legend_columns(list(each), width)) for each in (whole, in_lines)]
    if max(_widths(whole), default=0.0) > width:
        return ways[1]
    return min(ways, key=lambda way: _lines(list(way[0]), way[1]))


def _lines(labels: list[str], columns: int) -> int:
    """The lines of the highest column."""
    if not labels:
        return 0
    rows = -(-len(labels) // columns)
    each = [label.count("\n") + 1 for label in labels]
    return max(sum(each[begin : begin + rows]) for begin in range(0, len(each), rows))


def legend_below(figure: Figure, width: float) -> None:
    """Add one legend for all panels, outside of them, in as many columns as fit; smaller if one column is too wide.

    The style in force may have it elsewhere, or nowhere.
    """
    (handles, columns), where = _fitted(figure, width - 0.1), chosen().legend
    sentence = _wrapped(spread_sentence(figure), width - 0.2) if where == "below" else ""
    if where == "none" or not (handles or sentence):
        return
    outside = {"below": "outside lower center", "right": "outside right upper"}
    place: dict[str, Any] = {"loc": outside.get(where, where)}
    if where != "below":
        (figure if where == "right" else figure.axes[0]).legend(list(handles.values()), list(handles), **place)
        return
    size = _size() * min(1, (width - 0.1) / max(_widths(handles), default=0.1))
    lines = _lines(list(handles), columns) + (sentence.count("\n") + 1 if sentence else 0)
    figure.set_figheight(figure.get_figheight() + 0.16 * lines)
    place |= {"title": sentence, "title_fontsize": _size(), "alignment": "left"} if sentence else {}
    figure.legend(list(handles.values()), list(handles), ncols=columns, fontsize=size, borderaxespad=0.2, **place)


def spread_sentence(figure: Figure) -> str:
    """The sentence on what bands, bars and stripes of all panels are; empty where there are none to speak of."""
    drawn = (one for axes in figure.axes for one in (*axes.lines, *axes.collections, *axes.patches))
    gids = {str(one.get_gid()) for one in drawn}
    shapes = [shape for shape in ("bands", "bars", "stripes") if any(gid.startswith(f"{shape}: ") for gid in gids)]
    kinds = [words for kind, words in SPREADS.items() if any(gid.endswith(f": {kind}") for gid in gids)]
    if not kinds:
        return "No bands: they would hide the curves" if "no bands" in gids else ""
    said = f"{' and '.join(shapes).capitalize()}: {'; '.join(kinds)}"
    return f"{said}; none where they would hide the curves" if "no bands" in gids else said


def _wrapped(sentence: str, width: float) -> str:
    """The sentence in lines of at most ``width`` inches."""
    lines: list[str] = []
    for word in sentence.split():
        longer = f"{lines[-1]} {word}" if lines else word
        if lines and _text_width(longer, _size()) <= 72 * width:
            lines[-1] = longer
        else:
            lines.append(word)
    return "\n".join(lines)


def _legend_handles(figure: Figure, letters: int) -> dict[str, Artist]:
    """A handle for each label of the panels, in lines of so many letters, and for the drops of the learning rate."""
    handles: dict[str, Artist] = {}
    for axes in figure.axes:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(broken(label, letters), handle)
    gids = {line.get_gid() for axes in figure.axes for line in axes.lines}
    for gid, label, style in (("drop", "rate drop", DROP), ("drops", "rate drop of a curve", DROP_OF_CURVE)):
        if gid in gids:
            handles[label] = Line2D([], [], **{**style, "color": "#777777"})
    return handles


def _legend_columns(labels: list[str], width: float) -> int:
    """The largest number of columns that fits into ``width`` inches, as even as that many rows allow."""
    widths = _widths(labels)
    for columns in range(len(labels), 1, -1):
        rows = -(-len(labels) // columns)
        if sum(max(widths[begin : begin + rows]) for begin in range(0, len(widths), rows)) <= width:
            return -(-len(labels) // rows)
    return 1


def _size() -> float:
    """The size of the legend's words in points, which the settings may also have in words."""
    return FontProperties(size=rcParams["legend.fontsize"]).get_size_in_points()


def _widths(labels: Iterable[str]) -> list[float]:
    """The width of each entry, with its key, in inches."""
    size = _size()
    key = size * (rcParams["legend.handlelength"] + rcParams["legend.handletextpad"] + rcParams["legend.columnspacing"])
    return [(key + max(_text_width(line, size) for line in label.split("\n"))) / 72 for label in labels]


@functools.lru_cache(4096)  # the same labels stand under every figure
def _text_width(text: str, size: float) -> float:
    """The width of a text, in points."""
    return TextPath((0, 0), text, prop=FontProperties(family=rcParams["font.family"], size=size)).get_extents().width


DROP: dict[str, Any] = {"color": "#777777", "linewidth": 0.7, "linestyle": (0, (4, 2.5))}
DROP_OF_CURVE: dict[str, Any] = {"linestyle": "none", "marker": "|", "markersize": 9, "markeredgewidth": 1.1}
SPREADS = {
    "range": "the range of two or three seeds",
    "interval": "95 % intervals of the mean of four or more seeds",
    "error": "95 % intervals of the measurement of one seed",
}
