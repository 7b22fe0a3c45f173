"""The setting of methods that round at random: together with the other workers, or by themselves."""

from __future__ import annotations

from typing import Any

from nuq.settings import Unless, setting

CORRELATED = (
    "correlated: unbiased, too, and so that the workers' errors cancel in the mean, since their random numbers are "
    "spread evenly at every coordinate; messages and receivers stay what they are (not with dither, whose receiver "
    "repeats the numbers of one sender alone)"
)


def stochastic_rounding(read_if: tuple[str, Any] | None = None, default: str = "correlated") -> Any:
    """The setting ``rounding`` of a method that always rounds at random."""
    reason = f"{CORRELATED}; stochastic: up or down at random, each worker by itself, as in the papers"
    choices = ("correlated", "stochastic")
    return setting(default, reason, choices=choices, identity=Unless("stochastic"), read_if=read_if)
