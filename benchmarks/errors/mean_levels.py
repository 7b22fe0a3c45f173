r"""Levels for the mean beside levels for a message, by the error of the mean.

Both have correlated rounding and are fitted to all workers' vectors, as at an update (``method=optimal``, which is
ALQ for 2^bits levels, and AMQ). A ratio is the error of the mean with ``objective=mean`` over that with
``objective=message``, without a level at zero (2^bits levels) and with one (2^bits - 1). The error is exact for the
given vectors: the expectation over places and random numbers (``error_of_mean``). ``kernels_differ`` holds it against
the kernels' own.

- ``laws``: five distributions, independent workers, buckets of 8192.
- Recorded gradients of four workers, or of the first two: median, least and largest of the run's three moments.
- ``pairs``: the error with levels that are fitted to the very vectors, by Nelder and Mead's method, over that with
  levels for the mean: how much the assumption of independent workers costs.
- ``blind``: the ratio if the agreement of the workers' scales were taken as 1.

``agreement`` is rho of ``nuq.levels.mean_levels``.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from scipy import optimize
from torch import Tensor

from benchmarks.errors import gradients, mean
from benchmarks.errors.contenders import built, fit, square
from benchmarks.errors.gradients import DISTRIBUTIONS, Gradients, normal
from benchmarks.timing import seconds, summary
from nuq.compressors.quantized import AdaptiveQuantizer
from nuq.kernels import operators, reference, spec
from nuq.kernels.statistics import Statistics
from nuq.levels import level_sets, mean_levels, update_rules

BUCKET_SIZE = 8192
BITS = range(2, 9)
NORMS = ("l2", "linf", "quantile")
WORKERS = (2, 3, 4, 16, 64)
KINDS = {"optimal": ("optimal", 0), "with a zero": ("optimal", 1), "amq": ("amq", 0)}


def _student(generator: torch.Generator, degrees: int) -> Tensor:
    """Student's t with 2 or 3 degrees of freedom: tails that no update of levels tames."""
    squares = torch.stack([normal(generator).square() for _ in range(degrees)])
    return normal(generator) / squares.mean(dim=0).sqrt()


LAWS: dict[str, Callable[[torch.Generator], Tensor]] = {
    **{name: draw for name, (_, draw) in DISTRIBUTIONS.items()},
    "t3": partial(_student, degrees=3),
    "t2": partial(_student, degrees=2),
}


def fitted(
    name: str, objective: str, norm: str, num_levels: int, vectors: Sequence[Tensor]
) -> tuple[AdaptiveQuantizer, Statistics]:
    """A quantizer fitted to the workers' vectors, and their statistics."""
    size = f"num_levels={num_levels}" if name == "optimal" else f"bits={num_levels.bit_length() - 1}"
    made = built(f"{name} {size} bucket_size={BUCKET_SIZE} norm={norm} rounding=correlated objective={objective}")
    return made, fit(made, vectors)


def error_of_mean(made: AdaptiveQuantizer, vectors: Sequence[Tensor], nodes: int = 8) -> float:
    """The expected ``|mean C(x_i) - mean x_i|^2`` under correlated rounding, the jitter at so many values.

    Of M points in (0, 1), one for each worker in random order, let N(q) lie below q.  Two workers then both round up
    with probability ``(N(q) N(q') - N(min(q, q'))) / (M (M - 1))``, of which the sum over pairs takes M passes.
    """
    workers, total = len(vectors), 0.0
    widths, shares = (torch.stack(each) for each in zip(*(_cells(made, vector) for vector in vectors), strict=True))
    for a, q in zip(widths.split(BUCKET_SIZE, dim=1), shares.split(BUCKET_SIZE, dim=1), strict=True):
        products, mean_up = torch.zeros_like(a[0]), torch.zeros_like(a)
        for node in range(nodes):
            below = torch.zeros_like(a)
            alike = torch.zeros_like(a[0])  # the sum over points of the squared widths of workers that they round up
            for point in points_of(workers, (node + 0.5) / nodes):
                up = (point < q).float()
                below += up
                alike += (a * up).sum(dim=0).square()
            pairs = _of_pairs(a * below) - alike + (a.square() * below).sum(dim=0)
            products += pairs / (workers * (workers - 1) * nodes)
            mean_up += below / (workers * nodes)
        alone = (a.square() * q * (1 - q)).sum(dim=0)  # exact also where q is small beside 1 / (M nodes)
        total += float((alone + products - _of_pairs(a * mean_up)).double().sum())
    return total / workers**2


def _of_pairs(terms: Tensor) -> Tensor:
    """The sum over i != j of ``terms_i terms_j``: float32[n] from float32[M, n]."""
    return terms.sum(dim=0).square() - terms.square().sum(dim=0)


def _cells(made: AdaptiveQuantizer, vector: Tensor) -> tuple[Tensor, Tensor]:
    """The width of every coordinate's interval, times the scale, and its place therein from 0 to 1: float32[n] each."""
    levels = torch.tensor(made.levels.values, dtype=torch.float32)
    scales = operators.bucket_scales(vector, BUCKET_SIZE, made.norm)
    r, top = reference.normalized(vector, scales, BUCKET_SIZE)
    k = torch.bucketize(r, levels[1:-1], right=True)
    lower, upper = levels[k], levels[k + 1]
    if top is not None:
        lower, upper = torch.where(k == 0, -top, lower), torch.where(k == len(levels) - 2, top, upper)
    of_buckets = scales[:: spec.scales_per_bucket(made.norm)].repeat_interleave(BUCKET_SIZE)[: vector.numel()]
    return of_buckets * (upper - lower), (r - lower) / (upper - lower)


