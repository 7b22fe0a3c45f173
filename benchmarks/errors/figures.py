"""The figures of errors: vNMSE against bits for ``per_bit``, and errors and speeds of every method for ``methods``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import pyplot
from matplotlib.patheffects import withStroke

from analysis.groups.seed_groups import SeedGroup
from analysis.plots import style
from analysis.restyled import FORMATS
from benchmarks.errors.contenders import named
from benchmarks.errors.curves import WHOLE, Curves, Point, frontier

GREY = "#777777"


def _look(method: str, variant: int, label: str, *, lines: bool = True) -> style.Look:
    return style.look(SeedGroup(method, variant, label, (), {}), lines=lines)


def _save(figure: Any, folder: Path, name: str) -> None:
    """Write the figure as PNG and PDF into the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for form in FORMATS:
        figure.savefig(folder / f"{name}.{form}")
    pyplot.close(figure)


# --- vNMSE against bits ---

BITS, ERRORS = (0.8, 5.2), (1.5e-3, 12.0)
COLUMNS, PANEL_HEIGHT, LEGEND_HEIGHT = 3, 2.7, 1.0
PLAIN = named(
    "plain rotation=none dither=none rounding=stochastic norm=l2 form=signed bucket_size=8192 coding=packed "
    "levels=lloyd_max"
)[1]
# The drawn curves: contender (what differs from PLAIN), variant of its look, label.
SHOWN = (
    ("ecdq rotation=hadamard dither=subtractive coding=rans", 0, "ECDQ: rotated, dithered, rANS"),
    ("ecdq dither=subtractive coding=rans", 1, "ECDQ: dithered, rANS"),
    (f"ecdq dither=subtractive coding=rans bucket_size={WHOLE}", 2, "ECDQ: dithered, rANS, one bucket"),
    ("eden coding=rans", 1, "EDEN: rANS"),
    ("eden coding=rans levels=uniform", 2, "EDEN: uniform steps, rANS"),
    ("eden", 0, "EDEN (at 1 bit: DRIVE)"),
    ("optimal coding=rans", 0, "Optimal levels: rANS"),
    ("alq", 0, "ALQ"),
    ("amq", 0, "AMQ"),
    ("qsgdinf rotation=hadamard dither=subtractive coding=rans", 1, "QSGDinf: rotated, dithered, rANS"),
    ("qsgdinf", 0, "QSGDinf"),
    ("nuqsgd", 0, "NUQSGD"),
    ("trn", 0, "TRN"),
)


def _shown(curves: Curves, contender: str) -> list[Point]:
    """The points of a contender that lie in the frame, and one beyond it on either side, so that lines leave it."""
    method, given = named(contender)
    of_method = (family for family in curves if family.method == method)
    wanted = {**PLAIN, **given}
    points = frontier(next(curves[f] for f in of_method if all(wanted[name] == value for name, value in f.options)))
    inside = [BITS[0] <= point.bits <= BITS[1] and point.error <= ERRORS[1] for point in points]
    return [point for number, point in enumerate(points) if any(inside[max(number - 1, 0) : number + 2])]


