"""Level sets: the values that a bucket-normalised coordinate is rounded to.

Every set runs from exactly -1 to exactly 1, so that stochastic rounding is unbiased for every normalised coordinate.
``b`` bits address at most 2^b levels; no set has more than 512.

Sources: uniform is QSGD (Alistarh et al., NeurIPS 2017), exponential is NUQSGD (Ramezani-Kebrya et al., 2019), ternary
is TernGrad (Wen et al., NeurIPS 2017), quantile is one of ALQ's starts (Faghri et al., NeurIPS 2020).  The signed sets
have no zero, as in ALQ's code: an exact zero becomes one of the two smallest levels at random, zero in expectation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from nuq.levels.truncated_normals import Distribution

MAX_BITS = 8
MAX_LEVELS = 512
SMALLEST = 2.0**-126  # the smallest normal float32: a level below it cannot travel
Array = np.ndarray


@dataclass(frozen=True, eq=False)
class Levels:
    """A level set whose rules are checked when it is built.

    values: float64[L], 2 <= L <= 512, finite, strictly increasing (as float32 too: that is how levels travel), first
    -1, last 1; kept as a read-only copy.  ValueError names the value and the rule.
    """

    values: Array

    def __post_init__(self) -> None:
        values = np.array(self.values, dtype=np.float64)
        if values.ndim != 1 or not 2 <= values.size <= MAX_LEVELS:
            raise ValueError(f"levels of shape {values.shape}: must be a list of 2 to {MAX_LEVELS} numbers")
        if not np.isfinite(values).all():
            raise ValueError(f"level {values[~np.isfinite(values)][0]}: levels must be finite")
        if values[0] != -1.0 or values[-1] != 1.0:
            raise ValueError(f"levels run from {values[0]} to {values[-1]}: must run from -1 to 1")
        rises = np.diff(values.astype(np.float32)) > 0
        if not rises.all():
            place = int(np.argmin(rises))
            raise ValueError(
                f"levels {values[place]} and {values[place + 1]}: must increase strictly, also when rounded to float32"
            )
        values.setflags(write=False)
        object.__setattr__(self, "values", values)

    @property
    def num_levels(self) -> int:
        return self.values.size

    @property
    def includes_zero(self) -> bool:
        return bool((self.values == 0.0).any())

    @property
    def symmetric(self) -> bool:
        return bool(np.array_equal(self.values, -self.values[::-1]))

    @property
    def positive(self) -> Array:
        """The levels above zero, smallest first."""
        return self.values[self.values > 0.0]

    def __eq__(self, other: object) -> bool:
        return np.array_equal(self.values, other.values) if isinstance(other, Levels) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.values.tobytes())


def check_bits(bits: int, low: int = 1) -> int:
    """Check a number of bits: ``bits``; ValueError unless it is an integer from ``low`` to 8."""
    if isinstance(bits, bool) or not isinstance(bits, int | np.integer) or not low <= bits <= MAX_BITS:
        raise ValueError(f"bits={bits!r}: must be an integer from {low} to {MAX_BITS}")
    return int(bits)


def check_num_levels(num_levels: int) -> int:
    """Check a number of levels: ``num_levels``; ValueError unless it is an integer from 2 to 256."""
    is_int = isinstance(num_levels, int | np.integer) and not isinstance(num_levels, bool)
    if not is_int or not 2 <= num_levels <= 2**MAX_BITS:
        raise ValueError(f"num_levels={num_levels!r}: must be an integer from 2 to {2**MAX_BITS}")
    return int(num_levels)


def uniform(bits: int) -> Levels:
    """The set of 2^bits equally spaced levels without zero (QSGD as in ALQ's code).

    >>> uniform(2).values.round(4).tolist()
    [-1.0, -0.3333, 0.3333, 1.0]
    """
    return from_positive(np.arange(1, 2 ** check_bits(bits), 2) / (2**bits - 1))


def uniform_magnitude(bits: int) -> Levels:
    """The set of 2^bits - 1 equally spaced levels with zero, bits >= 2, of QSGD's own paper, Section 3.1.

    >>> uniform_magnitude(2).values.tolist()
    [-1.0, 0.0, 1.0]
    """
    top = 2 ** (check_bits(bits, low=2) - 1) - 1
    return Levels(np.arange(-top, top + 1) / top)


def equally_spaced(num_levels: int) -> Levels:
    """The set of num_levels equally spaced levels, with a zero where the number is odd: dithered quantizers' lattice.

    >>> equally_spaced(5).values.tolist()
    [-1.0, -0.5, 0.0, 0.5, 1.0]
    """
    if not 2 <= num_levels <= MAX_LEVELS:
        raise ValueError(f"num_levels={num_levels}: must be between 2 and {MAX_LEVELS}")
    return Levels(np.arange(1 - num_levels, num_levels, 2) / (num_levels - 1))


def exponential(bits: int, p: float = 0.5) -> Levels:
    """The set {+-p^j, j = 0 .. 2^(bits-1) - 1}, 0 < p < 1 (NUQSGD with p = 1/2, AMQ with p learned).

    ValueError where p lies outside, or where the smallest level would vanish as float32.
    """
    powers = np.arange(2 ** (check_bits(bits) - 1))[::-1]
    if not 0.0 < p < 1.0:
        raise ValueError(f"p={p!r}: must lie between 0 and 1")
    positive = np.float64(p) ** powers
    if not np.float32(positive[0]):
        raise ValueError(
            f"p={p!r}: the smallest of {2**bits} levels vanishes as float32; choose a larger p, or fewer bits"
        )
    return from_positive(positive)


def ternary() -> Levels:
    """The set -1, 0, 1 (TernGrad).

    >>> ternary().includes_zero
    True
    """
    return Levels(np.array([-1.0, 0.0, 1.0]))


def quantile(bits: int, distribution: Distribution, *, symmetric: bool = False) -> Levels:
    """The set of 2^bits levels at equally spaced probabilities of a distribution, the two ends put at -1 and 1.

    distribution: on [-1, 1].  symmetric: quantiles of the distribution of |r| instead, mirrored; the same set where the
    distribution is symmetric.  Quantiles that coincide (a distribution with atoms) are moved apart by one float32 each.
    """
    num_levels = 2 ** check_bits(bits)
    if symmetric:
        return spread(distribution.folded().ppf(np.arange(1, num_levels, 2) / (num_levels - 1)), symmetric=True)
    return spread(distribution.ppf(np.linspace(0.0, 1.0, num_levels)))


def companded(bits: int, distribution: Distribution, *, symmetric: bool = False) -> Levels:
    r"""The set of 2^bits levels whose density follows ``f(r)^(1/3)``, f the density of the distribution.

    symmetric: as in ``quantile``.  With many levels an interval of width w adds ``f w^3 / 6`` to the variance, and this
    density minimises the sum (Panter and Dite, 1951, for the error of rounding to the nearest level, which differs
    by a constant).
    """
    num_levels = 2 ** check_bits(bits)
    target, first = (distribution.folded(), 0.0) if symmetric else (distribution, -1.0)
    knots = target.knots()
    knots = np.unique(np.concatenate([[first, 1.0], knots[(knots > first) & (knots < 1.0)]]))
    widths = np.diff(knots)
    share = np.cumsum(np.cbrt(target.interval_moments(knots)[0].clip(0.0) / widths) * widths)
    wanted = np.arange(1, num_levels, 2) / (num_levels - 1) if symmetric else np.linspace(0.0, 1.0, num_levels)
    return spread(np.interp(wanted * share[-1], np.concatenate([[0.0], share]), knots), symmetric=symmetric)


def from_positive(positive: Array | Sequence[float]) -> Levels:
    """The symmetric set whose positive levels are given, smallest first, the last one 1.

    >>> from_positive([0.25, 1.0]).values.tolist()
    [-1.0, -0.25, 0.25, 1.0]
    """
    positive = np.asarray(positive, dtype=np.float64)
    if not (positive > 0).all():
        raise ValueError(f"positive level {positive.min()}: must be above 0")
    return Levels(np.concatenate([-positive[::-1], positive]))


def stretched(levels: Levels, factor: float) -> Levels:
    """The set with its interior levels, in units of the typical largest coordinate, times ``factor``, within +-1."""
    return spread(np.concatenate([[-1.0], np.clip(levels.values[1:-1] * factor, -1.0, 1.0), [1.0]]))


def spread(values: Array, *, symmetric: bool = False) -> Levels:
    """The set from values that never fall but may coincide; the last one is put at 1, the first at -1.

    symmetric: the values are the positive levels.  Values that coincide as float32 move apart by one float32 each.
    """
    values = np.array(values, dtype=np.float64)
    values[-1] = 1.0
    if symmetric:
        values = np.maximum(values, SMALLEST)
    else:
        values[0] = -1.0
    travelling = values.astype(np.float32)
    if (np.diff(travelling) <= 0).any():
        for i in range(1, len(values)):
            travelling[i] = max(travelling[i], np.nextafter(travelling[i - 1], np.float32(2.0)))
        travelling[-1] = 1.0
        for i in range(len(values) - 2, -1, -1):
            travelling[i] = min(travelling[i], np.nextafter(travelling[i + 1], np.float32(-2.0)))
        values = travelling.astype(np.float64)
    return from_positive(values) if symmetric else Levels(values)
