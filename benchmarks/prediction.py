"""How far the cost model is off on measured steps: ``python -m benchmarks.prediction [FILE --commit COMMIT]``.

FILE has the rows of ``python -m benchmarks.wire --out FILE``; the rates are those of the repository's profile
(``analysis.prediction``).  The errors are of all rows that the model speaks of and of one commit's; the bandwidths
below which ALQ is quicker than bf16 are for the profile's MLP.  Nothing is timed.  The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Sequence
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


def main(arguments: Sequence[str] | None = None) -> None:
    """Print one JSON object."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.prediction", description="Errors of the cost model")
    rows_file = Path("results") / "wire" / "turns.jsonl"
    parser.add_argument("file", type=Path, nargs="?", default=rows_file, help="measured steps (default: %(default)s)")
    parser.add_argument("--commit", default="02ff1e8", help="whose rows stand apart (default: %(default)s)")
    chosen = parser.parse_args(arguments)
    rates = profile.read(profile.DEFAULT)
    try:
        rows = validate.read_rows(chosen.file)
        own = validate.validated([row for row in rows if row.get("commit") == chosen.commit], rates)
        every = validate.validated(rows, rates)
    except ValueError as error:
        parser.error(str(error))
    errors: dict[str, Any] = {"of_commit": own.summary(), "of_all": every.summary(), "far_off": far_off(own)}
    print(json.dumps({"commit": chosen.commit, **errors, "break_even": break_even(rates)}))


if __name__ == "__main__":
    main()
