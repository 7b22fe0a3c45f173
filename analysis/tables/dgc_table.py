"""DGC's published table beside our runs: top-1 by the number of GPUs, for both models."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from analysis import published
from analysis.tables.text_table import add_columns, by_row, written
from files.aligned import aligned

LEGEND = "Top-1 in percent on ImageNet at ratio .001; ours: complete runs of grid dgc, 95 % interval (t) over seeds"
_DENSE = ("dense", "", "")


def table(runs: Path) -> pd.DataFrame:
    """One row for each published one, dense first, and for each model the published number and ours (``add_columns``).

    runs: the folder of all sweeps; ours are the complete runs of ``dgc imagenet_resnet50`` and ``dgc
    imagenet_vgg16bn``.
    """
    rows = [(f"{gpus} GPUs", _nodes(gpus, workers), schedule) for gpus, workers, schedule in published.DGC]
    found = pd.DataFrame([_DENSE, *rows], columns=["trained on", "workers that compress", "schedule"])
    for column, (model, sweep) in enumerate(zip(published.DGC_MODELS, published.DGC_SWEEPS, strict=True)):
        ours = by_row(runs, sweep, functools.partial(_row, sweep))
        theirs = {_DENSE: published.DGC_DENSE[column], **{row: both[column] for row, both in published.DGC.items()}}
        add_columns(found, model, theirs, ours, "score")
    return found


def _nodes(gpus: int, workers: int) -> str:
    return str(workers) if workers == gpus else f"{workers} nodes of {gpus // workers}"


def _row(sweep: str, settings: Mapping[Any, Any]) -> tuple[int | str, ...]:
    """The row of these settings, dense with however many workers; empty for what is not published."""
    method = settings["method.name"]
    if method not in (published.accuracy(sweep, settings) or {}):
        return ()
    return _DENSE if method == "supersgd" else published.dgc_row(settings)


def text(found: pd.DataFrame) -> str:
    """The table as text in aligned columns; a dash stands where we have no run."""
    headings = [
        *found.columns[:3],
        *(f"{model} {whose}" for model in published.DGC_MODELS for whose in ("paper", "ours")),
    ]
    lines = []
    for row in found.to_dict("records"):
        lines.append([row[name] for name in found.columns[:3]])
        for model in published.DGC_MODELS:
            lines[-1] += [f"{row[f'{model} paper']:.1f}", written(row, model)]
    return aligned([headings, *lines], words=3, ruled=True)
