r"""The variance of the gradient estimator, measured beside training.

From S samples of M workers' minibatch gradients g_{s,w} (S*M passes in all; the original spends 2*S*(M+1)):

- est_s: what the method makes of g_{s,1..M} (encoded, decoded, averaged; a method that uses one worker gives M
  estimates); super_s: their plain mean; sgd: each g_{s,w};
- ``X_var``: mean over coordinates of the unbiased sample variance of X;
- ``X_nvar``: mean over coordinates of sum (X - mean)^2 / (sum X^2 + 1e-7); ``X_snr``: mean of log(sum X^2 + 1e-10) -
  log(sum (X - mean)^2 + 1e-10), both sums over the samples, as in the original code;
- ``relative_var_se``: standard error of log(est_var / super_var), a jackknife over the S samples (``log_ratio_se``):
  one worker's SGD must have M times SuperSGD's variance, and shows it within this error;
- ``error_kurtosis``, ``error_max``: the tails of est_s - super_s, of what the method adds to the minibatches' mean:
  sum e^4 / n over (sum e^2 / n)^2 (3 for a normal), and the largest |e| over the root mean square of super_s; none
  where there is but the rounding of float32.  For one worker's SGD it is its minibatch's difference from the mean;
- ``grad_bias``: mean over coordinates of |mean est - mean sgd|;
- ``nb_error``: Psi of the current levels under the CondTruncNormHist mixture of the sampled buckets, and
  ``nb_error_measured``: the same under the measured coordinates themselves (their norm^2-weighted histogram);
- ``level_gap``: Psi of the levels above that of the best levels, relative, under the distribution of the last update
  (0: they are the best);
- ``norm_var``: mean over coordinates of the variance of a worker's normalised coordinate (Fig. 1 of the paper);
- histograms, shares of one over the same edges: ``stats/coordinates``, the measured normalised coordinates, each
  weighted by the norm^2 of its bucket as in a fit (``nuq.kernels.statistics``), and ``stats/fit``, the distribution
  beside them: the one truncated normal of a method that is fitted to one (ALQ-N), else the CondTruncNormHist mixture
  behind ``nb_error``, with the method's weights.

The original takes the mean from S estimates and the variance from S more; the unbiased sample variance of one set has
the same expectation at half the cost.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from nuq.compressors.quantized import AdaptiveQuantizer
from nuq.compressors.quantizer import Quantizer
from nuq.errors import NonFiniteError
from nuq.exchange.finite import first_not_finite
from nuq.kernels import operators, reference
from nuq.kernels.spec import Key
from nuq.kernels.statistics import Statistics, bin_edges
from nuq.levels import update_rules
from nuq.levels.level_sets import stretched
from nuq.levels.truncated_normals import Distribution
from nuq.simulation import Workers

# The edges of a logged histogram: 0, and 8 bins an octave from 2^-12 to 1 on both sides.  All of them are edges of the
# statistics' finer bins, too.
_HALF = np.append((2.0 ** np.arange(-12, 0)[:, None] * (1 + np.arange(8) / 8)).ravel(), 1.0)
HISTOGRAM_EDGES = np.concatenate([-_HALF[::-1], [0.0], _HALF])


class Moments:
    """Sums of a coordinate-wise sample, in float64."""

    def __init__(self) -> None:
        self.count = 0
        self.first = torch.zeros((), dtype=torch.float64, device="cpu")
        self.second = torch.zeros((), dtype=torch.float64, device="cpu")

    def add(self, sample: Tensor) -> None:
        wide = sample.to(torch.float64)
        self.count += 1
        self.first = self.first + wide
        self.second = self.second + wide.square()

    @property
    def mean(self) -> Tensor:
        return self.first / self.count

    def scalars(self, name: str) -> dict[str, float]:
        noise = (self.second - self.count * self.mean.square()).clamp_min(0.0)
        return {
            f"{name}_var": float(noise.mean() / (self.count - 1)),
            f"{name}_nvar": float((noise / (self.second + 1e-7)).mean()),
            f"{name}_snr": float(((self.second + 1e-10).log() - (noise + 1e-10).log()).mean()),
        }


class Tails:
    """The tails of what a method adds to the minibatches' mean, over coordinates and samples."""

    def __init__(self) -> None:
        self.count, self.second, self.fourth, self.largest, self.signal = 0, 0.0, 0.0, 0.0, 0.0

    def add(self, error: Tensor, mean: Tensor) -> None:
        """Add the errors of an estimate, and the mean that it is one of: both float[n]."""
        squares = error.to(torch.float64).square()
        self.count += len(error)
        self.second += float(squares.sum())
        self.fourth += float(squares.square().sum())
        self.largest = max(self.largest, float(squares.max()) ** 0.5)
        self.signal += float(mean.to(torch.float64).square().sum())

    def scalars(self) -> dict[str, float]:
        if not self.signal or self.second <= 1e-12 * self.signal:  # the rounding of float32
            return {}
        return {
            "error_kurtosis": self.count * self.fourth / self.second**2,
            "error_max": self.largest / (self.signal / self.count) ** 0.5,
        }


