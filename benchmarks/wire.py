"""Training steps over slow links.

Run it as ``python -m benchmarks.wire [--ranks 2 --models mlp --rates 100M --rounds 3 --out FILE]``, as root.

Two and four ranks, one thread each, in network namespaces of their own (``benchmarks.network``), train models of 11
million parameters under DDP on gloo: an MLP 3072-2560-1280-10, ResNet-18 for images of 32x32, and a GPT on windows of
128 characters.  ALQ at 3 bits (gather between two ranks; between more two stages, the second of 4 bits) runs against
fp32, the best bf16 and PowerSGD (``benchmarks.baselines``), in turns in one set of processes; at 10 Gbit/s also ALQ
with its gate.

A step is forward, backward and SGD; its time is the slowest rank's, the median over the rounds; a ratio is taken round
by round.  Exposed communication is the time of a step beyond one that does not communicate.  Efficiency is the least
time that a step can take with as many bytes, bucket after bucket as gradients come to exist in a step that does not
communicate (``benchmarks.pipeline_bound``), over the time that it takes.  Bytes are those that a rank counts itself,
and those that its interface sent without headers.  Ranks share the machine's cores, so that with more ranks than cores
compute takes longer than on machines of their own.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import wire_cases
from benchmarks.network import network
from benchmarks.pipeline_bound import bound_s, of_all_ranks
from benchmarks.rank_processes import Rank, ask_all, rank_processes

RATES_MBIT = {"100M": 100, "1G": 1000, "10G": 10_000}
BATCHES = {"mlp": (32,), "resnet18": (2, 8, 32), "gpt": (1, 4, 16)}
VARIANTS = ("nothing", "fp32", "bf16", "powersgd", "alq")
GATED = "alq_gate"
NOT_MEASURED = "not measured"
PORT = 29401  # port of the first model's processes
WARM_UP = 4  # DDP's second set of buckets, PowerSGD's factors, ALQ's levels and gate
BARS = {
    "speedup_vs_fp32_100M": (2, "100M", "fp32", "alq"),
    "speedup_vs_bf16_100M": (2, "100M", "bf16", "alq"),
    "speedup_vs_bf16_1G": (2, "1G", "bf16", "alq"),
    "speedup4_vs_fp32_100M": (4, "100M", "fp32", "alq"),
    "speedup4_vs_bf16_100M": (4, "100M", "bf16", "alq"),
    "speedup4_vs_bf16_1G": (4, "1G", "bf16", "alq"),
    "slowdown_vs_bf16_10G": (2, "10G", GATED, "bf16"),
}
EFFICIENCIES = {"efficiency_100M": (2, "100M"), "efficiency4_100M": (4, "100M")}


@dataclass(frozen=True)
class Case:
    """The content of one table; all variants of it run in the same processes."""

    ranks: int
    model: str
    batch: int
    rate: str

    @property
    def rate_mbit(self) -> int:
        return RATES_MBIT[self.rate]


def num_rounds(case: Case) -> int:
    if case.model == "mlp":
        return 5
    return 3 if case.ranks == 2 else 2


def num_steps(case: Case, variant: str) -> int:
    """The number of steps of one round: few where one takes seconds."""
    if case.model != "mlp":
        return 1
    if case.rate == "100M":
        return 1 if variant in ("fp32", "bf16") else 2
    return 3 if case.rate == "1G" else 5


def measure(case: Case, ranks: Sequence[Rank], variants: Sequence[str], rounds: int) -> dict[str, list[dict[str, Any]]]:
    """The rounds of every variant.

    A round has the slowest rank's seconds, own and interface's bytes of every rank, the slowest rank's stages, and
    where nothing is sent the slowest rank's buckets.
    """
    found: dict[str, list[dict[str, Any]]] = {variant: [] for variant in variants}
    for turn in range(rounds):
        for variant in variants:
            command = {"do": "measure", "variant": variant, "batch": case.batch}
            quick = case.model == "mlp" and case.rate != "100M"
            # not timed: memory that others used meanwhile, operators for a new batch
            if quick or (turn == 0 and variant == "nothing"):
                ask_all(ranks, {**command, "steps": 1})
            answers = ask_all(ranks, {**command, "steps": num_steps(case, variant)})
            stages = {stage for answer in answers for stage in answer["stages_s"]}
            found[variant].append(
                {
                    "step_s": max(answer["step_s"] for answer in answers),
                    "stages_s": {
                        stage: max(answer["stages_s"].get(stage, 0.0) for answer in answers) for stage in sorted(stages)
                    },
                    "bytes": [(answer["own_bytes"], answer["interface_bytes"]) for answer in answers],
                    "buckets": of_all_ranks(answer["buckets"] for answer in answers),
                }
            )
    return found


def ratios(found: Mapping[str, list[dict[str, Any]]], slow: str, fast: str) -> list[float]:
    """The number of steps of ``fast`` that one of ``slow`` takes, round by round."""
    return [a["step_s"] / b["step_s"] for a, b in zip(found[slow], found[fast], strict=True)]


def bounds_s(raw_mbit: float, found: Mapping[str, list[dict[str, Any]]], variant: str) -> list[float]:
    """The least time of the variant's steps, round by round; the rank that sends most decides."""
    return [
        bound_s(plain["buckets"], plain["step_s"], max(own for own, _ in one["bytes"]), raw_mbit)
        for plain, one in zip(found["nothing"], found[variant], strict=True)
    ]


