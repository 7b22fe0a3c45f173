"""The sampled histogram in C++: the sums of ``nuq.kernels.statistics``, bit for bit."""

from __future__ import annotations

import ctypes

import numpy as np

from nuq.native import Signature, call

Array = np.ndarray
_LONG, _INT, _DOUBLE, _POINTER = ctypes.c_int64, ctypes.c_int32, ctypes.c_double, ctypes.c_void_p
_SIGNATURE: Signature = (
    [_POINTER, _LONG, _LONG, _LONG, _POINTER, _LONG, _DOUBLE, _INT, _INT, _LONG, _POINTER, _POINTER],
    None,
)


def histogram(
    address: int,
    num_coordinates: int,
    bucket_size: int,
    every: int,
    scales: Array,
    weight_each: float,
    *,
    log_bins: int,
    lowest: int,
    side: int,
) -> tuple[Array, Array]:
    """The sums float64[3, 2 * side] and tops float64[2] of every ``every``-th coordinate.

    address: of float32[num_coordinates]; scales: float32[buckets, 1 or 2].
    """
    assert scales.dtype == np.float32
    sums, tops = np.zeros((3, 2 * side)), np.zeros(2)
    given = (address, num_coordinates, bucket_size, every, scales, scales.shape[1], weight_each)
    call("nuq_histogram", _SIGNATURE, *given, log_bins, lowest, side, sums, tops)
    return sums, tops
