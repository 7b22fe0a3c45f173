"""The error of the second encoding of a mean: the least bits with which two stages err little more than gather.

With M workers, w1 and w2 the relative variances of the two encodings and R = mean |x_i|^2 / |mean x|^2
(``nuq.exchange.collectives``), two stages err 1 + w2 (1 + M / (w1 R)) times as much as gather: most where R =
1, the workers agreeing.  ``least_bits`` bounds that factor by BOUND for workers that agree but for a twentieth, on
coordinates of distributions from normal to heavier-tailed than recorded gradients, or zero but for one in a hundred.
w1 and w2 are measured, since they depend on the distribution: on heavy tails no number of bits helps levels that are
scaled by a bucket's L2 norm.  Workers are taken to round by themselves: rounding together errs less, and shall not cost
bytes.  No choice made beforehand holds for every gradient: where gather's error is nothing, as of QSGDinf on
coordinates of one size, every other's is more.

An owner's part of a vector ends in short buckets.  They err less than long ones, but not EDEN's: those that few
coordinates make up it rounds at random in 5 to 8 bits, with twice the error.  It takes part in two stages where every
owner has ``Eden.LEAST_BUCKETS`` whole buckets.  Where eight bits of the method for means do not do, they travel as
float16, and where that does not, in full precision.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from nuq.compressors.compressor import Compressor
from nuq.compressors.quantized import AdaptiveQuantizer
from nuq.kernels.spec import Key
from nuq.kernels.statistics import Statistics
from nuq.registry import method
from nuq.settings import declared

BOUND = 1.5
_AIM = 1.3  # on the vectors at hand, which stand for others
_MOST_BITS = 8  # of a method for means
_BEYOND = {16: "fp16", 32: "supersgd"}  # bits -> the method
_SIDE = 256  # the vectors are square matrices, for methods that factor them
_MOST_WORKERS = 8  # that are simulated; the error of a mean of more falls with their number
_NOISE = 0.05**0.5  # of a worker's own, relative to what all have in common: R = 1.05

Distribution = Callable[[Tensor], Tensor]  # coordinates from four rows of normal ones
_DISTRIBUTIONS: tuple[Distribution, ...] = (
    lambda z: z[0],
    lambda z: z[0] / z[1:].square().mean(dim=0).sqrt(),  # Student's t, three degrees of freedom
    lambda z: (1.4 * z[0]).exp() * z[1].sign(),  # lognormal: levels of one normal gain least from more bits here
    lambda z: (2 * z[0]).exp() * z[1].sign(),
    lambda z: z[0] * (z[1] > 2.33),  # one coordinate in a hundred is not zero
)


def second_settings(name: str, settings: Any, second_bits: int) -> tuple[str, Any]:
    """The method that encodes means, this one or the table's, and its settings: for 1 to 8 bits, 16 (fp16) or 32."""
    if second_bits > _MOST_BITS:
        return _BEYOND[second_bits], method(_BEYOND[second_bits]).settings()
    mean_compressor = method(name).mean_compressor or name
    schema = method(mean_compressor).settings
    names = declared(schema)
    shared = {name: getattr(settings, name) for name in names if hasattr(settings, name)}
    if "bits" in names:
        shared["bits"] = type(schema().bits)(second_bits)
    if "num_levels" in shared:  # in place of the bits
        shared["num_levels"] = 0
    if shared.get("values") == "2bit":  # a mean has more than four values
        shared["values"] = "fp16"
    if "objective" in shared:  # a mean is sent by one alone
        shared["objective"] = "message"
    return mean_compressor, schema(**shared)


_known: dict[tuple[str, str, int, int], int] = {}  # by method, settings, fewest bits, workers


def least_bits(name: str, settings: Any, fewest: int, num_workers: int, num_coordinates: int) -> int | None:
    """The least bits (``second_settings``), from ``fewest`` on, with which two stages err at most BOUND times gather of
    workers that round by themselves.

    None where no number of bits will do.  num_coordinates: of the whole vector.
    """
    if num_coordinates < num_workers * method(name).load()(settings).least_part:
        return None
    asked = (name, repr(settings), fewest, num_workers)
    if asked not in _known:
        has_bits = "bits" in declared(method(method(name).mean_compressor or name).settings)
        legal = [*range(fewest, _MOST_BITS + 1 if has_bits else fewest + 1), *_BEYOND]
        for distribution in _DISTRIBUTIONS:
            stage = FirstStage(name, settings, num_workers, distribution)
            if stage.error_factor(legal[0]) > _AIM:
                place = bisect.bisect_left(
                    legal[1:-1], True, key=lambda bits, stage=stage: stage.error_factor(bits) <= _AIM
                )
                legal = legal[1 + place :]  # more bits, smaller errors; in full precision there is none
        _known[asked] = legal[0]
    return _known[asked]


class FirstStage:
    """The input of a second encoding: the mean of messages of workers that nearly agree, of one distribution."""

    def __init__(self, name: str, settings: Any, num_workers: int, distribution: Distribution) -> None:
        self.name, self.settings = name, settings
        simulated = min(num_workers, _MOST_WORKERS)
        vectors = [_drawn(distribution, 0) + _NOISE * _drawn(distribution, 1 + worker) for worker in range(simulated)]
        first = method(name).load()(settings)
        self.seen: Statistics | None = None
        if isinstance(first, AdaptiveQuantizer):
            keys = [Key(0, 0, worker, "statistics") for worker in range(simulated)]
            self.seen = first.observed(zip(vectors, keys, strict=True))
            first.update(self.seen)
        decoded = [_decoded(first, vector, Key(0, 0, worker, "probe")) for worker, vector in enumerate(vectors)]
        self.mean = torch.stack(decoded).mean(dim=0)
        self.error = _squared(self.mean - torch.stack(vectors).mean(dim=0)) * simulated / num_workers

    def error_factor(self, second_bits: int) -> float:
        """The error of two stages over gather's; a biased encoding's adds in length, an unbiased one's in square."""
        name, settings = second_settings(self.name, self.settings, second_bits)
        mean_compressor = method(name).load()(settings)
        # the levels come from the workers' gradients, as in training
        if self.seen is not None and isinstance(mean_compressor, AdaptiveQuantizer):
            mean_compressor.update(self.seen)
        added = _squared(_decoded(mean_compressor, self.mean, Key(0, 0, 0, "mean/probe")) - self.mean)
        if not added:
            return 1.0
        ratio = added / self.error if self.error else math.inf
        return 1 + ratio if method(name).unbiased else (1 + ratio**0.5) ** 2


def _drawn(distribution: Distribution, number: int) -> Tensor:
    """Random coordinates float32[_SIDE^2], the same for the same distribution and number."""
    generator = torch.Generator().manual_seed(number)
    return distribution(torch.randn(4, _SIDE**2, generator=generator, dtype=torch.float32, device="cpu"))


def _decoded(encoder: Compressor, vector: Tensor, key: Key) -> Tensor:
    given = vector.view(_SIDE, _SIDE) if encoder.shaped else vector
    return encoder.decode(encoder.encode(given, key))


def _squared(vector: Tensor) -> float:
    return float(vector.double().square().sum())
