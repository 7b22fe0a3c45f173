"""Settings of the formats that training keeps its tensors in: SmaQ, S2FP8 and NNW-BDI."""

from __future__ import annotations

from dataclasses import dataclass

from nuq.settings import setting
from nuq.settings.rounding import CORRELATED

_ROUNDING = (
    "stochastic: up or down at random, so that errors cancel over steps; nearest: the least error, the same bytes "
    "under every key"
)
_NEAREST = (
    "nearest: the least error, the same bytes under every key; stochastic: up or down at random, unbiased, about "
    f"twice the squared error; {CORRELATED}"
)


@dataclass
class Tensorwise:
    """Settings of every format."""

    scope: str = setting(
        "tensor",
        "tensor: each parameter has statistics of its own, as in the papers; model: the gradient is one flat vector",
        choices=("model", "tensor"),
    )


@dataclass
class SmaQ(Tensorwise):
    """Six bits within one standard deviation of the mean, eight bits beyond."""

    samples: int = setting(
        0,
        "coordinates that mean and standard deviation come from (0: all; 16: the paper's; no faster here)",
        low=0,
        high=65536,
    )
    bits_inlier: int = setting(
        6, "bits of a coordinate within the threshold, a class bit and a sign among them", low=3, high=8
    )
    bits_outlier: int = setting(
        8, "bits of the others, a class bit and a sign among them; at least bits_inlier", low=3, high=8
    )
    inlier_threshold: float = setting(
        1.0, "standard deviations from the mean up to which the short codes reach", low=0.125, high=4.0
    )
    outlier_limit: float = setting(
        2.5,
        "standard deviations from the mean at which coordinates are clamped; above inlier_threshold",
        low=0.25,
        high=16.0,
    )
    rounding: str = setting("stochastic", f"{_ROUNDING}; {CORRELATED}", choices=("stochastic", "nearest", "correlated"))
    zeros: str = setting(
        "masked",
        "masked: ours, a bit each where they are many or all others have one sign, so that ratios may exceed the "
        "format's own 32 / bits_inlier; coded: the published format, like all others, and most come back as other "
        "numbers",
        choices=("masked", "coded"),
        identity="unless default",
    )


@dataclass
class S2FP8(Tensorwise):
    """A byte per coordinate: e5m2 of a power of the coordinate that brings the tensor into its range."""

    rounding: str = setting("nearest", _NEAREST, choices=("nearest", "stochastic", "correlated"))


@dataclass
class NNWBDI(Tensorwise):
    """Blocks of 64 fixed-point words, as deltas from zero or from one base in as few bits as they need."""

    bits: int = setting(8, "bits of a word before its deltas are taken, its sign among them", low=3, high=8)
    rounding: str = setting("nearest", _NEAREST, choices=("nearest", "stochastic", "correlated"))
