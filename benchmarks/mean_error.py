"""The error of the workers' mean, with correlated rounding and without: ``python -m benchmarks.mean_error``.

Gradients of 4 workers are recorded early, in the middle and late in a run of ResNet-8 on CIFAR-10 without compression
(``benchmarks.norms``; digits where CIFAR-10 is not there).  Levels are fitted to all of them, as at an update.  The
error is ``|mean C(x_i) - mean x_i|^2`` over that of the mean's own length, through the bytes, averaged over
repetitions; figures are the median, least and largest over moments.  ``bits`` are those of a message, header and levels
included, by coordinate.

``bias_sigma`` looks for a bias in two ways, in standard errors: along the mean gradient, which is how a shrinkage would
show, and in the squared length of the mean of all errors, which is how any other would.  It is the largest over methods
and moments, of which there are a few dozen: two or three are no surprise.  ``encode_cost`` is the time of encoding with
correlated rounding over that without, in turns (median and quartiles).  The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from benchmarks.gradient_samples import learn
from benchmarks.norms import Recorded, recorded
from benchmarks.timing import in_turns, seconds, spread, summary
from files.aligned import aligned
from nuq.compressors.quantized import AdaptiveQuantizer
from nuq.compressors.quantizer import Quantizer
from nuq.kernels.spec import Key
from nuq.registry import METHODS

BUCKET_SIZE = 8192
ROUNDINGS = ("stochastic", "correlated")
QUANTIZERS: dict[str, tuple[str, dict[str, Any]]] = {  # title: the method and its settings
    "QSGDinf": ("qsgdinf", {"bits": 3}),
    "QSGDinf, level at zero": ("qsgdinf", {"bits": 3, "form": "magnitude"}),
    "TernGrad": ("trn", {}),
    "NUQSGD": ("nuqsgd", {"bits": 3}),
    "ALQ, l2": ("alq", {"bits": 3, "norm": "l2"}),
    "ALQ, linf": ("alq", {"bits": 3, "norm": "linf"}),
    "AMQ, linf": ("amq", {"bits": 3, "norm": "linf"}),
    "optimal, linf": ("optimal", {"bits": 3, "norm": "linf"}),
    "optimal, linf, rotated": ("optimal", {"bits": 3, "norm": "linf", "rotation": "hadamard"}),
}


def quantizer(title: str, rounding: str, gradients: Sequence[Tensor]) -> Quantizer:
    """A quantizer whose levels, where they adapt, are fitted to these gradients."""
    name, settings = QUANTIZERS[title]
    made = METHODS[name].load()(METHODS[name].settings(bucket_size=BUCKET_SIZE, rounding=rounding, **settings))
    if isinstance(made, AdaptiveQuantizer):
        learn(made, gradients)
    return made


@dataclass(frozen=True)
class Error:
    """The error of the mean, relative to the squared length of the mean, and what says whether it is biased.

    of_message: the same of one worker's gradient, by itself; bias_sigma: the larger of the two.
    """

    of_mean: float
    of_message: float
    bits: float
    bias_sigma: float


def measured(made: Quantizer, gradients: Sequence[Tensor], repeats: int) -> Error:
    """The error over so many repetitions, each under random numbers of its own."""
    workers, exact = len(gradients), torch.stack(list(gradients)).mean(dim=0)
    total, sum_of_errors = torch.empty_like(exact), torch.zeros_like(exact, dtype=torch.float64)
    along, squares, alone, bits = [], [], 0.0, 0.0
    for step in range(repeats):
        total.zero_()
        for worker, gradient in enumerate(gradients):
            message = made.encode(gradient, Key(1, step, worker, "model", workers=workers))
            made.add(message, total)
            if step == 0:
                bits = 8 * message.to_bytes().numel() / exact.numel()
                alone += _square(made.decode(message) - gradient) / _square(gradient)
        error = total.div_(workers).sub_(exact).double()
        sum_of_errors += error
        along.append(float(error @ exact.double()))
        squares.append(_square(error))
    z = statistics.fmean(along) / (statistics.stdev(along) / math.sqrt(repeats))
    # of unbiased errors the sum's squared length is the sum of theirs, give or take its own spread
    pairs = _square(sum_of_errors) - sum(squares)
    spread_of_pairs = math.sqrt(2 * repeats * (repeats - 1) * _mean_square_of_products(made, gradients, exact))
    sigma = max(abs(z), abs(pairs) / spread_of_pairs)
    return Error(statistics.fmean(squares) / _square(exact), alone / workers, bits, sigma)


def _square(vector: Tensor) -> float:
    return float(vector.double().square().sum())


def _mean_square_of_products(made: Quantizer, gradients: Sequence[Tensor], exact: Tensor, draws: int = 40) -> float:
    """The mean of ``(e . e')^2`` over pairs of errors of repetitions that are not counted."""
    errors = []
    for step in range(draws):
        keys = [Key(3, step, worker, "model", workers=len(gradients)) for worker in range(len(gradients))]
        decoded = [made.decode(made.encode(x, key)) for x, key in zip(gradients, keys, strict=True)]
        errors.append(torch.stack(decoded).mean(dim=0) - exact)
    products = torch.stack(errors) @ torch.stack(errors).T
    return float(products.double().square()[~torch.eye(draws, dtype=torch.bool)].mean())


def encode_cost(
    titles: Sequence[str], gradient: Tensor, rounds: int
) -> Iterator[tuple[str, tuple[float, float, float]]]:
    """The time of encoding, correlated over stochastic: median and quartiles of the pairs, for each quantizer."""
    steps = itertools.count()  # places are drawn at every step
    for title in titles:
        both = {rounding: quantizer(title, rounding, [gradient]) for rounding in ROUNDINGS}
        times = in_turns(
            {
                name: lambda made=made: seconds(
                    lambda: made.encode(gradient, Key(1, next(steps), 1, "model", workers=4))
                )
                for name, made in both.items()
            },
            rounds,
        )
        yield title, spread(times["correlated"], times["stochastic"])


def run_of(title: str) -> Recorded:
    """The recorded run, or the one on digits."""
    try:
        return recorded(title)
    except FileNotFoundError:
        print("CIFAR-10 is not there: gradients of a CNN on digits")
        return recorded("CNN on digits")


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.mean_error", description=(__doc__ or "").splitlines()[0].partition(":")[0]
    )
    parser.add_argument("--repeats", type=int, default=10_000, help="of each quantizer at each moment")
    parser.add_argument("--rounds", type=int, default=300, help="timed turns of encoding")
    parser.add_argument("--quantizers", nargs="+", choices=list(QUANTIZERS), default=list(QUANTIZERS), metavar="TITLE")
    chosen = parser.parse_args()
    if min(chosen.repeats, chosen.rounds) < 2:
        parser.error(f"--repeats {chosen.repeats} --rounds {chosen.rounds}: a spread takes at least 2 of each")
    run = run_of("ResNet-8 on CIFAR-10")
    print(f"{run.title}, {len(run.gradients[0])} workers, {sum(run.sizes):,} coordinates, buckets of {BUCKET_SIZE}")
    found: dict[tuple[str, str], list[Error]] = {}
    rows = [["quantizer", "bits", "error of a message", "of the mean", "correlated", "ratio by moment", "bias, sigma"]]
    for title in chosen.quantizers:
        for rounding in ROUNDINGS:
            found[title, rounding] = [
                measured(quantizer(title, rounding, gradients), gradients, chosen.repeats)
                for gradients in run.gradients
            ]
        alone, together = (found[title, rounding] for rounding in ROUNDINGS)
        ratios = [a.of_mean / b.of_mean for a, b in zip(together, alone, strict=True)]
        rows.append(
            [
                title,
                f"{statistics.median(error.bits for error in alone):.2f}",
                f"{statistics.median(error.of_message for error in alone):.4f}",
                f"{statistics.median(error.of_mean for error in alone):.4f}",
                f"{statistics.median(error.of_mean for error in together):.4f}",
                " ".join(f"{ratio:.2f}" for ratio in ratios),
                f"{max(error.bias_sigma for error in (*alone, *together)):.1f}",
            ]
        )
        print(f"{title}: measured", flush=True)
    print(f"\n{aligned(rows)}")
    costs = dict(encode_cost(chosen.quantizers, run.gradients[0][0], chosen.rounds))
    print("\n" + aligned([[title, f"{m:.2f}", f"({low:.2f} - {high:.2f})"] for title, (m, low, high) in costs.items()]))
    print(json.dumps(figures(found, costs, run.title)))


