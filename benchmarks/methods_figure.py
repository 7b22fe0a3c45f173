"""The figures of ``benchmarks.methods``: error against bits, and the speeds of every method's encoding and decoding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib import pyplot
from matplotlib.patheffects import withStroke

from analysis.groups.seed_groups import SeedGroup
from analysis.plots import style
from analysis.restyled import FORMATS

if TYPE_CHECKING:
    from benchmarks.method_rows import Row

LEAST_GB_PER_S = 1.0
LOSSLESS = "no error"
# Places of a label around its marker, in points, the nearest and most usual first.
PLACES = tuple(
    (radius * np.cos(angle), radius * np.sin(angle))
    for radius in (6, 11, 17, 24, 32, 42)
    for angle in np.arange(16) * np.pi / 8
)


def draw(rows: Mapping[str, Row], title: str, folder: Path) -> list[Path]:
    """Draw two figures as PNG and PDF in ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    paths: list[Path] = []
    with pyplot.rc_context(style.OWN_TEXT):
        for name, make in (("methods_error", _errors), ("methods_speed", _speeds)):
            figure = make(rows, title)
            for form in FORMATS:
                paths.append(folder / f"{name}.{form}")
                figure.savefig(paths[-1])
            pyplot.close(figure)
    return paths


def _look(case: str, rows: Mapping[str, Row]) -> style.Look:
    name = case.split()[0]
    variant = [other for other in rows if other.split()[0] == name].index(case)
    return style.look(SeedGroup(name, variant, case, (), {}), lines=False)


def _errors(rows: Mapping[str, Row], title: str) -> Any:
    figure, axis = pyplot.subplots(figsize=(style.WIDTHS["page"], 4.6))
    errors = [row.error for row in rows.values() if row.error > 0]
    floor = 10.0 ** (np.floor(np.log10(min(errors, default=1.0))) - 1)
    axis.set(
        xscale="log",
        yscale="log",
        xlabel="bits per coordinate, of whole messages",
        ylabel="$|x - C(x)|^2 / |x|^2$",
        title=title,
    )
    points = {case: (row.bits_per_coordinate, row.error or floor) for case, row in rows.items()}
    for case, (bits, error) in points.items():
        axis.plot(bits, error, linestyle="none", **_look(case, rows).point())
    line = axis.axhline(1.0, color="#777777", linewidth=0.8, linestyle=(0, (3, 2)), zorder=1)
    axis.margins(0.09, 0.08)
    exact = [row for row in rows.values() if row.error == 0]
    if exact:
        axis.axhline(floor, color="#777777", linewidth=0.8, zorder=1)
        axis.annotate(LOSSLESS, (0.005, floor), (0, 3), axis.get_yaxis_transform(), "offset points", color="#555555")
    note = axis.annotate(
        "as large as the gradient", (0.28, 1.0), (0, 2), axis.get_yaxis_transform(), "offset points", color="#555555"
    )
    _label(
        figure,
        axis,
        {case: row.title for case, row in rows.items()},
        points,
        {case: _look(case, rows).colour for case in rows},
        [note, line],
    )
    return figure


