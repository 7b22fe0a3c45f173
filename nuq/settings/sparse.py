"""Settings of the methods that send some of the coordinates: top-k, random-k, thresholds, Deep Gradient Compression."""

from __future__ import annotations

from dataclasses import dataclass

from nuq.settings import FROM_ONE, setting

_SCOPE = (
    "model: the gradient is one flat vector; tensor: coordinates are chosen in each parameter by itself (layer-wise)"
)
_RATIO = "share of the coordinates that travel: max(1, ceil(ratio * coordinates)) of each tensor, model or bucket"
_BUCKET = "coordinates among which are chosen (0: all of the tensor or model)"
_SELECTION = (
    "exact: the k largest; sampled: at most k, the largest, by a threshold from the top-k of one coordinate in a "
    "hundred, lowered by .8 up to ten times until .8 k reach it (DGC's)"
)


@dataclass
class Values:
    """Settings of every sparse method: how its values travel, and what they are chosen from."""

    scope: str = setting("model", _SCOPE, choices=("model", "tensor"))
    values: str = setting(
        "fp32",
        "fp32: as they are; fp16: rounded to half precision under one scale a message, half the bytes",
        choices=("fp32", "fp16"),
    )


@dataclass
class Sparse(Values):
    """Settings of values that travel with their indices."""

    indices: str = setting(
        "auto",
        "how the indices travel; auto: the smallest of all; int32: 4 bytes each; bitmap: a bit for every coordinate; "
        "delta: gaps by Rice codes or rANS",
        choices=("auto", "int32", "bitmap", "delta"),
    )


@dataclass
class TopK(Sparse):
    """The k largest magnitudes."""

    ratio: float = setting(0.01, _RATIO, low=1e-9, high=1.0)
    bucket_size: int = setting(0, _BUCKET, low=0, high=2**31 - 1)
    selection: str = setting("exact", _SELECTION, choices=("exact", "sampled"), read_if=("bucket_size", 0))
    values: str = setting(
        "fp32",
        "fp32: as they are; fp16: rounded to half precision under one scale a message, half the bytes; 2bit: the sign "
        "and whether the magnitude is above their mean, each of the four stands for the mean of its values",
        choices=("fp32", "fp16", "2bit"),
    )


@dataclass
class RandomK(Values):
    """The k indices that all workers draw alike, so that none travel."""

    ratio: float = setting(0.01, _RATIO, low=1e-9, high=1.0)
    bucket_size: int = setting(0, _BUCKET, low=0, high=2**31 - 1)
    scaled: bool = setting(
        True, "true: values times n/k, which is unbiased; false: as they are, as error feedback wants them"
    )


@dataclass
class ThresholdV(Sparse):
    """All magnitudes from a threshold on, however many or few."""

    threshold: float = setting(
        0.001, "coordinates of at least this magnitude travel; the layer-wise paper's value", low=0
    )


@dataclass
class AdaptiveThreshold(Sparse):
    """All magnitudes from half of the largest on."""

    bucket_size: int = setting(
        0, "coordinates that share one largest magnitude (0: all of the tensor or model)", low=0, high=2**31 - 1
    )


@dataclass
class DGC(Sparse):
    """Deep Gradient Compression's choice; its momentum correction and clipping are settings of the memory."""

    scope: str = setting("tensor", _SCOPE, choices=("model", "tensor"))
    ratio: float = setting(0.001, _RATIO + "; the paper's value", low=1e-9, high=1.0)
    selection: str = setting("sampled", _SELECTION, choices=("exact", "sampled"))
    warmup_every: int = setting(
        0, "steps of each of warmup_ratios before ratio is reached; the paper: one epoch (0: no warm-up)", low=0
    )
    warmup_ratios: list[float] = setting(
        [0.25, 0.0625, 0.015625, 0.004],
        "the warm-up's ratios; the paper's",
        low=1e-9,
        high=1.0,
        items=1,
        read_if=("warmup_every", FROM_ONE),
    )
    dense_1d: bool = setting(
        True,
        "true: biases and norms' parameters travel whole, as in the paper, where scope=tensor; a flat vector is such "
        "a tensor",
        read_if=("scope", "tensor"),
    )


MOST_CHUNK = 64  # a side of DeMo's chunks


@dataclass
class DeMo(Sparse):
    """The largest cosine coefficients of every chunk; its momentum is ``feedback.decay``."""

    scope: str = setting(
        "tensor",
        "tensor: every parameter is a matrix, its first dimension against all others, and a vector one row, as in the "
        "paper; model: the gradient is one flat vector in rows of one chunk's length",
        choices=("tensor", "model"),
    )
    chunk: int = setting(64, "the most rows, and columns, of a chunk; the paper's code's", low=2, high=MOST_CHUNK)
    k: int = setting(32, "coefficients of each chunk that travel; the paper's code's", low=1, high=MOST_CHUNK**2)
