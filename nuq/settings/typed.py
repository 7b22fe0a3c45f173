"""Settings as keywords, for type checkers and editors: which there are, their types, and their choices.

A keyword that only some methods have is among them: which method takes it is checked when it is given.
``python -m tests.nuq.test_typed_settings`` writes this file from the settings themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypedDict


class OfMethod(TypedDict, total=False):
    """Settings of all methods."""

    atoms: Literal["svd", "entries"] | str
    bits: float
    bits_inlier: int
    bits_outlier: int
    bucket_size: int
    buckets: int
    cells: int
    cells_ratio: float
    chunk: int
    clip_sigma: float
    clusters: int
    coding: Literal["packed", "huffman", "rans"] | str
    columns_ratio: float
    dense_1d: bool
    dither: Literal["none", "subtractive"] | str
    fit: Literal["normal", "mixture", "histogram"] | str
    form: Literal["signed", "magnitude"] | str
    groups: int
    indices: Literal["auto", "int32", "bitmap", "delta"] | str
    inlier_threshold: float
    iterations: int
    k: int
    levels: Literal["lloyd_max", "uniform"] | str
    matrix: Literal["rows", "pairs"] | str
    norm: Literal["l2", "linf", "quantile"] | str
    num_components: int
    num_levels: int
    num_samples: int
    objective: Literal["message", "mean"] | str
    outlier_limit: float
    outlier_percentile: float
    p: float
    rank: int
    ratio: float
    refresh_every: int
    rotation: Literal["none", "hadamard"] | str
    rotations: int
    rounding: Literal["correlated", "stochastic", "nearest"] | str
    rows: int
    sample_size: int
    samples: int
    scale: Literal["unbiased", "mse", "mean", "rms", "bucket", "none", "power"] | str
    scaled: bool
    scope: Literal["model", "tensor"] | str
    selection: Literal["exact", "sampled"] | str
    solver: Literal["exact", "paper"] | str
    statistics: Literal["running", "fresh"] | str
    svd: Literal["auto", "exact", "randomized"] | str
    svd_rank: int
    symmetric: bool
    table: Literal["dynamic", "linear", "e4m3", "e5m2"] | str
    threshold: float
    update_at: Sequence[int]
    update_every: int
    values: Literal["fp32", "fp16", "2bit"] | str
    warm_start: bool
    warmup_every: int
    warmup_ratios: Sequence[float]
    weights: Literal["norm2", "norm"] | str
    zeros: Literal["masked", "coded"] | str


class OfExchange(OfMethod, total=False):
    """Those, and of the exchange of one tensor."""

    collective: Literal["auto", "gather", "two_stage", "server", "hierarchical"] | str
    num_aggregate: int
    second_bits: int


class OfFsdp(OfMethod, total=False):
    """Those of methods, and of FSDP2's reduce-scatter."""

    beta: float
    feedback: Literal["none", "average"] | str
    reset_every: int


class OfFsdpWeights(OfMethod, total=False):
    """Those of methods, and of FSDP2's gather of parameters."""

    full_every: int


class OfOuter(OfMethod, total=False):
    """Those of methods, and of an outer loop."""

    collective: Literal["auto", "gather", "two_stage", "server"] | str
    decay: float
    every: int
    feedback: Literal["auto", "none", "error"] | str
    fragments: int
    min_size: int
    mixing: float
    nesterov: bool
    num_aggregate: int
    outer_lr: float
    outer_momentum: float
    overlap: int
    second_bits: int
    seed: int
    timeout_s: float | None


class OfHook(OfMethod, total=False):
    """Those of methods, and of the DDP hook."""

    both: bool
    clip_norm: float
    clip_value: float
    collective: Literal["auto", "gather", "two_stage", "server", "hierarchical", "dense"] | str
    debug: bool
    decay: float
    feedback: Literal["auto", "none", "error", "momentum", "ef21"] | str
    gate: bool
    masking: bool
    min_size: int
    momentum: float
    nesterov: bool
    num_aggregate: int
    on_non_finite: Literal["raise", "propagate"] | str
    per_machine: int
    second_bits: int
    seed: int
    skip_1d: bool
    timeout_s: float | None
