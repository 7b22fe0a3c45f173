"""What a fork is worth for ``benchmarks.links whatif``: the intervals of differences, by forks and by whole runs.

The sweep ``forks cpu`` leaves SuperSGD in the middle for other methods, and trains the same methods from the start.
The interval of a fork's difference is that of pairs of one seed (fork minus the run that it left); beside it stand the
intervals of the same comparison by whole runs: whose seeds are taken for independent (Welch), as runs of other seeds
are, and in pairs of one seed.  All are of the validation loss, or of the accuracy in points, at the last step.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

from analysis.forks import branches, welch
from analysis.groups.aggregate import wide
from analysis.groups.seed_groups import SeedGroup, groups
from analysis.logs.load import Logs, load
from analysis.logs.parents import AT, RUN
from analysis.tables.paired import difference

ROOT = Path(__file__).parent.parent
FAMILY, NAME, FOLDER = "forks", "cpu", "forks_cpu"
LOSS, ACCURACY, LEFT = "Vloss", "Vacc", "supersgd"


def figures_of_forks() -> dict[str, Any]:
    """The figures of the sweep, whose missing runs are trained first.  RuntimeError where one of them fails."""
    done = subprocess.run([sys.executable, "grid_run.py", "run", FAMILY, NAME], cwd=ROOT, check=False, stdout=2)
    if done.returncode:
        raise RuntimeError(f"grid_run.py run {FAMILY} {NAME} ended with {done.returncode}")
    logs = load(ROOT / "runs", FOLDER)
    identical = all(_is_same(run, Path(str(left)).name) for run, left in _unchanged(logs).items())
    return {
        "fork_unchanged_identical": identical,
        "fork_seeds": len(_unchanged(logs)),
        **figures_of_intervals(logs),
    }


def figures_of_intervals(logs: Logs) -> dict[str, Any]:
    """The intervals of loss and accuracy, and the medians of their ratios over methods."""
    loss, accuracy = (intervals(logs, tag) for tag in (LOSS, ACCURACY))

    def median(ways: dict[str, dict[str, float]], ratio: str) -> float:
        return round(statistics.median(row[ratio] for row in ways.values()), 4)

    return {
        "paired_interval_ratio": median(loss, "ratio"),
        "paired_interval_ratio_of_pairs": median(loss, "ratio_of_pairs"),
        "accuracy_interval_ratio": median(accuracy, "ratio"),
        "accuracy_interval_ratio_of_pairs": median(accuracy, "ratio_of_pairs"),
        "forks": loss,
        "forks_accuracy": accuracy,
    }


def intervals(logs: Logs, tag: str) -> dict[str, dict[str, float]]:
    """By the method of forks: difference and paired half-width, those by whole runs, and the ratios of half-widths.

    whole_runs, whole_pairs: the half-width by whole runs of other seeds, and in pairs of one; ratio, ratio_of_pairs: of
    the forks' to these.
    """
    found, from_step = {}, logs.settings[AT].to_dict()
    for group in groups(logs):
        own = branches(group.logs, group.seed_groups, tag)
        whole = {one.method: _by_seed(logs, one) for one in group.seed_groups if not from_step[one.runs[0]]}
        for branch in own if not isinstance(own, str) else []:
            method, end = branch.seed_group.method, branch.ours.index[-1]
            if method == LEFT:
                continue
            last = [wide(logs, tag, whole[name]).loc[end].to_numpy(float) for name in (method, LEFT)]
            apart, pairs, paired = welch(*last), difference(*last), branch.final.half_width
            row = {"difference": branch.final.mean, "paired": paired, "whole_difference": pairs.mean}
            row |= {"whole_runs": apart, "ratio": paired / apart}
            row |= {"whole_pairs": pairs.half_width, "ratio_of_pairs": paired / pairs.half_width}
            found[method] = {name: float(f"{value:.4g}") for name, value in row.items()}
    return found


def _by_seed(logs: Logs, seed_group: SeedGroup) -> list[str]:
    """The runs of a seed group in the order of their seeds, so that those of two methods are pairs."""
    return sorted(seed_group.runs, key=lambda run: logs.settings["seed"].to_dict()[run])


def _unchanged(logs: Logs) -> dict[str, Any]:
    """The forks without a change, and the folders of what they left."""
    settings = logs.settings
    own = settings.loc[(settings["method.name"] == LEFT) & settings[RUN].notna(), RUN]
    return {str(run): left for run, left in own.items()}


def _is_same(run: str, left: str) -> bool:
    """Whether two runs ended with the same parameters, bit for bit."""
    ours, theirs = (
        torch.load(ROOT / "runs" / FOLDER / name / "checkpoint.pt", weights_only=True)["model"] for name in (run, left)
    )
    return ours.keys() == theirs.keys() and all(torch.equal(value, theirs[name]) for name, value in ours.items())