def rows_of(case: Case, raw_mbit: float, found: Mapping[str, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """One row per variant: medians over the rounds, bytes as means over rounds and ranks."""
    compute = statistics.median(one["step_s"] for one in found["nothing"])
    rows = []
    for variant, rounds in found.items():
        seconds = [one["step_s"] for one in rounds]
        own, interface = (statistics.fmean(pair[i] for one in rounds for pair in one["bytes"]) for i in (0, 1))
        disagree = [abs(pair[0] / pair[1] - 1) for one in rounds for pair in one["bytes"] if pair[0]]
        bounds = bounds_s(raw_mbit, found, variant)
        stages = {stage: statistics.median(one["stages_s"][stage] for one in rounds) for stage in rounds[0]["stages_s"]}
        rows.append(
            {
                "ranks": case.ranks,
                "model": case.model,
                "batch": case.batch,
                "rate_mbit": case.rate_mbit,
                "raw_mbit": raw_mbit,
                "variant": variant,
                "step_s": statistics.median(seconds),
                "step_low_s": min(seconds),
                "step_high_s": max(seconds),
                "compute_s": compute,
                "exposed_s": statistics.median(seconds) - compute,
                "bound_s": statistics.median(bounds),
                "efficiency": [bound / value for bound, value in zip(bounds, seconds, strict=True)],
                "buckets": found["nothing"][-1]["buckets"],
                "bytes_sent_per_step": own,
                "interface_bytes_per_step": interface,
                "bytes_disagree": max(disagree, default=0.0),
                "rounds": len(rounds),
                "stages_s": stages,
                **{
                    f"speedup_vs_{baseline}": ratios(found, baseline, variant)
                    for baseline in ("fp32", "bf16")
                    if baseline in found
                },
            }
        )
    return rows


def print_rows(case: Case, raw_mbit: float, rows: Sequence[Mapping[str, Any]]) -> None:
    print(
        f"\n{case.ranks} ranks, {case.model}, batch {case.batch}, {case.rate}bit/s (raw {raw_mbit:.0f} Mbit/s), "
        f"{rows[0]['rounds']} rounds"
    )
    print(
        f"  {'':9}{'step, ms (all rounds)':>26}{'exposed':>9}{'efficiency':>12}{'MB sent':>9}{'interface':>10}"
        f"{'of fp32':>8}{'of bf16 (all rounds)':>24}"
    )
    for row in rows:
        spread = f"({row['step_low_s'] * 1e3:.0f} - {row['step_high_s'] * 1e3:.0f})"
        speedups = ["", ""]
        if "speedup_vs_fp32" in row:
            speedups[0] = f"{statistics.median(row['speedup_vs_fp32']):.2f}x"
        if values := row.get("speedup_vs_bf16"):
            speedups[1] = f"{statistics.median(values):.2f}x ({min(values):.2f} - {max(values):.2f})"
        print(
            f"  {row['variant']:9}{row['step_s'] * 1e3:9.1f}{spread:>17}{row['exposed_s'] * 1e3:9.1f}"
            f"{statistics.median(row['efficiency']):12.2f}{row['bytes_sent_per_step'] / 1e6:9.2f}"
            f"{row['interface_bytes_per_step'] / 1e6:10.2f}{speedups[0]:>8}{speedups[1]:>24}"
        )
    there = ", ".join(f"{seconds * 1e3:.1f} ({size:,})" for seconds, size in rows[0]["buckets"])
    print(f"  ms after which a bucket's gradients (so many) are there: {there}")
    for row in rows:
        if row["stages_s"]:
            print(
                f"  {row['variant']}'s ms: "
                + ", ".join(f"{stage} {value * 1e3:.1f}" for stage, value in row["stages_s"].items())
            )
    sys.stdout.flush()


def summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The ratios of the MLP, and ALQ's efficiency: medians over rounds with smallest and largest.

    The largest difference between the two counts of ALQ's bytes is there too.
    """
    result: dict[str, Any] = dict.fromkeys([*BARS, *EFFICIENCIES], NOT_MEASURED)
    spread = {}

    def of_mlp(ranks: int, rate: str) -> dict[str, Mapping[str, Any]]:
        place = {"ranks": ranks, "model": "mlp", "rate_mbit": RATES_MBIT[rate]}
        return {row["variant"]: row for row in rows if all(row[key] == value for key, value in place.items())}

    values_of = {name: of_mlp(*place).get("alq", {}).get("efficiency", []) for name, place in EFFICIENCIES.items()}
    for name, (ranks, rate, slow, fast) in BARS.items():
        here = of_mlp(ranks, rate)
        if slow not in here or fast not in here:
            continue
        if slow == GATED:
            values_of[name] = [1 / value for value in here[GATED].get(f"speedup_vs_{fast}", [])]
        else:
            values_of[name] = here[fast].get(f"speedup_vs_{slow}", [])
    for name, values in values_of.items():
        if values:
            result[name] = round(statistics.median(values), 3)
            spread[name] = [round(min(values), 3), round(max(values), 3)]
    ours = [row["bytes_disagree"] for row in rows if row["variant"].startswith("alq")]
    updates = {
        row["ranks"]: row["level_update_s"] for row in rows if row["model"] == "mlp" and row.get("level_update_s")
    }
    for ranks, seconds in updates.items():
        result[f"level_update_s_{ranks}_ranks"] = round(seconds, 4)
    return {**result, "bytes_agree": round(max(ours), 4) if ours else NOT_MEASURED, "spread": spread}


def run(ranks: int, chosen: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """The rows of all cases of one number of ranks, with one set of processes for each model."""
    fastest = max(RATES_MBIT.values())
    with network(ranks, fastest) as net:
        raw = {}
        for rate in chosen.rates:
            net.set_rate(RATES_MBIT[rate])
            raw[rate] = net.raw_mbit()
        print(
            f"\n{ranks} ranks; one TCP stream delivers "
            + ", ".join(f"{value:.0f} Mbit/s at {rate}" for rate, value in raw.items())
        )
        for port, model in enumerate(chosen.models, PORT):
            net.set_rate(fastest)  # fast for the broadcast of the parameters and the first steps
            with rank_processes("benchmarks.wire_rank", net, port) as processes:
                variants = [*chosen.variants, *([GATED] if "10G" in chosen.rates and "alq" in chosen.variants else [])]
                batches = [batch for batch in BATCHES[model] if not chosen.batches or batch in chosen.batches]
                first = {
                    "do": "prepare",
                    "model": model,
                    "variants": variants,
                    "batch": BATCHES[model][0],
                    "steps": WARM_UP,
                }
                levels_s = max(answer.get("alq", 0.0) for answer in ask_all(processes, first))
                if levels_s:
                    print(
                        f"\n{ranks} ranks, {model}: statistics and one update of ALQ's levels take the slowest rank "
                        f"{levels_s * 1e3:.0f} ms"
                    )
                for case in [Case(ranks, model, batch, rate) for rate in chosen.rates for batch in batches]:
                    net.set_rate(case.rate_mbit)
                    measured = variants if case.rate == "10G" else chosen.variants
                    rows = rows_of(
                        case, raw[case.rate], measure(case, processes, measured, chosen.rounds or num_rounds(case))
                    )
                    print_rows(case, raw[case.rate], rows)
                    yield from (row | {"level_update_s": levels_s} for row in rows)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.wire", description="Training steps over slow links")
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--models", nargs="+", choices=list(BATCHES), default=list(BATCHES))
    parser.add_argument("--batches", type=int, nargs="+", default=[], help="only these")
    parser.add_argument("--rates", nargs="+", choices=list(RATES_MBIT), default=list(RATES_MBIT))
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=VARIANTS, help="`nothing` always takes part")
    parser.add_argument(
        "--rounds",
        type=int,
        default=0,
        help="turns of the variants; by default 5 (MLP), 3 or, with 4 ranks, 2 (the others)",
    )
    parser.add_argument("--out", type=Path, help="write one JSON object per variant and case to this file")
    chosen = parser.parse_args(arguments)
    if wrong := [batch for batch in chosen.batches if not any(batch in BATCHES[model] for model in chosen.models)]:
        legal = "; ".join(f"{model}: {', '.join(map(str, BATCHES[model]))}" for model in chosen.models)
        parser.error(f"--batches {wrong[0]}: must be one of the models' batches ({legal})")
    chosen.variants = [variant for variant in VARIANTS if variant in ("nothing", *chosen.variants)]
    started, rows = time.perf_counter(), []
    try:
        for ranks in chosen.ranks:
            for row in run(ranks, chosen):
                rows.append(row)
                if chosen.out:
                    chosen.out.write_text("".join(json.dumps(row) + "\n" for row in rows))
    except (ValueError, RuntimeError) as error:
        raise SystemExit(f"benchmarks.wire: {error}") from error
    print(f"\n{time.perf_counter() - started:.0f} s in all; {os.cpu_count()} cores")
    print(json.dumps(summary(rows) | wire_cases.figures(rows)))


if __name__ == "__main__":
    main()
