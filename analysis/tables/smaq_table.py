"""SmaQ's published table beside our runs: accuracy (for BERT: correlation) and compression ratio of every format."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from analysis import published
from analysis.aggregate import Estimate, estimate
from analysis.logs.load import load
from analysis.results import of_complete_runs
from analysis.seed_groups import title
from analysis.tables.text_table import MISSING, written
from files.aligned import aligned

LEGEND = """\
resnet34: top-1 in percent on CIFAR-10; bert: Pearson's correlation on STS-B; all tensors are in the format
ours: complete runs of grid smaq, 95 % interval (t) over seeds; ratio: bytes of float32 over bytes kept
SmaQ: zeros=coded, the published format; with its zeros masked, our default, it may exceed 32/6 = 5.33, the most of \
that format"""
_NOTHING = np.empty((0, 2))


def table(runs: Path) -> pd.DataFrame:
    """One row for each published one, and for each model score and ratio, published and ours.

    Our numbers are mean, half-width and runs; NaN without runs.

    runs: the folder of all sweeps; ours are the complete runs of ``smaq cifar10_resnet34`` and ``smaq bert_stsb`` that
    keep all tensors in the format, as theirs do.
    """
    found = pd.DataFrame({"format": ["FP32" if name == "supersgd" else title(name) for name in published.SMAQ]})
    for column, (sweep, (_, model)) in enumerate(zip(published.SMAQ_SWEEPS, published.SMAQ_TASKS, strict=True)):
        ours = _ours(runs, sweep)
        for place, what in enumerate(("score", "ratio")):
            estimates = [estimate(ours.get(name, _NOTHING)[:, place]) for name in published.SMAQ]
            found[f"{model} {what} paper"] = [row[column][place] for row in published.SMAQ.values()]
            found[f"{model} {what} ours"] = [each.mean for each in estimates]
            found[f"{model} {what} ours_pm"] = [each.half_width for each in estimates]
            found[f"{model} {what} ours_n"] = [each.n for each in estimates]
    return found


def _ours(runs: Path, sweep: str) -> dict[str, np.ndarray]:
    """The final accuracies (for scores: correlations) and ratios (n, 2) of the complete runs.

    They are given by the row of the table in which they stand.
    """
    if not (runs / sweep).is_dir():
        return {}
    logs = load(runs, sweep)
    of_run = of_complete_runs(logs)
    values = of_run.assign(score=of_run["final"].fillna(of_run["correlation"]))[["score", "ratio"]].to_numpy(float)
    found: dict[str, list[np.ndarray]] = {}
    for pair, settings in zip(values, logs.settings.to_dict("records"), strict=True):
        if name := published.smaq_row(sweep, settings):
            found.setdefault(name, []).append(pair)
    return {name: np.array(pairs) for name, pairs in found.items()}


def text(found: pd.DataFrame) -> str:
    """The table as text in aligned columns; a dash stands where the paper has no number, or we have no run."""
    headings, names = ["format"], []
    for (_, model), digits in zip(published.SMAQ_TASKS, (2, 3), strict=True):
        names += [(f"{model} score", digits), (f"{model} ratio", 2)]
        headings += [f"{model} paper", "ours", "ratio paper", "ours"]
    rows = []
    for row in found.to_dict("records"):
        line = [str(row["format"])]
        for name, digits in names:
            ours = Estimate(row[f"{name} ours"], row[f"{name} ours_pm"], row[f"{name} ours_n"])
            theirs = float(row[f"{name} paper"])
            line += [f"{theirs:.{digits}f}" if np.isfinite(theirs) else MISSING, written(ours, digits)]
        rows.append(line)
    return aligned([headings, *rows], words=1, ruled=True)