def figures(
    found: dict[tuple[str, str], list[Error]], costs: dict[str, tuple[float, float, float]], title: str
) -> dict[str, Any]:
    """The figures of the last line; those whose quantizers were left out are not among them."""

    def ratio(above: tuple[str, str], below: tuple[str, str]) -> dict[str, float]:
        pairs = zip(found[above], found[below], strict=True)
        return summary([a.of_mean / b.of_mean for a, b in pairs])

    said: dict[str, Any] = {"gradients": title}
    for name, quantizer_title in (("qsgdinf", "QSGDinf"), ("alq_linf", "ALQ, linf"), ("alq_l2", "ALQ, l2")):
        if (quantizer_title, "correlated") in found:
            said[f"corr_over_ind_{name}"] = ratio((quantizer_title, "correlated"), (quantizer_title, "stochastic"))
    reference = ("ALQ, l2", "stochastic")
    if reference in found:
        correlated = [key for key in found if key[1] == "correlated"]
        best = min(correlated, key=lambda key: ratio(key, reference)["median"])
        bits = [statistics.median(error.bits for error in found[key]) for key in (best, reference)]
        said |= {"best": best[0], "best_over_alq_l2": ratio(best, reference), "bits": bits}
    said["bias_sigma"] = max(error.bias_sigma for errors in found.values() for error in errors)
    said["encode_cost"] = summary([middle for middle, _, _ in costs.values()])
    return said | {"encode_costs": costs}


if __name__ == "__main__":
    main()
