"""The figure of ``benchmarks.lss``.

It shows signed errors, squared error and time against clusters and cells, and baselines at like bytes.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from matplotlib import pyplot
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from analysis.plots import style
from analysis.restyled import FORMATS

if TYPE_CHECKING:
    from benchmarks.lss_rows import Row

COLOURS = {"conv": "#0072b2", "linear": "#d55e00", "norm": "#0a7d3c", "bias": "#751713"}
MARKERS = {"conv": "o", "linear": "s", "norm": "^", "bias": "D"}
SIZES: tuple[tuple[str, Any], ...] = (("large", "-"), ("small", "--"))
AXES = {"clusters": "clusters of either sign", "cells": "cells over coordinates"}


def draw(rows: Sequence[Row], kinds: Sequence[str], title: str, folder: Path) -> list[Path]:
    """Draw the figure as PNG and PDF in ``folder``."""
    with pyplot.rc_context(style.OWN_TEXT):
        figure, axes = pyplot.subplots(3, 3, figsize=(style.WIDTHS["page"], 6.6))
        for row, study in zip(axes, AXES, strict=False):
            of_study = [measured for measured in rows if measured.study == study]
            _signed(row[0], of_study, kinds)
            _lines(row[1], of_study, kinds, "error")
            row[1].set(ylabel="$|C(x) - x|^2 / |x|^2$", ylim=(0, None))
            _times(row[2], of_study)
            for axis in row:
                axis.set(xscale="log", xlabel=AXES[study])
                if study == "clusters":
                    axis.set_xticks(
                        sorted({r.number for r in of_study}), [f"{r:g}" for r in sorted({r.number for r in of_study})]
                    )
                    axis.minorticks_off()
        _baselines(axes[2], rows, kinds)
        handles = [Line2D([], [], color=COLOURS[kind], marker=MARKERS[kind], label=kind) for kind in kinds]
        handles += [Line2D([], [], color="#444444", linestyle=line, label=f"{size} values") for size, line in SIZES]
        figure.legend(handles=handles, loc="outside upper center", ncols=len(handles), title=title, title_fontsize=8.5)
        paths = [folder / f"lss.{form}" for form in FORMATS]
        for path in paths:
            figure.savefig(path, metadata={"CreationDate": None} if path.suffix == ".pdf" else None)
        pyplot.close(figure)
    return paths


def _means(rows: Sequence[Row], kind: str, what: str) -> tuple[list[float], list[float]]:
    """The numbers, rising, and the mean over the gradients of what was measured there."""
    numbers = sorted({row.number for row in rows})
    at = [[getattr(row, what) for row in rows if row.number == number and row.kind == kind] for number in numbers]
    return numbers, [statistics.fmean(values) for values in at]


def _lines(axis: Any, rows: Sequence[Row], kinds: Sequence[str], what: str, dash: str = "-") -> None:
    for kind in kinds:
        axis.plot(*_means(rows, kind, what), color=COLOURS[kind], marker=MARKERS[kind], markersize=3.4, linestyle=dash)


def _signed(axis: Any, rows: Sequence[Row], kinds: Sequence[str]) -> None:
    for what, dash in SIZES:
        _lines(axis, rows, kinds, what, dash)
    axis.axhline(0, color="#777777", linewidth=0.8, zorder=1)
    # one cluster more than the outliers' errs a hundred times as much as many do
    axis.set_yscale("symlog", linthresh=0.01, linscale=0.7)
    axis.set_yticks([-0.1, -0.01, 0, 0.01, 0.1], ["-.1", "-.01", "0", ".01", ".1"])
    axis.set_ylabel("signed error / magnitude")


def _times(axis: Any, rows: Sequence[Row]) -> None:
    numbers = sorted({row.number for row in rows})
    for what, marker in (("encode_ms", "o"), ("decode_ms", "s")):
        at = [statistics.median(getattr(row, what) for row in rows if row.number == number) for number in numbers]
        axis.plot(
            numbers,
            at,
            color="#444444" if marker == "o" else "#8c8c8c",
            marker=marker,
            markersize=3.4,
            label=what.removesuffix("_ms"),
        )
    axis.set(ylabel="ms a gradient", ylim=(0, None))
    axis.legend(loc="center right")


def _baselines(axes: Any, rows: Sequence[Row], kinds: Sequence[str]) -> None:
    """Draw bars of each method at like bytes."""
    titles = list(dict.fromkeys(row.title for row in rows if row.study == "baselines"))
    for axis, (what, label) in zip(
        axes,
        {"large": "signed error, large", "small": "signed error, small", "error": "squared error"}.items(),
        strict=True,
    ):
        for place, kind in enumerate(kinds):
            own = [
                statistics.fmean(
                    getattr(r, what) for r in rows if (r.study, r.title, r.kind) == ("baselines", title, kind)
                )
                for title in titles
            ]
            height = 0.8 / len(kinds)
            axis.barh(
                [number + height * (place - (len(kinds) - 1) / 2) for number in range(len(titles))],
                own,
                height,
                color=COLOURS[kind],
            )
        axis.set_yticks(range(len(titles)), titles if what == "large" else [""] * len(titles), fontsize=5.5)
        axis.invert_yaxis()
        axis.set_xlabel(label)
        axis.xaxis.set_major_locator(MaxNLocator(4))
        axis.axvline(0, color="#777777", linewidth=0.8)
