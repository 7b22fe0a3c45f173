"""The table of methods: a name, its settings, and where its code lives.  Imports no torch.

Adding a method is one file in ``nuq/compressors/``, its settings in ``nuq/settings/`` and one entry here; ``--help``,
the sweeps, the contract tests and the figure colours read this table.

Two names are easily confused: in the original learning-to-quantize code the suffix ``_nb`` (norm-based) marks the
paper's method *without* suffix (``alq_nb`` is ALQ, ``alq`` is ALQ-N).  The names here are the paper's.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nuq.settings import declared, plugins, unknown
from nuq.settings.atomo import ATOMO
from nuq.settings.baselines import BF16, FP8, FP16, Block8, Natural, Sign, Signs
from nuq.settings.formats import NNWBDI, S2FP8, SmaQ
from nuq.settings.powersgd import PowerSGD
from nuq.settings.quantizers import (
    ALQ,
    AMQ,
    DRIVE,
    ECDQ,
    EDEN,
    NUQSGD,
    QSGD,
    SGD,
    TRN,
    AMQNormal,
    Normal,
    Optimal,
    SuperSGD,
)
from nuq.settings.sketches import CASQ, SketchML
from nuq.settings.sparse import DGC, AdaptiveThreshold, DeMo, RandomK, Sparse, ThresholdV, TopK


@dataclass(frozen=True)
class Method:
    """One line of the table of methods, whose claims are tested."""

    title: str  # the paper's name, used in figures and tables
    settings: type
    code: str  # ``module:function``, called with the settings
    unbiased: bool = True
    contractive: bool = False  # |x - decoded|^2 <= |x|^2 for every x and key, and less unless x is zero
    deterministic: bool = False  # the same bytes whatever the key
    adaptive: bool = False
    single_worker: bool = False  # uses worker 0 alone
    stateful: bool = False  # what it sends depends on what it sent before
    feedback: str = "none"  # the memory of its paper: none, error or momentum
    mean_compressor: str = ""  # the method that encodes means; empty: this one, with bits of its own
    collective: str = ""  # one of its own, which collective=auto takes
    casts: bool = False  # every number by itself into two bytes, so that small tensors take it, too (``min_size``)

    def load(self) -> Any:
        """Import the method's code (and torch with it)."""
        return plugins.imported(self.code)


_FULL = "nuq.compressors.full_precision:FullPrecision"
_QUANTIZED = "nuq.compressors.quantized:"
_EDEN = "nuq.compressors.eden:"
_SPARSE = "nuq.compressors.sparse:"
_EXACT: dict[str, Any] = {"contractive": True, "deterministic": True}
_NEAREST: dict[str, Any] = {"unbiased": False, "contractive": True, "deterministic": True}
_FED_BACK: dict[str, Any] = {"feedback": "error", "mean_compressor": "qsgdinf"}
_STATEFUL: dict[str, Any] = {"unbiased": False, "contractive": True, "stateful": True, **_FED_BACK}

