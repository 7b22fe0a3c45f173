"""The look of figures: sizes, fonts, and one colour, marker and dash for each method, the same in every figure.

A style file changes parts of it (``analysis.restyled``).
"""

from __future__ import annotations

import math
import zlib
from dataclasses import dataclass
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from analysis.groups.seed_groups import SeedGroup
from analysis.restyled import chosen
from nuq.registry import METHODS

# Inches: one and two columns of a two-column paper.
WIDTHS = {"column": 3.4, "page": 7.0}

# The first twelve, and those of ten methods that are often drawn together, are at least 16 apart in CIE Lab for eyes
# with and without red or green cones (a test measures it), and relatives (ALQ, ALQ-N) have neighbouring hues; markers
# and dashes tell the rest apart, also in grey.
COLOURS = (
    "#000000", "#8c8c8c", "#56b4e9", "#0072b2", "#90075e", "#acc456", "#d55e00", "#f2b50c",
    "#751713", "#f20c55", "#0a7d3c", "#47dbcf", "#cc79a7", "#a6761d", "#8b24f2", "#b8b800",
    "#44aaff", "#6a51a3", "#999933", "#c51b7d", "#1b7837", "#8c510a", "#01665e", "#bf812d",
)  # fmt: skip
# Methods that would share a colour of the first round with one that they are often drawn with (QSGD, ALQ).
_OWN_COLOURS = {"topk": "#332288", "dgc": "#591e00", "powersgd": "#aacc00"}
_MARKER_SCALE = {"*": 1.6, "P": 1.25, "X": 1.15, "p": 1.15, "h": 1.1, "D": 0.85, "d": 1.2}
MARKERS: tuple[Any, ...] = (*"os^vDXPph>*<d8H", (4, 1, 0), (3, 1, 0), (6, 1, 0))
DASHES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (3, 1, 1, 1)), (0, (1.2, 1)), (0, (7, 1.5, 1.5, 1.5, 1.5, 1.5)))

RC: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 8,
    "axes.labelsize": 8,
    "axes.titlesize": 8.5,
    "xtick.labelsize": 7.5,
    "ytick.labelsize": 7.5,
    "legend.fontsize": 7,
    "text.parse_math": False,  # names of runs, settings and tags come from files, and a dollar in one is a dollar
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.5,
    "axes.axisbelow": True,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.minor.width": 0.4,
    "ytick.minor.width": 0.4,
    "lines.linewidth": 1.2,
    "lines.markersize": 4.2,
    "legend.frameon": False,
    "legend.handlelength": 3.0,
    "legend.columnspacing": 1.2,
    "legend.handletextpad": 0.6,
    "figure.dpi": 300,
    "savefig.dpi": 300,
    "pdf.fonttype": 42,  # embedded TrueType: selectable text, accepted by every publisher
    "ps.fonttype": 42,
    "figure.constrained_layout.use": True,
}


def rc() -> dict[Any, Any]:
    """RC, with what the style in force changes."""
    return {**RC, **chosen().rc}


OWN_TEXT = {**RC, "text.parse_math": True}  # for figures whose every word is in our code


def new_figure(width: float, height: float) -> Figure:
    """An empty figure of so many inches, outside pyplot's global state."""
    figure = Figure(figsize=(width, height))
    FigureCanvasAgg(figure)
    return figure


@dataclass(frozen=True)
class Look:
    """The look of one seed group."""

    colour: str
    marker: str
    dash: Any
    hollow: bool
    index: int  # position in METHODS, which staggers the markers

    def line(self, num_points: int) -> dict[str, Any]:
        """The keywords of a curve with some eight markers, staggered so that coinciding curves can be told apart."""
        every = max(1, num_points // 8)
        return {**self.point(), "linestyle": self.dash, "markevery": (self.index % every, every)}

    def point(self) -> dict[str, Any]:
        """The keywords of markers."""
        size = rc()["lines.markersize"] * _MARKER_SCALE.get(self.marker, 1.0)
        face = "white" if self.hollow else self.colour
        edge = self.colour if self.hollow else "white"
        return {"color": self.colour, "marker": self.marker, "markerfacecolor": face, "markeredgecolor": edge,
                "markeredgewidth": 0.9 if self.hollow else 0.4, "markersize": size}  # fmt: skip


_CYCLE = math.lcm(len(COLOURS), len(MARKERS), len(DASHES))  # so many methods have looks of their own
# Shades of a method's settings, two by two: its colour, part of the way to black, part of the way to white.
_SHADES = (0.0, -0.4, 0.3)


def look(seed_group: SeedGroup, *, lines: bool = True) -> Look:
    """The colour, marker and dash of the seed group's method, the second setting's with another dash, and hollow.

    The next two settings have another marker and a darker shade, the two after a lighter one, and so on; in a figure of
    points alone (not ``lines``) every setting has another marker.  Where its settings differ in nothing but the scope,
    the entire model is solid and layer-wise is dashed, for every method alike.  A method that METHODS does not know
    takes one of the places after it, by its name.
    """
    index = _index(seed_group.method)
    dash = DASHES[(index + seed_group.variant) % len(DASHES)]
    if set(seed_group.differs) == {"method.scope"}:
        dash = DASHES[seed_group.differs["method.scope"] == "tensor"]
    pair = seed_group.variant // 2
    marker = MARKERS[(index + 7 * pair) % len(MARKERS)]
    hollow = seed_group.variant % 2 == 1
    if not lines:
        marker = MARKERS[(index + 7 * seed_group.variant) % len(MARKERS)]
        # the second round of markers is filled where the first was hollow
        hollow ^= seed_group.variant // len(MARKERS) % 2 == 1
    ours = _OWN_COLOURS.get(seed_group.method, COLOURS[index % len(COLOURS)])
    colour = to_hex(chosen().colors.get(seed_group.method, ours))
    return Look(_shaded(colour, _SHADES[pair % len(_SHADES)]), marker, dash, hollow, index)


def _shaded(colour: str, by: float) -> str:
    """A colour moved towards black or white; by: in [-1, 1], the part of the way to black (negative) or to white."""
    end = 255 if by > 0 else 0
    channels = [int(colour[place : place + 2], 16) for place in (1, 3, 5)]
    return "#" + "".join(f"{round(channel + abs(by) * (end - channel)):02x}" for channel in channels)


def _index(method: str) -> int:
    names = list(METHODS)
    if method in names:
        return names.index(method)
    return len(names) + zlib.crc32(method.encode()) % max(1, _CYCLE - len(names))
