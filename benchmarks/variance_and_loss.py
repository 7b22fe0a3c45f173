"""Does variance predict training? ``python -m benchmarks.variance_and_loss [SWEEP --runs FOLDER]``

The final validation loss of a sweep's settings (means over seeds) against the variance that quantization adds, the
kurtosis of its error and its largest value, all as factors of 10 (``analysis.plots.variance_and_loss``): least squares
with 95 % intervals, and Kendall's tau.  Methods have learning rates of their own, which say more of the loss than
their variance does: so there is a line of each cause alone and one beside the rate.  All that once over every setting
that quantizes, and once without those that add more variance than training on one worker does (CONTROL times
SuperSGD's): a few poor methods would decide every line.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import kendalltau

from analysis.logs.load import Logs, load
from analysis.plots.across import Panel, trade_offs
from analysis.plots.variance_and_loss import KURTOSIS, LARGEST, of_seed_groups, regression

CONTROL = 3  # one worker's variance less that of the mean of four, over the latter
CAUSES = ("variance", KURTOSIS, LARGEST)
RATE = "optim.lr"


def explained(rows: Sequence[dict[str, float]]) -> dict[str, Any]:
    """What each cause explains of the loss: alone, beside the rate and, for the tails, beside rate and variance."""
    loss = np.array([row["loss"] for row in rows])
    found: dict[str, Any] = {"settings": len(rows)}
    for name in CAUSES:
        causes = {each: np.array([row[each] for row in rows]) for each in dict.fromkeys(["variance", name])}
        known = np.isfinite(loss) & np.isfinite(causes[name])
        alone = regression(loss, {name: causes[name]})
        if alone is None:
            raise SystemExit(f"{known.sum()} settings have logged {name} and a loss: too few for a line")
        told = {"slope": _interval(*alone.slopes[name]), "r2": alone.r2, "settings": alone.n}
        tau, p = kendalltau(causes[name][known], loss[known])
        told |= {"tau": tau, "p": p}
        rate = {RATE: np.array([row[RATE] for row in rows])}
        for words, others in (("beside_rate", {name: causes[name]}), ("beside_variance", causes)):
            if together := regression(loss, {**rate, **others}):
                told[words] = {"slope": _interval(*together.slopes[name]), "r2": together.r2, "settings": together.n}
        found[name] = told
    return found


def _interval(mean: float, width: float) -> dict[str, float]:
    return {"mean": mean, "low": mean - width, "high": mean + width}


def rows_of(logs: Logs, panel: Panel) -> list[dict[str, float]]:
    """The settings that quantize: loss, logarithms of the causes, and of the learning rate."""
    rates = logs.settings[RATE].astype(float).to_dict()
    return [
        {**row, RATE: math.log10(rates[panel.series[number].points[place].runs[0]])}
        for (number, place), row in of_seed_groups(panel).items()
    ]


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.variance_and_loss",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("sweep", nargs="?", default="headline_cifar10_cpu", metavar="SWEEP")
    parser.add_argument("--runs", default="results", metavar="FOLDER", help="the folder of all sweeps")
    options = parser.parse_args(words)
    logs = load(Path(options.runs), options.sweep)
    panels = [panel for panel in trade_offs(logs) if panel.group.trajectory == "method"]
    if len(panels) != 1:
        parser.error(f"{options.sweep} has runs of {len(panels)} tasks that are trained with the quantized gradient")
    every = rows_of(logs, panels[0])
    moderate = [row for row in every if not row["variance"] > math.log10(CONTROL)]
    groups = {"every": explained(every), "moderate": explained(moderate)}
    figures = {"runs": len(logs.complete), "left_out": len(every) - len(moderate), **groups}
    for group, found in groups.items():
        for name in CAUSES:
            own = found[name]
            slope = own["slope"]
            line = f"{group:9} {name:15} {slope['mean']:+.3f} ({slope['low']:+.3f} to {slope['high']:+.3f})"
            beside = own["beside_rate"]["slope"]
            print(f"{line} per factor of 10, R2 {own['r2']:.2f}, tau {own['tau']:+.2f} (p {own['p']:.2g})", end="; ")
            print(f"beside the rate {beside['mean']:+.4f} ({beside['low']:+.4f} to {beside['high']:+.4f})")
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
