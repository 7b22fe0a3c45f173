"""The mean of log2 |x| over the nonzeros of a vector, alike on every machine and for any number of threads.

Read from the bits of a float32: its exponent, and for its mantissa's first 8 bits the logarithm of the middle of the
numbers that share them, in units of 2^-16.  The sum is one of integers, whose order changes nothing; one logarithm is
at most .003 off, the mean far less.  Denormal numbers count as 2^-126.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from torch import Tensor

from nuq.kernels.cpu import in_cpp
from nuq.native import INT, LONG, POINTER, calls

_FRACTIONS = np.rint(2**16 * np.log2(1 + (np.arange(256) + 0.5) / 256)).astype(np.int32)
_PART = 1 << 20  # coordinates
_call = calls({"nuq_log_sum": ([POINTER, LONG, POINTER, POINTER, INT], None)})


@cache
def _fractions(device: torch.device) -> Tensor:
    return torch.from_numpy(_FRACTIONS).to(device)


def mean_log2(vector: Tensor) -> float:
    """The mean of log2 |x| over the nonzeros; 0 for a vector of zeros. vector: float32[n], contiguous."""
    assert vector.dtype == torch.float32 and vector.is_contiguous()
    if not in_cpp(vector):
        total, count = _sums(vector)
    else:
        sums = np.zeros(2, dtype=np.int64)
        _call("nuq_log_sum", vector.data_ptr(), vector.numel(), _FRACTIONS, sums, torch.get_num_threads())
        total, count = sums.tolist()
    return total / count / 2**16 if count else 0.0


def _sums(vector: Tensor) -> tuple[int, int]:
    """The sum of the logarithms in units of 2^-16, and their number."""
    total = count = 0
    for part in vector.split(_PART):
        bits = part.view(torch.int32) & 0x7FFFFFFF
        bits = bits[bits != 0].clamp_min(0x00800000)
        total += int((((bits >> 23) - 127) * 2**16 + _fractions(vector.device)[((bits >> 15) & 0xFF).long()]).sum())
        count += bits.numel()
    return total, count
