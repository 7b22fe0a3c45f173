"""Training to a fixed accuracy over a slow link.

Run it as ``python -m benchmarks.time_to_accuracy [--data digits --seeds 3 --out FILE]``, as root.

Two ranks, one thread each, in network namespaces whose links carry 100 Mbit/s (``benchmarks.network``), train a model
of about a million parameters under DDP on gloo, an MLP on pictures or a GPT on text: with SuperSGD, whose mean travels
in bfloat16 (the fastest form of ``benchmarks.baselines``), and with ``nuq.compress_hook`` and ALQ, AMQ, QSGDinf (3
bits) and TRN, at their defaults.  Weights, minibatches and learning rate are the same for all methods, which take
turns, seed by seed.  Levels are updated at two early steps, on the clock.

The clock counts training alone: it stops for the evaluations.  Time to accuracy is the time that it shows at the first
evaluation that reaches the target.  ``--from FILE`` prints and draws again what ``--out FILE`` has kept.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from benchmarks.network import INTERFACE, network
from benchmarks.time_to_accuracy_rank import DENSE, Task
from nuq.registry import METHODS

ROOT = Path(__file__).parent.parent
RATE_MBIT, RANKS, PORT = 100, 2, 29411
SHOWN = ("supersgd", "alq", "amq", "qsgdinf", "trn")
TASKS = {
    "digits": Task(
        "digits", "mlp", width=1024, lr=0.02, batch_size=16, steps=140, eval_every=5, target=96.0, levels_at=(10, 50)
    ),
    "cifar10": Task(
        "cifar10", "mlp", width=320, lr=0.01, batch_size=32, steps=300, eval_every=10, target=36.0, levels_at=(10, 100)
    ),
    "text": Task(
        "text",
        "gpt",
        width=128,
        lr=0.003,
        batch_size=16,
        steps=240,
        eval_every=10,
        target=42.0,
        levels_at=(10, 100),
        warm_up=30,
        clip_norm=1.0,
    ),
}
TITLES = {"digits": "digits", "cifar10": "CIFAR-10", "text": "next character of a text"}
Row = dict[str, Any]


def title(method: str) -> str:
    return f"{METHODS[method].title}, bf16" if method == DENSE else METHODS[method].title


# --- measuring ---


def measured(task: Task, methods: Sequence[str], seeds: Sequence[int]) -> Iterator[Row]:
    """The rows of all trainings, one per evaluation.

    Raises ValueError where there can be no network, and RuntimeError with a rank's last words where one failed.
    """
    wanted = json.dumps({"task": asdict(task), "methods": list(methods), "seeds": list(seeds)})
    with network(RANKS, RATE_MBIT) as net, tempfile.TemporaryFile("w+") as errors:
        processes: list[subprocess.Popen[str]] = []
        try:
            for rank in range(RANKS):
                settings = {
                    "RANK": str(rank),
                    "WORLD_SIZE": str(RANKS),
                    "MASTER_ADDR": net.address(0),
                    "MASTER_PORT": str(PORT),
                    "GLOO_SOCKET_IFNAME": INTERFACE,
                    "OMP_NUM_THREADS": "1",
                }
                command = net.command(rank, [sys.executable, "-m", "benchmarks.time_to_accuracy_rank", wanted])
                pipes = {"stdout": subprocess.PIPE, "stderr": errors, "text": True}
                processes.append(subprocess.Popen(command, cwd=ROOT, env={**os.environ, **settings}, **pipes))
            assert processes[0].stdout is not None
            for line in processes[0].stdout:
                yield json.loads(line)
            codes = [process.wait(60) for process in processes]
        finally:
            for process in processes:
                process.kill()
        if any(codes):
            errors.seek(0)
            words = [line for line in errors.read().splitlines() if line.strip()]
            raise RuntimeError(f"a rank ended with {max(codes, key=abs)}: {words[-1] if words else 'no word'}")


# --- what came of it ---


def of_training(rows: Sequence[Row], method: str, seed: int) -> list[Row]:
    return [row for row in rows if row["method"] == method and row["seed"] == seed]


def reached(rows: Sequence[Row], target: float) -> Row | None:
    """The first evaluation of one training that is at or above the target."""
    return next((row for row in rows if row["accuracy"] >= target), None)


def figures_of(rows: Sequence[Row], target: float) -> dict[str, Row]:
    """The means and ranges over the seeds, by method.

    There are times and ratios only where every seed reaches the target.
    """
    seeds = sorted({row["seed"] for row in rows})
    found: dict[str, Row] = {}
    dense = [reached(of_training(rows, DENSE, seed), target) for seed in seeds]
    for method in dict.fromkeys(row["method"] for row in rows):
        trainings = [of_training(rows, method, seed) for seed in seeds]
        firsts = [reached(training, target) for training in trainings]
        kept = [first for first in firsts if first is not None]
        every = len(kept) == len(seeds)
        steps = [training[-1]["step"] for training in trainings]
        found[method] = {
            "time_s": [first["seconds"] for first in kept] if every else None,
            "steps": [first["step"] for first in kept] if every else None,
            "ratio": [a["seconds"] / b["seconds"] for a, b in zip(dense, firsts, strict=True) if a and b]
            if every and all(dense)
            else None,
            "num_reached": len(kept),
            "step_ms": [1e3 * training[-1]["seconds"] / step for training, step in zip(trainings, steps, strict=True)],
            "bytes_per_step": statistics.fmean(
                t[-1]["bytes_sent"] / step for t, step in zip(trainings, steps, strict=True)
            ),
            "final_accuracy": [training[-1]["accuracy"] for training in trainings],
        }
    return found


def with_range(values: Sequence[float] | None, digits: int, unit: str = "") -> str:
    if not values:
        return "-"
    return f"{statistics.fmean(values):.{digits}f}{unit} ({min(values):.{digits}f}-{max(values):.{digits}f})"


def print_table(found: dict[str, Row], task: Task, num_seeds: int) -> None:
    """Print the table as Markdown: means, in brackets smallest and largest."""
    print(
        f"| method | seconds to {task.target:g} % | of SuperSGD's speed | steps | ms a step | MB sent a step | "
        f"accuracy at the end (%) |"
    )
    print("|---|---|---|---|---|---|---|")
    for method, one in found.items():
        seconds = (
            with_range(one["time_s"], 2)
            if one["time_s"]
            else f"not reached by {num_seeds - one['num_reached']} of {num_seeds}"
        )
        steps = with_range(one["steps"], 0)
        print(
            f"| {title(method)} | {seconds} | {with_range(one['ratio'], 2, 'x')} | {steps} | "
            f"{with_range(one['step_ms'], 0)} | {one['bytes_per_step'] / 1e6:.2f} | "
            f"{with_range(one['final_accuracy'], 1)} |"
        )


def summary(found: dict[str, Row], task: Task) -> Row:
    """The means over the seeds, None where a seed did not reach the target, and the means with smallest and largest."""

    def mean(values: Sequence[float] | None, digits: int) -> float | None:
        return round(statistics.fmean(values), digits) if values else None

    def ranges(one: Row) -> Row:
        lists = {name: value for name, value in one.items() if isinstance(value, list) and value}
        spread = {n: {"mean": statistics.fmean(v), "low": min(v), "high": max(v)} for n, v in lists.items()}
        return {"num_reached": one["num_reached"], "bytes_per_step": one["bytes_per_step"], **spread}

    return {
        "data": task.data,
        "target_accuracy": task.target,
        "time_to_accuracy_s": {method: mean(one["time_s"], 3) for method, one in found.items()},
        "speedup_vs_bf16": {method: mean(one["ratio"], 3) for method, one in found.items()},
        "step_ms": {method: mean(one["step_ms"], 2) for method, one in found.items()},
        "bytes_per_step": {method: round(one["bytes_per_step"]) for method, one in found.items()},
        "methods": {method: ranges(one) for method, one in found.items()},
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure or read, print the table, draw, and print one JSON object."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.time_to_accuracy", description="Training to a fixed accuracy over a slow link."
    )
    parser.add_argument(
        "--data", choices=list(TASKS), default="digits", help="cifar10 is looked for as main.py does (NUQ_DATA)"
    )
    parser.add_argument("--methods", nargs="+", choices=SHOWN, default=SHOWN)
    parser.add_argument("--seeds", type=int, default=3, help="how many")
    parser.add_argument("--target", type=float, default=None, help="accuracy in percent, in place of the task's own")
    parser.add_argument("--out", type=Path, help="keep the rows in this file, one JSON object each")
    parser.add_argument("--from", dest="source", type=Path, help="rows of an earlier run, in place of a new one")
    parser.add_argument("--folder", type=Path, default=Path("docs"), help="of the figure")
    chosen = parser.parse_args(arguments)
    rows, started = [], time.perf_counter()
    try:
        if chosen.source:
            rows = [json.loads(line) for line in chosen.source.read_text().splitlines()]
        task = TASKS[rows[0]["data"] if rows else chosen.data]
        task = replace(task, target=task.target if chosen.target is None else chosen.target)
        for row in () if chosen.source else measured(task, chosen.methods, range(1, chosen.seeds + 1)):
            rows.append(row)
            if chosen.out:
                chosen.out.write_text("".join(json.dumps(row) + "\n" for row in rows))
            if row["step"] == task.steps:
                print(
                    f"seed {row['seed']} {title(row['method']):15} {row['seconds']:6.1f} s {row['accuracy']:6.2f} %",
                    file=sys.stderr,
                )
        if not rows:
            raise ValueError(f"{chosen.source or 'the training'} has no rows")
    except (ValueError, RuntimeError, OSError) as error:
        raise SystemExit(f"benchmarks.time_to_accuracy: {error}") from error
    found = figures_of(rows, task.target)
    print_table(found, task, len({row["seed"] for row in rows}))
    from benchmarks import time_to_accuracy_figure  # matplotlib takes a second, and only the figure needs it

    figures = summary(found, task)
    titles = {method: title(method) for method in found}
    times = figures["time_to_accuracy_s"]
    for path in time_to_accuracy_figure.draw(rows, task, TITLES[task.data], titles, times, chosen.folder):
        print(path)
    print(f"{time.perf_counter() - started:.0f} s in all; {os.cpu_count()} cores")
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
