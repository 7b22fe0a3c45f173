"""How far predictions from one run are off on links that it has not seen.

Each method trains a GPT of 0.8 million parameters on text once, at every step an exchange, in one process that hosts
both workers.  From its logs ``analysis.prediction.runs`` predicts the seconds of training on every link with every H;
the bandwidth is what a stream of bytes reaches on that link, and nothing else of it is known.  Then the same settings
are trained there by two processes, one thread each, and the sum of their logged steps is compared.  Evaluations,
checkpoints and the start of the processes are off this clock.

The error is |predicted / measured - 1| of the seconds of all steps; beside it stands that of the seconds to a target,
the accuracy that the least good of the simulated runs reaches, for which the losses by steps of H = 1 are taken for
those of the other H, too.  Then ``benchmarks.whatif_forks``.  ``--quick`` is a small CNN on the loopback, without
root and forks.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from analysis import axes
from analysis.logs.load import Logs, load
from analysis.prediction import profile
from analysis.prediction.runs import RunQuestion, Setup, question, seconds_of
from analysis.time_to_accuracy import first_at
from benchmarks.links.network import Loopback, Network, network_or_loopback
from benchmarks.links.ranks import ROOT, Row, environment, free_port
from benchmarks.whatif_forks import figures_of_forks

WORKERS, PORT = 2, 29511
METHODS = ("supersgd", "alq", "topk")
PATIENCE_S = 300.0  # the longest time for one run
LOOPBACK = "loopback", 10e9  # bit/s: about what it carries; nobody measures it


@dataclass(frozen=True)
class Task:
    """What is trained, as words of ``main.py``, and the links (Mbit/s) and H that are measured."""

    words: tuple[str, ...]
    mbit: tuple[float, ...]
    every: tuple[int, ...]
    steps: int


_SHARED = (f"workers={WORKERS}", "measure.every=0", "eval_train=false", "schedule=constant")
_TEXT = (
    *("data=text", "data.num_test=128", "model=gpt", "model.width=128", "batch_size=8", "optim=adamw"),
    *("optim.lr=0.003", "optim.clip_norm=1.0", "eval_every=8", "log_every=8", *_SHARED),
)
_DIGITS = ("data=digits", "model=cnn", "batch_size=16", "optim.lr=0.1", "eval_every=4", "log_every=4", *_SHARED)
FULL = Task(_TEXT, (30, 300), (1, 4), 96)
QUICK = Task(_DIGITS, (), (1, 4), 64)
# as SparseLoCo: the mean of the moves, as it is
ROUNDS = ("exchange.outer_lr=1.0", "exchange.outer_momentum=0.0", "exchange.nesterov=false")


# --- runs of main.py ----------------------------------------------------------------------------------------------


def words_of(task: Task, method: str, every: int, folder: Path) -> list[str]:
    """The words of ``main.py`` for one run."""
    rounds = [f"exchange.local_steps={every}", *ROUNDS] if every > 1 else []
    return [*task.words, f"method={method}", f"steps={task.steps}", *rounds, f"run_dir={folder}"]


def train(words: Sequence[str], net: Network | Loopback | None, port: int = PORT) -> None:
    """One run of ``main.py``: a process for each worker of a network, or one for all.

    Raises RuntimeError, with a process's last words, where one fails or takes longer than PATIENCE_S.
    """
    with contextlib.ExitStack() as stack:
        processes = []
        for rank in range(WORKERS if net else 1):
            command, own = [sys.executable, str(ROOT / "main.py"), *words], {**os.environ, "OMP_NUM_THREADS": "1"}
            if net:
                command, own = net.command(rank, command), {**environment(net, rank, port), "LOCAL_RANK": "0"}
            said = stack.enter_context(tempfile.TemporaryFile("w+"))
            pipes = {"stdout": said, "stderr": subprocess.STDOUT, "text": True}
            process = subprocess.Popen(command, cwd=ROOT, env=own, **pipes)
            stack.callback(process.kill)
            processes.append((process, said))
        end = time.monotonic() + PATIENCE_S
        for process, said in processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, end - time.monotonic()))
            if process.returncode != 0:
                said.seek(0)
                last = [line for line in said.read().splitlines() if line.strip()][-1:] or ["no word"]
                why = "took too long" if process.returncode is None else f"ended with {process.returncode}"
                raise RuntimeError(f"main.py {' '.join(words)}: {why}: {last[0]}")


# --- predicted and measured ---------------------------------------------------------------------------------------


def measured(task: Task, methods: Sequence[str], folder: Path) -> list[Row]:
    """A row for each method, link and H, with the predicted and the measured seconds.

    Raises ValueError where there can be no network, RuntimeError where a run failed.
    """
    for method in methods:
        train(words_of(task, method, 1, folder / "simulated" / method), None)
    logs = load(folder, "simulated", cache=False)
    asked, rows = question(logs, None, profile.read(profile.DEFAULT)), []
    with network_or_loopback(bool(task.mbit), WORKERS, max(task.mbit, default=0.0)) as net:
        for rate in task.mbit or (None,):
            link, bandwidth = LOOPBACK
            if rate is not None and isinstance(net, Network):
                net.set_rate(rate)
                link, bandwidth = f"{rate:g} Mbit/s", 1e6 * net.raw_mbit()
            for every, method in itertools.product(task.every, methods):
                setup = Setup(WORKERS, every, bandwidth)
                before = predicted(logs, asked, method, task.steps, setup)
                sweep = f"measured-{len(rows)}"
                train(
                    words_of(task, method, every, folder / sweep / method),
                    net,
                    PORT + len(rows) if rate else free_port(),
                )
                after = taken(load(folder, sweep, cache=False), method, task.steps, asked.target.percent)
                rows.append(row_of(method, link, setup, before, after))
    return rows


def predicted(logs: Logs, asked: RunQuestion, method: str, steps: int, setup: Setup) -> tuple[float, float]:
    """The seconds of all steps, and those to the target (NaN for never), from the simulated run of a method."""
    (way,) = (way for way in asked.ways if way.seed_group.method == method)
    sent = float(axes.positions(logs, "bytes", [method], [steps]).iloc[0, 0])
    of_steps = seconds_of(asked.costs[method], steps, sent, setup, asked.profile)
    return of_steps, asked.answer(way, setup).seconds


def taken(logs: Logs, run: str, steps: int, percent: float) -> tuple[float, float]:
    """The seconds that a run of several processes took for all steps and to the target (NaN for never)."""
    of_steps = float(axes.positions(logs, "time", [run], [steps]).iloc[0, 0])
    return of_steps, float(first_at(logs, [run], percent).iloc[0])


def row_of(method: str, link: str, setup: Setup, before: tuple[float, float], after: tuple[float, float]) -> Row:
    """The row of one run; before, after: the predicted and the measured seconds, of all steps and to the target."""
    (all_s, target_s), (took_s, reached_s) = before, after
    row: Row = {"method": method, "link": link, "every": setup.every, "bandwidth_bit_s": round(setup.bandwidth)}
    row |= {"predicted_s": all_s, "measured_s": took_s, "error": all_s / took_s - 1}
    if math.isfinite(target_s) and math.isfinite(reached_s):
        row |= {"predicted_target_s": target_s, "measured_target_s": reached_s}
        row["target_error"] = target_s / reached_s - 1
    told = f"{link} H={setup.every} {method:9}"
    print(f"{told}: {all_s:.2f} s predicted, {took_s:.2f} s measured", flush=True)
    return row


def figures_of(rows: Sequence[Mapping[str, Any]]) -> Row:
    """The median and the largest error, the median of the times to the target, and the runs by method, link and H."""
    runs: dict[str, dict[str, dict[str, Row]]] = {}
    for row in rows:
        runs.setdefault(row["method"], {}).setdefault(row["link"], {})[str(row["every"])] = _rounded(row)
    errors = [row["error"] for row in rows]
    to_target = [row["target_error"] for row in rows if "target_error" in row]
    return {
        "predict_median_error": round(statistics.median(map(abs, errors)), 4),
        "predict_worst_error": round(max(errors, key=abs), 4),
        "num_runs": len(rows),
        "target_median_error": round(statistics.median(map(abs, to_target)), 4) if to_target else None,
        "num_reached": len(to_target),
        "runs": runs,
    }


def _rounded(row: Mapping[str, Any]) -> Row:
    return {name: float(f"{value:.4g}") if isinstance(value, float) else value for name, value in row.items()}


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS)
    parser.add_argument("--steps", type=int, help="of every run, in whole rounds, in place of the task's own")
    parser.add_argument("--quick", action="store_true", help="a small CNN on the loopback, without root")


def run(chosen: argparse.Namespace) -> dict[str, Any]:
    task = QUICK if chosen.quick else FULL
    steps = task.steps if chosen.steps is None else chosen.steps
    if steps < 1 or steps % math.lcm(*task.every):
        raise ValueError(f"--steps {steps}: must be a multiple of {math.lcm(*task.every)}")
    with tempfile.TemporaryDirectory(prefix="whatif-") as folder:
        rows = measured(replace(task, steps=steps), chosen.methods, Path(folder))
    return {**figures_of(rows), "steps": steps, **({} if chosen.quick else figures_of_forks())}
