"""The C++ side of the adaptive levels: tables of mixtures, solvers, the dynamic program.

A distribution is described by its arrays (``of_bins``, ``of_normals``), which the description keeps alive.  Every
function returns None where the library is missing; the NumPy code that callers then use is also what the tests hold
these functions against.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

import numpy as np

from nuq import native

Array = np.ndarray
MOST_NORMALS = 2  # a closed form of more components is slower than a table of it


class _Normals(ctypes.Structure):
    _fields_ = [("count", ctypes.c_int64), *((name, ctypes.c_void_p) for name in ("means", "sigmas", "scales"))]


class _Bins(ctypes.Structure):
    _fields_ = [
        ("count", ctypes.c_int64),
        *(
            (name, ctypes.c_void_p)
            for name in ("edges", "width", "start", "slope", "power", "excess", "sums", "left", "right")
        ),
        ("origin", ctypes.c_double),
        ("median", ctypes.c_double),
    ]


class _Distribution(ctypes.Structure):
    _fields_ = [("normals", _Normals), ("bins", _Bins), ("begin", ctypes.c_double), ("end", ctypes.c_double)]


@dataclass(frozen=True)
class CompiledDistribution:
    """The C++ record ``nuq::Distribution`` and the arrays that it points into."""

    raw: _Distribution
    arrays: dict[str, Array] = field(repr=False)


def _pointers(arrays: dict[str, Array]) -> tuple[dict[str, Array], dict[str, int]]:
    kept = {name: np.ascontiguousarray(values, dtype=np.float64) for name, values in arrays.items()}
    return kept, {name: values.ctypes.data for name, values in kept.items()}


def of_bins(origin: float, median: float, **arrays: Array) -> CompiledDistribution:
    """The distribution of a histogram, by the arrays of ``nuq.levels.histogram.Histogram``."""
    kept, pointers = _pointers(arrays)
    edges = kept["edges"]
    bins = _Bins(count=len(edges) - 1, origin=origin, median=median, **pointers)
    return CompiledDistribution(_Distribution(bins=bins, begin=edges[0], end=edges[-1]), kept)


def of_normals(means: Array, sigmas: Array, scales: Array, begin: float) -> CompiledDistribution:
    """The distribution ``sum_j scale_j N(mean_j, sigma_j^2)`` on [begin, 1]; the solvers take one or two normals."""
    kept, pointers = _pointers({"means": means, "sigmas": sigmas, "scales": scales})
    return CompiledDistribution(
        _Distribution(normals=_Normals(count=len(means), **pointers), begin=begin, end=1.0), kept
    )


def side_by_side(one: CompiledDistribution | None, other: CompiledDistribution | None) -> CompiledDistribution | None:
    """The sum of two mixtures of normals on [0, 1]; one and its mirror image make the distribution of the magnitude."""
    if (
        one is None
        or other is None
        or one.raw.bins.count
        or one.raw.normals.count + other.raw.normals.count > MOST_NORMALS
    ):
        return None
    return of_normals(
        *(np.concatenate([one.arrays[name], other.arrays[name]]) for name in ("means", "sigmas", "scales")), begin=0.0
    )


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


_POINTER, _LONG, _SWITCH = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int
_DISTRIBUTION = ctypes.POINTER(_Distribution)
_function = native.functions(
    {
        "nuq_mixture_moments": ([ctypes.POINTER(_Normals), _POINTER, _LONG, _POINTER], None),
        "nuq_descend": ([_DISTRIBUTION, _SWITCH, _SWITCH, _POINTER, _POINTER, _LONG, _LONG], None),
        "nuq_psi": ([_DISTRIBUTION, _SWITCH, _POINTER, _POINTER, _LONG, _LONG], None),
        "nuq_multiplier": ([_DISTRIBUTION, _SWITCH, ctypes.c_double, _POINTER], None),
        "nuq_grid_levels": ([_POINTER, _POINTER, _LONG, _SWITCH, _LONG, _POINTER], ctypes.c_double),
    }
)


def mixture_moments(distribution: CompiledDistribution, edges: Array) -> Array | None:
    """The ``Distribution.interval_moments`` of any number of normals: float64[3, n] for edges float64[n + 1]."""
    if not _is_there():
        return None
    edges = np.ascontiguousarray(edges)
    moments = np.empty((3, len(edges) - 1))
    _function("nuq_mixture_moments")(
        ctypes.byref(distribution.raw.normals), edges.ctypes.data, len(edges) - 1, moments.ctypes.data
    )
    return moments


def descend(
    distribution: CompiledDistribution, edges: Array, *, symmetric: bool, projected: bool
) -> tuple[Array, Array] | None:
    """The descent ``solver_exact.descend`` (projected: ``projected_descent``) for starts float64[S, n + 1].

    It returns the edges and Psi they end at.
    """
    if not _is_there():
        return None
    edges = np.array(edges, dtype=np.float64, order="C")
    psi = np.empty(len(edges))
    _function("nuq_descend")(
        ctypes.byref(distribution.raw), symmetric, projected, edges.ctypes.data, psi.ctypes.data, *edges.shape
    )
    return edges, psi


def psi(distribution: CompiledDistribution, edges: Array, *, symmetric: bool) -> Array | None:
    """The value ``Objective.value`` of edges float64[..., n + 1]: float64[...]."""
    if not _is_there():
        return None
    edges = np.ascontiguousarray(edges, dtype=np.float64)
    value = np.empty(edges.shape[:-1])
    _function("nuq_psi")(
        ctypes.byref(distribution.raw), symmetric, edges.ctypes.data, value.ctypes.data, value.size, edges.shape[-1]
    )
    return value


def multiplier(distribution: CompiledDistribution, bits: int, lowest: float) -> tuple[float, float] | None:
    """The multiplier of ``solver_exact.multiplier`` for 2 bits or more: p and the start it came from."""
    if not _is_there():
        return None
    answer = np.empty(2)
    _function("nuq_multiplier")(ctypes.byref(distribution.raw), bits, lowest, answer.ctypes.data)
    return float(answer[0]), float(answer[1])


def grid_levels(points: Array, sums: Array, intervals: int, *, centred: bool) -> Array | None:
    """The indices of ``solver_optimal.best_indices``: int64[intervals + 1].

    They are among points float64[M] with sums float64[3, M].
    """
    if not _is_there():
        return None
    points, sums = np.ascontiguousarray(points), np.ascontiguousarray(sums)
    chosen = np.empty(intervals + 1, dtype=np.int64)
    _function("nuq_grid_levels")(
        points.ctypes.data, sums.ctypes.data, len(points), centred, intervals, chosen.ctypes.data
    )
    return chosen
