"""Validation loss against predicted seconds over slow links, for runs with rounds of local steps."""

from __future__ import annotations

from matplotlib.figure import Figure

from analysis.axes import LINKS
from analysis.plots.curves import PLOTS, Means, curves
from analysis.plots.legends import legend_below
from analysis.plots.panels import RATIO
from analysis.plots.style import WIDTHS, new_figure
from analysis.seed_groups import Group

LOCAL_STEPS = "exchange.local_steps"


def loss_over_links(group: Group, width: float) -> Figure | str:
    """The validation loss against the seconds of ``analysis.axes.LINKS``, a panel each, beside one another on a page.

    Only for runs that differ in the length of their rounds: what exchanges at every step is asked of ``python -m
    analysis predict``, which knows more of collectives and machines.
    """
    del width
    settings = group.logs.settings
    if LOCAL_STEPS not in settings or len(set(settings[LOCAL_STEPS])) < 2:
        return f"all runs have the same {LOCAL_STEPS}"
    means, width = Means(group), WIDTHS["page"]
    (plot,) = [plot for plot in PLOTS if plot.name == "validation_loss"]
    figure = new_figure(width, width / len(LINKS) * (RATIO + 0.3))
    for number, link in enumerate(LINKS):
        axes = figure.add_subplot(1, len(LINKS), number + 1)
        if problem := curves(axes, means, plot, link):
            return problem
        axes.set_title(f"{link[:-1]} {link[-1]}bit/s")
        axes.set_ylabel(plot.label if number == 0 else "")
    legend_below(figure, width)
    return figure
