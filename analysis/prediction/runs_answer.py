"""The answer of ``python -m analysis predict RUN ..``: seconds to the target as a table, as records and as a map."""

from __future__ import annotations

import argparse
import itertools
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from analysis.commands import note
from analysis.groups.seed_groups import title
from analysis.groups.selection import select
from analysis.prediction import profile
from analysis.prediction.ranges import bandwidths_of, counts_of
from analysis.prediction.runs import ELSEWHERE, Answer, RunQuestion, Setup, Setups, question, read, without_forks
from files.aligned import aligned
from files.tables import as_json, beside_json, written_csv
from nuq.prediction.units import duration, shown_bandwidth

BANDWIDTHS = "10M..10G"  # where nothing is asked


def answer(options: argparse.Namespace) -> None:
    """Answer what the options of ``predict`` ask about their runs.  ValueError and OSError, each in one sentence."""
    rates = profile.read(options.profile)
    if options.latency is not None:
        if not (math.isfinite(options.latency) and options.latency >= 0):
            raise ValueError(f"--latency {options.latency}: must be seconds, at least 0")
        rates = replace(rates, latency_s=options.latency)
    logs = read(options.folders)
    chosen = [*options.where, *([f"method={','.join(options.methods)}"] if options.methods else [])]
    logs = without_forks(select(logs, chosen))
    asked = question(logs, options.target, rates)
    setups = Setups(
        counts_of(options.workers)
        if options.workers is not None
        else sorted({max(2, count) for count in asked.workers}),
        counts_of(options.every, "--every", 1) if options.every is not None else asked.every,
        bandwidths_of(BANDWIDTHS if options.bandwidth is None else options.bandwidth),
    )
    rows = records(asked, setups)
    written = written_csv(rows, options.csv)
    if options.figure:
        from analysis.prediction.fastest_map import draw  # matplotlib takes a second to import

        written += draw(asked, setups, options.figure)
    note(logs.notes)
    with beside_json(options.json):
        print(text(asked, setups))
        for path in written:
            print(path)
    if options.json:
        print(as_json(rows))


def records(asked: RunQuestion, setups: Setups) -> list[Mapping[str, Any]]:
    """A record for each method, number of workers, H and bandwidth; seconds and steps are None where a run never ends.

    runs_workers, runs_every: of the runs whose steps these are.
    """
    rows: list[Mapping[str, Any]] = []
    for setup in setups:
        answers, base = asked.answers(setup)
        for way, found in zip(asked.ways, answers, strict=True):
            ends = math.isfinite(found.seconds)
            rows.append(
                {
                    "method": way.seed_group.method,
                    "label": way.seed_group.label,
                    "workers": setup.workers,
                    "every": setup.every,
                    "bandwidth_bit_s": round(setup.bandwidth),
                    "latency_s": asked.profile.latency_s,
                    "seconds": found.seconds if ends else None,
                    "steps": found.steps if ends else None,
                    "speedup": base / found.seconds if math.isfinite(base / found.seconds) else None,
                    "num_reached": found.num_reached,
                    "num_runs": found.num_runs,
                    "runs_every": found.of[0],
                    "runs_workers": found.of[1],
                }
            )
    return rows


# --- for people ---------------------------------------------------------------------------------------------------


def text(asked: RunQuestion, setups: Setups) -> str:
    """What was asked and what is assumed, then a table for each number of workers and H."""
    over = f", speed-up over {title(asked.baseline)}" if asked.baseline else ""
    lines = [*_head(asked), ""]
    for workers, every in itertools.product(setups.workers, setups.every):
        exchange = "an exchange at every step" if every == 1 else f"an exchange every {every} steps"
        lines += [f"{workers:,} workers, {exchange}: seconds to the target{over}"]
        columns = [asked.answers(Setup(workers, every, bandwidth)) for bandwidth in setups.bandwidths]
        table = [["", *(shown_bandwidth(bandwidth) for bandwidth in setups.bandwidths)]]
        for number, way in enumerate(asked.ways):
            cells = (_cell(found[number], base, workers, every) for found, base in columns)
            table.append([way.seed_group.label, *cells])
        lines += [aligned(table), ""]
    if any(found.of != (setup.every, setup.workers) for setup in setups for found in asked.answers(setup)[0]):
        lines.append(f"{ELSEWHERE}: no run of the method has this H and number of workers, so its steps may be others")
    return "\n".join(lines).rstrip()


def _head(asked: RunQuestion) -> list[str]:
    rule = f" ({asked.target.rule})" if asked.target.rule else ""
    of_runs = [*dict.fromkeys(run for way in asked.ways for runs in way.runs.values() for run in runs)]
    num = f"{len(of_runs)} run{'s' * (len(of_runs) != 1)}"
    computes = duration(asked.costs[of_runs[0]].compute_s)
    return [
        f"To {asked.goal}{rule}, from the logs of {num}; a worker's step computes for {computes}, a message takes "
        f"{duration(asked.profile.latency_s)}",
        "Assumed: a machine and a link of its own for every worker, exchange.collective as in the runs, full precision "
        "and bf16 added up by a ring, no overlap, and the loss by steps of the runs with the nearest H and number of "
        "workers",
    ]


def _cell(found: Answer, base: float, workers: int, every: int) -> str:
    if not math.isfinite(found.seconds):
        return f"{found.num_reached} of {found.num_runs}" if found.num_reached else "never"
    mark = "" if found.of == (every, workers) else ELSEWHERE
    faster = f" {base / found.seconds:.2f}" if math.isfinite(base) else ""
    return f"{duration(found.seconds)}{faster}{mark}"
