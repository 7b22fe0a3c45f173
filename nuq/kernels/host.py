"""What the processor does for tensors: copies of a GPU's to the host, and square roots that are rounded correctly.

Each kind of copy is told once, and listed in docs/wire.md.  Everything that grows with a vector passes through
``numpy_of``.  What does not, the heads of messages (``nuq.compressors.message.unpacked``), levels and single numbers,
is read where it is needed: tens of bytes, and a wait for the GPU.
"""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

# A table: what passes -> how much of it, and what the processor does there.
PASSES: Final = {
    "checksum": "without Triton every message, when it is packed and when it is read; a CRC-32",
    "codes": "one byte a coordinate (two beyond 256 levels) when they are coded, the coded bytes when they are read; "
    "with dither one more a coordinate both times, by which rANS of 2^14 codes or more knows which are likely; "
    "Huffman coding, and rANS of fewer than 2^22 codes, which the processor codes sooner, or where Triton is missing "
    "(`coding=packed` needs neither)",
    "indices": "four bytes a sent coordinate when they are coded, the coded bytes when they are read; fewer than 2^17, "
    "which the processor codes sooner, and where Triton is missing or among 2^30 coordinates or more",
    "sample": "some ten thousand sampled coordinates; clusters, quantiles or a histogram are fitted to them",
    "statistics": "a histogram's sample or one row a bucket, in the steps before an update of levels; sums in a fixed "
    "order",
    "factor": "rank x rows or rank x columns numbers of 4 bytes, both ways; made orthonormal in a fixed order",
}


def numpy_of(tensor: Tensor, passes: str) -> NDArray[Any]:
    """The tensor's numbers in NumPy: copied from a GPU, or the memory of a CPU tensor. passes: one of PASSES."""
    if tensor.is_cuda:
        _tell(passes)
    return tensor.cpu().numpy()


@cache
def _tell(passes: str) -> None:
    warnings.warn(
        f"{passes} of tensors on a GPU pass through the host: {PASSES[passes]} (docs/wire.md)",
        RuntimeWarning,
        stacklevel=4,
    )


def square_root(values: Tensor) -> Tensor:
    """The square roots, correctly rounded, as C++ and GPUs have them: float64, of the same shape.

    Of PyTorch's own on a CPU, one in seventy is off by a unit in the last place.
    """
    return values.sqrt() if values.is_cuda else torch.from_numpy(np.asarray(np.sqrt(values.detach().numpy())))
