"""The figure of ``benchmarks.accuracy_per_bit``: vNMSE against total bits, one panel a source, the legend below."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import pyplot

from analysis.groups.seed_groups import SeedGroup
from analysis.plots import style
from analysis.restyled import FORMATS
from benchmarks.accuracy_curves import WHOLE, Curves, Family, Point, frontier

BITS, ERRORS = (0.8, 5.2), (1.5e-3, 12.0)
COLUMNS, PANEL_HEIGHT, LEGEND_HEIGHT = 3, 2.7, 1.0
# The drawn curves: method, settings that differ from plain (packed, L2, bucket 8192), variant of its look, label.
SHOWN: tuple[tuple[str, dict[str, Any], int, str], ...] = (
    ("ecdq", {"rotation": "hadamard", "dither": "subtractive", "coding": "rans"}, 0, "ECDQ: rotated, dithered, rANS"),
    ("ecdq", {"dither": "subtractive", "coding": "rans"}, 1, "ECDQ: dithered, rANS"),
    ("ecdq", {"dither": "subtractive", "coding": "rans", "bucket_size": WHOLE}, 2, "ECDQ: dithered, rANS, one bucket"),
    ("eden", {"coding": "rans"}, 1, "EDEN: rANS"),
    ("eden", {"coding": "rans", "levels": "uniform"}, 2, "EDEN: uniform steps, rANS"),
    ("eden", {}, 0, "EDEN (at 1 bit: DRIVE)"),
    ("optimal", {"coding": "rans"}, 0, "Optimal levels: rANS"),
    ("alq", {}, 0, "ALQ"),
    ("amq", {}, 0, "AMQ"),
    (
        "qsgdinf",
        {"rotation": "hadamard", "dither": "subtractive", "coding": "rans"},
        1,
        "QSGDinf: rotated, dithered, rANS",
    ),
    ("qsgdinf", {}, 0, "QSGDinf"),
    ("nuqsgd", {}, 0, "NUQSGD"),
    ("trn", {}, 0, "TRN"),
)
PLAIN = {
    "rotation": "none",
    "dither": "none",
    "rounding": "stochastic",
    "norm": "l2",
    "form": "signed",
    "bucket_size": 8192,
    "coding": "packed",
    "levels": "lloyd_max",
}


def _shown(curves: Curves, method: str, settings: Mapping[str, Any]) -> list[Point]:
    """The points of one entry of SHOWN that lie in the frame, and one beyond it on either side, so lines leave it."""

    def fits(family: Family) -> bool:
        return family.method == method and family.settings == {
            name: ({**PLAIN, **settings})[name] for name in family.settings
        }

    points = frontier(next(points for family, points in curves.items() if fits(family)))
    inside = [BITS[0] <= point.bits <= BITS[1] and point.error <= ERRORS[1] for point in points]
    kept = [number for number, _ in enumerate(points) if any(inside[max(number - 1, 0) : number + 2])]
    return [points[number] for number in kept]


def draw(panels: Mapping[str, Curves], folder: Path) -> list[Path]:
    """Draw the figure as PNG and PDF in ``folder``; panels: title -> curves."""
    with pyplot.rc_context(style.OWN_TEXT):
        rows = -(-len(panels) // COLUMNS)
        size = (style.WIDTHS["page"], rows * PANEL_HEIGHT + LEGEND_HEIGHT)
        figure, axes = pyplot.subplots(rows, COLUMNS, figsize=size, sharex=True, sharey=True, layout="constrained")
        cells = axes.ravel()
        for axis, (title, curves) in zip(cells, panels.items(), strict=False):
            _panel(axis, title, curves)
        for axis in cells[len(panels) :]:
            axis.axis("off")
        for number, axis in enumerate(cells[: len(panels)]):
            below = number + COLUMNS
            axis.tick_params(labelbottom=below >= len(panels))
            if below >= len(panels):
                axis.set_xlabel("total bits per coordinate")
            if number % COLUMNS == 0:
                axis.set_ylabel("vNMSE")
        handles, labels = cells[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=COLUMNS, handlelength=3.0)
        paths = [folder / f"accuracy_per_bit.{form}" for form in FORMATS]
        for path in paths:
            figure.savefig(path)
        pyplot.close(figure)
    return paths


def _panel(axis: Any, title: str, curves: Curves) -> None:
    for method, settings, variant, label in SHOWN:
        points = _shown(curves, method, settings)
        look = style.look(SeedGroup(method, variant, label, (), {}))
        line = {**look.point(), "linestyle": look.dash, "markevery": 1}
        axis.plot([point.bits for point in points], [point.error for point in points], label=label, **line)
    bits = np.linspace(*BITS, 100)
    bound = 1.0 / np.expm1(2.0 * np.log(2.0) * bits)  # D / (1 - D) of the rate-distortion function D = 4^-R
    axis.plot(
        bits,
        bound,
        color="#777777",
        linewidth=0.8,
        linestyle=(0, (1, 1.5)),
        label="bound for normal coordinates",
        zorder=1,
    )
    axis.set(yscale="log", xlim=BITS, ylim=ERRORS, title=title)
    axis.set_xticks(range(1, 6))
