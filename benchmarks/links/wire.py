"""Training steps under DDP over slow links.

Two and four ranks, one thread each, train models of 11 million parameters on gloo: an MLP 3072-2560-1280-10, ResNet-18
for images of 32x32, and a GPT on windows of 128 characters.  ALQ at 3 bits (gather between two ranks; between more two
stages, the second of 4 bits) runs against fp32, the best bf16 and PowerSGD (``baselines``), in turns in one set of
processes; at 10 Gbit/s also ALQ with its gate.

A step is forward, backward and SGD; its time is the slowest rank's, the median over the rounds; a ratio is taken
round by round.  Exposed communication is the time of a step beyond one that does not communicate.  Efficiency is the
least time that a step can take with as many bytes (``bound_s``) over the time that it takes.  Bytes are those that a
rank counts itself, and those that its interface sent without headers.  Ranks share the machine's cores, so with more
ranks than cores compute takes longer than on machines of their own.

``--out FILE`` keeps the rows.  ``--from FILE`` takes kept rows of one run or several (with the ``commit`` and
``turn`` of each): times are means of the runs' medians, ratios and efficiencies medians over the rounds of all runs.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.links.models import LARGE
from benchmarks.links.network import network
from benchmarks.links.ranks import FASTEST_MBIT, Rank, Row, measure, prepare, rank_processes
from benchmarks.links.spec import Spec
from benchmarks.timing import summary

RATES_MBIT = {"100M": 100, "1G": 1000, "10G": 10_000}
RATES = {100: "100 Mbit/s", 1000: "1 Gbit/s", 10_000: "10 Gbit/s"}
BATCHES = {"mlp": (32,), "resnet18": (2, 8, 32), "gpt": (1, 4, 16)}
VARIANTS = ("nothing", "fp32", "bf16", "powersgd", "alq")
GATED = "alq_gate"
WARM_UP = 4  # DDP's second set of buckets, PowerSGD's factors, ALQ's levels and gate
LEVEL_UPDATE = 2  # the step that sets ALQ's levels: after DDP has rebuilt its buckets, before anything is timed
MEANS = ("raw_mbit", "step_s", "compute_s", "exposed_s", "bytes_sent_per_step", "interface_bytes_per_step")
OF_ROUNDS = ("speedup_vs_fp32", "speedup_vs_bf16", "efficiency")
Rounds = Mapping[str, Sequence[Row]]  # by variant


@dataclass(frozen=True)
class Case:
    """What the variants are measured at, in the same processes."""

    ranks: int
    model: str
    batch: int
    rate: str


def variant_of(name: str, ranks: int) -> str:
    """The variant of a ``Spec``."""
    if not name.startswith("alq"):
        return name
    collective = "collective=two_stage second_bits=4" if ranks > 2 else "collective=gather"
    return f"hook method=alq bits=3 gate={name == GATED} update_at=[{LEVEL_UPDATE}] {collective}"


def num_rounds(case: Case) -> int:
    if case.model == "mlp":
        return 5
    return 3 if case.ranks == 2 else 2


def num_steps(case: Case, variant: str) -> int:
    """The number of steps of one round: few if one takes seconds."""
    if case.model != "mlp":
        return 1
    if case.rate == "100M":
        return 1 if variant in ("fp32", "bf16") else 2
    return 3 if case.rate == "1G" else 5


def rounds_of(case: Case, ranks: Sequence[Rank], variants: Sequence[str], rounds: int) -> dict[str, list[Row]]:
    """The rounds of every variant, in turns."""
    found: dict[str, list[Row]] = {variant: [] for variant in variants}
    for turn in range(rounds):
        for variant in variants:
            quick = case.model == "mlp" and case.rate != "100M"
            # not timed: memory that others used meanwhile, operators for a new batch
            if quick or (turn == 0 and variant == "nothing"):
                measure(ranks, variant, 1, case.batch)
            found[variant].append(measure(ranks, variant, num_steps(case, variant), case.batch))
    return found


def bound_s(buckets: Sequence[tuple[float, int]], compute_s: float, num_bytes: float, mbit: float) -> float:
    """The least seconds of a step that sends each bucket once its gradients are there and the one before is sent.

    What follows the last gradient, the optimizer's update above all, also follows the last bucket.  compute_s: of a
    step that sends nothing; num_bytes: that a rank sends in a step, of which each bucket has the share of its
    coordinates. Encoding, decoding and latency take no time.
    """
    total_s, total = num_bytes * 8 / (mbit * 1e6), sum(size for _, size in buckets)
    sent = 0.0
    for there, size in buckets:
        sent = max(sent, there) + total_s * size / total
    return sent + compute_s - buckets[-1][0]


def rows_of(case: Case, raw_mbit: float, found: Rounds) -> list[Row]:
    """One row per variant: medians over the rounds, bytes as means over rounds and ranks."""
    plain = found["nothing"]
    compute = statistics.median(one["step_s"] for one in plain)
    rows = []
    for variant, rounds in found.items():
        seconds = [one["step_s"] for one in rounds]
        pairs = [pair for one in rounds for pair in one["bytes"]]
        own, interface = (statistics.fmean(each) for each in zip(*pairs, strict=True))
        bounds = [  # the rank that sends most decides
            bound_s(nothing["buckets"], nothing["step_s"], max(sent for sent, _ in one["bytes"]), raw_mbit)
            for nothing, one in zip(plain, rounds, strict=True)
        ]
        row = {
            "ranks": case.ranks,
            "model": case.model,
            "batch": case.batch,
            "rate_mbit": RATES_MBIT[case.rate],
            "raw_mbit": raw_mbit,
            "variant": variant,
            "step_s": statistics.median(seconds),
            "step_low_s": min(seconds),
            "step_high_s": max(seconds),
            "compute_s": compute,
            "exposed_s": statistics.median(seconds) - compute,
            "bound_s": statistics.median(bounds),
            "efficiency": [bound / value for bound, value in zip(bounds, seconds, strict=True)],
            "buckets": plain[-1]["buckets"],
            "bytes_sent_per_step": own,
            "interface_bytes_per_step": interface,
            "bytes_disagree": max((abs(sent / seen - 1) for sent, seen in pairs if sent), default=0.0),
            "rounds": len(rounds),
            "stages_s": {
                stage: statistics.median(one["stages_s"][stage] for one in rounds) for stage in rounds[0]["stages_s"]
            },
        }
        for baseline in ("fp32", "bf16"):
            if baseline in found:
                slow = [one["step_s"] for one in found[baseline]]
                row[f"speedup_vs_{baseline}"] = [a / b for a, b in zip(slow, seconds, strict=True)]
        rows.append(row)
    return rows


def figures(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The figures of each variant, ``["cases"]["2 ranks, mlp, batch 32"]["100 Mbit/s"]["alq"]``, and of all."""
    of_case: dict[tuple[str, str, str], list[Mapping[str, Any]]] = {}
    updates: dict[str, dict[tuple[Any, ...], float]] = {}  # seconds of a level update, once for each model and run
    for row in rows:
        model = f"{row['ranks']} ranks, {row['model']}, batch {row['batch']}"
        of_case.setdefault((model, RATES[row["rate_mbit"]], row["variant"]), []).append(row)
        if row.get("level_update_s"):
            of_ranks = updates.setdefault(f"{row['ranks']} ranks", {})
            of_ranks[row.get("turn"), row["model"]] = row["level_update_s"]
    cases: dict[str, Any] = {}
    for (model, rate, variant), runs in of_case.items():
        of: Row = {name: float(f"{statistics.fmean(run[name] for run in runs):.4g}") for name in MEANS}
        of |= {"runs": len(runs), "rounds": sum(run["rounds"] for run in runs)}
        of |= {
            name: summary([value for run in runs for value in run[name]])
            for name in OF_ROUNDS
            if all(name in run for run in runs)
        }
        cases.setdefault(model, {}).setdefault(rate, {})[variant] = of
    disagree = max((row["bytes_disagree"] for row in rows if row["variant"].startswith("alq")), default=None)
    level_updates = {ranks: summary(list(values.values())) for ranks, values in updates.items()}
    return {"cases": cases, "level_update_s": level_updates, "bytes_disagree": disagree}


