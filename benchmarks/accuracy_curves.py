"""The contenders of ``benchmarks.accuracy_per_bit``, measured at many rates.

They are every unbiased method with every choice of its options.
"""

from __future__ import annotations

import csv
import dataclasses
import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.gradient_samples import Source, learn
from nuq.compressors.message import parse
from nuq.compressors.quantized import AdaptiveQuantizer
from nuq.kernels.spec import Key
from nuq.registry import METHODS
from nuq.settings import check

RATES = (2, 3, 4)
WHOLE = 1 << 20  # coordinates in a bucket that holds any vector here
NUM_DRAWS = 32  # draws of the test of unbiasedness
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
# Settings that set the rate, best first, with values; an entropy coder takes the larger to fewer bits than they name.
RATE_SETTINGS: dict[str, tuple[float, ...]] = {
    "num_levels": (3, 4, 5, 6, 7, 9, 11, 13, 16, 21, 31, 47, 71),
    "bits": (1, 2, 3, 4, 5, 6, 7, 8),
}
FREE_RATES = tuple(0.75 + 0.5 * i for i in range(13))
MOST_BITS = 6  # packed, more bits are off the scale
LETTERS = {"hadamard": "R", "subtractive": "D", "magnitude": "M", "rans": "rANS", "uniform": "U", str(WHOLE): "W"}
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

    def label(self, words: Mapping[str, str] = _WORDS, separator: str = ", ") -> str:
        """The title and options, without those that every method has."""
        values = [str(value) for _, value in self.options if str(value) not in _PLAIN]
        return separator.join([METHODS[self.method].title, *(words.get(value, value) for value in values)])

    @property
    def is_eden(self) -> bool:
        return self.method in ("eden", "drive")

    @property
    def kinds(self) -> list[str]:
        """The contests in which the family takes part."""
        if self.is_eden:
            form = "eden_uniform" if self.settings.get("levels") == "uniform" else "eden_lloyd_max"
            return ["all", "eden", form, *(["eden_packed"] if self.settings["coding"] == "packed" else [])]
        given = {
            "all": True,
            "others": True,
            "adaptive": METHODS[self.method].adaptive,
            "dithered": self.settings.get("dither") == "subtractive",
            "unrotated": self.settings["rotation"] == "none",
            "packed": self.settings["coding"] == "packed",
        }
        return [kind for kind, holds in given.items() if holds]


@dataclass(frozen=True)
class Point:
    """A measured point.

    bits: per coordinate, in all; error: vNMSE; setting: what set the rate.
    """

    bits: float
    error: float
    setting: float | None


def families() -> list[Family]:
    """Every unbiased quantizer with a choice of coders, with every combination of its options."""
    found = []
    for name, entry in METHODS.items():
        fields = {field.name: field for field in dataclasses.fields(entry.settings)}
        if not entry.unbiased or not {"bucket_size", "coding"} <= fields.keys():
            continue
        options = {option: values for option, values in CHOICES.items() if option in fields}
        for option, values in options.items():
            legal = fields[option].metadata["choices"]
            options[option] = tuple(value for value in values if legal is None or value in legal)
        found += [
            Family(name, tuple(zip(options, values, strict=True))) for values in itertools.product(*options.values())
        ]
    return [family for family in found if _legal(family)]


def _legal(family: Family) -> bool:
    """Whether these options go together: uniform levels need an entropy coder."""
    schema = METHODS[family.method].settings
    try:
        check(schema, vars(schema(**family.settings)), "")
    except ValueError:
        return False
    return True


def rate_setting(family: Family) -> tuple[str | None, tuple[float | None, ...]]:
    """The setting behind a family's rate and the values to try; (None, (None,)) where there is none."""
    fields = {field.name: field for field in dataclasses.fields(METHODS[family.method].settings)}
    for name, values in RATE_SETTINGS.items():
        if name not in fields:
            continue
        if isinstance(fields[name].default, float):
            return name, FREE_RATES
        least = 2 if METHODS[family.method].adaptive else 1  # one bit leaves an adaptive method nothing to adapt
        most = 2**MOST_BITS if name == "num_levels" else MOST_BITS
        return name, tuple(
            value for value in values if least <= value and (value <= most or family.settings["coding"] != "packed")
        )
    return None, (None,)


def build(family: Family, value: float | None, source: Source) -> Any:
    """The compressor, its levels learned; None where the setting is not legal (one bit has no sign and magnitude)."""
    entry, (name, _) = METHODS[family.method], rate_setting(family)
    settings = entry.settings(**family.settings, **({name: value} if name else {}))
    try:
        compressor = entry.load()(settings)
    except ValueError:
        return None
    if isinstance(compressor, AdaptiveQuantizer):
        learn(compressor, source.learn)
    return compressor


def relative_error(decoded: Tensor, x: Tensor) -> float:
    """The relative error |decoded - x|^2 / |x|^2."""
    return float((decoded - x).square().sum(dtype=torch.float64) / x.square().sum(dtype=torch.float64))


def measure(compressor: Any, source: Source, known_error: float | None = None) -> tuple[float, float]:
    """The (bits per coordinate, vNMSE) over the source's vectors, decoded from the bytes.

    No bytes are decoded where the error is known.
    """
    num_bytes, errors = 0, []
    for number, x in enumerate(source.measure):
        data = compressor.encode(x, Key(0, number, 0, "model")).to_bytes()
        num_bytes += data.numel()
        if known_error is None:
            errors.append(relative_error(compressor.decode(parse(data)), x))
    return 8 * num_bytes / source.num_coordinates, known_error if known_error is not None else sum(errors) / len(errors)


