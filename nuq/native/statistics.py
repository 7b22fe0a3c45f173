"""The sampled histogram in C++: the sums of ``nuq.kernels.statistics``, bit for bit."""

from __future__ import annotations

import numpy as np

from nuq.native import DOUBLE, INT, LONG, POINTER, calls

Array = np.ndarray
_ARGUMENTS = [POINTER, LONG, LONG, LONG, POINTER, LONG, DOUBLE, INT, INT, LONG, POINTER, POINTER]
_call = calls({"nuq_histogram": (_ARGUMENTS, None)})


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
    _call("nuq_histogram", *given, log_bins, lowest, side, sums, tops)
    return sums, tops
