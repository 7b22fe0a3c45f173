"""The stability of short runs.

Run it as ``python -m benchmarks.short_runs [--methods supersgd "alq norm=l2" ..] [--seeds 20]``.

A run is 80 steps of the cnn on the digits, 4 workers of batch 16, rate .1: shorter than the paper's first update of
levels.  A method may come with settings; everything else has its default.  The loss is that over the training set at
the end (untrained: 2.30).  A run has diverged where its loss or a parameter was not finite, or the loss at the end is
above that of the untrained network of its seed.

What holds at 3 bits, the default, does not at 2: with the default bucket of 8192 such a run stays on course but learns
much less than with buckets of 256 (``--methods "alq bits=2" "alq bits=2 bucket_size=256"`` shows both).

The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from nuq.errors import NonFiniteError
from settings import command_line, resolving
from train.steps.trainer import Trainer

STEPS = 80
TASK = {
    "data": "digits",
    "model": "cnn",
    "workers": 4,
    "batch_size": 16,
    "optim.lr": 0.1,
    "steps": STEPS,
    "schedule": "constant",
}
BEFORE = "norm=l2 update_at=[100,2000]"  # as in the paper's sweeps, whose runs are longer
METHODS = [
    "supersgd",
    "qsgdinf",
    "alq",
    "alq_n",
    "amq",
    "amq_n",
    *(f"{name} {BEFORE}" for name in ("alq", "alq_n", "amq", "amq_n")),
]


@dataclass(frozen=True)
class Run:
    """The training losses before and after a run; infinite where a number that is not finite ended the run."""

    before: float
    after: float

    @property
    def diverged(self) -> bool:
        return not self.after <= self.before


def settings_of(case: str, seed: int) -> dict[str, Any]:
    """The settings of a run of a case such as ``"alq norm=l2"``; ValueError for what is not legal."""
    name, *options = case.split()
    given = command_line.parse_overrides([f"method={name}", *(f"method.{option}" for option in options)])
    return TASK | given | {"seed": seed}


def run(case: str, seed: int) -> Run:
    """The losses of one run."""
    trainer = Trainer(resolving.resolve(settings_of(case, seed)), device=torch.device("cpu"))
    before = trainer.evaluate("train")["Tloss"]
    try:
        for _ in range(STEPS):
            trainer.train_step()
        trainer.sync_buffers()
    except NonFiniteError:
        return Run(before, math.inf)
    after = trainer.evaluate("train")["Tloss"]
    return Run(before, after if math.isfinite(after) else math.inf)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run every method with every seed, print the table and the JSON object."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.short_runs", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument(
        "--methods", nargs="+", default=METHODS, metavar="METHOD", help='names, with settings: "alq norm=l2"'
    )
    parser.add_argument("--seeds", type=int, default=20, metavar="N", help="1 to N")
    chosen = parser.parse_args(arguments)
    try:
        for case in chosen.methods:
            resolving.resolve(settings_of(case, 1))
    except ValueError as error:
        parser.error(str(error))
    torch.set_num_threads(1)
    print(f"{'':38}{'diverged':>10}{'loss: median':>15}{'largest':>10}")
    found = {}
    for case in chosen.methods:
        runs = [run(case, seed) for seed in range(1, chosen.seeds + 1)]
        losses, diverged = [one.after for one in runs], [seed for seed, one in enumerate(runs, 1) if one.diverged]
        print(
            f"{case:38}{len(diverged):>4} of {len(runs):2}{statistics.median(losses):15.4g}{max(losses):10.4g}",
            flush=True,
        )
        found[case] = {"diverged": diverged, "losses": [loss if math.isfinite(loss) else None for loss in losses]}
    print(json.dumps({"seeds": chosen.seeds, "methods": found}))


if __name__ == "__main__":
    main()
