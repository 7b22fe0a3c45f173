"""Training steps under FSDP2 over slow links.

An MLP and a GPT of 11 million parameters each, the MLP's layers, the GPT's blocks and the rest sharded by
``fully_shard``, train on two ranks, one thread each, on 32 images and on 4 windows a rank.  FSDP2 in bfloat16, which
is what is usual, runs against gradients and differences of weights by QSGDinf in 8 and in 4 bits and buckets of 128,
gradients with a moving average of the errors, in turns in one set of processes; all compute in bfloat16.  A step is
forward, backward and AdamW; its time is the slowest rank's, the median over the rounds; speedups are taken round by
round.  Bytes are those that a rank's interface sent without headers, in a step without a refresh.  gloo's
reduce-scatter sends twice what a ring would, as its all-reduce does.

``speedup_1g_mlp`` and ``speedup_1g_gpt`` are of 4 bits at 1 Gbit/s, which was chosen before anything was timed.

``--parity``: also the held-out losses of a small GPT after 300 steps on text, on the loopback, all in float32 and
with the 4 bits, from the same weights and minibatches of each seed.  There is parity if the mean difference of the
pairs is no larger than the half-width of the 95 % interval of plain FSDP2's mean over the seeds (Student's t).

``--quick``: small models on the loopback, without root, to see that it runs.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence
from typing import Any

import numpy as np

from analysis.groups.aggregate import estimate
from benchmarks.links.models import LARGE
from benchmarks.links.network import Loopback, network_or_loopback
from benchmarks.links.ranks import FASTEST_MBIT, Rank, Row, measure, prepare, rank_processes, train
from benchmarks.links.spec import Spec
from benchmarks.timing import summary

RANKS = 2
RATES_MBIT = {"100M": 100, "1G": 1000}
NOT_MEASURED = "not measured"
# Of a whole layer's bucket of 8192 the largest coordinate leaves 4 bits too little for the others.
MESSAGES = "compute=bf16 method=qsgdinf bucket_size=128"
BASELINE, CHOSEN = "bf16", "4 bits"
VARIANTS = {
    BASELINE: "fsdp compute=bf16",
    "8 bits": f"fsdp {MESSAGES} bits=8",
    CHOSEN: f"fsdp {MESSAGES} bits=4",
}
SMALL = {"mlp": "mlp widths=[8]", "gpt": "gpt layers=2 heads=2 width=32"}
MODELS = {"mlp": 32, "gpt": 4}  # images, windows of a rank
WARM_UP = 2  # steps: the first gather is a refresh
SEEDS, STEPS, QUICK_STEPS = (3, 4, 5, 6, 7), 300, 3  # buckets of 128 were chosen on the seeds 0, 1, 2
PARITY = {"float32": "fsdp compute=float32", CHOSEN: VARIANTS[CHOSEN]}


def measured(models: Sequence[str], rates: Sequence[str], rounds: int, *, quick: bool) -> dict[str, Any]:
    """The rows by model, rate and variant; the rate is "loopback" if quick."""
    cases: dict[str, Any] = {}
    with network_or_loopback(not quick, RANKS, FASTEST_MBIT) as net:
        for model in models:
            net.set_rate(FASTEST_MBIT)
            with rank_processes(net) as ranks:
                for variant, text in VARIANTS.items():
                    words = (SMALL if quick else LARGE)[model], text, MODELS[model], "adamw lr=0.0001"
                    prepare(ranks, variant, Spec(*words), WARM_UP)
                for rate in ["loopback"] if quick else rates:
                    net.set_rate(RATES_MBIT.get(rate, FASTEST_MBIT))
                    rows = rows_of(ranks, rounds)
                    cases.setdefault(model, {})[rate] = {
                        variant: {"model": model, "rate": rate, "variant": variant, **row}
                        for variant, row in rows.items()
                    }
    return cases


def rows_of(ranks: Sequence[Rank], rounds: int) -> dict[str, Row]:
    """The rows of one model at one rate by variant, without bytes on the loopback, which carries both ranks'."""
    found: dict[str, list[Row]] = {variant: [] for variant in VARIANTS}
    for _ in range(rounds):
        for variant, rows in found.items():
            rows.append(measure(ranks, variant, with_repeats=True))
    told = {}
    for variant, rows in found.items():
        pairs = zip(found[BASELINE], rows, strict=True)
        num_bytes = [seen for row in rows for _, seen in row["bytes"] if seen is not None]
        told[variant] = {
            "step_s": summary([row["step_s"] for row in rows]),
            "speedup_vs_bf16": summary([slow["step_s"] / fast["step_s"] for slow, fast in pairs]),
            "interface_bytes": round(statistics.fmean(num_bytes)) if num_bytes else None,
        }
    return told


def parity(steps: int) -> Row:
    """The losses by variant and seed, and what they come to."""
    losses: dict[str, list[float]] = {}
    with rank_processes(Loopback(RANKS)) as ranks:
        for variant, text in PARITY.items():
            specs = [
                Spec(SMALL["gpt"], text, 8, "adamw lr=0.002", "text length=128 num_test=256", seed) for seed in SEEDS
            ]
            losses[variant] = [train(ranks, variant, spec, steps, steps)[-1]["loss"] for spec in specs]
    return {"steps": steps, "seeds": list(SEEDS), "losses": losses, **judged(*losses.values())}


def judged(plain: Sequence[float], compressed: Sequence[float]) -> Row:
    """The mean difference of the pairs with the half-width of its interval, that of plain FSDP2's losses, parity."""
    pairs, of_seeds = estimate(np.subtract(compressed, plain)), estimate(np.asarray(plain)).half_width
    return {
        "plain": summary(plain),
        "compressed": summary(compressed),
        "difference": round(pairs.mean, 4),
        "difference_half_width": round(pairs.half_width, 4),
        "seeds_half_width": round(of_seeds, 4),
        "parity": abs(pairs.mean) <= of_seeds,
    }


def speedup(cases: dict[str, Any], model: str) -> float | str:
    """The speedup of the chosen variant at 1 Gbit/s."""
    found = cases.get(model, {}).get("1G", {}).get(CHOSEN)
    return found["speedup_vs_bf16"]["median"] if found else NOT_MEASURED


def options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--models", nargs="*", choices=list(MODELS), default=list(MODELS), help="may be none, for --parity alone")
    add("--rates", nargs="+", choices=list(RATES_MBIT), default=list(RATES_MBIT))
    add("--rounds", type=int, default=15, help="turns of the variants (default: %(default)s)")
    add("--parity", action="store_true", help="also the losses of a small GPT after 300 steps")
    add("--quick", action="store_true", help="small models on the loopback, one round")


def run(chosen: argparse.Namespace) -> dict[str, Any]:
    cases = measured(chosen.models, chosen.rates, 1 if chosen.quick else chosen.rounds, quick=chosen.quick)
    speedups = {f"speedup_1g_{model}": speedup(cases, model) for model in MODELS}
    losses = {"parity": parity(QUICK_STEPS if chosen.quick else STEPS)} if chosen.parity else {}
    return {"ranks": RANKS, "cases": cases, **speedups, **losses}
