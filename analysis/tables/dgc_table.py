"""DGC's published table beside our runs: top-1 by the number of GPUs, for both models."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from analysis import published
from analysis.aggregate import Estimate, estimate
from analysis.logs.load import load
from analysis.results import of_complete_runs
from analysis.tables.text_table import written
from files.aligned import aligned

LEGEND = "Top-1 in percent on ImageNet at ratio .001; ours: complete runs of grid dgc, 95 % interval (t) over seeds"


def table(runs: Path) -> pd.DataFrame:
    """One row for each published one, dense first, and for each model the published and our numbers.

    Our numbers are mean, half-width and runs; NaN without runs.

    runs: the folder of all sweeps; ours are the complete runs of ``dgc imagenet_resnet50`` and
    ``dgc imagenet_vgg16bn``.
    """
    rows = [("dense", "", "")] + [
        (f"{gpus} GPUs", _nodes(gpus, workers), schedule) for gpus, workers, schedule in published.DGC
    ]
    found = pd.DataFrame(rows, columns=["trained on", "workers that compress", "schedule"])
    for column, (model, sweep) in enumerate(zip(published.DGC_MODELS, published.DGC_SWEEPS, strict=True)):
        ours = _ours(runs, sweep)
        estimates = [estimate(ours.get(key, np.empty(0))) for key in (None, *published.DGC)]
        found[f"{model} paper"] = [published.DGC_DENSE[column], *(row[column] for row in published.DGC.values())]
        found[f"{model} ours"] = [each.mean for each in estimates]
        found[f"{model} ours_pm"] = [each.half_width for each in estimates]
        found[f"{model} ours_n"] = [each.n for each in estimates]
    return found


def _nodes(gpus: int, workers: int) -> str:
    return str(workers) if workers == gpus else f"{workers} nodes of {gpus // workers}"


def _ours(runs: Path, sweep: str) -> dict[tuple[int, int, str] | None, np.ndarray]:
    """The final accuracies of the complete runs by their row of the table; None: dense, with however many workers."""
    if not (runs / sweep).is_dir():
        return {}
    logs = load(runs, sweep)
    final = of_complete_runs(logs)["final"].to_numpy(float)
    found: dict[tuple[int, int, str] | None, list[float]] = {}
    for accuracy, settings in zip(final, logs.settings.to_dict("records"), strict=True):
        theirs = published.accuracy(sweep, settings) or {}
        method = settings["method.name"]
        if method in theirs:
            key = None if method == "supersgd" else published.dgc_row(settings)
            found.setdefault(key, []).append(float(accuracy))
    return {key: np.array(values) for key, values in found.items()}


def text(found: pd.DataFrame) -> str:
    """The table as text in aligned columns; a dash stands where we have no run."""
    headings = [
        *found.columns[:3],
        *(f"{model} {whose}" for model in published.DGC_MODELS for whose in ("paper", "ours")),
    ]
    lines = []
    for row in found.to_dict("records"):
        numbers = []
        for model in published.DGC_MODELS:
            ours = Estimate(row[f"{model} ours"], row[f"{model} ours_pm"], row[f"{model} ours_n"])
            numbers += [f"{row[f'{model} paper']:.1f}", written(ours)]
        lines.append([row["trained on"], row["workers that compress"], row["schedule"], *numbers])
    return aligned([headings, *lines], words=3, ruled=True)
