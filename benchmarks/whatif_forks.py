"""What a fork is worth for ``benchmarks.whatif``: the intervals of differences, by forks and by whole runs.

The sweep ``forks cpu`` leaves SuperSGD in the middle for other methods, and trains the same methods from the start.
The interval of a fork's difference is that of pairs of one seed (fork minus the run that it left); beside it stands the
interval of the same comparison by whole runs whose seeds are taken for independent (Welch), as runs of other seeds are.
Both are of the validation loss at the last step.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

from analysis.aggregate import wide
from analysis.forks import branches, welch
from analysis.logs.load import Logs, load
from analysis.logs.parents import AT, RUN
from analysis.seed_groups import groups

ROOT = Path(__file__).parent.parent
FAMILY, NAME, FOLDER = "forks", "cpu", "forks_cpu"
TAG, LEFT = "Vloss", "supersgd"


def figures_of_forks() -> dict[str, Any]:
    """The figures of the sweep, whose missing runs are trained first.  RuntimeError where one of them fails."""
    done = subprocess.run([sys.executable, "grid_run.py", "run", FAMILY, NAME], cwd=ROOT, check=False, stdout=2)
    if done.returncode:
        raise RuntimeError(f"grid_run.py run {FAMILY} {NAME} ended with {done.returncode}")
    logs = load(ROOT / "runs", FOLDER)
    ways = intervals(logs)
    ratios = [row["ratio"] for row in ways.values()]
    identical = all(_is_same(run, Path(str(left)).name) for run, left in _unchanged(logs).items())
    return {
        "fork_unchanged_identical": identical,
        "paired_interval_ratio": round(statistics.median(ratios), 4),
        "fork_seeds": len(_unchanged(logs)),
        "forks": ways,
    }


def intervals(logs: Logs) -> dict[str, dict[str, float]]:
    """By the method of forks: difference and paired half-width, those by whole runs, and the ratio of half-widths."""
    found, from_step = {}, logs.settings[AT].to_dict()
    for group in groups(logs):
        own = branches(group.logs, group.seed_groups, TAG)
        whole = {one.method: list(one.runs) for one in group.seed_groups if not from_step[one.runs[0]]}
        for branch in own if not isinstance(own, str) else []:
            method, end = branch.seed_group.method, branch.ours.index[-1]
            if method == LEFT:
                continue
            last = [wide(logs, TAG, whole[name]).loc[end].to_numpy(float) for name in (method, LEFT)]
            apart, paired = welch(*last), branch.final.half_width
            row = {"difference": branch.final.mean, "paired": paired, "whole_runs": apart, "ratio": paired / apart}
            row["whole_difference"] = float(last[0].mean() - last[1].mean())
            found[method] = {name: float(f"{value:.4g}") for name, value in row.items()}
    return found


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
