"""The figure of ``time_to_accuracy``: accuracy against seconds of training."""

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


def draw(
    rows: Sequence[dict[str, Any]], figures: Mapping[str, Any], titles: Mapping[str, str], name: str, folder: Path
) -> None:
    """Draw the figure as PNG and PDF in ``folder``.

    Lines are means over the seeds, bands smallest and largest accuracy, rings the mean times to the target.
    """
    target = figures["target_accuracy"]
    with pyplot.rc_context(style.OWN_TEXT):
        figure, axis = pyplot.subplots(figsize=(style.WIDTHS["page"] * 0.62, 2.9))
        for method, title in titles.items():
            look = style.look(SeedGroup(method, 0, title, (), {}))
            steps = sorted({row["step"] for row in rows if row["method"] == method})
            at = [[row for row in rows if row["method"] == method and row["step"] == step] for step in steps]
            seconds = [statistics.fmean(row["seconds"] for row in group) for group in at]
            values = [[row["accuracy"] for row in group] for group in at]
            band = {"color": look.colour, "alpha": 0.12, "linewidth": 0}
            axis.fill_between(seconds, list(map(min, values)), list(map(max, values)), **band)
            axis.plot(seconds, list(map(statistics.fmean, values)), label=title, **look.line(len(seconds)))
            if (reached := figures["time_to_accuracy_s"][method]) is not None:
                axis.plot([reached], [target], "o", markersize=8, mfc="none", mec=look.colour, mew=1.1, zorder=5)
        axis.axhline(target, color="#777777", linewidth=0.8, linestyle=(0, (1, 1.5)), zorder=1)
        labels = {"xlabel": "seconds of training (100 Mbit/s, two ranks)", "ylabel": f"test accuracy, {name} (%)"}
        axis.set(xscale="log", **labels)
        axis.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.set_ylim(max(min(row["accuracy"] for row in rows), target - 30), None)
        axis.legend(loc="lower right")
        folder.mkdir(parents=True, exist_ok=True)
        stem = "time_to_accuracy" if figures["data"] == "digits" else f"time_to_accuracy_{figures['data']}"
        for form in FORMATS:
            figure.savefig(folder / f"{stem}.{form}", metadata={"CreationDate": None} if form == "pdf" else None)
        pyplot.close(figure)
