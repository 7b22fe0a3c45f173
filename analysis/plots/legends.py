"""Legends below a figure."""

from __future__ import annotations

import functools
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


def legend_rows(figure: Figure, width: float) -> int:
    """The number of lines that a legend of all panels takes in ``width`` inches."""
    handles = list(_legend_handles(figure))
    return _lines(handles, _legend_columns(handles, width - 0.1)) if handles else 0


def _lines(labels: list[str], columns: int) -> int:
    """The lines of the highest column."""
    rows = -(-len(labels) // columns)
    each = [label.count("\n") + 1 for label in labels]
    return max(sum(each[begin : begin + rows]) for begin in range(0, len(each), rows))


def legend_below(figure: Figure, width: float) -> None:
    """Add one legend for all panels, outside of them, in as many columns as fit; smaller if one column is too wide.

    The style in force may have it elsewhere, or nowhere.
    """
    handles, where = _legend_handles(figure), chosen().legend
    if not handles or where == "none":
        return
    outside = {"below": "outside lower center", "right": "outside right upper"}
    place: dict[str, Any] = {"loc": outside.get(where, where)}
    if where != "below":
        (figure if where == "right" else figure.axes[0]).legend(list(handles.values()), list(handles), **place)
        return
    columns, size = _legend_columns(list(handles), width - 0.1), _size() * min(1, (width - 0.1) / max(_widths(handles)))
    sentence = _wrapped(bands_sentence(figure), width - 0.2)
    lines = _lines(list(handles), columns) + (sentence.count("\n") + 1 if sentence else 0)
    figure.set_figheight(figure.get_figheight() + 0.16 * lines)
    place |= {"title": sentence, "title_fontsize": _size(), "alignment": "left"} if sentence else {}
    figure.legend(list(handles.values()), list(handles), ncols=columns, fontsize=size, borderaxespad=0.2, **place)


def bands_sentence(figure: Figure) -> str:
    """The sentence on what the bands or bars of all panels are; empty where there are none to speak of."""
    gids = {str(one.get_gid()) for axes in figure.axes for one in (*axes.lines, *axes.collections)}
    kinds = [words for kind, words in BANDS.items() if f"bands: {kind}" in gids]
    if BARS in gids:
        return f"Bars: {BANDS['range']}; {BANDS['interval']}"
    if not kinds:
        return "No bands: they would hide the curves" if "no bands" in gids else ""
    return f"Bands: {'; '.join(kinds)}" + (f"; none {HIDING}" if "no bands" in gids else "")


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


def _legend_handles(figure: Figure) -> dict[str, Artist]:
    """A handle for each label of the panels, and for the drops of the learning rate."""
    handles: dict[str, Artist] = {}
    for axes in figure.axes:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(textwrap.fill(label, _LETTERS), handle)
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
BANDS = {
    "range": "the range of two or three seeds",
    "interval": "95 % intervals of the mean of four or more",
    "error": "95 % intervals of the measurement of one seed",
}
BARS = "bars"
HIDING = "where they would hide the curves"
