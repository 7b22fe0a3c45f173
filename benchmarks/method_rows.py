"""A row of the table of ``benchmarks.methods``, and the claim that a method has to reach."""

from __future__ import annotations

from dataclasses import dataclass

LEAST_GB_PER_S, LEAST_RATIO = 1.0, 10.0


@dataclass(frozen=True)
class Row:
    """The figures of one method."""

    title: str
    unbiased: bool
    error: float  # median, least and largest over the gradients
    error_low: float
    error_high: float
    bits_per_coordinate: float
    encode_gb_per_s: float
    decode_gb_per_s: float
    eager_gb_per_s: float | None
    ratio: float | None  # ratio to the eager one, pair by pair: median, least, largest
    ratio_low: float | None
    ratio_high: float | None
    pairs: int

    @property
    def reached(self) -> bool:
        """Whether the claim holds: encode >= 10x eager or >= 1 GB/s."""
        return self.encode_gb_per_s >= LEAST_GB_PER_S or (self.ratio or 0.0) >= LEAST_RATIO
