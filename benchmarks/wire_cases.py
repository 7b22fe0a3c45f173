"""The rows of ``benchmarks.wire`` by case, over the turns in which it ran: ``python -m benchmarks.wire_cases FILE``.

FILE has a JSON object in each line, as ``python -m benchmarks.wire --out FILE`` writes them; rows of several runs may
stand in it, with the ``commit`` of each, of which ``--commit`` chooses one.  The times of a case are means of the runs'
medians; ratios and efficiencies are medians over the rounds of all runs, with the smallest and the largest.  The last
line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.timing import summary

RATES = {100: "100 Mbit/s", 1000: "1 Gbit/s", 10_000: "10 Gbit/s"}
MEANS = ("raw_mbit", "step_s", "compute_s", "exposed_s", "bytes_sent_per_step", "interface_bytes_per_step")
OF_ROUNDS = ("speedup_vs_fp32", "speedup_vs_bf16", "efficiency")
Row = Mapping[str, Any]


def figures(rows: Sequence[Row]) -> dict[str, Any]:
    """The figures of all, and of each variant: ``["cases"]["2 ranks, mlp, batch 32"]["100 Mbit/s"]["alq"]``."""
    of_case: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        model = f"{row['ranks']} ranks, {row['model']}, batch {row['batch']}"
        of_case.setdefault((model, RATES[row["rate_mbit"]], row["variant"]), []).append(row)
    cases: dict[str, Any] = {}
    for (model, rate, variant), runs in of_case.items():
        cases.setdefault(model, {}).setdefault(rate, {})[variant] = _over_runs(runs)
    disagree = max((row["bytes_disagree"] for row in rows if row["variant"].startswith("alq")), default=None)
    return {"cases": cases, "level_update_s": level_updates(rows), "bytes_disagree": disagree}


def _over_runs(runs: Sequence[Row]) -> dict[str, Any]:
    found: dict[str, Any] = {name: float(f"{statistics.fmean(run[name] for run in runs):.4g}") for name in MEANS}
    found |= {"runs": len(runs), "rounds": sum(run["rounds"] for run in runs)}
    for name in OF_ROUNDS:
        if all(name in run for run in runs):
            found[name] = summary([value for run in runs for value in run[name]])
    return found


def level_updates(rows: Sequence[Row]) -> dict[str, dict[str, float]]:
    """The seconds of a level update by the number of ranks: the middle, least and largest of models and runs."""
    found: dict[str, dict[tuple[Any, ...], float]] = {}
    for row in rows:
        if row.get("level_update_s"):
            run = (row.get("turn"), row["model"])
            found.setdefault(f"{row['ranks']} ranks", {})[run] = row["level_update_s"]
    return {ranks: summary(list(values.values())) for ranks, values in found.items()}


def main(arguments: Sequence[str] | None = None) -> None:
    """Print one line for each case, then one JSON object."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.wire_cases", description="Rows of a slow link by case.")
    parser.add_argument("file", type=Path, help="rows that benchmarks.wire wrote")
    parser.add_argument("--commit", help="only the rows of this commit")
    chosen = parser.parse_args(arguments)
    rows = [json.loads(line) for line in chosen.file.read_text().splitlines()]
    of_commit = [row for row in rows if chosen.commit in (None, row.get("commit"))]
    if not of_commit:
        known = ", ".join(sorted({str(row.get("commit")) for row in rows}))
        parser.error(f"--commit {chosen.commit}: must be one of {known}")
    found = figures(of_commit)
    for model, by_rate in found["cases"].items():
        for rate, by in by_rate.items():
            times = (f"{variant} {1e3 * of['step_s']:.0f} ms" for variant, of in by.items())
            print(f"{model}, {rate}: {', '.join(times)}")
    print(json.dumps(found))


if __name__ == "__main__":
    main()
