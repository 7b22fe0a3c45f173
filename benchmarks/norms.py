"""The errors of adaptive methods under different norms of their buckets.

Run it as ``python -m benchmarks.norms [--methods alq amq ..] [--bits 2 3 ..]``.

Gradients of four workers are recorded early, in the middle and late in runs without compression (``RUNS``; of data that
is there).  Levels are fitted to two workers' gradients, and the error ``|x - C(x)|^2 / |x|^2`` is that of the two
others', through the bytes:

- fresh: at the same step, which is what an update is worth at once;
- later: at the next moment's, which is what it is worth until the next update;
- unfitted: of the levels that a method has before any update.

Buckets of ``BUCKETS`` coordinates cut the whole gradient (scope=model); ``tensor`` is one vector per parameter in
buckets of 8192, as in the DDP hook.  A cell of a table is the geometric mean over runs and moments; ``worst`` is the
largest ratio to the best norm of the same case.  The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from files.aligned import aligned
from nuq.compressors.message import parse
from nuq.compressors.quantized import AdaptiveQuantizer
from nuq.exchange.compressor_map import sorted_settings
from nuq.kernels.spec import Key
from nuq.registry import METHODS, method
from settings import resolving
from train.steps.trainer import Trainer

CACHE = Path("runs") / "norms"
RUNS: dict[str, dict[str, Any]] = {
    "CNN on digits": {"data": "digits", "model": "cnn", "batch_size": 16},
    "LeNet on CIFAR-10": {"data": "cifar10", "model": "lenet", "batch_size": 32, "optim.lr": 0.02},
    "ResNet-8 on CIFAR-10": {"data": "cifar10", "model": "resnet8", "batch_size": 32},
}
MOMENTS = (0, 100, 500)  # steps
WORKERS = 4  # levels are learned from the first half of them
NORMS = ("l2", "linf", "quantile")
BITS = (2, 3, 4, 5, 6, 7, 8)
BUCKETS = (256, 1024, 4096, 16384)
ADAPTIVE = [name for name, entry in METHODS.items() if entry.adaptive]
KINDS: tuple[str, ...] = ("fresh", "later", "unfitted")


@dataclass(frozen=True)
class Recorded:
    """The recorded gradients of a run.

    sizes: of the parameters; gradients: float32[n] by moment and worker.
    """

    title: str
    sizes: list[int]
    gradients: list[list[Tensor]]

    def vectors(self, gradient: Tensor, bucket: int | str) -> Sequence[Tensor]:
        """The vectors that are encoded as one message each."""
        return gradient.split(self.sizes) if bucket == "tensor" else [gradient]


@dataclass(frozen=True)
class Case:
    """The settings of one quantizer; bucket: coordinates of one, or ``tensor``."""

    method: str
    norm: str
    bits: int
    bucket: int | str

    def compressor(self) -> AdaptiveQuantizer:
        size = 8192 if self.bucket == "tensor" else self.bucket
        (settings,) = sorted_settings(self.method, (), {"norm": self.norm, "bits": self.bits, "bucket_size": size}, {})
        return method(self.method).load()(settings)


def recorded(title: str) -> Recorded:
    """A run of ``RUNS``, kept in ``runs/``.

    Raises FileNotFoundError where its data is not there.
    """
    place = CACHE / f"{title.replace(' ', '_')}.pt"
    if place.exists():
        kept = torch.load(place, weights_only=True)
        return Recorded(title, kept["sizes"], kept["gradients"])
    settings = {"method": "supersgd", "workers": WORKERS, "seed": 1, "optim.lr": 0.1, **RUNS[title]}
    trainer = Trainer(resolving.resolve(settings), device=torch.device("cpu"))
    found = []
    for step in range(MOMENTS[-1] + 1):
        if step in MOMENTS:
            of_workers, _ = trainer.gradients.of_workers(range(WORKERS), step, trainer.order, "norms")
            found.append(list(of_workers.values()))
        trainer.train_step()
    sizes = [parameter.numel() for parameter in trainer.parameters.values()]
    place.parent.mkdir(parents=True, exist_ok=True)
    torch.save({"sizes": sizes, "gradients": found}, place)
    return Recorded(title, sizes, found)


def error(compressor: AdaptiveQuantizer, run: Recorded, gradients: Sequence[Tensor], bucket: int | str) -> float:
    """The mean relative error over the gradients, decoded from the bytes alone."""
    found = []
    for worker, gradient in enumerate(gradients):
        vectors = run.vectors(gradient, bucket)
        messages = [
            compressor.encode(vector, Key(1, 0, worker, str(number))).to_bytes()
            for number, vector in enumerate(vectors)
        ]
        decoded = torch.cat([compressor.decode(parse(message)) for message in messages])
        found.append(float((decoded - gradient).double().square().sum() / gradient.double().square().sum()))
    return statistics.mean(found)


def errors(case: Case, run: Recorded) -> dict[str, list[float]]:
    """The errors of a case by kind, over the moments."""
    compressor, half = case.compressor(), WORKERS // 2
    found: dict[str, list[float]] = {kind: [] for kind in KINDS}
    found["unfitted"] = [error(compressor, run, gradients[half:], case.bucket) for gradients in run.gradients]
    for number, gradients in enumerate(run.gradients):
        learned = [
            (vector, Key(2, number, worker, str(name)))
            for worker, gradient in enumerate(gradients[:half])
            for name, vector in enumerate(run.vectors(gradient, case.bucket))
        ]
        compressor.update(compressor.observed(learned))
        found["fresh"].append(error(compressor, run, gradients[half:], case.bucket))
        if number + 1 < len(run.gradients):
            found["later"].append(error(compressor, run, run.gradients[number + 1][half:], case.bucket))
    return found


Table = dict[Case, dict[str, list[float]]]  # errors by kind, of all runs and moments


def measured(cases: Sequence[Case], runs: Sequence[Recorded]) -> Table:
    """The errors of every case."""
    table: Table = {}
    for case in cases:
        of_runs = [errors(case, run) for run in runs]
        table[case] = {kind: [value for found in of_runs for value in found[kind]] for kind in KINDS}
    return table


def geometric(values: Sequence[float]) -> float:
    """The geometric mean of the values."""
    return math.exp(statistics.fmean(math.log(value) for value in values))


def _groups(table: Table, name: str) -> Iterator[tuple[int, int | str, dict[str, Case]]]:
    """The cases of one method by bits and bucket."""
    of_method = [case for case in table if case.method == name]
    for (bits, bucket), group in itertools.groupby(of_method, lambda case: (case.bits, case.bucket)):
        yield bits, bucket, {case.norm: case for case in group}


def summary(table: Table, name: str) -> dict[str, dict[str, dict[str, float]]]:
    """A summary by norm and kind.

    It holds the geometric mean of all cases' errors, the worst ratio to the best norm of a case, and in how many it is
    best.
    """
    found: dict[str, dict[str, dict[str, float]]] = {norm: {} for norm in NORMS}
    for norm, kind in itertools.product(NORMS, KINDS):
        values, ratios = [], []
        for _, _, cases in _groups(table, name):
            rows = [table[case][kind] for case in cases.values()]
            values += table[cases[norm]][kind]
            ratios += [
                own / min(others) for own, others in zip(table[cases[norm]][kind], zip(*rows, strict=True), strict=True)
            ]
        best = sum(ratio == 1.0 for ratio in ratios) / len(ratios)
        found[norm][kind] = {"mean": geometric(values), "worst": max(ratios), "best": best}
    return found


def show(table: Table, name: str) -> None:
    """Print one method's tables and their summary."""
    title = METHODS[name].title
    for kind in KINDS[:2]:
        print(f"\n{title}, {kind}: error under {' / '.join(NORMS)}")
        rows: dict[int, dict[int | str, str]] = {}
        for bits, bucket, cases in _groups(table, name):
            means = [geometric(table[cases[norm]][kind]) for norm in NORMS]
            rows.setdefault(bits, {})[bucket] = " / ".join(f"{value:.2g}" for value in means)
        buckets = map(str, next(iter(rows.values())))
        print(aligned([["bits", *buckets], *([str(bits), *cells.values()] for bits, cells in rows.items())]))
    lines = [[title, "", "mean", "worst ratio to the best norm", "share of cases where it is best"]]
    for norm, kinds in summary(table, name).items():
        for kind, found in kinds.items():
            lines.append([norm, kind, f"{found['mean']:.3g}", f"{found['worst']:.2f}", f"{100 * found['best']:.0f} %"])
    print("\n" + aligned(lines, words=2))


