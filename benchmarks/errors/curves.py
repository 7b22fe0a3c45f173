"""Curves of error against bits: families of contenders, which differ in the setting of their rate, and their points."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from benchmarks.errors.contenders import fit, named, square
from benchmarks.errors.gradients import Gradients
from nuq.compressors.message import parse
from nuq.compressors.quantized import AdaptiveQuantizer
from nuq.kernels.spec import Key
from nuq.registry import METHODS
from nuq.settings import check, declared

WHOLE = 1 << 20  # coordinates of a bucket that holds any vector here
CHOICES: dict[str, tuple[Any, ...]] = {
    "rotation": ("none", "hadamard"),
    "dither": ("none", "subtractive"),
    "rounding": ("stochastic",),
    "norm": ("l2", "linf", "quantile"),
    "form": ("signed", "magnitude"),
    "bucket_size": (8192, 256, WHOLE),
    "levels": ("lloyd_max", "uniform"),
    "coding": ("packed", "rans"),
}
# Settings that set the rate, with values; an entropy coder takes the larger to fewer bits than they name.
RATE_SETTINGS: dict[str, tuple[float, ...]] = {
    "num_levels": (3, 4, 5, 6, 7, 9, 11, 13, 16, 21, 31, 47, 71),
    "bits": (1, 2, 3, 4, 5, 6, 7, 8),
}
FREE_RATES = tuple(0.75 + 0.5 * i for i in range(13))
MOST_BITS = 6  # packed, more bits are off the scale
_WORDS = {
    "hadamard": "rotated",
    "subtractive": "dithered",
    "rans": "rANS",
    "mean": "for the mean",
    "uniform": "uniform steps",
    "256": "buckets of 256",
    str(WHOLE): "one bucket",
}
_PLAIN = ("none", "stochastic", "message", "signed", "packed", "lloyd_max", "8192")


@dataclass(frozen=True)
class Family:
    """A method with all its options but the one that sets the rate."""

    method: str
    options: tuple[tuple[str, Any], ...]

    @property
    def settings(self) -> dict[str, Any]:
        return dict(self.options)

    @property
    def is_eden(self) -> bool:
        return self.method in ("eden", "drive")

    def label(self) -> str:
        """The title and options, without those that every method has."""
        values = [str(value) for _, value in self.options if str(value) not in _PLAIN]
        return ", ".join([METHODS[self.method].title, *(_WORDS.get(value, value) for value in values)])

    def without_coding(self) -> Family:
        """A coding changes the bytes, never the error."""
        return Family(self.method, tuple(option for option in self.options if option[0] != "coding"))


def family(text: str) -> Family:
    method, given = named(text)
    return Family(method, tuple(given.items()))


@dataclass(frozen=True)
class Point:
    """A measured point: bits per coordinate in all, the error, and the value of the setting that set the rate."""

    bits: float
    error: float
    setting: float | None


Curves = dict[Family, list[Point]]


def families() -> list[Family]:
    """Every unbiased quantizer with a choice of coders, with every legal combination of its options."""
    found = []
    for name, entry in METHODS.items():
        fields = declared(entry.settings)
        if not entry.unbiased or not {"bucket_size", "coding"} <= fields.keys():
            continue
        options = {
            option: [value for value in values if value in (fields[option].rule["choices"] or values)]
            for option, values in CHOICES.items()
            if option in fields
        }
        for values in itertools.product(*options.values()):
            try:  # uniform levels need an entropy coder
                check(entry.settings, vars(entry.settings(**dict(zip(options, values, strict=True)))))
            except ValueError:
                continue
            found.append(Family(name, tuple(zip(options, values, strict=True))))
    return found


def rate_setting(family: Family) -> tuple[str, Sequence[float | None]]:
    """The setting behind a family's rate and the values to try; "" and (None,) if there is none."""
    fields, adaptive = declared(METHODS[family.method].settings), METHODS[family.method].adaptive
    for name, values in RATE_SETTINGS.items():
        if name in fields:
            if isinstance(fields[name].default, float):
                return name, FREE_RATES
            most = 2**MOST_BITS if name == "num_levels" else MOST_BITS
            packed, least = family.settings["coding"] == "packed", 2 if adaptive else 1  # one bit has nothing to adapt
            return name, [value for value in values if least <= value and (value <= most or not packed)]
    return "", (None,)


