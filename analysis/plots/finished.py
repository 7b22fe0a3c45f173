"""A figure in the style in force: its words, its layout, and its files."""

from __future__ import annotations

import itertools
import re
import textwrap
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.layout_engine import LayoutEngine
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from analysis.plots.style import rc
from analysis.restyled import SIZES, chosen, label
from files.atomic import aside

_LETTERED = re.compile(r"(?s)(\([a-z]\) )?(.*)")


def laid_out() -> dict[Any, Any]:
    """The style in force while what is laid out is written: after every savefig matplotlib gives a figure the layout
    engine that the settings ask for.
    """
    return {**rc(), "figure.constrained_layout.use": False, "figure.autolayout": False}


def styled(function: Callable[[Any, float], Figure | str], of: Any, width: float) -> Figure | str:
    """A figure drawn in the style in force, and laid out once for all formats."""
    style = chosen()
    with rc_context(rc()):
        figure = function(of, style.width or width)
    if isinstance(figure, Figure):
        figure.set_size_inches(style.width or figure.get_figwidth(), style.height or figure.get_figheight())
        with rc_context(laid_out()), warnings.catch_warnings():
            warnings.filterwarnings("error", "constrained_layout not applied")
            _relabel(figure)
            try:
                if engine := figure.get_layout_engine():
                    _lay_out(figure, engine)
                    if _is_overprinted(figure, *(axes.xaxis.label for axes in figure.axes)):
                        _wrap(figure)
                        _lay_out(figure, engine)
                what = "the titles of its panels and its legend" if _is_overprinted(figure) else ""
            except UserWarning:
                what = "its panels"
            if what:
                size = " by ".join(f"{inches:g}" for inches in figure.get_size_inches())
                beside = ", another place of the legend" if style.legend == "right" else ""
                larger = f"choose a larger width or height ({SIZES} inches){beside} or smaller fonts"
                return f"{size} inches leave no room for {what}: {larger}"
            figure.set_layout_engine(None)
    return figure


def _lay_out(figure: Figure, engine: LayoutEngine) -> None:
    """Make room for what stands around the panels; again where panels of another size have longer ticks."""
    for _ in range(3):
        engine.execute(figure)
        boxes = [box for axes in figure.axes if (box := axes.get_tightbbox())]
        if Bbox.union([figure.bbox.padded(1), *boxes]).bounds == figure.bbox.padded(1).bounds:
            return


def _is_overprinted(figure: Figure, *labels: Text) -> bool:
    """Whether titles, legends or these labels overlap or are cut off: the layout makes no room for a title's width."""
    titles = [item for axes in figure.axes for item in {*axes.get_children()} - {*axes.texts} if isinstance(item, Text)]
    boxes = [box for item in (*titles, *figure.legends, *labels) if (box := item.get_window_extent()).width]
    is_cut = any(box.x1 > figure.bbox.x1 + 1 or box.y0 < figure.bbox.y0 - 1 for box in boxes)
    return is_cut or any(one.overlaps(other) for one, other in itertools.combinations(boxes, 2))


def _wrap(figure: Figure) -> None:
    """Break titles and x labels that are longer than their panels are wide, so that none reaches the next panel."""
    for axes in figure.axes:
        for text in {*axes.get_children(), axes.xaxis.label} - {*axes.texts}:
            if isinstance(text, Text) and (wide := text.get_window_extent().width) > axes.bbox.width:
                words = text.get_text()
                text.set_text(textwrap.fill(words, max(1, int(len(words) * axes.bbox.width / wide))))


def _relabel(figure: Figure) -> None:
    """Put the style's words on axes and above panels, whose letters stay."""
    for axes in figure.axes:
        axes.set_xlabel(label(axes.get_xlabel()))
        axes.set_ylabel(label(axes.get_ylabel()))
        for place in ("left", "center", "right"):
            letter, words = _LETTERED.findall(axes.get_title(place))[0]
            if (other := label(words)) != words:
                axes.set_title(letter + other, loc=place)


def save(figure: Figure, folder: Path, name: str) -> list[Path]:
    """Write the figure in every format, aside first; without dates, so that equal data give equal files."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for extension in chosen().formats:
        paths.append(folder / f"{name}.{extension}")
        undated = {"pdf": {"CreationDate": None}, "svg": {"Date": None}}.get(extension)
        with rc_context({**laid_out(), "svg.hashsalt": name}), aside(paths[-1]) as place:
            figure.savefig(place, format=extension, metadata=undated)
    return paths
