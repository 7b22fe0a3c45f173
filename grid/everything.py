"""Every method of ``METHODS`` at matched bits: 1, 2, 3, 4 and 8 bits per coordinate, and the sparse regime below one.

What sets a method's bits is the first of ``KNOBS`` among its settings, so that a new method joins without an edit here;
one without a knob (signs, powers of two, casts, SketchML, whose cells outweigh its codes) is a single point. Everything
else has its default, the memory of the method's paper included; the adaptive methods have their paper's norm. The bits
are those that the settings mean, not those that arrive: headers, norms and tables come on top, entropy coding takes
off; the table's column of measured bits counts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from grid import cifar10_cpu as small
from grid.demo import digits
from grid.engine.sweep import Point, Sweep, point, product, union, when, where_read
from grid.engine.sweeps.rates import sparse_ratio
from grid.nuq import L2, cifar10, updates
from nuq.registry import METHODS, Method
from nuq.settings import declared

BITS = (1, 2, 3, 4, 8)
SPARSE = (0.01, 0.1)  # bits per coordinate below which only sparse methods go
NOT_COMPARED = ("nonzero",)  # every value that is not zero, for means that are sparse already

# --- what sets the bits -------------------------------------------------------------------------------------------


def _bits(entry: Method, bits: float) -> dict[str, Any]:
    kind, _, rule = declared(entry.settings)["bits"]
    low, high = rule["low"], rule["high"]
    fits = (low is None or bits >= low) and (high is None or bits <= high) and bits in BITS
    return {"method.bits": kind(bits)} if fits else {}


def _ratio(entry: Method, bits: float) -> dict[str, Any]:
    return {"method.ratio": sparse_ratio(bits, indices="indices" in declared(entry.settings))}


def _clusters(entry: Method, bits: float) -> dict[str, Any]:
    del entry
    return {"method.clusters": 2 ** int(bits - 1)} if bits in (2, 3, 4) else {}


def _rank(name: str) -> Callable[[Method, float], dict[str, Any]]:
    """A choice of as many singular vectors a layer as bits: each takes .8 to 1 bit in the models used here."""
    return lambda entry, bits: {f"method.{name}": int(bits)} if bits >= 1 else {}


KNOBS: dict[str, Callable[[Method, float], dict[str, Any]]] = {
    "svd_rank": _rank("svd_rank"),
    "rank": _rank("rank"),
    "clusters": _clusters,
    "bits": _bits,
    "ratio": _ratio,
}


def at_bits(name: str, targets: Sequence[float]) -> list[Point]:
    """The method at each of the bits per coordinate that it reaches; once, with its defaults, where it has no knob."""
    entry = METHODS[name]
    knob = next((KNOBS[key] for key in KNOBS if key in declared(entry.settings)), None)
    if knob is None:
        return [point(entry.title, method=name)]
    found = {f"{entry.title} {bits:g} bit{'s' * (bits != 1)}": knob(entry, bits) for bits in targets}
    return [point(label, settings, method=name) for label, settings in found.items() if settings]


def methods(targets: Sequence[float]) -> list[Point]:
    """Every method at matched bits."""
    return union(*(at_bits(name, targets) for name in METHODS if name not in NOT_COMPARED))


# --- sweeps -------------------------------------------------------------------------------------------------------


def cifar10_resnet32() -> Sweep:
    """CIFAR-10, ResNet-32, as the adaptive methods' paper trains it: every method at matched bits."""
    return Sweep(product(cifar10("resnet32"), where_read(L2), updates([100, 2000], 10000), methods((*SPARSE, *BITS))))


def cifar10_cpu() -> Sweep:
    """Real data without a GPU: every method at matched bits, a short training each."""
    task = small.images("resnet8", workers=4, batch_size=16, steps=600, lr=0.05, eval_every=300)
    return Sweep(product(task, where_read(L2), updates([20, 100], 200), methods((*SPARSE, *BITS))))


def cpu() -> Sweep:
    """The embedded digits, seconds a run: every method at 3 bits, or as it is; buckets of 128, for in long ones NUQSGD
    diverges.
    """
    short = when(lambda given: "method.bits" in given, where_read({"method.bucket_size": 128}))
    return Sweep(product(digits(steps=40), where_read(L2), updates([5, 20], 0), methods((3,)), short))
