"""Settings of full precision, of the QSGD .. ALQ family, of the dithered lattice and of EDEN."""

from __future__ import annotations

from dataclasses import dataclass

from nuq.settings import setting
from nuq.settings.rounding import stochastic_rounding


@dataclass
class Uncompressed:
    """Settings of full precision."""

    scope: str = setting(
        "model",
        "model: the gradient is one flat vector; tensor: a message for each parameter, the same numbers with more "
        "headers",
        choices=("model", "tensor"),
        identity="unless default",
    )


@dataclass
class SGD(Uncompressed):
    """One worker's full-precision gradient: the paper's SGD baseline."""


@dataclass
class SuperSGD(Uncompressed):
    """The mean of all workers' full-precision gradients: what every quantizer approximates."""


@dataclass
class Bucketed:
    """Settings of every bucketed quantizer."""

    bucket_size: int = setting(
        8192, "coordinates that share one norm; the paper's value for ResNet-32", low=1, high=2**31 - 1
    )
    scope: str = setting(
        "model",
        "model: the gradient is one flat vector, as in the paper; tensor: each parameter is cut into its own buckets",
        choices=("model", "tensor"),
    )
    rotation: str = setting(
        "none",
        "hadamard: a random rotation in blocks of 1024 before the buckets, undone after them: coordinates become "
        "normal, which helps fixed levels and takes from adaptive ones what they know",
        choices=("none", "hadamard"),
    )
    coding: str = setting(
        "packed",
        "packed: a fixed width per code, the fastest; huffman, rans: entropy coded with the table in the message, "
        "fewer bytes",
        choices=("packed", "huffman", "rans"),
    )
    rounding: str = stochastic_rounding()


@dataclass
class Bits(Bucketed):
    bits: int = setting(3, "bits of one code; the paper's main experiments use 3", low=1, high=8)


_DITHER = (
    "subtractive: the receiver takes the random number of the rounding off again, which leaves an error of step^2/12, "
    "independent of the gradient; none: plain stochastic rounding"
)


@dataclass
class QSGD(Bits):
    form: str = setting(
        "signed",
        "signed: 2^bits uniform levels without zero, as in ALQ's code; magnitude: sign and magnitude, with a zero, as "
        "in QSGD's paper",
        choices=("signed", "magnitude"),
    )
    dither: str = setting("none", _DITHER, choices=("none", "subtractive"))
    rounding: str = stochastic_rounding(("dither", "none"))


@dataclass
class ECDQ(Bucketed):
    """A lattice with entropy-coded codes: the least error per bit of the unbiased methods here."""

    bucket_size: int = setting(
        2**20,
        "coordinates that share one step; with entropy coding few and large buckets divide the bits best among layers",
        low=1,
        high=2**31 - 1,
    )
    bits: float = setting(
        3.0,
        "bits per coordinate that normal coordinates take, from which the step follows; real gradients take fewer",
        low=0.5,
        high=7.0,
    )
    dither: str = setting("subtractive", _DITHER, choices=("none", "subtractive"))
    rounding: str = stochastic_rounding(("dither", "none"), "stochastic")
    coding: str = setting(
        "rans",
        "rans: within 2 % of the entropy; huffman; packed: 9 bits, for comparison",
        choices=("packed", "huffman", "rans"),
    )


@dataclass
class NUQSGD(Bits):
    p: float = setting(0.5, "levels are +-p^j; the paper's value", low=1e-6, high=1 - 1e-6)


@dataclass
class TRN(Bucketed):
    clip_sigma: float = setting(
        0.0,
        "clip at this many standard deviations of a bucket first (TernGrad's paper: 2.5, biased); 0: no clipping",
        low=0,
    )
    dither: str = setting("none", _DITHER, choices=("none", "subtractive"))
    rounding: str = stochastic_rounding(("dither", "none"))


