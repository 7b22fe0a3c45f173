"""The table of methods: a name, its settings, and where its code lives.  Imports no torch.

Adding a method is one file in ``nuq/compressors/`` and one entry here; ``--help``, the sweeps, the contract tests and
the figure colours read this table.

Two names are easily confused: in the original learning-to-quantize code the suffix ``_nb`` (norm-based) marks the
paper's method *without* suffix (``alq_nb`` is ALQ, ``alq`` is ALQ-N).  The names here are the paper's.
"""

from __future__ import annotations

import dataclasses
import difflib
import importlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal


def setting(
    default: Any,
    reason: str,
    *,
    low: float | None = None,
    high: float | None = None,
    choices: tuple[str | int, ...] | None = None,
    identity: bool | Literal["unless default"] = True,
    read_if: tuple[str, Any] | None = None,
) -> Any:
    """A dataclass field with its reason, its legal range or choices, and whether it can change a result.

    identity: "unless default" for one that is younger than runs with its default, which therefore must never move.
    read_if: (another setting, its value or a tuple of them) without which this one has no effect, so that only the default is legal.
    """
    metadata = {"reason": reason, "low": low, "high": high, "choices": choices, "identity": identity, "read_if": read_if}
    if isinstance(default, list):
        return field(default_factory=lambda: list(default), metadata=metadata)
    return field(default=default, metadata=metadata)


def unknown(kind: str, name: object, legal: Mapping[str, Any] | list[str]) -> ValueError:
    """The error for a name that is not in a table: the value, the nearest match and the legal choices."""
    names = sorted(legal)
    near = difflib.get_close_matches(str(name), names, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return ValueError(f"unknown {kind} {str(name)!r}{hint} (legal: {', '.join(names) or 'none'})")


def check(settings: type, values: Mapping[str, Any], where: str) -> None:
    """Raise ValueError where a value lies outside the range or choices that its ``setting`` states."""
    for item in dataclasses.fields(settings):
        rule, value = item.metadata, values[item.name]
        if not rule or value is None:
            continue
        shown = f"{where}{item.name}={value!r}"
        if rule.get("read_if") and value != item.default:
            other, needed = rule["read_if"]
            readers = needed if isinstance(needed, tuple) else (needed,)
            if values[other] not in readers:
                legal = " or ".join(map(repr, readers))
                raise ValueError(f"{shown}: has no effect with {where}{other}={values[other]!r}; it is read with {other}={legal} only")
        if rule.get("choices") and value not in rule["choices"]:
            raise ValueError(f"{shown}: must be one of {', '.join(map(str, rule['choices']))}")
        for number in value if isinstance(value, list | tuple) else [value]:
            if isinstance(number, str | bool):
                continue
            if not math.isfinite(number):
                raise ValueError(f"{shown}: must be finite")
            if rule.get("low") is not None and not number >= rule["low"]:
                raise ValueError(f"{shown}: must be at least {rule['low']}")
            if rule.get("high") is not None and not number <= rule["high"]:
                raise ValueError(f"{shown}: must be at most {rule['high']}")


# --- settings -----------------------------------------------------------------------------------------------------


@dataclass
class SGD:
    """One worker's full-precision gradient: the paper's SGD baseline."""


@dataclass
class SuperSGD:
    """The mean of all workers' full-precision gradients: what every quantizer approximates."""


@dataclass
class Bucketed:
    """What every bucketed quantizer reads."""

    bucket_size: int = setting(8192, "coordinates that share one norm; the paper's value for ResNet-32", low=1, high=2**31 - 1)
    scope: str = setting(
        "model",
        "model: the gradient is one flat vector, as in the paper; tensor: each parameter is cut into its own buckets",
        choices=("model", "tensor"),
    )
    rotation: str = setting(
        "none",
        "hadamard: a random rotation in blocks of 1024 before the buckets, undone after them: coordinates become normal, which helps "
        "fixed levels and takes from adaptive ones what they know",
        choices=("none", "hadamard"),
    )
    coding: str = setting(
        "packed",
        "packed: a fixed width per code, the fastest; huffman, rans: entropy coded with the table in the message, fewer bytes",
        choices=("packed", "huffman", "rans"),
    )


@dataclass
class Bits(Bucketed):
    bits: int = setting(3, "bits of one code; the paper's main experiments use 3", low=1, high=8)


_DITHER = (
    "subtractive: the receiver takes the random number of the rounding off again, which leaves an error of step^2/12, independent of the "
    "gradient; none: plain stochastic rounding"
)


@dataclass
class QSGD(Bits):
    form: str = setting(
        "signed",
        "signed: 2^bits uniform levels without zero, as in ALQ's code; magnitude: sign and magnitude, with a zero, as in QSGD's paper",
        choices=("signed", "magnitude"),
    )
    dither: str = setting("none", _DITHER, choices=("none", "subtractive"))


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
        3.0, "bits per coordinate that normal coordinates take, from which the step follows; real gradients take fewer", low=0.5, high=7.0
    )
    dither: str = setting("subtractive", _DITHER, choices=("none", "subtractive"))
    coding: str = setting(
        "rans", "rans: within 2 % of the entropy; huffman; packed: 9 bits, for comparison", choices=("packed", "huffman", "rans")
    )


