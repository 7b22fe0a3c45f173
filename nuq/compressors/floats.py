"""The floating-point numbers of a message as float32, every one of them finite.

In C++ on the CPU where it is built (``nuq/native/src/floats.cpp``), in the pass that writes them; else in PyTorch on
any device: the same bits.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from nuq.compressors.message import from_bytes
from nuq.errors import MessageError
from nuq.kernels.cpu import in_cpp
from nuq.native import floats as compiled

# the order of src/floats.h
FORMATS = (torch.float32, torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.float8_e5m2)
_PART = 1 << 17  # coordinates: what stays in a cache from one operation to the next
_PART_ON_GPU = 1 << 24  # each part waits for the GPU once


def read_(data: Tensor, dtype: torch.dtype, total: Tensor, *, factor: float = 1.0, accumulate: bool = False) -> None:
    """Write ``factor`` times the numbers into ``total`` float32[n], or add them to it.

    data: uint8, the bytes of n numbers of ``dtype``, one of FORMATS; factor: a power of two.  MessageError where a
    product is not finite: the total then holds nothing of use.
    """
    n = total.numel()
    assert data.numel() == n * dtype.itemsize and total.dtype == torch.float32
    if in_cpp(total, contiguous=True):
        data = data.contiguous()
        threads = torch.get_num_threads()
        finite = compiled.read(data.data_ptr(), n, FORMATS.index(dtype), factor, total.data_ptr(), accumulate, threads)
    else:
        finite = _read(data, dtype, total, factor, accumulate)
    if not finite:
        raise MessageError("a number that is not finite: damaged")


def _read(data: Tensor, dtype: torch.dtype, total: Tensor, factor: float, accumulate: bool) -> bool:
    finite, part = True, _PART_ON_GPU if total.is_cuda else _PART
    for first in range(0, total.numel(), part):
        place = total[first : first + part]
        stored = data[first * dtype.itemsize :][: place.numel() * dtype.itemsize]
        numbers = from_bytes(stored, dtype).to(torch.float32).mul_(factor)
        # a finite sum proves it
        finite = finite and (math.isfinite(float(numbers.sum())) or bool(torch.isfinite(numbers).all()))
        place.add_(numbers) if accumulate else place.copy_(numbers)
    return finite
