"""Numbers, durations and bandwidths as people write them."""

from __future__ import annotations

import math
import re

UNITS = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_NUMBER = re.compile(r"(\d+(?:\.\d*)?|\.\d+)([kKMGT]?)")


def quantity(text: str, name: str) -> float:
    """The number that a text such as ``100M`` (1e8) stands for; ValueError for what is no number above 0."""
    found = _NUMBER.fullmatch(text.strip())
    value = float(found[1]) * UNITS[found[2]] if found else 0.0
    if not 0 < value < math.inf:
        raise ValueError(
            f"{name} {text!r}: must be a number above 0 without an exponent, with k, M, G or T behind it if you like: "
            "11.2M, 400G"
        )
    return value


def duration(seconds: float) -> str:
    """A duration in s or ms, with three digits."""
    return f"{seconds:.3g} s" if seconds >= 0.9995 else f"{1e3 * seconds:.3g} ms"


def shown_gains(low: float, high: float) -> str:
    """A range of bandwidths as text, such as ``below 2.5G``, or the word never or always."""
    if not low:
        return "never" if not high else "always" if math.isinf(high) else f"below {shown_bandwidth(high)}"
    return f"above {shown_bandwidth(low)}" if math.isinf(high) else f"{shown_bandwidth(low)} to {shown_bandwidth(high)}"


def plain_break_even(bandwidth: float | None) -> float | str | None:
    """A break-even bandwidth for JSON: the word never or always where it is no number."""
    if bandwidth is None or math.isnan(bandwidth):
        return None
    return "never" if not bandwidth else "always" if math.isinf(bandwidth) else bandwidth


def shown_bandwidth(bandwidth: float) -> str:
    """A bandwidth as text: ``1e8`` is 100M."""
    unit = next(unit for unit in ("T", "G", "M", "k", "") if bandwidth >= UNITS[unit] or not unit)
    return f"{bandwidth / UNITS[unit]:.3g}{unit}"