def draw_curves(panels: Mapping[str, Curves], folder: Path) -> None:
    """Draw a panel for each source; panels: title -> curves."""
    with pyplot.rc_context(style.OWN_TEXT):
        rows = -(-len(panels) // COLUMNS)
        size = (style.WIDTHS["page"], rows * PANEL_HEIGHT + LEGEND_HEIGHT)
        figure, axes = pyplot.subplots(rows, COLUMNS, figsize=size, sharex=True, sharey=True, layout="constrained")
        cells = axes.ravel()
        for number, axis in enumerate(cells):
            if number >= len(panels):
                axis.axis("off")
                continue
            _panel(axis, *list(panels.items())[number])
            lowest = number + COLUMNS >= len(panels)
            axis.tick_params(labelbottom=lowest)
            axis.set(xlabel="total bits per coordinate" * lowest, ylabel="vNMSE" * (number % COLUMNS == 0))
        handles, labels = cells[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=COLUMNS, handlelength=3.0)
        _save(figure, folder, "accuracy_per_bit")


def _panel(axis: Any, title: str, curves: Curves) -> None:
    for contender, variant, label in SHOWN:
        points, look = _shown(curves, contender), _look(contender.split()[0], variant, label)
        line = {**look.point(), "linestyle": look.dash, "markevery": 1}
        axis.plot([point.bits for point in points], [point.error for point in points], label=label, **line)
    bits = np.linspace(*BITS, 100)
    bound = 1.0 / np.expm1(2.0 * np.log(2.0) * bits)  # D / (1 - D) of the rate-distortion function D = 4^-R
    dots: dict[str, Any] = {"color": GREY, "linewidth": 0.8, "linestyle": (0, (1, 1.5)), "zorder": 1}
    axis.plot(bits, bound, label="bound for normal coordinates", **dots)
    axis.set(yscale="log", xlim=BITS, ylim=ERRORS, title=title)
    axis.set_xticks(range(1, 6))


# --- every method ---

# Places of a label around its marker, in points, the nearest and most usual first.
PLACES = tuple(
    (radius * np.cos(angle), radius * np.sin(angle))
    for radius in (6, 11, 17, 24, 32, 42)
    for angle in np.arange(16) * np.pi / 8
)


def draw_methods(rows: Mapping[str, dict[str, Any]], title: str, least_gb_per_s: float, folder: Path) -> None:
    """Draw errors against bits, and speeds with the least that is asked of them."""
    with pyplot.rc_context(style.OWN_TEXT):
        _save(_errors(rows, title), folder, "methods_error")
        _save(_speeds(rows, title, least_gb_per_s), folder, "methods_speed")


def _errors(rows: Mapping[str, dict[str, Any]], title: str) -> Any:
    figure, axis = pyplot.subplots(figsize=(style.WIDTHS["page"], 4.6))
    floor = 10.0 ** (
        np.floor(np.log10(min((row["error"] for row in rows.values() if row["error"] > 0), default=1.0))) - 1
    )
    names = {"xlabel": "bits per coordinate, of whole messages", "ylabel": "$|x - C(x)|^2 / |x|^2$"}
    axis.set(xscale="log", yscale="log", title=title, **names)
    points = {case: (row["bits_per_coordinate"], row["error"] or floor) for case, row in rows.items()}
    variants: dict[str, int] = {}
    looks = {}
    for case, (bits, error) in points.items():
        method = case.split()[0]
        variants[method] = variants.get(method, -1) + 1
        looks[case] = _look(method, variants[method], case, lines=False)
        axis.plot(bits, error, linestyle="none", **looks[case].point())
    line = axis.axhline(1.0, color=GREY, linewidth=0.8, linestyle=(0, (3, 2)), zorder=1)
    axis.margins(0.09, 0.08)

    def note(text: str, x: float, y: float, above: float) -> Any:
        at = (axis.get_yaxis_transform(), "offset points")
        return axis.annotate(text, (x, y), (0, above), *at, color="#555555")

    if any(row["error"] == 0 for row in rows.values()):
        axis.axhline(floor, color=GREY, linewidth=0.8, zorder=1)
        note("no error", 0.005, floor, 3)
    notes = [note("as large as the gradient", 0.28, 1.0, 2), line]
    titles = {case: row["title"] for case, row in rows.items()}
    _label(axis, titles, points, {case: look.colour for case, look in looks.items()}, notes)
    return figure


def _label(
    axis: Any,
    texts: Mapping[str, str],
    points: Mapping[str, tuple[float, float]],
    colours: Mapping[str, str],
    notes: Sequence[Any],
) -> None:
    """Write names beside the points, each where it covers least of what is there already.

    Points on one another share a label.
    """
    axis.figure.canvas.draw()
    frame, scale = axis.get_window_extent(), axis.figure.dpi / 72
    pixels = {case: axis.transData.transform(point) for case, point in points.items()}
    taken = [(x - 3 * scale, y - 3 * scale, x + 3 * scale, y + 3 * scale) for x, y in pixels.values()]
    taken += [tuple(note.get_window_extent().padded(1.5 * scale).extents) for note in notes]
    for group in _together(pixels, 4 * scale):
        case = group[0]
        x, y = pixels[case]
        how = {"textcoords": "offset points", "fontsize": 6.5, "ha": "center", "va": "center", "zorder": 4}
        label = axis.annotate(", ".join(texts[other] for other in group), points[case], (0, 0), **how)
        label.set_path_effects([withStroke(linewidth=1.5, foreground="white")])
        box = label.get_window_extent()

        def placed(offset: tuple[float, float], x: float = x, y: float = y, box: Any = box) -> tuple[float, Any, Any]:
            """The cost of a place, its centre and its box.

            It is centred on the far side of the marker, so that long names do not reach back over it.
            """
            dx, dy = offset
            cx, cy = x + dx * scale + np.sign(round(dx, 3)) * box.width / 2, y + dy * scale
            place = (cx - box.width / 2, cy - box.height / 2, cx + box.width / 2, cy + box.height / 2)
            inside = place[0] > frame.x0 and place[2] < frame.x1 and place[1] > frame.y0 and place[3] < frame.y1
            covered = sum(_overlap(place, other) for other in taken)
            return covered + 0.2 * scale * np.hypot(dx, dy) + (0 if inside else 1e6), (cx, cy), place

        _, (cx, cy), place = min(map(placed, PLACES), key=lambda found: found[0])
        label.set_position(((cx - x) / scale, (cy - y) / scale))
        if np.hypot(max(place[0] - x, 0, x - place[2]), max(place[1] - y, 0, y - place[3])) > 8 * scale:
            leader = {"arrowstyle": "-", "color": colours[case], "linewidth": 0.4, "shrinkA": 4, "shrinkB": 2}
            axis.annotate("", points[case], label.get_position(), textcoords="offset points", arrowprops=leader)
        taken.append(place)


def _together(pixels: Mapping[str, Any], near: float) -> list[list[str]]:
    """The points in groups that lie within ``near`` pixels of their first one."""
    groups: list[list[str]] = []
    for case, pixel in pixels.items():
        close = (group for group in groups if np.hypot(*(pixel - pixels[group[0]])) < near)
        if group := next(close, None):
            group.append(case)
        else:
            groups.append([case])
    return groups


def _overlap(a: tuple[float, ...], b: tuple[float, ...]) -> float:
    """The common area of two boxes, in pixels."""
    return max(0.0, min(a[2], b[2]) - max(a[0], b[0])) * max(0.0, min(a[3], b[3]) - max(a[1], b[1]))


def _speeds(rows: Mapping[str, dict[str, Any]], title: str, least_gb_per_s: float) -> Any:
    figure, axis = pyplot.subplots(figsize=(style.WIDTHS["page"], 0.6 + 0.2 * len(rows)))
    places = np.arange(len(rows))[::-1]
    for name, above, colour in (("encode", 0.2, style.COLOURS[3]), ("decode", -0.2, style.COLOURS[2])):
        rates = [row[f"{name}_gb_per_s"] for row in rows.values()]
        axis.barh(places + above, rates, 0.38, color=colour, label=name)
    slow = [(place + 0.2, row["eager_gb_per_s"]) for place, row in zip(places, rows.values(), strict=True)]
    slow = [(place, rate) for place, rate in slow if rate]
    tens = [(place, 10 * rate) for place, rate in slow if 10 * rate < least_gb_per_s]
    for marks, colour, label in (
        (slow, "#000000", "encode, eager PyTorch"),
        (tens, style.COLOURS[6], "ten times eager"),
    ):
        axis.plot([rate for _, rate in marks], [place for place, _ in marks], "|", color=colour, ms=6, label=label)
    axis.axvline(least_gb_per_s, color=style.COLOURS[6], linewidth=0.8, zorder=1)
    axis.set(xscale="log", xlabel="GB/s of float32 input", title=title, ylim=(-0.7, len(rows) - 0.3))
    axis.set_yticks(places, [row["title"] for row in rows.values()])
    axis.grid(False, axis="y")
    figure.legend(loc="outside lower center", ncols=4)
    return figure