def main(arguments: Sequence[str] | None = None) -> None:
    """Record or read the gradients, measure, print the tables and the JSON object."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.norms", description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--methods", nargs="+", default=["alq", "alq_n", "amq", "amq_n"], choices=ADAPTIVE, metavar="METHOD"
    )
    parser.add_argument("--bits", nargs="+", type=int, default=list(BITS), choices=BITS, metavar="BITS")
    parser.add_argument("--runs", nargs="+", default=list(RUNS), choices=list(RUNS), metavar="RUN")
    chosen = parser.parse_args(arguments)
    torch.set_num_threads(1)
    runs, missing = [], []
    for title in chosen.runs:
        try:
            runs.append(recorded(title))
        except FileNotFoundError:
            missing.append(title)
    print(f"gradients of steps {', '.join(map(str, MOMENTS))}: {', '.join(run.title for run in runs)}")
    if missing:
        print(f"not here: {', '.join(missing)}")
    found = {}
    for name in chosen.methods:
        every = itertools.product(chosen.bits, (*BUCKETS, "tensor"), NORMS)
        table = measured([Case(name, norm, bits, bucket) for bits, bucket, norm in every], runs)
        show(table, name)
        found[name] = summary(table, name)
    print(json.dumps({"runs": [run.title for run in runs], "missing": missing, "methods": found}))


if __name__ == "__main__":
    main()
