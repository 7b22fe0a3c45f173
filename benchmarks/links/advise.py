"""Whether ``python -m nuq advise`` finds the quickest way.

An MLP and ResNet-18 of 11 million parameters train on two ranks, one thread each, over links of 100 Mbit/s, 1 and 10
Gbit/s.  For each of these six cases ``advise`` predicts the step of every method from a run on one rank without the
link, beside another training, since the measured ranks share this machine's memory; then each is measured, in turns,
with the hook's defaults.  What counts is the measured step of the way that was predicted to be the quickest, over the
measured step of the quickest; a step is the slowest rank's, the median of the rounds.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.links.models import LARGE
from benchmarks.links.network import Loopback, network
from benchmarks.links.ranks import FASTEST_MBIT, ROOT, Row, environment, free_port, prepare, rank_processes
from benchmarks.links.spec import Spec
from benchmarks.links.wire import RATES_MBIT, WARM_UP, Case, rounds_of
from benchmarks.timing import summary

BATCHES = {"mlp": 32, "resnet18": 8}
DENSE = ("fp32", "bf16")  # of ``baselines``; all others are of the hook
RANKS, NEAR = 2, 1.1


def predicted(model: str, rate_mbit: float) -> dict[str, float]:
    """The predicted seconds of a step by way of exchange, quickest first."""
    script = [str(Path(__file__).with_name("advise_script.py")), model, str(BATCHES[model])]
    link = ["--link", f"{rate_mbit:g}M", "--ranks", str(RANKS), "--json"]
    with contextlib.ExitStack() as stack:
        for _ in range(1, RANKS):
            alone = environment(Loopback(1), 0, free_port())
            stack.callback(subprocess.Popen([sys.executable, *script], cwd=ROOT, env=alone).kill)
        command = [sys.executable, "-m", "nuq", "advise", *link, *script]
        how = {"cwd": ROOT, "env": {**os.environ, "OMP_NUM_THREADS": "1"}, "text": True, "check": True}
        done = subprocess.run(command, stdout=subprocess.PIPE, **how)
    return {row["name"]: row["step_s"] for row in json.loads(done.stdout.splitlines()[-1])["rows"]}


def compared(case: Row) -> float:
    """The measured step of the predicted best over that of the measured best."""
    return case["measured"][min(case["predicted"], key=case["predicted"].get)] / min(case["measured"].values())


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--models", nargs="+", choices=list(BATCHES), default=list(BATCHES))
    parser.add_argument("--rates", nargs="+", choices=list(RATES_MBIT), default=list(RATES_MBIT))
    parser.add_argument("--rounds", type=int, default=3, help="turns of all ways (default: %(default)s)")


def run(chosen: argparse.Namespace) -> dict[str, Any]:
    cases: list[Row] = []
    with network(RANKS, FASTEST_MBIT) as net:
        raw = {}
        for rate in chosen.rates:
            net.set_rate(RATES_MBIT[rate])
            raw[rate] = net.raw_mbit()
        for model in chosen.models:
            of_rates = {rate: predicted(model, raw[rate]) for rate in chosen.rates}
            ways = list(next(iter(of_rates.values())))
            net.set_rate(FASTEST_MBIT)
            with rank_processes(net) as ranks:
                for name in ("nothing", *ways):
                    variant = name if name in ("nothing", *DENSE) else f"hook method={name}"
                    prepare(ranks, name, Spec(LARGE[model], variant, BATCHES[model]), WARM_UP)
                for rate, foreseen in of_rates.items():
                    net.set_rate(RATES_MBIT[rate])
                    case = Case(RANKS, model, BATCHES[model], rate)
                    found = rounds_of(case, ranks, ["nothing", *ways], chosen.rounds)
                    steps = {name: statistics.median(one["step_s"] for one in found[name]) for name in ways}
                    cases.append({"model": model, "rate": rate, "predicted": foreseen, "measured": steps})
                    print(f"{case}: the predicted best takes {compared(cases[-1]):.2f} times the best", flush=True)
    ratios = [compared(case) for case in cases]
    errors = [abs(case["predicted"][name] / step - 1) for case in cases for name, step in case["measured"].items()]
    return {
        "within_10_percent": sum(ratio <= NEAR for ratio in ratios),
        "cases": len(cases),
        "ways": len(cases[0]["measured"]),
        "ratio": summary(ratios),
        "median_error": round(statistics.median(errors), 3),
        "worst_error": round(max(errors), 3),
        "steps": cases,
    }
