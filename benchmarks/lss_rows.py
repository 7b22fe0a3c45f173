"""The rows that ``benchmarks.lss`` measures."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """The results of one method on one gradient, for one kind of parameter."""

    study: str  # clusters, cells or baselines
    title: str
    number: float  # number of clusters, or cells over coordinates; 0 for baselines
    step: int
    kind: str
    large: float
    small: float
    error: float
    bits: float
    encode_ms: float
    decode_ms: float
