"""Forks beside the runs that they left: differences at the end, seed by seed."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from analysis.forks import branches
from analysis.groups.seed_groups import groups
from analysis.logs.load import Logs
from analysis.logs.parents import OF
from analysis.tables.paired import holm
from files.aligned import aligned

TAGS = {"Vloss": "validation loss", "Vacc": "accuracy, points"}
LEGEND = (
    "difference: fork minus the run that it left, at the last step that both have, with its 95 % interval (t) over\n"
    "pairs of one seed; p: of none (paired t), corrected for the number of forks (Holm); unpaired: the half-width\n"
    "that the interval would have if forks and the runs that they left had other seeds (Welch)"
)


def table(logs: Logs) -> list[dict[str, Any]] | str:
    """One row for each seed group of forks and quantity; a sentence where there are none.

    A row: fork (its label), left, step (where), quantity, end (the step compared), pairs, forks (with those
    that have no pair), difference, half_width, p (Holm's, over all rows of a quantity), unpaired (a half-width); NaN
    where there are fewer than two pairs.
    """
    found, why = [], "no run has logged a validation loss"
    for group in groups(logs):
        for tag, quantity in TAGS.items():
            own = branches(group.logs, group.seed_groups, tag)
            if isinstance(own, str):
                why = own
                continue
            for branch in own:
                run, final = branch.seed_group.runs[0], branch.final
                row = {"fork": branch.seed_group.label, "left": logs.settings[OF][run], "step": branch.at}
                row |= {"quantity": quantity, "end": int(branch.ours.index[-1])}
                row |= {"pairs": final.n, "forks": branch.num_forks}
                row |= {"difference": final.mean, "half_width": final.half_width, "p": final.p}
                found.append(row | {"unpaired": branch.unpaired_half_width})
    for quantity in TAGS.values():
        own = [row for row in found if row["quantity"] == quantity]
        for row, p in zip(own, holm(np.array([row["p"] for row in own])), strict=True):
            row["p"] = float(p)
    return found or why


def text(found: list[dict[str, Any]]) -> str:
    """The table as text in aligned columns."""
    lines = [["fork", "left", "step", "quantity", "end", "pairs", "difference", "p", "unpaired"]]
    for row in found:
        pairs = str(row["pairs"]) if row["pairs"] == row["forks"] else f"{row['pairs']} of {row['forks']}"
        told = [
            pairs,
            f"{row['difference']:+.4f} +- {_shown(row['half_width'])}",
            _shown(row["p"]),
            _shown(row["unpaired"]),
        ]
        lines.append([*(str(row[name]) for name in lines[0][:5]), *told])
    return aligned(lines, words=2, ruled=True)


def _shown(value: float) -> str:
    return f"{value:.2g}" if math.isfinite(value) else "-"
