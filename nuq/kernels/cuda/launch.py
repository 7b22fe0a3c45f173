"""The needs of every kernel launch: the device code, the right device, and arguments that Triton takes."""

from __future__ import annotations

import warnings
from contextlib import nullcontext
from functools import cache
from types import ModuleType
from typing import Any, NamedTuple

import torch
from torch import Tensor


class Modules(NamedTuple):
    """The device code, with one module for each kind."""

    checksum: ModuleType
    encode: ModuleType
    decode: ModuleType
    indices: ModuleType
    rans: ModuleType
    rotate: ModuleType
    smaq: ModuleType


@cache
def device_code() -> Modules | None:
    """The Triton kernels; None, after one warning, where Triton is not installed."""
    try:
        import triton  # noqa: F401
    except ImportError:
        warnings.warn(
            "nuq runs without its GPU kernels (triton is not installed): results are the same, 10 to 50 times slower; "
            "`pip install triton` brings them",
            RuntimeWarning,
            stacklevel=3,
        )
        return None
    from nuq.kernels.cuda import checksum, decode, encode, indices, rans, rotate, smaq

    return Modules(checksum, encode, decode, indices, rans, rotate, smaq)


def on(tensor: Tensor) -> Any:
    """Make the tensor's device the current one, on which Triton launches."""
    return torch.cuda.device(tensor.device) if tensor.is_cuda else nullcontext()
