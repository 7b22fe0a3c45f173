"""SmaQ's published table beside our runs: accuracy (for BERT: correlation) and compression ratio of every format."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
import pandas as pd

from analysis import published
from analysis.groups.seed_groups import title
from analysis.tables.text_table import MISSING, add_columns, by_row, written
from files.aligned import aligned

LEGEND = """\
resnet34: top-1 in percent on CIFAR-10; bert: Pearson's correlation on STS-B; all tensors are in the format
ours: complete runs of grid smaq, 95 % interval (t) over seeds; ratio: bytes of float32 over bytes kept
SmaQ: zeros=coded, the published format; with its zeros masked, our default, it may exceed 32/6 = 5.33, the most of \
that format"""


def table(runs: Path) -> pd.DataFrame:
    """One row for each published one, and for each model score and ratio, published and ours (``add_columns``).

    runs: the folder of all sweeps; ours are the complete runs of ``smaq cifar10_resnet34`` and ``smaq bert_stsb`` that
    keep all tensors in the format, as theirs do.
    """
    found = pd.DataFrame({"format": ["FP32" if name == "supersgd" else title(name) for name in published.SMAQ]})
    for column, (sweep, (_, model)) in enumerate(zip(published.SMAQ_SWEEPS, published.SMAQ_TASKS, strict=True)):
        ours = by_row(runs, sweep, functools.partial(published.smaq_row, sweep))
        for place, what in enumerate(("score", "ratio")):
            theirs = {name: row[column][place] for name, row in published.SMAQ.items()}
            add_columns(found, f"{model} {what}", theirs, ours, what)
    return found


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
            theirs = float(row[f"{name} paper"])
            line += [f"{theirs:.{digits}f}" if np.isfinite(theirs) else MISSING, written(row, name, digits)]
        rows.append(line)
    return aligned([headings, *rows], words=1, ruled=True)