@dataclass
class NUQSGD(Bits):
    p: float = setting(0.5, "levels are +-p^j; the paper's value", low=1e-6, high=1 - 1e-6)


@dataclass
class TRN(Bucketed):
    clip_sigma: float = setting(
        0.0, "clip at this many standard deviations of a bucket first (TernGrad's paper: 2.5, biased); 0: no clipping", low=0
    )
    dither: str = setting("none", _DITHER, choices=("none", "subtractive"))


@dataclass
class Adaptive(Bits):
    """What every adaptive method reads: where its levels come from, and when they change."""

    norm: str = setting(
        "l2",
        "scale of a bucket: l2 is the paper's; linf is better at 2 bits; quantile: about the 95 % quantile for the inner levels, the "
        "largest coordinate for the outermost, so that single large ones do not widen all levels",
        choices=("l2", "linf", "quantile"),
    )
    fit: str = setting(
        "histogram",
        "law the levels are fitted to: normal (one truncated normal), mixture (CondTruncNormHist, weights from bucket "
        "norms), histogram (the norm^2-weighted measured coordinates: heavier tails than any normal, so better levels)",
        choices=("normal", "mixture", "histogram"),
    )
    solver: str = setting(
        "exact",
        "exact: the minimiser of the expected variance under the fit; paper: the original code's iterations, which stop "
        "before they converge and reproduce the published levels",
        choices=("exact", "paper"),
    )
    symmetric: bool = setting(True, "levels come in pairs +-l; false lets every level move by itself, as the published runs did")
    num_components: int = setting(350, "buckets of largest norm kept for the mixture (the original's dist_num)", low=1)
    statistics: str = setting(
        "running",
        "running: from the training gradients of the steps before an update, at no extra pass; fresh: from extra "
        "minibatches at the update, as in the original, and always so on the SGD trajectory",
        choices=("running", "fresh"),
    )
    num_samples: int = setting(10, "gradients per worker behind one update; the paper's value", low=1)
    update_at: list[int] = setting([100, 2000], "steps at which the levels are updated; the paper's list", low=0)
    update_every: int = setting(10000, "and at every multiple of this many steps (0: at none); the paper's period", low=0)


_WEIGHTS = "weights of the mixture: norm2 follows E[norm^2 Psi]; norm is what the original code uses"


@dataclass
class ALQ(Adaptive):
    """Levels by coordinate descent (exact: to convergence; paper: 30 sweeps, as published)."""

    weights: str = setting("norm2", _WEIGHTS, choices=("norm2", "norm"), read_if=("fit", "mixture"))


