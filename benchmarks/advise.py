"""Whether ``python -m nuq advise`` finds the quickest way: ``python -m benchmarks.advise [--rates 1G]``, as root.

An MLP and ResNet-18 of 11 million parameters train on two ranks, one thread each, over links of 100 Mbit/s, 1 and 10
Gbit/s (``benchmarks.network``).  For each of these six cases ``advise`` predicts the step of every method from a run on
one rank without the link, beside another training, since the measured ranks share this machine's memory; then each is
measured, in turns, with the hook's defaults.  What counts is the measured step
of the way that was predicted to be the quickest, over the measured step of the quickest; a step is the slowest rank's,
the median of the rounds.  The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.network import network
from benchmarks.rank_processes import ROOT, ask_all, rank_processes
from benchmarks.timing import summary
from benchmarks.wire import RATES_MBIT, WARM_UP, Case, measure
from benchmarks.wire_rank import OF_HOOK
from files.aligned import aligned

BATCHES = {"mlp": 32, "resnet18": 8}
DENSE = ("fp32", "bf16")  # baselines of ``benchmarks.baselines``; all others are of the hook
RANKS, PORT, NEAR = 2, 29431, 1.1


def predicted(model: str, rate_mbit: float) -> dict[str, float]:
    """The predicted seconds of a step by way of exchange, quickest first."""
    script = Path(__file__).with_name("advise_script.py")
    link = ["--link", f"{rate_mbit:g}M", "--ranks", str(RANKS), "--json"]
    command = [sys.executable, "-m", "nuq", "advise", *link, str(script), model, str(BATCHES[model])]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with contextlib.ExitStack() as stack:
        for rank in range(1, RANKS):
            alone = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(PORT - rank)}
            beside = [sys.executable, str(script), model, str(BATCHES[model])]
            stack.callback(subprocess.Popen(beside, cwd=ROOT, env=environment | alone).kill)
        done = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return {row["name"]: row["step_s"] for row in json.loads(done.stdout.splitlines()[-1])["rows"]}


def compared(case: dict[str, Any]) -> float:
    """The measured step of the predicted best over that of the measured best."""
    return case["measured"][min(case["predicted"], key=case["predicted"].get)] / min(case["measured"].values())


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print a table for each case and, as the last line, one JSON object."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.advise", description="Does advise find the quickest?")
    parser.add_argument("--models", nargs="+", choices=list(BATCHES), default=list(BATCHES))
    parser.add_argument("--rates", nargs="+", choices=list(RATES_MBIT), default=list(RATES_MBIT))
    parser.add_argument("--rounds", type=int, default=3, help="turns of all ways (default: %(default)s)")
    chosen = parser.parse_args(arguments)
    cases = []
    with network(RANKS, max(RATES_MBIT.values())) as net:
        raw = {}
        for rate in chosen.rates:
            net.set_rate(RATES_MBIT[rate])
            raw[rate] = net.raw_mbit()
        for port, model in enumerate(chosen.models, PORT):
            of_rates = {rate: predicted(model, raw[rate]) for rate in chosen.rates}
            names = list(next(iter(of_rates.values())))
            variants = ["nothing", *(name if name in DENSE else OF_HOOK + name for name in names)]
            net.set_rate(max(RATES_MBIT.values()))  # fast for the parameters and the first steps
            with rank_processes("benchmarks.wire_rank", net, port) as ranks:
                prepare = {"do": "prepare", "model": model, "variants": variants, "steps": WARM_UP}
                ask_all(ranks, {**prepare, "batch": BATCHES[model]})
                for rate, foreseen in of_rates.items():
                    net.set_rate(RATES_MBIT[rate])
                    found = measure(Case(RANKS, model, BATCHES[model], rate), ranks, variants, chosen.rounds)
                    steps = {
                        name.removeprefix(OF_HOOK): statistics.median(one["step_s"] for one in rounds)
                        for name, rounds in found.items()
                        if name != "nothing"
                    }
                    cases.append({"model": model, "rate": rate, "predicted": foreseen, "measured": steps})
                    _show(cases[-1])
    ratios = [compared(case) for case in cases]
    errors = [abs(case["predicted"][name] / step - 1) for case in cases for name, step in case["measured"].items()]
    figures: dict[str, Any] = {"within_10_percent": sum(ratio <= NEAR for ratio in ratios), "cases": len(cases)}
    figures |= {"ways": len(cases[0]["measured"]), "ratio": summary(ratios)}
    figures |= {"median_error": round(statistics.median(errors), 3), "worst_error": round(max(errors), 3)}
    print(json.dumps(figures | {"steps": cases}))


def _show(case: dict[str, Any]) -> None:
    rows = [["", "predicted", "measured"]]
    for name, step in sorted(case["measured"].items(), key=lambda pair: pair[1]):
        rows.append([name, f"{1e3 * case['predicted'][name]:.1f} ms", f"{1e3 * step:.1f} ms"])
    print(f"\n{case['model']} on {RANKS} ranks at {case['rate']}bit/s: the predicted best takes {compared(case):.2f}")
    print("times the measured best's step\n" + aligned(rows), flush=True)


if __name__ == "__main__":
    main()
