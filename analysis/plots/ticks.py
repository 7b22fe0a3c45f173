"""Axes of curves: their ticks, limits and numbers."""

from __future__ import annotations

import math

from matplotlib.axes import Axes
from matplotlib.ticker import (
    EngFormatter,
    FixedLocator,
    FuncFormatter,
    LogLocator,
    MaxNLocator,
    NullFormatter,
    NullLocator,
)


def x_axis(axes: Axes, label: str, num_ticks: int = 5, *, whole: bool = False) -> None:
    """Label an x axis; numbers from 10,000 on in thousands, plain ones on a logarithmic axis."""
    axes.set_xlabel(label)
    if axes.get_xscale() == "log":
        low, high = axes.get_xlim()
        axes.xaxis.set_major_locator(
            LogLocator(subs=(1, 2, 5) if high < 30 * low else (1, 3) if high < 1000 * low else (1,), numticks=8)
        )
        axes.xaxis.set_major_formatter(FuncFormatter(plain))
        axes.xaxis.set_minor_formatter(NullFormatter())
        return
    axes.xaxis.set_major_locator(MaxNLocator(num_ticks, integer=whole))
    if axes.get_xlim()[1] >= 10000:
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))


def plain(value: float, _position: int = 0) -> str:
    """A tick's number: as it is, or with a power of ten where that is shorter."""
    return f"{value:g}" if value == 0 or 1e-3 <= abs(value) < 1e5 else _scientific(value)


def _scientific(value: float, _position: int = 0) -> str:
    mantissa, exponent = f"{value:.1e}".split("e")
    power = f"10{str(int(exponent)).translate(_RAISED)}"
    return power if mantissa == "1.0" else f"{mantissa.removesuffix('.0')}\N{MULTIPLICATION SIGN}{power}"


def log_ticks(axes: Axes) -> None:
    """Put three to seven ticks on a logarithmic y axis with limits: powers of ten, or finer where there are few."""
    low, high = axes.get_ylim()
    ticks = _round_numbers(low, high) if 0 < low < high else []
    if len(ticks) < 3:
        axes.yaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10]))
        axes.yaxis.set_minor_locator(NullLocator())
    else:
        axes.yaxis.set_major_locator(FixedLocator(ticks))
    everyday = (low >= 1e-3 and high <= 1e5) or len(ticks) < 3
    axes.yaxis.set_major_formatter(FuncFormatter(plain if everyday else _scientific))
    axes.yaxis.set_minor_formatter(NullFormatter())


def _round_numbers(low: float, high: float) -> list[float]:
    """The coarsest of three series of round numbers with three in these limits, else the last, thinned out to seven."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    found: list[float] = []
    for series in ((1,), (1, 2, 5), (1, 1.5, 2, 3, 5, 7)):
        found = [
            number * 10.0**decade for decade in decades for number in series if low <= number * 10.0**decade <= high
        ]
        if len(found) >= 3:
            break
    return found[:: -(-len(found) // 7)] if found else found


_RAISED = str.maketrans("-0123456789", "\u207b\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079")