@dataclass
class Adaptive(Bits):
    """Settings of every adaptive method: where its levels come from, and when they change."""

    norm: str = setting(
        "linf",
        "scale of a bucket: linf has the least error on recorded gradients, in the geometric mean over 2 to 8 bits "
        "and buckets of 256 to 16384 .0105 where l2, the paper's, has .0365 (ALQ; ALQ-N .034, .45; AMQ .018, .039; "
        "AMQ-N .025, .043: benchmarks.errors norms); quantile: about the 95 % quantile for the inner levels, the "
        "largest coordinate for the outermost",
        choices=("l2", "linf", "quantile"),
    )
    fit: str = setting(
        "histogram",
        "distribution to fit the levels to: normal (one truncated normal), mixture (CondTruncNormHist, weights from "
        "bucket norms), histogram (the norm^2-weighted measured coordinates: heavier tails than any normal, so better "
        "levels)",
        choices=("normal", "mixture", "histogram"),
    )
    solver: str = setting(
        "exact",
        "exact: the minimiser of the expected variance under the fit; paper: the original code's iterations, which "
        "stop before they converge and reproduce the published levels",
        choices=("exact", "paper"),
    )
    objective: str = setting(
        "message",
        "what updates of the levels minimise: message, the error of one worker's message, as in the paper; mean, that "
        "of the mean of all workers, whose errors cancel (docs/mean_levels.md)",
        choices=("message", "mean"),
        identity="unless default",
        read_if=("rounding", "correlated"),
    )
    symmetric: bool = setting(
        True, "levels come in pairs +-l; false lets every level move by itself, as the published runs did"
    )
    num_components: int = setting(350, "buckets of largest norm kept for the mixture (the original's dist_num)", low=1)
    statistics: str = setting(
        "running",
        "running: from the training gradients of the steps before an update, at no extra pass; fresh: from extra "
        "minibatches at the update, as in the original, and always so on the SGD trajectory",
        choices=("running", "fresh"),
    )
    num_samples: int = setting(10, "gradients per worker behind one update; the paper's value", low=1)
    update_at: list[int] = setting(
        [0, 100, 2000],
        "steps at which the levels are updated; 0: to the first gradient, before it is sent, or the first that is "
        "finite and not zero, without which real gradients meet levels of a normal distribution until the next update; "
        "the paper's list is 100, 2000",
        low=0,
    )
    update_every: int = setting(
        10000, "and at every multiple of this many steps (0: at none); the paper's period", low=0
    )


_WEIGHTS = "weights of the mixture: norm2 follows E[norm^2 Psi]; norm is what the original code uses"


@dataclass
class ALQ(Adaptive):
    """Fitted to the measured coordinates or, as in the paper, to a mixture of truncated normals."""

    weights: str = setting("norm2", _WEIGHTS, choices=("norm2", "norm"), read_if=("fit", "mixture"))


@dataclass
class Optimal(ALQ):
    """The level set of least expected variance, by dynamic programming (QUIVER, NeurIPS 2024)."""

    bits: int = setting(3, "bits of one code, for 2^bits levels", low=1, high=8, read_if=("num_levels", 0))
    solver: str = setting("exact", "the dynamic program has no published iterations to reproduce", choices=("exact",))
    num_levels: int = setting(
        0,
        "number of levels, 2 to 256, in place of 2^bits (0: 2^bits); odd and symmetric: with one at zero",
        low=0,
        high=256,
    )


@dataclass
class Normal(Adaptive):
    """The paper's -N variants: one truncated normal in place of the mixture."""

    fit: str = setting("normal", "the -N variant is the fit to one truncated normal", choices=("normal",))


@dataclass
class SymmetricOnly(Adaptive):
    """Settings that AMQ's variants share."""

    symmetric: bool = setting(True, "levels +-p^j are symmetric", choices=(True,))  # type: ignore[arg-type]


@dataclass
class AMQ(SymmetricOnly):
    """Fitted to the measured coordinates or, as in the paper, to a mixture of truncated normals."""

    weights: str = setting("norm2", _WEIGHTS, choices=("norm2", "norm"), read_if=("fit", "mixture"))


@dataclass
class AMQNormal(SymmetricOnly):
    """The paper's -N variant: one truncated normal in place of the mixture."""

    fit: str = setting("normal", "the -N variant is the fit to one truncated normal", choices=("normal",))


LEAST_ROTATED = 128  # coordinates: in a shorter bucket even three rotations leave a bias (nuq/compressors/eden.py)


@dataclass
class DRIVE:
    """One bit per rotated coordinate: its sign."""

    bucket_size: int = setting(
        8192, "coordinates that are rotated together and share one scale; a power of two", low=LEAST_ROTATED, high=2**30
    )
    scope: str = setting(
        "model",
        "model: the gradient is one flat vector; tensor: each parameter is cut into its own buckets",
        choices=("model", "tensor"),
    )
    scale: str = setting(
        "unbiased",
        "unbiased: exact along the gradient, for a mean over many workers; mse: the smallest error of one message, "
        "biased",
        choices=("unbiased", "mse"),
    )
    rotations: int = setting(
        3,
        "1 is the papers', biased on sparse and short vectors; 2 still a little on the sparsest; see "
        "nuq/compressors/eden.py",
        low=1,
        high=3,
    )
    coding: str = setting(
        "packed", "packed: a fixed width per code; huffman, rans: entropy coded", choices=("packed", "huffman", "rans")
    )


@dataclass
class EDEN(DRIVE):
    """The nearest centroid of every rotated coordinate."""

    bits: int = setting(
        3, "bits of one code; levels=uniform: that normal coordinates take once entropy coded", low=1, high=8
    )
    levels: str = setting(
        "lloyd_max",
        "lloyd_max: the 2^bits centroids of least error; uniform: EDEN's own form for an entropy coder, the nearest "
        "multiple of the step that brings the codes to so many bits: less error at the same length",
        choices=("lloyd_max", "uniform"),
        identity="unless default",
        read_if=("coding", ("huffman", "rans")),
    )
