"""The time that better levels take, and how good they are: ``python -m benchmarks.levels``.

An update goes from the statistics of 350 buckets (norm, mean, sigma) to a checked level set: the mixture of 350
truncated normals, its table, four starts and the dynamic program's answers solved to convergence, the best of them. The
optimum is the dynamic program on the distribution and the steps that follow it.  The baseline is the same call with the
C++ kernels off (NumPy), in turns with them in one run: medians of 15 and quartiles.

The statistics are those of heavy-tailed buckets (Student's t with 3 degrees of freedom, 8192 coordinates, norms a
factor 3 apart); times do not depend on them much.  There is one thread.

A life is a quantizer that is made, observes, is updated and encodes 100,000 coordinates; ``nuq.all_reduce`` takes the
mean of tensors on two ranks, which has the levels of adaptive methods fitted in every call.  With ``--against DIR``,
another checkout with its own C++ kernels, both are measured of the two versions in turns (``benchmarks.levels_child``):
medians and quartiles of each, and of the ratio turn by turn.  Milliseconds are those of the processor, for one process;
calls are those of functions written in Python, of any package, in a second ``all_reduce``.

``alq_over_optimal`` is the largest Psi of ALQ and ALQ-G (exact) over that of the optimum at 2 to 8 bits, symmetric or
not, on histograms of five sources; beside each stands the ratio that the starts alone reach, without the program.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.errors import gradients
from benchmarks.timing import in_turns, seconds, spread
from nuq import native
from nuq.kernels.statistics import Statistics
from nuq.levels import solver_exact, update_rules
from nuq.levels.objective import Objective
from nuq.levels.truncated_normals import CondTruncNorm, CondTruncNormHist, Histogram, TruncNorm
from nuq.native import levels as kernels
from nuq.registry import METHODS

TURNS = 15
ROOT = Path(__file__).parent.parent
CHILD = Path(__file__).with_name("levels_child.py")
OURS, RIVAL = "ours", "rival"
ONE_THREAD = {"OMP_NUM_THREADS": "1"}
# glibc keeps what is freed: with fresh pages a copy of 100 MB takes from one to two times as long, as chance has it
REUSED_MEMORY = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 40)}
NUM_BUCKETS, BUCKET_SIZE = 350, 8192
NUM_BINS = 2048
BITS = range(2, 9)
# sigma, bits, Psi of the optimum: independent values of a normal truncated to [-1, 1]
OPTIMA = [
    (1 / 32, 2, 3.038439632e-3),
    (1 / 32, 3, 1.976421727e-4),
    (1 / 32, 4, 3.083512957e-5),
    (0.1, 2, 1.696331341e-2),
    (0.1, 3, 1.675606346e-3),
    (0.1, 4, 2.915558202e-4),
]
LIMITS = {
    "update_ms_350": 10.0,
    "update_ms_350_numpy": 150.0,
    "optimal_ms_4bit": 10.0,
    "optimal_ms_8bit": 60.0,
    "psi_rel_err": 1e-6,
    "alq_over_optimal": 1.01,
}

Array = np.ndarray


def sample() -> tuple[Array, Array]:
    """The bucket norms, float64[B], and the coordinates divided by them, float64[B, n]."""
    generator = np.random.default_rng(0)
    buckets = generator.standard_t(3, (NUM_BUCKETS, BUCKET_SIZE)) * np.exp(generator.normal(0.0, 0.5, (NUM_BUCKETS, 1)))
    norms = np.linalg.norm(buckets, axis=1)
    return norms, buckets / norms[:, None]


def measured(norms: Array, r: Array) -> Histogram:
    """The norm^2-weighted histogram of the coordinates, in bins that are fine around zero."""
    half = np.sinh(np.linspace(0.0, 10.0, NUM_BINS // 2 + 1)) / np.sinh(10.0)
    edges = np.concatenate([-half[:0:-1], half])
    edges[0], edges[-1] = -1.0, 1.0
    place = np.clip(np.searchsorted(edges, r.ravel(), side="right") - 1, 0, NUM_BINS - 1)
    weights = np.repeat(norms**2, r.shape[1])
    return Histogram(edges, *(np.bincount(place, weights * r.ravel() ** order, NUM_BINS) for order in range(3)))


def interleaved(calls: dict[str, Callable[[], object]]) -> dict[tuple[str, bool], Array]:
    """The milliseconds of every call, with the kernels (True) and without (False)."""

    def timed(call: Callable[[], object], compiled: bool) -> float:
        with nullcontext() if compiled else kernels.switched_off():
            return 1e3 * seconds(call)

    measures = {(name, by): partial(timed, call, by) for name, call in calls.items() for by in (True, False)}
    return {key: np.array(values) for key, values in in_turns(measures, TURNS).items()}


def worst_psi_error() -> float:
    """The largest relative error of Psi over the known optima.

    It is that of the optimum and of ALQ, in closed form and on a table.
    """
    errors = []
    for sigma, bits, psi in OPTIMA:
        for distribution in (TruncNorm(0.0, sigma), CondTruncNormHist(TruncNorm(0.0, sigma))):
            for symmetric in (True, False):
                errors.append(
                    update_rules.optimal(distribution, 2**bits, symmetric=symmetric).expected_variance / psi - 1
                )
            errors.append(update_rules.alq(distribution, bits).expected_variance / psi - 1)
    return float(np.abs(errors).max())


def sources() -> dict[str, Histogram]:
    """The histograms that an update would see.

    They are of 2^18 coordinates of four distributions, and of gradients of a CNN on the digits.
    """
    generator, count = np.random.default_rng(1), 1 << 18
    drawn = {
        "normal": generator.standard_normal(count),
        "lognormal": np.exp(generator.standard_normal(count)) * generator.choice([-1, 1], count),
        "t2": generator.standard_t(2, count),
        "t3": generator.standard_t(3, count),
    }
    vectors = {name: [torch.from_numpy(values.astype(np.float32))] for name, values in drawn.items()}
    vectors["gradients"] = gradients.source("digits").learn
    found = {}
    for name, of_source in vectors.items():
        statistics = Statistics.empty(NUM_BUCKETS)
        statistics.add(of_source, BUCKET_SIZE, "l2", moments=False)
        found[name] = statistics.fit("histogram")
    return found


def over_optimal() -> tuple[float, dict[str, float]]:
    """The largest Psi of ALQ over that of the optimum, and, by bits, that without the dynamic program among the starts.

    Each source is printed.
    """
    print(
        "\nPsi over that of the optimum: ALQ, ALQ-G, and ALQ's starts without the dynamic program; the largest of "
        "symmetric and free levels"
    )
    print(f"{'':12}" + "".join(f"{f'{bits} bits':>22}" for bits in BITS))
    worst, alone = 0.0, dict.fromkeys((str(bits) for bits in BITS), 0.0)
    for name, distribution in sources().items():
        cells = []
        for bits in BITS:
            ratios = np.array([_ratios(distribution, bits, symmetric) for symmetric in (True, False)]).max(axis=0)
            worst = max(worst, float(ratios[:2].max()))
            alone[str(bits)] = max(alone[str(bits)], float(ratios[2]))
            cells.append(" ".join(f"{ratio:6.4f}" for ratio in ratios))
        print(f"{name:12}" + "".join(f"{cell:>22}" for cell in cells))
    return worst, alone


def _ratios(distribution: Histogram, bits: int, symmetric: bool) -> tuple[float, float, float]:
    objective = Objective.of(distribution, symmetric)
    starts = update_rules.exact_starts(distribution, bits, symmetric).values()
    edges, _ = solver_exact.descend(objective, np.stack([objective.edges(levels) for levels in starts]))
    alone = min(update_rules.expected_variance(objective.levels(row), distribution) for row in edges)
    best = update_rules.optimal(distribution, 2**bits, symmetric=symmetric).expected_variance
    alq, alq_g = (
        solve(distribution, bits, symmetric=symmetric).expected_variance
        for solve in (update_rules.alq, update_rules.alq_gradient)
    )
    return alq / best, alq_g / best, alone / best


def table_errors(mixture: CondTruncNorm) -> tuple[float, float]:
    """The largest errors of the cdf: of our table, and of 50,000 equal bins."""
    x = np.unique(np.concatenate([np.linspace(-1, 1, 4001), np.linspace(-0.1, 0.1, 4001)]))
    exact, equal = mixture.cdf(x), np.linspace(-1, 1, 50_001)
    # all that is read of it
    near = np.unique(np.clip(np.searchsorted(equal, x)[:, None] + [-1, 0, 1], 0, len(equal) - 1))
    flat = np.interp(x, equal[near], mixture.cdf(equal[near]))
    return float(np.abs(CondTruncNormHist(mixture).cdf(x) - exact).max()), float(np.abs(flat - exact).max())


def _quartiles(values: Array) -> dict[str, float]:
    low, middle, high = (float(f"{value:.4g}") for value in np.percentile(values, [25, 50, 75]))
    return {"median": middle, "low": low, "high": high}


class Version:
    """A version of the library, in a process of its own that answers commands until ``kill``."""

    def __init__(self, checkout: Path, **settings: str) -> None:
        self.checkout = checkout
        environment = os.environ | ONE_THREAD | REUSED_MEMORY | {"PYTHONPATH": str(checkout)} | settings
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(CHILD)],
            cwd=checkout,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdin and self._process.stdout
        self._to, self._from = self._process.stdin, self._process.stdout

    def tell(self, command: Mapping[str, Any]) -> None:
        """Give a command, whose answer comes next."""
        with contextlib.suppress(BrokenPipeError):  # the answer will tell
            self._to.write(json.dumps(command) + "\n")
            self._to.flush()

    def answer(self) -> dict[str, Any]:
        """The answer to the last command; RuntimeError where the process has ended."""
        line = self._from.readline()
        if not line:
            raise RuntimeError(f"the process of {self.checkout} ended with {self._process.wait()}")
        return json.loads(line)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        with contextlib.suppress(BrokenPipeError):
            self._to.close()
        self._from.close()


@contextlib.contextmanager
def versions(checkouts: Mapping[str, Path], num_ranks: int) -> Iterator[dict[str, list[Version]]]:
    """The processes of each version, one for every rank; 0: one that is no rank."""
    with contextlib.ExitStack() as ends:
        found: dict[str, list[Version]] = {}
        for name, checkout in checkouts.items():
            meeting = Path(ends.enter_context(tempfile.TemporaryDirectory())) / "ranks"
            of_all = {"WORLD_SIZE": str(num_ranks), "RENDEZVOUS": f"file://{meeting}"}
            ranks = [{"RANK": str(rank), **of_all} for rank in range(num_ranks)] or [{}]
            found[name] = [Version(checkout, **settings) for settings in ranks]
            for version in found[name]:
                ends.callback(version.kill)
        yield found


def ask(version: list[Version], **command: Any) -> dict[str, Any]:
    """The first process's answer to a command that all are given."""
    for process in version:
        process.tell(command)
    first, *_ = [process.answer() for process in version]
    return first


