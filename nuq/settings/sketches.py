"""Settings of CASQ and SketchML, which send a value's cluster or quantile, and a sketch of the rest."""

from __future__ import annotations

from dataclasses import dataclass

from nuq.settings import setting

_SCOPE = "model: the gradient is one flat vector; tensor: each parameter has clusters of its own (layer-wise)"
_CODING = (
    "how the {} travel, where it takes fewer bytes than a whole number of bits each; huffman: the original's; "
    "rans: a little less"
)
_SKETCHED = range(1, 17)  # rows
_SAMPLE = "coordinates, one from each of so many equal parts, that {} are found from (fewer coordinates: all)"


@dataclass
class Sketch:
    """Settings of CASQ and SketchML alike."""

    scope: str = setting("model", _SCOPE, choices=("model", "tensor"))


@dataclass
class CASQ(Sketch):
    """Clusters of values for each sign, and cells of each cluster that hold means."""

    clusters: int = setting(
        8, "clusters of either sign, the outliers' among them; more: a smaller error, longer codes", low=2, high=127
    )
    cells_ratio: float = setting(
        0.01,
        "cells over coordinates, the same number for every cluster, but at most one for each of its coordinates",
        low=1e-9,
        high=1.0,
        read_if=("cells", 0),
    )
    cells: int = setting(0, "cells of each cluster, in place of cells_ratio (0: cells_ratio counts)", low=0, high=2**24)
    outlier_percentile: float = setting(
        95.0,
        "magnitudes above this percentile of their sign are a cluster of their own (100: there is none); the "
        "original's value; 99 or 100 err a third as much, or less, on the gradients of a CNN on digits",
        low=1,
        high=100,
    )
    values: str = setting(
        "fp32",
        "fp32: cells as they are; fp16: rounded to half precision under one scale a message, half the bytes",
        choices=("fp32", "fp16"),
    )
    coding: str = setting("huffman", _CODING.format("clusters"), choices=("huffman", "rans"))
    sample_size: int = setting(16384, _SAMPLE.format("clusters"), low=16, high=2**24)
    refresh_every: int = setting(
        1, "steps after which clusters are found anew; above 1 they are state, by worker and parameter", low=1
    )


@dataclass
class SketchML(Sketch):
    """Quantiles of either sign, exactly or through a min-max sketch."""

    buckets: int = setting(128, "quantiles of either sign; the paper's 256 are those of both", low=1, high=128)
    rows: int = setting(
        2, "rows of the min-max sketch; the paper's value (0: no sketch, the quantiles travel exactly)", low=0, high=16
    )
    columns_ratio: float = setting(
        0.2,
        "cells of a row over coordinates; the paper's value; more: fewer collisions",
        low=1e-9,
        high=4.0,
        read_if=("rows", _SKETCHED),
    )
    groups: int = setting(
        4,
        "groups of quantiles of either sign, each with a sketch of its own, so that none is taken for one of another "
        "group; at most buckets; the paper's 8 are those of both",
        low=1,
        high=128,
        read_if=("rows", _SKETCHED),
    )
    coding: str = setting("huffman", _CODING.format("groups, or the quantiles,"), choices=("huffman", "rans"))
    sample_size: int = setting(16384, _SAMPLE.format("quantiles"), low=16, high=2**24)
