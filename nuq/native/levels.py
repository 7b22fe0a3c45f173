"""The C++ side of the adaptive levels: tables of mixtures, solvers, the dynamic program.

A distribution is described by its arrays (``of_bins``, ``of_normals``), which the description keeps alive.  Every
function returns None where the library is missing, or does not know the distribution (None); the NumPy code that
callers then use is also what the tests hold these functions against.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

import numpy as np

from nuq import native
from nuq.native import DOUBLE, INT, LONG, POINTER, calls

Array = np.ndarray
MOST_NORMALS = 2  # a closed form of more components is slower than a table of it


class _Normals(ctypes.Structure):
    _fields_ = [("count", LONG), *((name, POINTER) for name in ("means", "sigmas", "scales"))]


class _Bins(ctypes.Structure):
    _fields_ = [
        ("count", LONG),
        *((name, POINTER) for name in ["edges", "width", "start", "slope", "power", "excess", "sums", "left", "right"]),
        *((name, DOUBLE) for name in ("origin", "median")),
    ]


class _Distribution(ctypes.Structure):
    _fields_ = [("normals", _Normals), ("bins", _Bins), ("begin", DOUBLE), ("end", DOUBLE)]


@dataclass(frozen=True)
class CompiledDistribution:
    """The C++ record ``nuq::Distribution`` and the arrays that it points into."""

    raw: _Distribution
    arrays: dict[str, Array] = field(repr=False)


def _pointers(arrays: dict[str, Array]) -> tuple[dict[str, Array], dict[str, int]]:
    kept = {name: np.ascontiguousarray(values, dtype=np.float64) for name, values in arrays.items()}
    return kept, {name: native.address(values) for name, values in kept.items()}


def of_bins(origin: float, median: float, **arrays: Array) -> CompiledDistribution:
    """The distribution of a histogram, by the arrays of ``nuq.levels.histogram.Histogram``."""
    kept, pointers = _pointers(arrays)
    edges = kept["edges"]
    bins = _Bins(count=len(edges) - 1, origin=origin, median=median, **pointers)
    return CompiledDistribution(_Distribution(bins=bins, begin=edges[0], end=edges[-1]), kept)


def of_normals(means: Array, sigmas: Array, scales: Array, begin: float) -> CompiledDistribution:
    """The distribution ``sum_j scale_j N(mean_j, sigma_j^2)`` on [begin, 1]; the solvers take one or two normals."""
    kept, pointers = _pointers({"means": means, "sigmas": sigmas, "scales": scales})
    normals = _Normals(count=len(means), **pointers)
    return CompiledDistribution(_Distribution(normals=normals, begin=begin, end=1.0), kept)


def side_by_side(one: CompiledDistribution | None, other: CompiledDistribution | None) -> CompiledDistribution | None:
    """The sum of two mixtures of normals on [0, 1]; one and its mirror image make the distribution of the magnitude."""
    if one is None or other is None or one.raw.bins.count:
        return None
    if one.raw.normals.count + other.raw.normals.count > MOST_NORMALS:
        return None
    both = (np.concatenate([one.arrays[name], other.arrays[name]]) for name in ("means", "sigmas", "scales"))
    return of_normals(*both, begin=0.0)


_off = ContextVar("_off", default=False)


@contextmanager
def switched_off() -> Iterator[None]:
    """Use NumPy alone for a while; the tests and benchmarks compare the two this way."""
    token = _off.set(True)
    try:
        yield
    finally:
        _off.reset(token)


def _is_there() -> bool:
    return not _off.get() and native.library() is not None


_DISTRIBUTION = ctypes.POINTER(_Distribution)
_call = calls(
    {
        "nuq_mixture_moments": ([ctypes.POINTER(_Normals), POINTER, LONG, POINTER], None),
        "nuq_descend": ([_DISTRIBUTION, INT, INT, POINTER, POINTER, LONG, LONG], None),
        "nuq_psi": ([_DISTRIBUTION, INT, POINTER, POINTER, LONG, LONG], None),
        "nuq_multiplier": ([_DISTRIBUTION, INT, DOUBLE, POINTER], None),
        "nuq_grid_levels": ([POINTER, POINTER, LONG, INT, LONG, POINTER], DOUBLE),
    }
)


def mixture_moments(distribution: CompiledDistribution, edges: Array) -> Array | None:
    """The ``Distribution.interval_moments`` of any number of normals: float64[3, n] for edges float64[n + 1]."""
    if not _is_there():
        return None
    edges = np.ascontiguousarray(edges)
    moments = np.empty((3, len(edges) - 1))
    _call("nuq_mixture_moments", ctypes.byref(distribution.raw.normals), edges, len(edges) - 1, moments)
    return moments


def descend(
    distribution: CompiledDistribution | None, edges: Array, *, symmetric: bool, projected: bool
) -> tuple[Array, Array] | None:
    """The edges and Psi at the ends of ``solver_exact.descend`` or ``projected_descent``, from float64[S, n + 1]."""
    if distribution is None or not _is_there():
        return None
    edges = np.array(edges, dtype=np.float64, order="C")
    psi = np.empty(len(edges))
    _call("nuq_descend", ctypes.byref(distribution.raw), symmetric, projected, edges, psi, *edges.shape)
    return edges, psi


def psi(distribution: CompiledDistribution | None, edges: Array, *, symmetric: bool) -> Array | None:
    """The value ``Objective.value`` of edges float64[..., n + 1]: float64[...]."""
    if distribution is None or not _is_there():
        return None
    edges = np.ascontiguousarray(edges, dtype=np.float64)
    value = np.empty(edges.shape[:-1])
    _call("nuq_psi", ctypes.byref(distribution.raw), symmetric, edges, value, value.size, edges.shape[-1])
    return value


def multiplier(distribution: CompiledDistribution | None, bits: int, lowest: float) -> tuple[float, float] | None:
    """The multiplier of ``solver_exact.multiplier`` for 2 bits or more: p and the start it came from."""
    if distribution is None or not _is_there():
        return None
    answer = np.empty(2)
    _call("nuq_multiplier", ctypes.byref(distribution.raw), bits, lowest, answer)
    return float(answer[0]), float(answer[1])


def grid_levels(points: Array, sums: Array, intervals: int, *, centred: bool) -> Array | None:
    """The ``solver_optimal.best_indices`` int64[intervals + 1] of points float64[M] with sums float64[3, M]."""
    if not _is_there():
        return None
    points, sums = np.ascontiguousarray(points), np.ascontiguousarray(sums)
    chosen = np.empty(intervals + 1, dtype=np.int64)
    _call("nuq_grid_levels", points, sums, len(points), centred, intervals, chosen)
    return chosen