def bias_in_sigmas(compressor: Any, x: Tensor) -> float:
    """The bias T |mean_T - x|^2 less what independent errors give, in standard deviations of it; T = NUM_DRAWS."""
    errors = torch.stack(
        [compressor.decode(compressor.encode(x, Key(1, step, 0, "model"))) - x for step in range(NUM_DRAWS)]
    ).double()
    each = errors.square().mean(dim=0)
    excess = NUM_DRAWS * errors.mean(dim=0).square().sum() - each.sum()
    return float(excess / (2 * each.square().sum()).sqrt().clamp_min(1e-300))


Curves = dict[Family, list[Point]]


def curves_of(source: Source) -> Curves:
    """The points of every family, by rate."""
    curves: Curves = {}
    errors: dict[tuple[Family, float | None], float] = {}  # a coding changes the bytes, never the error
    for family in families():
        rest = _without_coding(family)
        points = []
        for value in rate_setting(family)[1]:
            compressor = build(family, value, source)
            if compressor is not None:
                bits, error = measure(compressor, source, errors.get((rest, value)))
                errors[rest, value] = error
                points.append(Point(bits, error, value))
        curves[family] = sorted(points, key=lambda point: point.bits)
        if rate_setting(family)[1] is FREE_RATES:
            _tune(family, curves[family], source)
    return curves


def _without_coding(family: Family) -> Family:
    return Family(family.method, tuple(option for option in family.options if option[0] != "coding"))


def _tune(family: Family, points: list[Point], source: Source) -> None:
    """Add points of a free rate where the total is one of RATES, to within some thousandths."""
    for rate in RATES:
        for _ in range(2):
            pair = _around(points, rate)
            if pair is None:
                break
            low, high = pair
            share = (rate - low.bits) / (high.bits - low.bits)
            assert low.setting is not None and high.setting is not None
            value = low.setting + share * (high.setting - low.setting)
            points.append(Point(*measure(build(family, value, source), source), value))
            points.sort(key=lambda point: point.bits)


def _around(points: list[Point], rate: float) -> tuple[Point, Point] | None:
    """The neighbours whose rates enclose this one."""
    for low, high in itertools.pairwise(points):
        if low.bits <= rate <= high.bits and high.bits > low.bits:
            return low, high
    return None


def frontier(points: list[Point]) -> list[Point]:
    """The points that no other one beats in both bits and error, by rate.

    Even numbers of levels, without a zero, are often beaten.
    """
    kept: list[Point] = []
    for point in sorted(points, key=lambda point: (point.bits, point.error)):
        if not kept or point.error < kept[-1].error:
            kept.append(point)
    return kept


def reached_at(points: list[Point], rate: float) -> Point | None:
    """The point of least error at this rate or less.

    Between two points that no other one beats, log vNMSE is interpolated at the rate itself; beyond the last one, that
    point stands, with its own smaller rate: a method that may spend more bits need not. The result is None where every
    point takes more.
    """
    kept = frontier(points)
    pair = _around(kept, rate)
    if pair is None:
        return kept[-1] if kept and kept[-1].bits <= rate else None
    low, high = pair
    share = (rate - low.bits) / (high.bits - low.bits)
    return Point(rate, math.exp((1 - share) * math.log(low.error) + share * math.log(high.error)), None)


def error_at(points: list[Point], rate: float) -> float | None:
    """The least vNMSE at this rate or less; None where every point takes more."""
    point = reached_at(points, rate)
    return None if point is None else point.error


def best(
    curves: Curves, rate: float, kind: str | None = None, method: str | None = None
) -> tuple[Family, Point] | None:
    """The family of least error at a rate or less, of one kind or method, and the point that it reaches."""
    taken = (
        (family, points)
        for family, points in curves.items()
        if kind in (None, *family.kinds) and method in (None, family.method)
    )
    reached = [(family, point) for family, points in taken if (point := reached_at(points, rate)) is not None]
    return min(reached, key=lambda pair: (pair[1].error, pair[1].bits), default=None)


# --- beside the curves ---


def check_unbiased(source: Source) -> dict[str, float]:
    """Method -> the largest excess of T |mean - x|^2 over its families, in sigmas.

    It is measured on 4096 coordinates of the source.
    """
    x = source.measure[0][:4096]
    worst: dict[str, float] = {}
    every = {_without_coding(family): family for family in families()}  # only these differ in error
    for family in every.values():
        values = rate_setting(family)[1]
        compressor = build(family, values[len(values) // 2], source)
        worst[family.method] = max(worst.get(family.method, -math.inf), bias_in_sigmas(compressor, x))
    return worst


def eden_errors(source: Source, repeats: int = 4) -> list[float]:
    """The vNMSE of EDEN at 1 to 4 index bits.

    It is the mean over several rotations, so that its own error is some tenths of a percent.
    """
    errors = []
    for bits in range(1, 5):
        compressor = METHODS["eden"].load()(METHODS["eden"].settings(bits=bits))
        keys = (Key(2, number, 0, "model") for number in range(repeats))
        errors.append(
            sum(
                relative_error(compressor.decode(compressor.encode(x, key)), x)
                for key in keys
                for x in source.measure[:1]
            )
            / repeats
        )
    return errors


def write_points(place: Path, all_curves: dict[str, Curves]) -> None:
    """Write all points as a table of comma-separated values."""
    with place.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["source", "method", "options", "setting", "bits_per_coordinate", "vnmse"])
        for source, curves in all_curves.items():
            for family, points in curves.items():
                options = " ".join(f"{name}={value}" for name, value in family.options)
                rows.writerows(
                    [source, family.method, options, point.setting, f"{point.bits:.5f}", f"{point.error:.5g}"]
                    for point in points
                )
