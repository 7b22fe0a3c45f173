"""Training to a fixed accuracy over a slow link.

Two ranks, one thread each, whose links carry 100 Mbit/s, train a model of about a million parameters under DDP on
gloo, an MLP on pictures or a GPT on text: with SuperSGD, whose mean travels in bfloat16 (the fastest form of
``baselines``), and with ``nuq.compress_hook`` and ALQ, AMQ, QSGDinf (3 bits) and TRN, at their defaults.  Weights,
minibatches and learning rate are the same for all methods, which take turns, seed by seed.  Levels are updated at two
early steps, on the clock.

The clock counts training alone: it stops for the evaluations, and what a process pays once is left out by the first
steps of a training that is thrown away.  Time to accuracy is the time that it shows at the first evaluation that
reaches the target.  ``--from FILE`` takes what ``--out FILE`` has kept.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.links.network import network
from benchmarks.links.ranks import Row, prepare, rank_processes, train
from benchmarks.links.spec import Spec
from nuq.registry import METHODS

RATE_MBIT, RANKS, WARM_UP_STEPS = 100, 2, 4
DENSE = "supersgd"
SHOWN = (DENSE, "alq", "amq", "qsgdinf", "trn")


@dataclass(frozen=True)
class Task:
    """The task to learn.

    target: accuracy in percent, of images or of characters that are told from those before them.  levels_at: the steps
    that update levels.
    """

    title: str
    spec: Spec
    steps: int
    eval_every: int
    target: float
    levels_at: tuple[int, ...]

    def of(self, method: str, seed: int, levels_at: Sequence[int]) -> Spec:
        """The training by a method."""
        if method == DENSE:
            return replace(self.spec, variant="bf16", seed=seed)
        bits = "" if method == "trn" else " bits=3"
        levels = f" update_at={list(levels_at)}".replace(", ", ",") if METHODS[method].adaptive else ""
        return replace(self.spec, variant=f"hook method={method} seed={seed}{bits}{levels}", seed=seed)


def _mlp(data: str, width: int, lr: float, batch: int) -> Spec:
    return Spec(f"mlp widths=[{width},{width}]", "bf16", batch, f"sgd lr={lr} momentum=0.9", data)


_GPT = Spec(
    "gpt layers=4 heads=4 width=128", "bf16", 16, "adamw lr=0.003", "text num_test=128", warm_up=30, clip_norm=1.0
)
TASKS = {
    "digits": Task("digits", _mlp("digits", 1024, 0.02, 16), 140, 5, 96.0, (10, 50)),
    "cifar10": Task("CIFAR-10", _mlp("cifar10", 320, 0.01, 32), 300, 10, 36.0, (10, 100)),
    "text": Task("next character of a text", _GPT, 240, 10, 42.0, (10, 100)),
}


def title(method: str) -> str:
    return f"{METHODS[method].title}, bf16" if method == DENSE else METHODS[method].title


def measured(name: str, methods: Sequence[str], seeds: Sequence[int]) -> Iterator[Row]:
    """The rows of all trainings, one per evaluation."""
    task = TASKS[name]
    with network(RANKS, RATE_MBIT) as net, rank_processes(net) as ranks:
        for seed in seeds:
            for method in methods:
                prepare(ranks, method, task.of(method, seed, (2,)), WARM_UP_STEPS)
                rows = train(ranks, method, task.of(method, seed, task.levels_at), task.steps, task.eval_every)
                yield from ({"data": name, "method": method, "seed": seed, **row} for row in rows)


def reached(rows: Sequence[Row], target: float) -> Row | None:
    """The first evaluation of one training that is at or above the target."""
    return next((row for row in rows if row["accuracy"] >= target), None)


def figures_of(rows: Sequence[Row], target: float) -> dict[str, Row]:
    """The values of every seed, by method; there are times and ratios only if every seed reaches the target."""
    found: dict[str, Row] = {}
    seeds = sorted({row["seed"] for row in rows})
    by_method = {
        method: [[row for row in rows if (row["method"], row["seed"]) == (method, seed)] for seed in seeds]
        for method in dict.fromkeys(row["method"] for row in rows)
    }
    dense = [reached(training, target) for training in by_method.get(DENSE, [])]
    for method, trainings in by_method.items():
        firsts = [reached(training, target) for training in trainings]
        ends = [training[-1] for training in trainings]
        kept = [first for first in firsts if first is not None]
        every = len(kept) == len(seeds)
        ratios = [a["seconds"] / b["seconds"] for a, b in zip(dense, firsts, strict=False) if a and b]
        found[method] = {
            "time_s": [first["seconds"] for first in kept] if every else None,
            "steps": [first["step"] for first in kept] if every else None,
            "ratio": ratios if every and dense and all(dense) else None,
            "num_reached": len(kept),
            "step_ms": [1e3 * end["seconds"] / end["step"] for end in ends],
            "bytes_per_step": statistics.fmean(end["bytes_sent"] / end["step"] for end in ends),
            "final_accuracy": [end["accuracy"] for end in ends],
        }
    return found


def summary(found: dict[str, Row], data: str, target: float) -> Row:
    """The means over the seeds, None if a seed did not reach the target, and the means with smallest and largest."""

    def means(name: str, digits: int) -> dict[str, float | None]:
        return {m: round(statistics.fmean(one[name]), digits) if one[name] else None for m, one in found.items()}

    def ranges(one: Row) -> Row:
        lists = {name: value for name, value in one.items() if isinstance(value, list) and value}
        spread = {n: {"mean": statistics.fmean(v), "low": min(v), "high": max(v)} for n, v in lists.items()}
        return {"num_reached": one["num_reached"], "bytes_per_step": one["bytes_per_step"], **spread}

    return {
        "data": data,
        "target_accuracy": target,
        "time_to_accuracy_s": means("time_s", 3),
        "speedup_vs_bf16": means("ratio", 3),
        "step_ms": means("step_ms", 2),
        "bytes_per_step": {method: round(one["bytes_per_step"]) for method, one in found.items()},
        "methods": {method: ranges(one) for method, one in found.items()},
    }


def options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--data", choices=list(TASKS), default="digits", help="cifar10 is looked for as main.py does (NUQ_DATA)")
    add("--methods", nargs="+", choices=SHOWN, default=SHOWN)
    add("--seeds", type=int, default=3, help="how many")
    add("--target", type=float, help="accuracy in percent, in place of the task's own")
    add("--out", type=Path, help="keep the rows in this file, one JSON object each")
    add("--from", dest="source", type=Path, help="rows of an earlier run, in place of a new one")
    add("--folder", type=Path, default=Path("docs"), help="of the figure")


def run(chosen: argparse.Namespace) -> dict[str, Any]:
    """Measure or read, and draw."""
    rows: list[Row] = []
    if chosen.source:
        rows = [json.loads(line) for line in chosen.source.read_text().splitlines()]
    else:
        for row in measured(chosen.data, chosen.methods, range(1, chosen.seeds + 1)):
            rows.append(row)
            if chosen.out:
                chosen.out.write_text("".join(json.dumps(row) + "\n" for row in rows))
    if not rows:
        raise ValueError(f"{chosen.source or 'the training'} has no rows")
    data = rows[0]["data"]
    target = TASKS[data].target if chosen.target is None else chosen.target
    figures = summary(figures_of(rows, target), data, target)
    from benchmarks.links import figure  # matplotlib takes a second, and only the figure needs it

    figure.draw(
        rows, figures, {method: title(method) for method in figures["methods"]}, TASKS[data].title, chosen.folder
    )
    return figures