@dataclass
class Optimal(ALQ):
    """The level set of least expected variance, by dynamic programming (QUIVER, NeurIPS 2024)."""

    bits: int = setting(3, "bits of one code, for 2^bits levels", low=1, high=8, read_if=("num_levels", 0))
    solver: str = setting("exact", "the dynamic program has no published iterations to reproduce", choices=("exact",))
    num_levels: int = setting(
        0, "number of levels, 2 to 256, in place of 2^bits (0: 2^bits); odd and symmetric: with one at zero", low=0, high=256
    )


@dataclass
class Normal(Adaptive):
    """The paper's -N variants: one truncated normal in place of the mixture."""

    fit: str = setting("normal", "the -N variant is the fit to one truncated normal", choices=("normal",))


@dataclass
class SymmetricOnly(Adaptive):
    """What AMQ's variants share."""

    symmetric: bool = setting(True, "levels +-p^j are symmetric by construction", choices=(True,))  # type: ignore[arg-type]


@dataclass
class AMQ(SymmetricOnly):
    """Levels +-p^j with p learned by gradient descent (Section 3.2)."""

    weights: str = setting("norm2", _WEIGHTS, choices=("norm2", "norm"), read_if=("fit", "mixture"))


@dataclass
class AMQNormal(SymmetricOnly):
    """AMQ on one truncated normal."""

    fit: str = setting("normal", "the -N variant is the fit to one truncated normal", choices=("normal",))


LEAST_ROTATED = 128  # coordinates: in a shorter bucket even three rotations leave a bias (nuq/compressors/eden.py)


@dataclass
class DRIVE:
    """One bit per rotated coordinate: its sign."""

    bucket_size: int = setting(
        8192, "coordinates that are rotated together and share one scale; a power of two", low=LEAST_ROTATED, high=2**30
    )
    scope: str = setting(
        "model", "model: the gradient is one flat vector; tensor: each parameter is cut into its own buckets", choices=("model", "tensor")
    )
    scale: str = setting(
        "unbiased",
        "unbiased: exact along the gradient, for a mean over many workers; mse: the smallest error of one message, biased",
        choices=("unbiased", "mse"),
    )
    rotations: int = setting(
        3,
        "1 is the papers', biased on sparse and short vectors; 2 still a little on the sparsest; see nuq/compressors/eden.py",
        low=1,
        high=3,
    )
    coding: str = setting("packed", "packed: a fixed width per code; huffman, rans: entropy coded", choices=("packed", "huffman", "rans"))


@dataclass
class EDEN(DRIVE):
    """The nearest centroid of every rotated coordinate."""

    bits: int = setting(3, "bits of one code", low=1, high=8)


@dataclass
class Exchange:
    """How the workers' messages become one mean."""

    collective: str = setting(
        "gather",
        "gather: every message to every process; two_stage: stretches to their owners, whose means are encoded again, less to send from "
        "three workers on; server: to worker 0, who answers all; hierarchical: dense inside a machine, messages between machines; "
        "auto: the fewest bytes",
        choices=("auto", "gather", "two_stage", "server", "hierarchical"),
        identity="unless default",
    )
    second_bits: int = setting(
        4,
        "bits of the means that are encoded again; their error is not divided by the number of workers, so more than bits",
        low=1,
        high=8,
        identity="unless default",
        read_if=("collective", ("two_stage", "server", "hierarchical", "auto")),
    )
    num_aggregate: int = setting(
        0,
        "the server averages the first so many messages of a step to arrive, as ATOMO's does (0: all)",
        low=0,
        identity="unless default",
        read_if=("collective", "server"),
    )


@dataclass
class HookExchange(Exchange):
    """The same, for the DDP hook."""

    collective: str = setting(
        "auto",
        "auto: of the following the one with the fewest bytes; gather, two_stage, server, hierarchical: as in main.py; dense: bfloat16 by "
        "the backend's own all-reduce",
        choices=("auto", "gather", "two_stage", "server", "hierarchical", "dense"),
    )


