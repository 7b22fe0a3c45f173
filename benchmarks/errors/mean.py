"""The error of the workers' mean, with correlated rounding and without.

Gradients of four workers are recorded early, in the middle and late in a run without compression.  Levels are fitted to
all of them, as at an update.  The error is ``|mean C(x_i) - mean x_i|^2`` over ``|mean x_i|^2``, averaged over
repetitions; figures are the median, least and largest over the moments.  ``bits`` are those of a message by coordinate.

``bias_sigma`` looks for a bias in two ways, in standard errors: along the mean gradient, which is how a shrinkage
would show, and in the squared length of the mean of all errors, which is how any other would. It is the largest of a
few dozen: two or three are no surprise. ``encode_cost`` is the time of encoding with correlated rounding over that
without, in turns.
"""

from __future__ import annotations

import argparse
import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from benchmarks.errors import gradients
from benchmarks.errors.contenders import built, relative_error, square
from benchmarks.errors.gradients import Gradients
from benchmarks.timing import in_turns, seconds, spread, summary
from nuq.compressors.quantizer import Quantizer
from nuq.kernels.spec import Key

ROUNDINGS = ("stochastic", "correlated")
QUANTIZERS = {
    "QSGDinf": "qsgdinf bits=3",
    "QSGDinf, level at zero": "qsgdinf bits=3 form=magnitude",
    "TernGrad": "trn",
    "NUQSGD": "nuqsgd bits=3",
    "ALQ, l2": "alq bits=3 norm=l2",
    "ALQ, linf": "alq bits=3 norm=linf",
    "AMQ, linf": "amq bits=3 norm=linf",
    "optimal, linf": "optimal bits=3 norm=linf",
    "optimal, linf, rotated": "optimal bits=3 norm=linf rotation=hadamard",
}
Found = dict[tuple[str, str], list["Error"]]  # by title and rounding, one of each moment


@dataclass(frozen=True)
class Error:
    """The error of the mean and of a message, over their squared lengths, bits, and the larger sign of a bias."""

    of_mean: float
    of_message: float
    bits: float
    bias_sigma: float


def quantizer(title: str, rounding: str, vectors: Sequence[Tensor]) -> Quantizer:
    return built(f"{QUANTIZERS[title]} bucket_size=8192 rounding={rounding}", vectors)


def measured(made: Quantizer, vectors: Sequence[Tensor], repeats: int) -> Error:
    """The error over so many repetitions, each under random numbers of its own."""
    workers, exact = len(vectors), torch.stack(list(vectors)).mean(dim=0)
    total, sum_of_errors = torch.empty_like(exact), torch.zeros_like(exact, dtype=torch.float64)
    along, squares, alone, bits = [], [], 0.0, 0.0
    for step in range(repeats):
        total.zero_()
        for worker, vector in enumerate(vectors):
            message = made.encode(vector, Key(1, step, worker, "model", workers=workers))
            made.add(message, total)
            if step == 0:
                bits = 8 * message.to_bytes().numel() / exact.numel()
                alone += relative_error(made.decode(message), vector)
        error = total.div_(workers).sub_(exact).double()
        sum_of_errors += error
        along.append(float(error @ exact.double()))
        squares.append(square(error))
    z = statistics.fmean(along) / (statistics.stdev(along) / math.sqrt(repeats))
    # of unbiased errors the sum's squared length is the sum of theirs, give or take its own spread
    pairs = square(sum_of_errors) - sum(squares)
    spread_of_pairs = math.sqrt(2 * repeats * (repeats - 1) * _mean_square_of_products(made, vectors, exact))
    sigma = max(abs(z), abs(pairs) / spread_of_pairs)
    return Error(statistics.fmean(squares) / square(exact), alone / workers, bits, sigma)


def _mean_square_of_products(made: Quantizer, vectors: Sequence[Tensor], exact: Tensor, draws: int = 40) -> float:
    """The mean of ``(e . e')^2`` over pairs of errors of repetitions that are not counted."""
    errors = []
    for step in range(draws):
        keys = [Key(3, step, worker, "model", workers=len(vectors)) for worker in range(len(vectors))]
        decoded = [made.decode(made.encode(x, key)) for x, key in zip(vectors, keys, strict=True)]
        errors.append(torch.stack(decoded).mean(dim=0) - exact)
    products = torch.stack(errors) @ torch.stack(errors).T
    return float(products.double().square()[~torch.eye(draws, dtype=torch.bool)].mean())


def encode_cost(title: str, gradient: Tensor, rounds: int) -> tuple[float, float, float]:
    """The time of encoding, correlated over stochastic: median and quartiles of the pairs."""
    steps = itertools.count()  # places are drawn at every step

    def encoding(rounding: str) -> Any:
        made = quantizer(title, rounding, [gradient])
        return lambda: seconds(lambda: made.encode(gradient, Key(1, next(steps), 1, "model", workers=4)))

    times = in_turns({rounding: encoding(rounding) for rounding in ROUNDINGS}, rounds)
    return spread(times["correlated"], times["stochastic"])


def recorded_or_digits(name: str) -> Gradients:
    """A recorded run, or the one on digits."""
    return gradients.source(gradients.available([name, "CNN on digits"])[0])


def figures(found: Found, costs: dict[str, tuple[float, float, float]], title: str) -> dict[str, Any]:
    """The figures; those whose quantizers were left out are not among them."""

    def ratio(above: tuple[str, str], below: tuple[str, str]) -> dict[str, float]:
        return summary([a.of_mean / b.of_mean for a, b in zip(found[above], found[below], strict=True)])

    said: dict[str, Any] = {"gradients": title}
    for name, of in (("qsgdinf", "QSGDinf"), ("alq_linf", "ALQ, linf"), ("alq_l2", "ALQ, l2")):
        if (of, "correlated") in found:
            said[f"corr_over_ind_{name}"] = ratio((of, "correlated"), (of, "stochastic"))
    reference = ("ALQ, l2", "stochastic")
    if reference in found:
        correlated = [key for key in found if key[1] == "correlated"]
        best = min(correlated, key=lambda key: ratio(key, reference)["median"])
        bits = [statistics.median(error.bits for error in found[key]) for key in (best, reference)]
        said |= {"best": best[0], "best_over_alq_l2": ratio(best, reference), "bits": bits}
    said["bias_sigma"] = max(error.bias_sigma for errors in found.values() for error in errors)
    return said | {"encode_cost": summary([middle for middle, _, _ in costs.values()]), "encode_costs": costs}


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--repeats", type=int, default=10_000, help="of each quantizer at each moment, 2 or more")
    parser.add_argument("--rounds", type=int, default=300, help="timed turns of encoding, 2 or more")
    parser.add_argument("--quantizers", nargs="+", choices=list(QUANTIZERS), default=list(QUANTIZERS), metavar="TITLE")


def run(chosen: argparse.Namespace) -> dict[str, Any]:
    source = recorded_or_digits("ResNet-8 on CIFAR-10")
    found: Found = {}
    for title, rounding in itertools.product(chosen.quantizers, ROUNDINGS):
        found[title, rounding] = [
            measured(quantizer(title, rounding, moment), moment, chosen.repeats) for moment in source.moments
        ]
        print(f"{title}, {rounding}: {found[title, rounding]}", flush=True)
    costs = {title: encode_cost(title, source.moments[0][0], chosen.rounds) for title in chosen.quantizers}
    return figures(found, costs, source.title)
