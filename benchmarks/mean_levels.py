r"""Levels for the mean beside levels for a message, by the error of the mean: ``python -m benchmarks.mean_levels``.

Both have correlated rounding and are fitted to all workers' vectors, as at an update (``method=optimal``, which is ALQ
for 2^bits levels, and AMQ).  A cell is the error of the mean with ``objective=mean`` over that with
``objective=message``, without a level at zero (2^bits levels) and behind the stroke with one (2^bits - 1).  The error
is exact for the given vectors: the expectation over places and random numbers (``error_of_mean``), held against that of
the kernels, through the bytes, at 3 bits.

- Five laws, workers independent of one another, in buckets of 8192; M is the number of workers.
- Recorded gradients of 4 workers, or of the first 2 (``benchmarks.norms``): medians over the run's three moments, the
  largest in brackets.
- ``pairs``: the error with levels that are fitted to the very vectors, by Nelder and Mead's method, over that with
  levels for the mean, 4 workers, no level at zero: how much the assumption of independent workers costs.
- ``blind``: the ratio, 4 workers, no level at zero, if agreement were taken as 1.

``agreement`` is rho of ``nuq.levels.mean_levels``.  The last line is one JSON object, in which the ratios of recorded
gradients are the median, least and largest of the moments.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from scipy import optimize
from torch import Tensor

from benchmarks import gradient_samples, mean_error, norms
from benchmarks.timing import seconds, summary
from files.aligned import aligned
from nuq.compressors.quantized import AdaptiveQuantizer
from nuq.kernels import operators, reference, spec
from nuq.kernels.statistics import Statistics
from nuq.levels import level_sets, mean_levels, update_rules
from nuq.registry import METHODS

BUCKET_SIZE = 8192
BITS = range(2, 9)
NORMS = ("l2", "linf", "quantile")
WORKERS = (2, 3, 4, 16, 64)


def _normal(generator: torch.Generator) -> Tensor:
    return torch.randn(gradient_samples.NUM_COORDINATES, generator=generator)


def _student(generator: torch.Generator, degrees: int) -> Tensor:
    """Student's t with 2 or 3 degrees of freedom: tails that no update of levels tames."""
    squares = torch.stack([_normal(generator).square() for _ in range(degrees)])
    return _normal(generator) / squares.mean(dim=0).sqrt()


LAWS = {
    **{name: draw for name, (_, draw) in gradient_samples.DISTRIBUTIONS.items()},
    "t3": partial(_student, degrees=3),
    "t2": partial(_student, degrees=2),
}


def fitted(
    name: str, objective: str, norm: str, num_levels: int, gradients: Sequence[Tensor]
) -> tuple[AdaptiveQuantizer, Statistics]:
    """A quantizer fitted to the workers' gradients, and their statistics."""
    size: dict[str, int] = {"num_levels": num_levels} if name == "optimal" else {"bits": num_levels.bit_length() - 1}
    how = {"bucket_size": BUCKET_SIZE, "norm": norm, "rounding": "correlated", "objective": objective, **size}
    made = METHODS[name].load()(METHODS[name].settings(**how))
    return made, gradient_samples.learn(made, gradients)


def error_of_mean(made: AdaptiveQuantizer, gradients: Sequence[Tensor], nodes: int = 8) -> float:
    """The expected ``|mean C(x_i) - mean x_i|^2`` under correlated rounding, the jitter at so many values.

    Of M points in (0, 1), one for each worker in random order, let N(q) lie below q.  Two workers then both round up
    with probability ``(N(q) N(q') - N(min(q, q'))) / (M (M - 1))``, of which the sum over pairs takes M passes.
    """
    workers, total = len(gradients), 0.0
    cells = [_cells(made, gradient) for gradient in gradients]
    widths, shares = (torch.stack(each) for each in zip(*cells, strict=True))
    for a, q in zip(widths.split(BUCKET_SIZE, dim=1), shares.split(BUCKET_SIZE, dim=1), strict=True):
        products, mean = torch.zeros_like(a[0]), torch.zeros_like(a)
        for node in range(nodes):
            below = torch.zeros_like(a)
            alike = torch.zeros_like(a[0])  # the sum over points of the squared widths of workers that they round up
            for point in _points(workers, (node + 0.5) / nodes):
                up = (point < q).float()
                below += up
                alike += (a * up).sum(dim=0).square()
            pairs = _of_pairs(a * below) - alike + (a.square() * below).sum(dim=0)
            products += pairs / (workers * (workers - 1) * nodes)
            mean += below / (workers * nodes)
        alone = (a.square() * q * (1 - q)).sum(dim=0)  # exact also where q is small beside 1 / (M nodes)
        total += float((alone + products - _of_pairs(a * mean)).double().sum())
    return total / workers**2