@dataclass
class Hook:
    """What the DDP hook does beside its method and its collective."""

    min_size: int = setting(
        1024, "tensors of fewer coordinates travel in full precision: headers and norms would eat what they save", low=0
    )
    skip_1d: bool = setting(False, "true: biases and norms' parameters travel in full precision, whatever their size")
    error_feedback: bool = setting(False, "true: what a message left out is added to the next gradient")
    gate: bool = setting(False, "true: an early step measures whether compressing is faster here than bfloat16, which is used if not")
    per_machine: int = setting(0, "hierarchical: ranks of one machine, in contiguous blocks (0: as torchrun says)", low=0)
    on_non_finite: str = setting(
        "raise",
        "raise: a gradient that is not finite ends the step on all ranks, by name; propagate: the mean becomes NaN, for a gradient scaler "
        "to skip the step",
        choices=("raise", "propagate"),
    )
    seed: int = setting(0, "seed of the roundings", low=0, high=2**63 - 1)
    timeout_s: float = setting(300.0, "seconds to wait for a rank before it counts as lost", low=0.1)
    debug: bool = setting(False, "true: every step compares the levels and the means of all ranks by checksum")


# --- the table ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Method:
    """One line of the table: ``code`` is ``module:function``, called with the settings; claims are tested."""

    title: str  # the paper's name, used in figures and tables
    settings: type
    code: str
    unbiased: bool = True
    adaptive: bool = False
    single_worker: bool = False  # uses worker 0 alone
    second: str = ""  # the method that encodes means for a second stage; empty: this one, with its own number of bits

    def load(self) -> Any:
        """Import the method's code (and torch with it)."""
        module, _, name = self.code.partition(":")
        return getattr(importlib.import_module(module), name)


_FULL = "nuq.compressors.full_precision:FullPrecision"
_QUANTIZED = "nuq.compressors.quantized:"
_EDEN = "nuq.compressors.eden:"

METHODS: dict[str, Method] = {
    "sgd": Method("SGD", SGD, _FULL, single_worker=True),
    "supersgd": Method("SuperSGD", SuperSGD, _FULL),
    "qsgd": Method("QSGD", QSGD, _QUANTIZED + "qsgd"),
    "qsgdinf": Method("QSGDinf", QSGD, _QUANTIZED + "qsgdinf"),
    "nuqsgd": Method("NUQSGD", NUQSGD, _QUANTIZED + "nuqsgd"),
    "trn": Method("TRN", TRN, _QUANTIZED + "trn", second="qsgdinf"),
    "alq": Method("ALQ", ALQ, _QUANTIZED + "alq", adaptive=True),
    "alq_n": Method("ALQ-N", Normal, _QUANTIZED + "alq", adaptive=True),
    "alq_g": Method("ALQ-G", ALQ, _QUANTIZED + "alq_g", adaptive=True),
    "alq_gn": Method("ALQ-GN", Normal, _QUANTIZED + "alq_g", adaptive=True),
    "amq": Method("AMQ", AMQ, _QUANTIZED + "amq", adaptive=True),
    "amq_n": Method("AMQ-N", AMQNormal, _QUANTIZED + "amq", adaptive=True),
    "optimal": Method("Optimal", Optimal, _QUANTIZED + "optimal", adaptive=True),
    "ecdq": Method("ECDQ", ECDQ, _QUANTIZED + "ecdq"),
    "eden": Method("EDEN", EDEN, _EDEN + "eden"),
    "drive": Method("DRIVE", DRIVE, _EDEN + "drive", second="eden"),
}


def method(name: str) -> Method:
    """The entry called ``name``; ValueError with the legal choices and the nearest match where there is none."""
    if name not in METHODS:
        raise unknown("method", name, METHODS)
    return METHODS[name]
