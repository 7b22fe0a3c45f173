"""The figure of ``benchmarks.time_to_accuracy``: accuracy against seconds of training."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib import pyplot
from matplotlib.ticker import FuncFormatter, LogLocator

from analysis.groups.seed_groups import SeedGroup
from analysis.plots import style
from analysis.restyled import FORMATS
from benchmarks.time_to_accuracy_rank import Task


def draw(
    rows: Sequence[dict[str, Any]],
    task: Task,
    name: str,
    titles: Mapping[str, str],
    times: Mapping[str, float | None],
    folder: Path,
) -> list[Path]:
    """Draw the figure as PNG and PDF in ``folder``.

    Lines are means over the seeds, bands smallest and largest accuracy, rings the times to accuracy.

    titles: of the methods that are drawn; times: mean seconds to the target, None where it was not reached.
    """
    with pyplot.rc_context(style.OWN_TEXT):
        figure, axis = pyplot.subplots(figsize=(style.WIDTHS["page"] * 0.62, 2.9))
        for method, title in titles.items():
            look = style.look(SeedGroup(method, 0, title, (), {}))
            steps = sorted({row["step"] for row in rows if row["method"] == method})
            at = [[row for row in rows if row["method"] == method and row["step"] == step] for step in steps]
            seconds = [statistics.fmean(row["seconds"] for row in group) for group in at]
            accuracies = [[row["accuracy"] for row in group] for group in at]
            means = [statistics.fmean(group) for group in accuracies]
            axis.fill_between(
                seconds,
                [min(g) for g in accuracies],
                [max(g) for g in accuracies],
                color=look.colour,
                alpha=0.12,
                linewidth=0,
            )
            axis.plot(seconds, means, label=title, **look.line(len(seconds)))
            if (reached := times[method]) is not None:
                axis.plot([reached], [task.target], "o", markersize=8, mfc="none", mec=look.colour, mew=1.1, zorder=5)
        axis.axhline(task.target, color="#777777", linewidth=0.8, linestyle=(0, (1, 1.5)), zorder=1)
        axis.set(
            xscale="log", xlabel="seconds of training (100 Mbit/s, two ranks)", ylabel=f"test accuracy, {name} (%)"
        )
        axis.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        lowest = min(row["accuracy"] for row in rows)
        axis.set_ylim(max(lowest, task.target - 30), None)
        axis.legend(loc="lower right")
        folder.mkdir(parents=True, exist_ok=True)
        stem = "time_to_accuracy" if task.data == "digits" else f"time_to_accuracy_{task.data}"
        paths = [folder / f"{stem}.{form}" for form in FORMATS]
        for path in paths:
            figure.savefig(path, metadata={"CreationDate": None} if path.suffix == ".pdf" else None)
        pyplot.close(figure)
    return paths