def _of_pairs(terms: Tensor) -> Tensor:
    """The sum over i != j of ``terms_i terms_j``: float32[n] from float32[M, n]."""
    return terms.sum(dim=0).square() - terms.square().sum(dim=0)


def _cells(made: AdaptiveQuantizer, gradient: Tensor) -> tuple[Tensor, Tensor]:
    """The width of every coordinate's interval, times the scale, and its place therein from 0 to 1: float32[n] each."""
    levels = torch.tensor(made.levels.values, dtype=torch.float32)
    scales = operators.bucket_scales(gradient, BUCKET_SIZE, made.norm)
    r, top = reference.normalized(gradient, scales, BUCKET_SIZE)
    k = torch.bucketize(r, levels[1:-1], right=True)
    lower, upper = levels[k], levels[k + 1]
    if top is not None:
        lower, upper = torch.where(k == 0, -top, lower), torch.where(k == len(levels) - 2, top, upper)
    of_buckets = scales[:: spec.scales_per_bucket(made.norm)].repeat_interleave(BUCKET_SIZE)[: gradient.numel()]
    return of_buckets * (upper - lower), (r - lower) / (upper - lower)


def _points(workers: int, jitter: float) -> list[float]:
    """The random numbers of M workers by step 6 of ``nuq.kernels.spec``: the set is the same at every z + 1 / A B."""
    even, odd = (workers + 1) // 2, workers // 2
    p, q = (odd, even) if workers % 2 else (1, 1)
    z = jitter / (p * even)
    return [(p * z + j / even) % 1 for j in range(even)] + [1 - (q * z + j / odd) % 1 for j in range(odd)]


def ratio(name: str, norm: str, num_levels: int, gradients: Sequence[Tensor], nodes: int = 8) -> float:
    mean, message = (
        error_of_mean(fitted(name, objective, norm, num_levels, gradients)[0], gradients, nodes)
        for objective in ("mean", "message")
    )
    return mean / message


def left_over(norm: str, num_levels: int, gradients: Sequence[Tensor]) -> float:
    """The error with levels fitted to these very vectors over that with levels for the mean."""
    made, _ = fitted("optimal", "mean", norm, num_levels, gradients)
    first, inner = error_of_mean(made, gradients), made.levels.positive[:-1]

    def cost(logs: np.ndarray) -> float:
        positive = np.cumsum(np.exp(logs))
        if positive[-1] >= 1.0:
            return 1e9
        made.set_levels(level_sets.from_positive([*positive, 1.0]))
        return error_of_mean(made, gradients) / first

    how = {"maxfev": 50 * inner.size, "fatol": 1e-4}
    found = optimize.minimize(cost, np.log(np.diff(inner, prepend=0.0)), method="Nelder-Mead", options=how)
    return min(float(found.fun), 1.0)


def blind(norm: str, num_levels: int, gradients: Sequence[Tensor]) -> float:
    """The ratio if the workers' scales were taken to agree, whatever they do."""
    made, seen = fitted("optimal", "message", norm, num_levels, gradients)
    before, law = error_of_mean(made, gradients), seen.fit("histogram", reach=seen.reach)
    start = update_rules.optimal(law, num_levels)
    found = mean_levels.refit(start, law, symmetric=True, workers=len(gradients), agreement=1.0)
    made.set_levels(level_sets.stretched(found.levels, seen.reach))
    return error_of_mean(made, gradients) / before


