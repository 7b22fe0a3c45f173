"""The values of 8-bit codes, smallest first, in units of the largest, for block-wise 8-bit and scaled fp8."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np

Array = np.ndarray


def float8(exponent_bits: int, mantissa_bits: int, *, infinities: bool) -> Array:
    """The finite values of a floating-point format of 8 bits, divided by the largest: float64.

    infinities: the uppermost exponent is theirs, as in IEEE 754 (e5m2); else only its last mantissa is no number (e4m3,
    Micikevicius et al., 2022).
    """
    bias, steps = 2 ** (exponent_bits - 1) - 1, 2**mantissa_bits
    code = np.arange(2 ** (exponent_bits + mantissa_bits) - (steps if infinities else 1))
    exponent, fraction = code // steps, code % steps / steps
    positive = np.where(exponent > 0, (1 + fraction) * 2.0 ** (exponent - bias), fraction * 2.0 ** (1 - bias))
    return np.unique(np.concatenate([-positive, positive])) / positive[-1]


def dynamic() -> Array:
    """Dynamic tree quantization (Dettmers et al., ICLR 2022): float64[256].

    A byte is a sign, j zeros that stand for 10^-j, a one, and 6 - j bits of fraction, which cut .1 .. 1 into 2^(6-j)
    equal parts whose middles are the values; two codes are left, for 0 and 1, none for -1: the lowest is -.99297.
    """
    positive = [10.0**-j * (0.1 + 0.9 * (np.arange(2 ** (6 - j)) + 0.5) / 2 ** (6 - j)) for j in range(7)]
    middles = np.concatenate(positive)
    return np.sort(np.concatenate([-middles, middles, [0.0, 1.0]]))


def _dynamic_to_the_ends() -> Array:
    """The table ``dynamic`` from -1 on, so that rounding at random has a value on either side."""
    values = dynamic()
    values[0] = -1.0
    return values


TABLES: dict[str, Callable[[], Array]] = {  # the order is part of the message format
    "dynamic": dynamic,
    "dynamic to -1": _dynamic_to_the_ends,
    "linear": lambda: np.arange(-127, 128) / 127.0,
    "e4m3": lambda: float8(4, 3, infinities=False),
    "e5m2": lambda: float8(5, 2, infinities=True),
}


@cache
def values(name: str) -> Array:
    """The values of one of TABLES: rising, within [-1, 1], with a 0."""
    table = TABLES[name]()
    table.setflags(write=False)
    return table


def thresholds(name: str) -> Array:
    """The levels whose codes are those of the nearest value: the midpoints between values, with -1 and 1 around."""
    table = values(name)
    return np.concatenate([[-1.0], (table[1:] + table[:-1]) / 2, [1.0]])