def points_of(workers: int, jitter: float) -> list[float]:
    """The random numbers of M workers by step 6 of ``nuq.kernels.spec``: the set is the same at every z + 1 / A B."""
    even, odd = (workers + 1) // 2, workers // 2
    p, q = (odd, even) if workers % 2 else (1, 1)
    z = jitter / (p * even)
    return [(p * z + j / even) % 1 for j in range(even)] + [1 - (q * z + j / odd) % 1 for j in range(odd)]


def ratio(name: str, norm: str, num_levels: int, vectors: Sequence[Tensor], nodes: int = 8) -> float:
    of_mean, of_message = (
        error_of_mean(fitted(name, objective, norm, num_levels, vectors)[0], vectors, nodes)
        for objective in ("mean", "message")
    )
    return of_mean / of_message


def left_over(norm: str, num_levels: int, vectors: Sequence[Tensor]) -> float:
    """The error with levels fitted to these very vectors over that with levels for the mean."""
    made, _ = fitted("optimal", "mean", norm, num_levels, vectors)
    first, inner = error_of_mean(made, vectors), made.levels.positive[:-1]

    def cost(logs: np.ndarray) -> float:
        positive = np.cumsum(np.exp(logs))
        if positive[-1] >= 1.0:
            return 1e9
        made.set_levels(level_sets.from_positive([*positive, 1.0]))
        return error_of_mean(made, vectors) / first

    how = {"maxfev": 50 * inner.size, "fatol": 1e-4}
    found = optimize.minimize(cost, np.log(np.diff(inner, prepend=0.0)), method="Nelder-Mead", options=how)
    return min(float(found.fun), 1.0)


def blind(norm: str, num_levels: int, vectors: Sequence[Tensor]) -> float:
    """The ratio if the workers' scales were taken to agree, whatever they do."""
    made, seen = fitted("optimal", "message", norm, num_levels, vectors)
    before, law = error_of_mean(made, vectors), seen.fit("histogram", reach=seen.reach)
    start = update_rules.optimal(law, num_levels)
    found = mean_levels.refit(start, law, symmetric=True, workers=len(vectors), agreement=1.0)
    made.set_levels(level_sets.stretched(found.levels, seen.reach))
    return error_of_mean(made, vectors) / before


def of_laws() -> dict[str, Any]:
    """The ratios of every law and norm, by bits for four workers, and by the number of workers at 2 and 3 bits."""
    found: dict[str, Any] = {}
    for name, draw in LAWS.items():
        flat = draw(torch.Generator().manual_seed(5)).split(gradients.NUM_COORDINATES // max(WORKERS))
        four = [torch.cat(flat[8 * worker : 8 * worker + 8]) for worker in range(4)]
        for norm in NORMS:
            found[f"{name}, {norm}"] = {
                "agreement": fitted("optimal", "mean", norm, 8, four)[1].agreement,
                "bits": {bits: [ratio("optimal", norm, 2**bits - zero, four) for zero in (0, 1)] for bits in BITS},
                "workers": {
                    workers: [
                        ratio("optimal", norm, 2**bits, flat[:workers], 8 if workers < 16 else 2) for bits in (2, 3)
                    ]
                    for workers in WORKERS
                },
            }
            print(f"{name}, {norm}: {found[f'{name}, {norm}']}", flush=True)
    return found


def of_gradients(source: Gradients) -> dict[str, Any]:
    """The ratios of a recorded run, by norm, kind of levels, workers and bits."""
    found: dict[str, Any] = {}
    for norm in NORMS:
        of: dict[str, Any] = {"agreement": [fitted("optimal", "mean", norm, 8, x)[1].agreement for x in source.moments]}
        for workers in (2, 4):
            for title, (name, zero) in KINDS.items():
                of[f"{title}, {workers}"] = {
                    bits: summary([ratio(name, norm, 2**bits - zero, x[:workers]) for x in source.moments])
                    for bits in BITS
                }
        for what, measure in (("pairs", left_over), ("blind", blind)):
            of[what] = {bits: summary([measure(norm, 2**bits, x) for x in source.moments]) for bits in (2, 3)}
        found[norm] = of
        print(f"{source.title}, {norm}: {of}", flush=True)
    worst = 0.0
    for moment in source.moments:
        made, _ = fitted("optimal", "mean", "linf", 8, moment)
        own = mean.measured(made, moment, 50).of_mean * square(torch.stack(list(moment)).mean(dim=0))
        worst = max(worst, abs(own / error_of_mean(made, moment) - 1))
    return found | {"kernels_differ": worst}


def refit_ms(vectors: Sequence[Tensor]) -> dict[int, dict[str, float]]:
    """The milliseconds that the refit takes, by bits: median, least and largest."""
    found = {}
    for bits in BITS:
        _, seen = fitted("optimal", "message", "linf", 2**bits, vectors)
        law = seen.fit("histogram")
        how: dict[str, Any] = {"symmetric": True, "workers": 4, "agreement": seen.agreement}
        refit = partial(mean_levels.refit, update_rules.optimal(law, 2**bits), law, **how)
        found[bits] = summary([1e3 * seconds(refit) for _ in range(9)])
    return found


def options(parser: argparse.ArgumentParser) -> None:
    del parser


def run(chosen: argparse.Namespace) -> dict[str, Any]:
    del chosen
    torch.set_num_threads(1)
    sources = [mean.recorded_or_digits(name) for name in ("ResNet-8 on CIFAR-10", "CNN on digits")]
    said: dict[str, Any] = {source.title: of_gradients(source) for source in sources}
    return _rounded(said | {"laws": of_laws(), "refit_ms": refit_ms(sources[0].moments[0])})


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(each) for key, each in value.items()}
    return [_rounded(each) for each in value] if isinstance(value, list) else float(f"{value:.4g}")