def laws() -> dict[str, Any]:
    """Print the tables of the laws, and return their ratios."""
    found: dict[str, Any] = {}
    rows = [["M = 4, bits", "", "agreement", *map(str, BITS)]]
    by_workers = [["2 and 3 bits, M", "", *map(str, WORKERS)]]
    for name, draw in LAWS.items():
        flat = draw(torch.Generator().manual_seed(5)).split(gradient_samples.NUM_COORDINATES // max(WORKERS))
        for norm in NORMS:
            four = [torch.cat(flat[8 * worker : 8 * worker + 8]) for worker in range(4)]
            cells = {bits: [ratio("optimal", norm, 2**bits - zero, four) for zero in (0, 1)] for bits in BITS}
            agreement = fitted("optimal", "mean", norm, 8, four)[1].agreement
            of_workers = {
                workers: [ratio("optimal", norm, 2**bits, flat[:workers], 8 if workers < 16 else 2) for bits in (2, 3)]
                for workers in WORKERS
            }
            rows.append([name, norm, f"{agreement:.2f}", *(_cell(pair) for pair in cells.values())])
            by_workers.append([name, norm, *(" ".join(f"{each:.3f}" for each in of_workers[m]) for m in WORKERS)])
            found[f"{name}, {norm}"] = {"agreement": agreement, "bits": cells, "workers": of_workers}
        print(f"{name}: done", flush=True)
    print(f"\n{aligned(rows, words=2)}\n\n{aligned(by_workers, words=2)}")
    return found


def _cell(values: Sequence[float]) -> str:
    return " / ".join(f"{value:.3f}" for value in values)


def gradients_of(run: norms.Recorded) -> dict[str, Any]:
    """Print the tables of a run, and return its ratios: median, least and largest of the moments."""
    found: dict[str, Any] = {}
    rows = [[run.title, "", "M", *map(str, BITS)]]
    for norm in NORMS:
        agreement = [fitted("optimal", "mean", norm, 8, moment)[1].agreement for moment in run.gradients]
        found[norm] = {"agreement": agreement}
        for workers in (2, 4):
            kinds = {"optimal": ("optimal", 0), "with a zero": ("optimal", 1), "amq": ("amq", 0)}
            for title, (name, zero) in kinds.items():
                by_bits = {
                    bits: [ratio(name, norm, 2**bits - zero, moment[:workers]) for moment in run.gradients]
                    for bits in BITS
                }
                shown = [f"{statistics.median(each):.3f} ({max(each):.3f})" for each in by_bits.values()]
                rows.append([f"{norm}, {title}", " ".join(f"{each:.2f}" for each in agreement), str(workers), *shown])
                found[norm][f"{title}, {workers}"] = {bits: summary(each) for bits, each in by_bits.items()}
        found[norm]["pairs"] = {
            bits: summary([left_over(norm, 2**bits, moment) for moment in run.gradients]) for bits in (2, 3)
        }
        found[norm]["blind"] = {
            bits: summary([blind(norm, 2**bits, moment) for moment in run.gradients]) for bits in (2, 3)
        }
        print(f"{run.title}, {norm}: pairs {found[norm]['pairs']}, blind {found[norm]['blind']}", flush=True)
    print(f"\n{aligned(rows, words=2)}")
    worst = 0.0
    for moment in run.gradients:
        made, _ = fitted("optimal", "mean", "linf", 8, moment)
        length = float(torch.stack(list(moment)).mean(dim=0).double().square().sum())
        measured = mean_error.measured(made, moment, 50).of_mean * length
        worst = max(worst, abs(measured / error_of_mean(made, moment) - 1))
    return found | {"kernels_differ": worst}


def times(gradients: Sequence[Tensor]) -> dict[int, dict[str, float]]:
    """The milliseconds that the refit takes, by bits: median, least and largest."""
    found = {}
    for bits in BITS:
        _, seen = fitted("optimal", "message", "linf", 2**bits, gradients)
        law = seen.fit("histogram")
        start = update_rules.optimal(law, 2**bits)
        how: dict[str, Any] = {"symmetric": True, "workers": 4, "agreement": seen.agreement}
        refit = partial(mean_levels.refit, start, law, **how)
        found[bits] = summary([1e3 * seconds(refit) for _ in range(9)])
    return found


def main() -> None:
    torch.set_num_threads(1)
    runs = [mean_error.run_of(title) for title in ("ResNet-8 on CIFAR-10", "CNN on digits")]
    said: dict[str, Any] = {run.title: gradients_of(run) for run in runs}
    said |= {"laws": laws(), "refit_ms": times(runs[0].gradients[0])}
    print(json.dumps(_rounded(said)))


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(each) for key, each in value.items()}
    return [_rounded(each) for each in value] if isinstance(value, list) else float(f"{value:.4g}")


if __name__ == "__main__":
    main()
