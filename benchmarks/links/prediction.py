"""How far the cost model is off on measured steps.

FILE has the rows of ``wire --out FILE``; the rates are those of the repository's profile (``analysis.prediction``).
The errors are of all rows that the model speaks of and of one commit's; the bandwidths below which ALQ is quicker
than bf16 are for the profile's MLP.  Nothing is timed.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any

from analysis.prediction import profile, validate
from analysis.prediction.command import rows_of
from analysis.prediction.question import Question

WORKERS = (8, 64, 1024)
LARGE = 0.2  # an error that is told by its case


def break_even(rates: profile.Profile) -> dict[str, float | str]:
    """The bandwidth in bit/s, by the number of workers, below which ALQ is quicker than bf16, or the word always."""
    rows = rows_of(["alq"], None, 4, None, rates)
    question = Question(rates, validate.model_of("mlp", rates), rates.compute_s, rows, 1, 100e9, "auto")
    found = {str(workers): float(f"{question.gains(rows[-1], workers)[1]:.4g}") for workers in WORKERS}
    return {workers: "always" if math.isinf(bandwidth) else bandwidth for workers, bandwidth in found.items()}


def far_off(checked: validate.Checked) -> list[str]:
    """The cases with an error above LARGE, each with its largest, most first."""
    worst: dict[str, float] = {}
    for row, error in zip(checked.rows, checked.errors, strict=True):
        case = f"{row['model']} of batch {row['batch']} on {row['ranks']} ranks at {row['rate_mbit'] / 1000:g} Gbit/s"
        if abs(error) > max(LARGE, abs(worst.get(case, 0.0))):
            worst[case] = error
    return [f"{case} ({100 * error:+.0f} %)" for case, error in sorted(worst.items(), key=lambda one: -abs(one[1]))]


def options(parser: argparse.ArgumentParser) -> None:
    rows_file = Path("results") / "wire" / "turns.jsonl"
    parser.add_argument("file", type=Path, nargs="?", default=rows_file, help="measured steps (default: %(default)s)")
    parser.add_argument("--commit", default="02ff1e8", help="whose rows stand apart (default: %(default)s)")


def run(chosen: argparse.Namespace) -> dict[str, Any]:
    rates, rows = profile.read(profile.DEFAULT), validate.read_rows(chosen.file)
    own = validate.validated([row for row in rows if row.get("commit") == chosen.commit], rates)
    errors = {"of_commit": own.summary(), "of_all": validate.validated(rows, rates).summary(), "far_off": far_off(own)}
    return {"commit": chosen.commit, **errors, "break_even": break_even(rates)}