# coordinates that ``Rows`` keeps of a sample, 2 MB; a longer gradient's error is rather too large than too small
SPREAD_COORDINATES = 2**19


class Rows:
    """A part of each sample, evenly spread over its coordinates, and which of the S samples it came from."""

    def __init__(self) -> None:
        self._rows: list[np.ndarray] = []
        self._groups: list[int] = []

    def add(self, sample: Tensor, group: int) -> None:
        self._rows.append(sample[:: -(-len(sample) // SPREAD_COORDINATES)].cpu().to(torch.float32).numpy())
        self._groups.append(group)

    @property
    def num_groups(self) -> int:
        return len(set(self._groups))

    def variances_without(self) -> np.ndarray:
        """The sum over coordinates of the sample variance, float64[S], each time without one of the groups."""
        rows, groups = np.stack(self._rows), np.array(self._groups)
        total = rows.sum(axis=0, dtype=np.float64)
        squares = np.einsum("ij,ij->i", rows, rows, dtype=np.float64)
        found = []
        for group in range(groups.max() + 1):
            out = groups == group
            left, rest = len(groups) - out.sum(), total - rows[out].sum(axis=0, dtype=np.float64)
            found.append((squares[~out].sum() - rest @ rest / left) / (left - 1))
        return np.array(found)


def log_ratio_se(numerator: Rows, denominator: Rows) -> float:
    """The jackknife standard error of the log of a ratio of two variances over the same groups of samples.

    It is nan for fewer than 3 groups.  Efron and Stein, "The jackknife estimate of variance" (1981): (S - 1)/S sum
    (x_(s) - mean x_(.))^2, x_(s) the log ratio without group s.
    """
    if denominator.num_groups < 3:
        return math.nan
    above, below = numerator.variances_without(), denominator.variances_without()
    if not (above > 0).all() or not (below > 0).all():
        return math.nan
    logs = np.log(above / below)
    return math.sqrt((len(logs) - 1) * np.square(logs - logs.mean()).mean())


class Measured(NamedTuple):
    """The result of a measurement: scalars and histograms.

    scalars: the tags above and those of the levels; histograms: tag -> float64[len(HISTOGRAM_EDGES) - 1], empty without
    a fit.
    """

    scalars: dict[str, float]
    histograms: dict[str, np.ndarray]


def measure(workers: Workers, samples: Iterable[list[Tensor]], seed: int, step: int) -> Measured:
    """The variance measured from samples: S lists of M gradients, flat vectors in the model's order."""
    est, sgd, super_, normalized = Moments(), Moments(), Moments(), Moments()
    est_rows, super_rows, tails = Rows(), Rows(), Tails()
    statistics = Statistics.empty(getattr(workers.settings, "num_components", 350))
    # none where every layer has a method of its own
    has_vectors = any(segment.encoder == 0 for segment in workers.layout.segments)
    quantizer = workers.compressor if has_vectors and isinstance(workers.compressor, Quantizer) else None
    payloads: list[Tensor] = []
    for number, gradients in enumerate(samples):
        for worker, gradient in enumerate(gradients):
            if (bad := first_not_finite(workers.model_layout.views(gradient))) is not None:
                name = list(workers.parameters)[bad]
                raise NonFiniteError(f"the gradient of {name!r} on worker {worker} is not finite")
        payloads = [
            workers.encode(gradient, Key(seed, step, worker, f"measure/{number}", workers=workers.num_workers))
            for worker, gradient in enumerate(gradients)
        ]
        super_.add(mean := torch.stack(gradients).mean(dim=0))
        super_rows.add(mean, number)
        for group in [payloads] if workers.num_workers > 1 else [[payload] for payload in payloads]:
            est.add(estimate := workers.average(group))
            est_rows.add(estimate, number)
            tails.add(estimate - mean, mean)
        for vector in gradients:
            sgd.add(vector)
        if quantizer is not None:
            for worker, gradient in enumerate(gradients):
                vectors, key = workers.vectors(gradient), Key(seed, step, worker, f"measure/{number}")
                rotated = [quantizer.rotated(vector, key.of(name)) for name, vector in vectors.items()]
                statistics.add(rotated, quantizer.bucket_size, quantizer.norm)
                normalized.add(torch.cat([_normalized(vector, quantizer) for vector in vectors.values()]))
    values = {**est.scalars("est"), **sgd.scalars("sgd"), "super_var": super_.scalars("super")["super_var"]}
    if math.isfinite(error := log_ratio_se(est_rows, super_rows)):
        values["relative_var_se"] = error
    values |= tails.scalars()
    values["comm/bits_per_coordinate"] = 8 * payloads[0].numel() / workers.num_coordinates
    values["grad_bias"] = float((est.mean - sgd.mean).abs().mean())
    histograms: dict[str, np.ndarray] = {}
    if quantizer is not None:
        values |= level_scalars(quantizer)
        if statistics.totals[2]:
            reach = statistics.reach
            levels = stretched(quantizer.levels, 1 / reach)
            mixture = statistics.fit("mixture", reach=reach)
            values["nb_error"] = reach**2 * update_rules.expected_variance(levels, mixture)
            coordinates = statistics.fit("histogram", reach=reach)
            values["nb_error_measured"] = reach**2 * update_rules.expected_variance(levels, coordinates)
            values |= {"stats/mean": statistics.mean, "stats/sigma": statistics.sigma}
            values["norm_var"] = normalized.scalars("norm")["norm_var"]
            histograms = {
                "stats/coordinates": _coordinates(statistics),
                "stats/fit": _masses(_fitted(quantizer, statistics, mixture), reach),
            }
    return Measured(values, histograms)


def _coordinates(statistics: Statistics) -> np.ndarray:
    weights = statistics.histogram[0]
    sums = np.add.reduceat(weights, np.searchsorted(bin_edges(), HISTOGRAM_EDGES[:-1]))
    return sums / weights.sum()


def _fitted(quantizer: Quantizer, statistics: Statistics, mixture: Distribution) -> Distribution:
    """The distribution fitted to the samples; mixture: the one with weights norm^2, of r / reach like the others."""
    settings = quantizer.settings if isinstance(quantizer, AdaptiveQuantizer) else None
    kind = settings.fit if settings else ""
    weights = getattr(settings, "weights", "norm2") if kind == "mixture" else "norm2"
    if kind != "normal" and weights == "norm2":
        return mixture
    return statistics.fit("normal" if kind == "normal" else "mixture", weights, reach=statistics.reach)


def _masses(distribution: Distribution, reach: float) -> np.ndarray:
    """The mass that a distribution of r / reach gives each bin of r."""
    masses = distribution.interval_moments(np.clip(HISTOGRAM_EDGES / reach, distribution.begin, distribution.end))[0]
    return np.maximum(masses, 0.0)


def _normalized(vector: Tensor, quantizer: Quantizer) -> Tensor:
    scales = operators.bucket_scales(vector, quantizer.bucket_size, quantizer.norm, quantizer.multiple)
    return reference.normalized(vector, scales, quantizer.bucket_size)[0]


def level_scalars(quantizer: Quantizer) -> dict[str, float]:
    """The levels in use, under the original's names."""
    levels = quantizer.levels.values
    shown = levels if len(levels) <= 256 else ()  # not every point of a lattice
    values = {f"levels/{number}": float(level) for number, level in enumerate(shown)}
    values["bits"] = float((len(levels) - 1).bit_length())
    values["includes_zero"] = float((levels == 0).any())
    values["positive_levels"] = float((levels > 0).sum())
    values["negative_levels"] = float((levels < 0).sum())
    if isinstance(quantizer, AdaptiveQuantizer) and quantizer.gap is not None:
        values["level_gap"] = quantizer.gap
    if quantizer.multiplier is not None:
        values["multiplier"] = quantizer.multiplier
    return values