METHODS: dict[str, Method] = {
    "sgd": Method("SGD", SGD, _FULL, single_worker=True, **_EXACT),
    "supersgd": Method("SuperSGD", SuperSGD, _FULL, **_EXACT),
    "qsgd": Method("QSGD", QSGD, _QUANTIZED + "qsgd"),
    "qsgdinf": Method("QSGDinf", QSGD, _QUANTIZED + "qsgdinf"),
    "nuqsgd": Method("NUQSGD", NUQSGD, _QUANTIZED + "nuqsgd"),
    "trn": Method("TRN", TRN, _QUANTIZED + "trn", mean_compressor="qsgdinf"),
    "alq": Method("ALQ", ALQ, _QUANTIZED + "alq", adaptive=True),
    "alq_n": Method("ALQ-N", Normal, _QUANTIZED + "alq", adaptive=True),
    "alq_g": Method("ALQ-G", ALQ, _QUANTIZED + "alq_g", adaptive=True),
    "alq_gn": Method("ALQ-GN", Normal, _QUANTIZED + "alq_g", adaptive=True),
    "amq": Method("AMQ", AMQ, _QUANTIZED + "amq", adaptive=True),
    "amq_n": Method("AMQ-N", AMQNormal, _QUANTIZED + "amq", adaptive=True),
    "optimal": Method("Optimal", Optimal, _QUANTIZED + "optimal", adaptive=True),
    "ecdq": Method("ECDQ", ECDQ, _QUANTIZED + "ecdq"),
    "eden": Method("EDEN", EDEN, _EDEN + "eden"),
    "drive": Method("DRIVE", DRIVE, _EDEN + "drive", mean_compressor="eden"),
    "sign": Method("Sign", Sign, "nuq.compressors.signs:sign", **_FED_BACK, **_NEAREST),
    "onebit": Method("1-bit", Signs, "nuq.compressors.signs:onebit", **_FED_BACK, **_NEAREST),
    "natural": Method("Natural", Natural, "nuq.compressors.natural:NaturalCompression"),
    "block8": Method("Block-8", Block8, "nuq.compressors.blockwise:Blockwise", **_NEAREST),
    "fp8": Method("FP8", FP8, "nuq.compressors.blockwise:fp8", **_NEAREST),
    "fp16": Method("FP16", FP16, "nuq.compressors.casts:fp16", casts=True, **_NEAREST),
    "bf16": Method("BF16", BF16, "nuq.compressors.casts:bf16", casts=True, **_NEAREST),
    "smaq": Method("SmaQ", SmaQ, "nuq.compressors.smaq:SmaQ", unbiased=False),
    "s2fp8": Method("S2FP8", S2FP8, "nuq.compressors.s2fp8:S2FP8", unbiased=False, deterministic=True),
    "nnw_bdi": Method("NNW-BDI", NNWBDI, "nuq.compressors.nnw_bdi:NNWBDI", **_NEAREST),
    "topk": Method("TopK", TopK, _SPARSE + "topk", feedback="error", mean_compressor="nonzero", **_NEAREST),
    "randomk": Method("RandomK", RandomK, _SPARSE + "Keyed", mean_compressor="nonzero"),
    "thresholdv": Method(
        "ThresholdV", ThresholdV, _SPARSE + "thresholdv", unbiased=False, deterministic=True, mean_compressor="nonzero"
    ),
    "adaptive_threshold": Method(
        "AdaptiveThreshold", AdaptiveThreshold, _SPARSE + "adaptive_threshold", mean_compressor="nonzero", **_NEAREST
    ),
    "dgc": Method("DGC", DGC, _SPARSE + "Dgc", feedback="momentum", mean_compressor="nonzero", **_NEAREST),
    "demo": Method("DeMo", DeMo, "nuq.compressors.demo:DeMo", **_FED_BACK, **_NEAREST),
    "atomo": Method("ATOMO", ATOMO, "nuq.compressors.atomo:Atomo", mean_compressor="qsgdinf"),
    "powersgd": Method("PowerSGD", PowerSGD, "nuq.compressors.powersgd:PowerSGD", collective="power", **_STATEFUL),
    "nonzero": Method("Nonzero", Sparse, _SPARSE + "nonzero", **_EXACT),
    "casq": Method("CASQ", CASQ, "nuq.compressors.casq:Casq", **_STATEFUL),
    "sketchml": Method(
        "SketchML", SketchML, "nuq.compressors.sketchml:SketchML", unbiased=False, mean_compressor="qsgdinf"
    ),
}
plugins.TABLES["method"] = METHODS, Method

_AT_RANDOM = {"unbiased": True, "contractive": False, "deterministic": False}
# What settings change of the claims: a setting, its default, another value (None: any other).
CLAIMS: dict[tuple[str, Any, Any], dict[str, bool]] = {
    ("rounding", "nearest", "stochastic"): _AT_RANDOM,
    ("rounding", "nearest", "correlated"): _AT_RANDOM,
    ("rounding", "stochastic", "nearest"): {"deterministic": True},
    ("scale", "bucket", "none"): {"contractive": False},
    ("scale", "power", "none"): {"contractive": False},
    ("scale", "mean", "rms"): {"contractive": False},
    ("scale", "unbiased", "mse"): {"unbiased": False},
    ("scaled", True, False): {"unbiased": False},
    ("clip_sigma", 0.0, None): {"unbiased": False},
    ("rows", 2, 0): {"contractive": True, "deterministic": True},
}


def method(name: str) -> Method:
    """The entry called ``name``; ValueError with the legal choices and the nearest match where there is none."""
    if not isinstance(name, str) or name not in METHODS:
        raise unknown("method", name, METHODS)
    return METHODS[name]


def claimed(name: str, settings: Mapping[str, Any]) -> Method:
    """The entry called ``name`` with the claims that it makes with these settings.  ValueError as ``method``."""
    entry, changed = method(name), {}
    defaults = {key: of.default for key, of in declared(entry.settings).items()}
    for (key, default, other), claims in CLAIMS.items():
        value = settings.get(key, default)
        if value != default == defaults.get(key) and other in (None, value):
            changed |= claims
    return dataclasses.replace(entry, **changed)


def legal_formats() -> list[str]:
    """The methods whose bytes depend on a tensor alone, so that tensors can be kept in them."""
    return [
        name
        for name, entry in METHODS.items()
        if not (entry.adaptive or entry.single_worker or entry.stateful or entry.feedback == "momentum")
    ]