def measured(ranks: int, chosen: argparse.Namespace) -> Iterator[Row]:
    """The rows of all cases of one number of ranks, with one set of processes for each model."""
    with network(ranks, FASTEST_MBIT) as net:
        raw = {}
        for rate in chosen.rates:
            net.set_rate(RATES_MBIT[rate])
            raw[rate] = net.raw_mbit()
        variants = [variant for variant in VARIANTS if variant in ("nothing", *chosen.variants)]
        gated = [GATED] if "10G" in chosen.rates and "alq" in variants else []
        for model in chosen.models:
            net.set_rate(FASTEST_MBIT)
            with rank_processes(net) as processes:
                levels_s = 0.0
                for variant in (*variants, *gated):
                    spec = Spec(LARGE[model], variant_of(variant, ranks), BATCHES[model][0])
                    told = prepare(processes, variant, spec, WARM_UP)
                    if variant == "alq":
                        levels_s = max(one["stages_s"].get("levels", 0.0) for one in told)
                batches = [batch for batch in BATCHES[model] if not chosen.batches or batch in chosen.batches]
                for case in (Case(ranks, model, batch, rate) for rate in chosen.rates for batch in batches):
                    net.set_rate(RATES_MBIT[case.rate])
                    taking_part = [*variants, *(gated if case.rate == "10G" else [])]
                    found = rounds_of(case, processes, taking_part, chosen.rounds or num_rounds(case))
                    print(f"{case}: measured", flush=True)
                    yield from (row | {"level_update_s": levels_s} for row in rows_of(case, raw[case.rate], found))


