"""Final validation loss against predicted seconds over slow links, for runs with rounds of local steps."""

from __future__ import annotations

import dataclasses

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.axes import LINKS, MISSING, positions, unit
from analysis.groups.aggregate import final
from analysis.groups.seed_groups import Group
from analysis.logs.load import Logs
from analysis.plots.across import Mean, Series, along, arithmetic
from analysis.plots.legends import legend_below
from analysis.plots.panels import RATIO, line
from analysis.plots.style import WIDTHS, new_figure
from analysis.plots.ticks import log_ticks, x_axis

LOCAL_STEPS = "exchange.local_steps"
_OUTER = [f"exchange.{name}" for name in ("outer_lr", "outer_momentum", "nesterov", "fragments", "overlap", "mixing")]


def loss_over_links(group: Group, width: float) -> Figure | str:
    """The final loss against the seconds of ``analysis.axes.LINKS``, a panel each, beside one another on a page.

    A line for each method, a point for each length H of its rounds: mean and spread over the complete runs.
    Only for runs that differ in H: what exchanges at every step is asked of ``python -m analysis predict``.
    """
    del width
    settings = group.logs.settings
    if LOCAL_STEPS not in settings or len(set(settings[LOCAL_STEPS])) < 2:
        return f"all runs have the same {LOCAL_STEPS}"
    outer = [name for name in _OUTER if name in settings]
    with_outer = settings[outer].where(settings[LOCAL_STEPS] != 1)  # at H = 1 there is no outer optimizer
    logs = dataclasses.replace(group.logs, settings=settings.assign(**{name: with_outer[name] for name in outer}))
    panels = along(logs, LOCAL_STEPS)
    if isinstance(panels, str):
        return panels
    every = [series for panel in panels for series in panel.series if series.points]
    width = WIDTHS["page"]
    figure = new_figure(width, width / len(LINKS) * (RATIO + 0.3))
    for number, link in enumerate(LINKS):
        axes = figure.add_subplot(1, len(LINKS), number + 1)
        if problem := _panel(axes, logs, every, link):
            return problem
        axes.set_title(f"{link[:-1]} {link[-1]}bit/s")
        axes.set_ylabel("final validation loss" if number == 0 else "")
    legend_below(figure, width)
    return figure


def _panel(axes: Axes, logs: Logs, every: list[Series], link: str) -> str | None:
    tables = [(series.seed_group, found) for series in every if len(found := _table(logs, series, link))]
    if not tables:
        return MISSING[link] if "Vloss" in logs.tags else "no run has logged Vloss"
    size, label = unit(link, max(float(found.index.to_numpy(float).max()) for _, found in tables))
    for seed_group, found in tables:
        line(axes, seed_group, found.set_axis(found.index / size).sort_index())
    rounds = sorted({round(every) for _, found in tables for every in found["every"]})
    told = f"from the right:\nH = {', '.join(map(str, rounds))}"
    axes.text(0.97, 0.95, told, transform=axes.transAxes, ha="right", va="top", fontsize="small")
    axes.set_xscale("log")
    axes.set_yscale("log")
    x_axis(axes, label, whole=False)
    log_ticks(axes)
    return None


def _table(logs: Logs, series: Series, link: str) -> pd.DataFrame:
    """The loss of a line (a ``Mean``, and H as ``every``) by the seconds, of complete runs of known seconds."""
    rows = {}
    for every, seed_group in series.points.items():
        runs = [run for run in seed_group.runs if run in set(logs.complete)]
        if not runs or "Vloss" not in logs.tags:
            continue
        loss, steps = arithmetic(final(logs, "Vloss", runs)), logs.of_tag("Vloss").index[-1:]
        seconds = float(positions(logs, link, runs, steps).to_numpy().mean())
        if np.isfinite(seconds) and np.isfinite(loss.mean):
            rows[seconds] = (*loss, every)
    return pd.DataFrame.from_dict(rows, orient="index", columns=[*Mean._fields, "every"])
