"""Training steps under FSDP2 over slow links: ``python -m benchmarks.fsdp [--quick --out FILE]``, as root.

An MLP and a GPT of 11 million parameters each (``benchmarks.wire_rank``), the MLP's layers, the GPT's blocks and the
rest sharded by ``fully_shard``, train on two ranks, one thread each, in network namespaces (``benchmarks.network``), on
32 images and on 4 windows a rank.  FSDP2 in bfloat16, which is what is usual, runs against gradients and differences of
weights by QSGDinf in 8 and in 4 bits and buckets of 128, gradients with a moving average of the errors, in turns in one
set of processes; all compute in bfloat16.  A step is forward, backward and AdamW; its time is the slowest rank's, the
median over the rounds; speedups are taken round by round.  Bytes are those that a rank's interface sent without
headers, in a step without a refresh.  gloo's reduce-scatter sends twice what a ring would, as its all-reduce does, so
that bfloat16 sends 4 bytes a parameter here (two ranks) where it would send 3 over a ring.

The last line has ``speedup_1g_mlp`` and ``speedup_1g_gpt``: of 4 bits at 1 Gbit/s, the variant that was chosen for it
before anything was timed.

``--parity``: also the losses of a small GPT (``benchmarks.fsdp_parity``), on the loopback.

``--quick``: small models on the loopback, without root, to see that it runs.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import fsdp_parity
from benchmarks.network import Network, network_or_loopback
from benchmarks.rank_processes import Rank, ask_all, rank_processes
from benchmarks.timing import summary
from benchmarks.wire import NOT_MEASURED
from files.aligned import aligned

RANKS, PORT = 2, 29471
RATES_MBIT = {"100M": 100, "1G": 1000}
FASTEST_MBIT = 10_000
BASELINE = "bf16"
CHOSEN = "4 bits"  # for the bars
VARIANTS = (BASELINE, "8 bits", CHOSEN)  # ``benchmarks.fsdp_rank`` makes them
MODELS = ("mlp", "gpt")
WARM_UP = 2  # steps: the first gather is a refresh
Row = dict[str, Any]


def measured(models: Sequence[str], rates: Sequence[str], rounds: int, *, quick: bool) -> list[Row]:
    """One row for every model, rate and variant; ``rate`` is "loopback" where quick."""
    rows = []
    with network_or_loopback(not quick, RANKS, FASTEST_MBIT, PORT) as (net, port):
        for number, model in enumerate(models):
            if isinstance(net, Network):
                net.set_rate(FASTEST_MBIT)  # for the first steps
            with rank_processes("benchmarks.fsdp_rank", net, port + number) as ranks:
                told = {"do": "prepare", "model": model, "variants": VARIANTS, "small": quick, "steps": WARM_UP}
                ask_all(ranks, told)
                for rate in ["loopback"] if quick else rates:
                    if isinstance(net, Network):
                        net.set_rate(RATES_MBIT[rate])
                    rows += [{"model": model, "rate": rate, **row} for row in rows_of(ranks, rounds, quick=quick)]
    return rows


def rows_of(ranks: Sequence[Rank], rounds: int, *, quick: bool) -> list[Row]:
    """The rows of one model at one rate, without bytes where quick: the loopback carries both ranks'."""
    seconds: dict[str, list[float]] = {variant: [] for variant in VARIANTS}
    num_bytes: dict[str, list[float]] = {variant: [] for variant in VARIANTS}
    for _ in range(rounds):
        for variant in VARIANTS:
            told = ask_all(ranks, {"do": "measure", "variant": variant, "steps": 1})
            seconds[variant].append(max(one["step_s"] for one in told))
            num_bytes[variant] += [one["interface_bytes"] for one in told]
    return [
        {
            "variant": variant,
            "step_s": summary(seconds[variant]),
            "speedup_vs_bf16": summary(
                [slow / fast for slow, fast in zip(seconds[BASELINE], seconds[variant], strict=True)]
            ),
            "interface_bytes": None if quick else round(statistics.fmean(num_bytes[variant])),
        }
        for variant in VARIANTS
    ]


def parity(*, quick: bool) -> Row:
    """The figures of ``benchmarks.fsdp_parity``, from ranks of their own."""
    with (
        network_or_loopback(False, RANKS, FASTEST_MBIT, PORT) as (net, port),
        rank_processes("benchmarks.fsdp_rank", net, port) as ranks,
    ):
        return fsdp_parity.measured(ranks, quick=quick)


def bars(rows: Sequence[Row]) -> dict[str, float | str]:
    """The speedups that the bars are about."""
    found = {(row["model"], row["rate"], row["variant"]): row["speedup_vs_bf16"]["median"] for row in rows}
    return {f"speedup_1g_{model}": found.get((model, "1G", CHOSEN), NOT_MEASURED) for model in MODELS}


def by_name(rows: Sequence[Row]) -> dict[str, dict[str, dict[str, Row]]]:
    """The rows by model, rate and variant."""
    return {
        model: {
            rate: {row["variant"]: row for row in rows if (row["model"], row["rate"]) == (model, rate)}
            for rate in dict.fromkeys(row["rate"] for row in rows)
        }
        for model in dict.fromkeys(row["model"] for row in rows)
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a table of all rows, then one JSON object."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fsdp", description="FSDP2's steps over slow links")
    parser.add_argument(
        "--models",
        nargs="*",
        choices=MODELS,
        default=list(MODELS),
        help="(default: both) may be none, for --parity alone",
    )
    parser.add_argument("--rates", nargs="+", choices=list(RATES_MBIT), default=list(RATES_MBIT))
    parser.add_argument("--rounds", type=int, default=15, help="turns of the variants (default: %(default)s)")
    parser.add_argument("--parity", action="store_true", help="also the losses of a small GPT after 300 steps")
    parser.add_argument("--quick", action="store_true", help="small models on the loopback, one round")
    parser.add_argument("--out", type=Path, help="write the JSON object to this file")
    chosen = parser.parse_args(arguments)
    if chosen.rounds < 1:
        parser.error(f"--rounds {chosen.rounds}: must be at least 1")
    try:
        rows = measured(chosen.models, chosen.rates, 1 if chosen.quick else chosen.rounds, quick=chosen.quick)
        losses = {"parity": parity(quick=chosen.quick)} if chosen.parity else {}
    except (ValueError, RuntimeError) as error:
        raise SystemExit(f"benchmarks.fsdp: {error}") from error
    table = [["model", "rate", "variant", "ms a step", "of bf16's speed", "MB sent"]]
    for row in rows:
        sent = "" if row["interface_bytes"] is None else f"{row['interface_bytes'] / 1e6:.2f}"
        speed = f"{row['speedup_vs_bf16']['median']:.2f}x"
        name = [row["model"], row["rate"], row["variant"]]
        table.append([*name, f"{1e3 * row['step_s']['median']:.0f}", speed, sent])
    print(aligned(table, 3))
    told = json.dumps({"ranks": RANKS, "cases": by_name(rows), **bars(rows), **losses})
    if chosen.out:
        chosen.out.write_text(told + "\n")
    print(told)


if __name__ == "__main__":
    main()