def kept(path: Path, commit: str | None) -> list[Row]:
    """The rows of a file, or of one commit; ValueError if there is none."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    found = [row for row in rows if commit in (None, row.get("commit"))]
    if not found:
        known = ", ".join(sorted({str(row.get("commit")) for row in rows}))
        raise ValueError(f"--commit {commit}: must be one of {known}")
    return found


def options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--ranks", type=int, nargs="+", default=[2, 4])
    add("--models", nargs="+", choices=list(BATCHES), default=list(BATCHES))
    add("--batches", type=int, nargs="+", default=[], help="only these")
    add("--rates", nargs="+", choices=list(RATES_MBIT), default=list(RATES_MBIT))
    add("--variants", nargs="+", choices=VARIANTS, default=VARIANTS, help="`nothing` always takes part")
    add("--rounds", type=int, default=0, help="turns (5 of the MLP; 3 of the others, or 2 with 4 ranks)")
    add("--out", type=Path, help="write one JSON object per variant and case to this file")
    add("--from", dest="source", type=Path, help="rows of earlier runs, in place of a new one")
    add("--commit", help="with --from: only the rows of this commit")


def run(chosen: argparse.Namespace) -> dict[str, Any]:
    if chosen.source:
        return figures(kept(chosen.source, chosen.commit))
    if wrong := [batch for batch in chosen.batches if not any(batch in BATCHES[model] for model in chosen.models)]:
        legal = "; ".join(f"{model}: {', '.join(map(str, BATCHES[model]))}" for model in chosen.models)
        raise ValueError(f"--batches {wrong[0]}: must be one of the models' batches ({legal})")
    rows = []
    for ranks in chosen.ranks:
        for row in measured(ranks, chosen):
            rows.append(row)
            if chosen.out:
                chosen.out.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return figures(rows)
