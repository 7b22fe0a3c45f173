"""Settings of the plain baselines: signs, powers of two, block-wise 8-bit codes and casts to shorter numbers."""

from __future__ import annotations

from dataclasses import dataclass

from nuq.settings import setting
from nuq.settings.rounding import CORRELATED, stochastic_rounding


@dataclass
class Scoped:
    """Settings of every baseline."""

    scope: str = setting(
        "model",
        "model: the gradient is one flat vector; tensor: each parameter is encoded by itself",
        choices=("model", "tensor"),
    )


_ROUNDING = (
    "nearest: the least error, biased, the same bytes under every key; stochastic: up or down at random, unbiased, "
    f"about twice the squared error; {CORRELATED}"
)


@dataclass
class Signs(Scoped):
    """One bit per coordinate."""

    bucket_size: int = setting(
        8192,
        "coordinates that share their values; the papers have one layer or column of a matrix, whatever its size",
        low=1,
        high=2**31 - 1,
    )


@dataclass
class Sign(Signs):
    """One bit per coordinate: its sign."""

    scale: str = setting(
        "mean",
        "mean: of the sizes, EF-signSGD's, the least error of one message; rms: 1-bit Adam's, with error feedback the "
        "least error of the mean over many steps (nuq/compressors/signs.py)",
        choices=("mean", "rms"),
        identity="unless default",
    )


@dataclass
class Natural(Scoped):
    """The nearest powers of two at random, in a byte."""

    rounding: str = stochastic_rounding()


@dataclass
class Block8(Scoped):
    """A byte per coordinate: the nearest value of a fixed table, in units of the block's largest."""

    bucket_size: int = setting(2048, "coordinates that share one scale; the paper's block", low=1, high=2**31 - 1)
    table: str = setting(
        "dynamic",
        "dynamic: the paper's 256 values, seven decades with ever more digits; linear: 255 equally spaced ones, the "
        "least error for blocks without outliers",
        choices=("dynamic", "linear"),
    )
    rounding: str = setting("nearest", _ROUNDING, choices=("nearest", "stochastic", "correlated"))


@dataclass
class FP8(Scoped):
    """A byte per coordinate: 8-bit floating point."""

    scale: str = setting(
        "bucket",
        "bucket: in units that map the bucket's largest coordinate to the format's; none: the plain cast, clamped, "
        "small coordinates lost",
        choices=("bucket", "none"),
        identity="unless default",
    )
    bucket_size: int = setting(
        8192, "coordinates that share one scale", low=1, high=2**31 - 1, read_if=("scale", "bucket")
    )
    table: str = setting(
        "e4m3",
        "e4m3: 3 bits of mantissa over 2^18; e5m2: 2 bits over 2^32, for gradients that a smaller range would cut off",
        choices=("e4m3", "e5m2"),
    )
    rounding: str = setting("nearest", _ROUNDING, choices=("nearest", "stochastic", "correlated"))


@dataclass
class BF16(Scoped):
    """Two bytes per coordinate: float32 without its last 16 bits."""

    rounding: str = setting("nearest", _ROUNDING, choices=("nearest", "stochastic", "correlated"))
    coding: str = setting(
        "packed",
        "packed: two bytes per coordinate, the fastest; rans: the same numbers in fewer bytes, their exponents entropy "
        "coded",
        choices=("packed", "rans"),
        identity="unless default",
    )


@dataclass
class FP16(BF16):
    """Two bytes per coordinate: half precision."""

    scale: str = setting(
        "power",
        "power: times the power of two that brings the largest coordinate to 2^14 .. 2^15, so that nothing overflows "
        "and little vanishes; none: as it is, clamped at 65504, and below 3e-8 zero",
        choices=("power", "none"),
    )