def in_versions(checkouts: Mapping[str, Path], num_ranks: int, cases: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """The milliseconds of every case by version, in turns, with their ratio, and the calls of Python."""
    found: dict[str, Any] = {}
    with versions(checkouts, num_ranks) as processes:
        for name, case in cases.items():
            values: dict[str, list[float]] = {version: [] for version in processes}
            same = True
            for turn in range(2 + 2 * TURNS):  # of which two warm up
                checksums = set[int]()
                for version in list(processes)[:: -1 if turn % 2 else 1]:
                    told = ask(processes[version], **case, **{"step" if num_ranks else "seed": turn})
                    checksums.add(told["checksum"])
                    values[version] += [told["processor"]] if turn > 1 else []
                same = same and len(checksums) == 1
            row: dict[str, Any] = {version: _quartiles(np.array(measured)) for version, measured in values.items()}
            if num_ranks:
                row["calls"] = {v: ask(of, **case, step=0, calls=True)["calls"] for v, of in processes.items()}
            if RIVAL in values:
                middle, low, high = (float(f"{ratio:.4g}") for ratio in spread(values[RIVAL], values[OURS]))
                row |= {"ratio": {"median": middle, "low": low, "high": high}, "same_bits": same}
            found[name] = row
    return found


def print_versions(title: str, rows: Mapping[str, Any]) -> None:
    print(f"\n{title}")
    for name, row in rows.items():
        cells = [f"{_cell(row[version])}" if version in row else "" for version in (OURS, RIVAL, "ratio")]
        calls = " ".join(str(row.get("calls", {}).get(version, "")) for version in (OURS, RIVAL))
        other = "" if row.get("same_bits", True) else "  other bits"
        print(f"{name:44}{cells[0]:>24}{cells[1]:>24}{cells[2]:>24}   {calls}{other}")


def _cell(of: Mapping[str, float]) -> str:
    return f"{of['median']:.2f} ({of['low']:.2f} - {of['high']:.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.levels", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--against", type=Path, metavar="DIR", help="another checkout, measured in turns with this one")
    parser.add_argument("--only", choices=["versions"], help="leave out what has no other version")
    chosen = parser.parse_args()
    checkouts = {OURS: ROOT} | ({RIVAL: chosen.against.resolve()} if chosen.against else {})
    adaptive = [name for name, entry in METHODS.items() if entry.adaptive]
    lives = in_versions(checkouts, 0, {name: {"do": "life", "method": name} for name in adaptive})
    reductions = in_versions(
        checkouts,
        2,
        {
            f"{name}, {size:,} coordinates": {"do": "all_reduce", "method": name, "size": size}
            for name in ("qsgdinf", "alq", "amq", "eden")
            for size in (1000, 100_000)
        },
    )
    head = "ms of the processor: ours, the other's, ratio; calls of Python: ours, the other's"
    print_versions(f"make, observe, update, encode 100,000 coordinates; {head}", lives)
    print_versions(f"nuq.all_reduce, two ranks; {head}", reductions)
    figures = {"life_ms": lives, "all_reduce_ms": reductions}
    print(json.dumps(figures if chosen.only else measured_here() | figures))


def measured_here() -> dict[str, Any]:
    """The figures of updates and optima, which are printed."""
    torch.set_num_threads(1)
    norms, r = sample()
    means, sigmas = r.mean(axis=1), r.std(axis=1, ddof=1)
    histogram = measured(norms, r)
    table = CondTruncNormHist(CondTruncNorm(means, sigmas, norms**2))

    def update(bits: int) -> update_rules.Fitted:
        return update_rules.alq(CondTruncNormHist(CondTruncNorm(means, sigmas, norms**2)), bits)

    calls: dict[str, Callable[[], object]] = {
        "update from 350 buckets, mixture, 3 bits": lambda: update(3),
        "update from 350 buckets, mixture, 4 bits": lambda: update(4),
        "optimum, 16 levels, histogram": lambda: update_rules.optimal(histogram, 16),
        "optimum, 16 levels, mixture": lambda: update_rules.optimal(table, 16),
        "optimum, 256 levels, histogram": lambda: update_rules.optimal(histogram, 256),
        "optimum, 256 levels, mixture": lambda: update_rules.optimal(table, 256),
    }
    times = interleaved(calls)
    sets = native.instruction_sets()
    print(f"median of {TURNS} (quartiles), ms; C++: {sets[-1] if sets else 'not built, so both columns are NumPy'}")
    print(f"{'':44}{'C++':>24}{'NumPy':>28}{'ratio':>9}")
    medians = {key: float(np.median(values)) for key, values in times.items()}
    for name in calls:
        cells = [
            f"{medians[name, c]:8.2f} ({' - '.join(f'{q:.2f}' for q in np.percentile(times[name, c], [25, 75]))})"
            for c in (True, False)
        ]
        print(f"{name:44}{cells[0]:>24}{cells[1]:>28}{medians[name, False] / medians[name, True]:8.0f}x")

    def worst(start: str, compiled: bool = True) -> float:
        return max(value for (name, kind), value in medians.items() if name.startswith(start) and kind == compiled)

    over, alone = over_optimal()
    ours, equal = table_errors(table.mixture)
    print(f"\nlargest error of the mixture's cdf: {ours:.1e} (2,560 bins of ours), {equal:.1e} (50,000 equal bins)\n")

    figures = {
        "update_ms_350": worst("update"),
        "update_ms_350_numpy": worst("update", compiled=False),
        "optimal_ms_4bit": worst("optimum, 16"),
        "optimal_ms_8bit": worst("optimum, 256"),
        "psi_rel_err": worst_psi_error(),
        "alq_over_optimal": over,
    }
    for name, value in figures.items():
        print(f"{name:24}{value:12.3g}  limit {LIMITS[name]:g}: {'holds' if value <= LIMITS[name] else 'MISSED'}")
    of_calls = {name: {by: _quartiles(times[name, by == "c++"]) for by in ("c++", "numpy")} for name in calls}
    short = {name: float(f"{value:.4g}") for name, value in figures.items()}
    return short | {"ms": of_calls, "without_program_over_optimal": alone}


if __name__ == "__main__":
    main()