def build(family: Family, value: float | None, source: Gradients) -> Any:
    """The compressor, its levels learned; None if the setting is not legal (one bit has no sign and magnitude)."""
    entry, (name, _) = METHODS[family.method], rate_setting(family)
    settings = entry.settings(**family.settings, **({name: value} if name else {}))
    try:
        made = entry.load()(settings)
    except ValueError:
        return None
    if isinstance(made, AdaptiveQuantizer):
        fit(made, source.learn)
    return made


def measured(made: Any, groups: Sequence[Sequence[Tensor]], known_error: float | None = None) -> tuple[float, float]:
    """The (bits per coordinate, error of the mean) over groups of workers' vectors, from the bytes.

    A group of one worker gives the error of a message.  No bytes are decoded if the error is known.
    """
    num_bytes, errors = 0, []
    for step, vectors in enumerate(groups):
        workers = len(vectors) if len(vectors) > 1 else 0
        keys = [Key(0, step, worker, "model", workers=workers) for worker in range(len(vectors))]
        messages = [made.encode(x, key).to_bytes() for x, key in zip(vectors, keys, strict=True)]
        num_bytes += sum(message.numel() for message in messages)
        if known_error is None:
            errors.append(error_of_mean([made.decode(parse(message)) for message in messages], vectors))
    bits = 8 * num_bytes / sum(x.numel() for vectors in groups for x in vectors)
    return bits, statistics.fmean(errors) if known_error is None else known_error


def error_of_mean(decoded: Sequence[Tensor], vectors: Sequence[Tensor]) -> float:
    """``M |mean of decoded - mean of x_i|^2`` over the mean of ``|x_i|^2``."""
    mean = (torch.stack(list(decoded)) - torch.stack(list(vectors))).double().mean(dim=0)
    return len(vectors) ** 2 * square(mean) / sum(map(square, vectors))


def curves_of(
    chosen: Sequence[Family], source: Gradients, groups: Sequence[Sequence[Tensor]], tuned: Sequence[float] = ()
) -> Curves:
    """The points of every family, by rate; tuned: totals for which a free rate gets points of its own."""
    curves: Curves = {}
    errors: dict[tuple[Family, float | None], float] = {}
    for family in chosen:
        points = curves[family] = []
        values = rate_setting(family)[1]
        for value in values:
            made, same = build(family, value, source), (family.without_coding(), value)
            if made is not None:
                bits, errors[same] = measured(made, groups, errors.get(same))
                points.append(Point(bits, errors[same], value))
        points.sort(key=lambda point: point.bits)
        for rate in 2 * tuple(tuned) if values is FREE_RATES else ():  # twice: to within some thousandths
            if pair := _around(points, rate):
                low, high = pair
                assert low.setting is not None and high.setting is not None
                value = low.setting + (rate - low.bits) / (high.bits - low.bits) * (high.setting - low.setting)
                points.append(Point(*measured(build(family, value, source), groups), value))
                points.sort(key=lambda point: point.bits)
    return curves


def _around(points: Sequence[Point], rate: float) -> tuple[Point, Point] | None:
    """The neighbours whose rates enclose this one."""
    pairs = itertools.pairwise(points)
    return next(((low, high) for low, high in pairs if low.bits <= rate <= high.bits and high.bits > low.bits), None)


def frontier(points: Sequence[Point]) -> list[Point]:
    """The points that no other one beats in both bits and error, by rate.

    Even numbers of levels, without a zero, are often beaten.
    """
    kept: list[Point] = []
    for point in sorted(points, key=lambda point: (point.bits, point.error)):
        if not kept or point.error < kept[-1].error:
            kept.append(point)
    return kept


def reached_at(points: Sequence[Point], rate: float) -> Point | None:
    """The point of least error at this rate or less.

    Between two points that no other one beats, log vNMSE is interpolated at the rate itself.  Beyond the last one, that
    point stands with its own smaller rate: a method that may spend more bits need not.  None if every point takes more.
    """
    kept = frontier(points)
    pair = _around(kept, rate)
    if pair is None:
        return kept[-1] if kept and kept[-1].bits <= rate else None
    low, high = pair
    share = (rate - low.bits) / (high.bits - low.bits)
    return Point(rate, math.exp((1 - share) * math.log(low.error) + share * math.log(high.error)), None)


def best(
    curves: Curves, rate: float, takes: Callable[[Family], bool] = lambda family: True
) -> tuple[Family, Point] | None:
    """The family of least error at a rate or less, of those that take part, and the point that it reaches."""
    taken = ((family, reached_at(points, rate)) for family, points in curves.items() if takes(family))
    reached = [(family, point) for family, point in taken if point is not None]
    return min(reached, key=lambda pair: (pair[1].error, pair[1].bits), default=None)
