"""The setting of methods that round at random: by themselves, or together with the other workers."""

from __future__ import annotations

from typing import Any

from nuq.settings import setting

CORRELATED = (
    "correlated: unbiased, too, and so that the workers' errors cancel in the mean, since their random numbers are "
    "spread evenly at every coordinate; messages and receivers stay what they are (not with dither, whose receiver "
    "repeats the numbers of one sender alone)"
)


def stochastic_rounding(read_if: tuple[str, Any] | None = None) -> Any:
    """The setting ``rounding`` of a method that always rounds at random."""
    reason = f"stochastic: up or down at random, each worker by itself; {CORRELATED}"
    return setting(
        "stochastic", reason, choices=("stochastic", "correlated"), identity="unless default", read_if=read_if
    )