def _label(
    figure: Any,
    axis: Any,
    texts: Mapping[str, str],
    points: Mapping[str, tuple[float, float]],
    colours: Mapping[str, str],
    notes: Sequence[Any],
) -> None:
    """Write names beside the points, each where it covers least of what is there already.

    Points on one another share a label.
    """
    figure.canvas.draw()
    frame, scale = axis.get_window_extent(), figure.dpi / 72
    pixels = {case: axis.transData.transform(point) for case, point in points.items()}
    taken = [(x - 3 * scale, y - 3 * scale, x + 3 * scale, y + 3 * scale) for x, y in pixels.values()]
    taken += [tuple(note.get_window_extent().padded(1.5 * scale).extents) for note in notes]
    for group in _together(pixels, 4 * scale):
        case = group[0]
        x, y = pixels[case]
        text = ", ".join(texts[other] for other in group)
        label = axis.annotate(
            text, points[case], (0, 0), textcoords="offset points", fontsize=6.5, ha="center", va="center", zorder=4
        )
        label.set_path_effects([withStroke(linewidth=1.5, foreground="white")])
        box = label.get_window_extent()
        best: tuple[float, Any, Any] = (np.inf, None, None)
        for dx, dy in PLACES:
            # centred on the far side of the marker, so that long names do not reach back over it
            centre = (x + dx * scale + np.sign(round(dx, 3)) * box.width / 2, y + dy * scale)
            place = (
                centre[0] - box.width / 2,
                centre[1] - box.height / 2,
                centre[0] + box.width / 2,
                centre[1] + box.height / 2,
            )
            inside = place[0] > frame.x0 and place[2] < frame.x1 and place[1] > frame.y0 and place[3] < frame.y1
            cost = (
                sum(_overlap(place, other) for other in taken) + 0.2 * scale * np.hypot(dx, dy) + (0 if inside else 1e6)
            )
            if cost < best[0]:
                best = (cost, centre, place)
        _, centre, place = best
        label.set_position(((centre[0] - x) / scale, (centre[1] - y) / scale))
        if np.hypot(max(place[0] - x, 0, x - place[2]), max(place[1] - y, 0, y - place[3])) > 8 * scale:
            axis.annotate(
                "", points[case], label.get_position(), textcoords="offset points", arrowprops=_leader(colours[case])
            )
        taken.append(place)


def _together(pixels: Mapping[str, Any], near: float) -> list[list[str]]:
    """The points in groups that lie within ``near`` pixels of their first one."""
    groups: list[list[str]] = []
    for case, pixel in pixels.items():
        group = next((group for group in groups if np.hypot(*(pixel - pixels[group[0]])) < near), None)
        if group is None:
            groups.append([case])
        else:
            group.append(case)
    return groups


def _leader(colour: str) -> dict[str, Any]:
    return {"arrowstyle": "-", "color": colour, "linewidth": 0.4, "shrinkA": 4, "shrinkB": 2}


def _overlap(a: tuple[float, ...], b: tuple[float, ...]) -> float:
    """The common area of two boxes, in pixels."""
    return max(0.0, min(a[2], b[2]) - max(a[0], b[0])) * max(0.0, min(a[3], b[3]) - max(a[1], b[1]))


def _speeds(rows: Mapping[str, Row], title: str) -> Any:
    figure, axis = pyplot.subplots(figsize=(style.WIDTHS["page"], 0.6 + 0.2 * len(rows)))
    indices = np.arange(len(rows))[::-1]
    axis.barh(
        indices + 0.2, [row.encode_gb_per_s for row in rows.values()], 0.38, color=style.COLOURS[3], label="encode"
    )
    axis.barh(
        indices - 0.2, [row.decode_gb_per_s for row in rows.values()], 0.38, color=style.COLOURS[2], label="decode"
    )
    slow = [
        (place, row.eager_gb_per_s) for place, row in zip(indices, rows.values(), strict=True) if row.eager_gb_per_s
    ]
    axis.plot(
        [rate for _, rate in slow],
        [place + 0.2 for place, _ in slow],
        "|",
        color="#000000",
        markersize=6,
        label="encode, eager PyTorch",
    )
    tens = [(place + 0.2, 10 * rate) for place, rate in slow if 10 * rate < LEAST_GB_PER_S]
    axis.plot(
        [rate for _, rate in tens],
        [place for place, _ in tens],
        "|",
        color=style.COLOURS[6],
        markersize=6,
        label="ten times eager",
    )
    axis.axvline(LEAST_GB_PER_S, color=style.COLOURS[6], linewidth=0.8, zorder=1)
    axis.set(xscale="log", xlabel="GB/s of float32 input", title=title, ylim=(-0.7, len(rows) - 0.3))
    axis.set_yticks(indices, [row.title for row in rows.values()])
    axis.grid(False, axis="y")
    figure.legend(loc="outside lower center", ncols=4)
    return figure
