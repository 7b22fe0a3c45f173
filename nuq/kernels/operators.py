"""Encode and decode: the operators, with their arguments in words.

``torch.ops.nuq`` chooses an implementation by device.

What they compute, to the bit, stands in ``nuq.kernels.spec``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nuq import native
from nuq.kernels import cpu, reference
from nuq.kernels.bit_packing import MAX_LEVELS
from nuq.kernels.spec import ALONE, ALWAYS_AT_RANDOM, Among, Key, Words, check_block, check_input, words_of

# --- the operators: torch.ops.nuq ----------------------------------------------------------------------------------

_LIBRARY = torch.library.Library("nuq", "DEF")
SCHEMAS = {
    "encode_": "(Tensor vector, Tensor? levels, int num_levels, Tensor(a!) scales, Tensor(b!) packed, int bucket_size, "
    "str norm, float multiple, int packing, int[] noise, bool stochastic) -> ()",
    "decode_": "(Tensor packed, Tensor scales, Tensor levels, Tensor(a!) total, int bucket_size, int packing, bool "
    "accumulate, bool dither, int k0, int k1) -> ()",
    "hadamard_": "(Tensor(a!) vector, int block, int k0, int k1, bool inverse) -> ()",
}


@cache
def _cpu_kernels() -> Any:
    return reference if native.library() is None else cpu


def _on_cpu(name: str) -> Callable[..., None]:
    """The C++ kernel where it is built, else the reference."""

    def kernel(*arguments: Any) -> None:
        getattr(_cpu_kernels(), name)(*arguments)

    return kernel


def _on_cuda(name: str) -> Callable[..., None]:
    def kernel(*arguments: Any) -> None:
        from nuq.kernels.cuda import operators

        getattr(operators, name)(*arguments)

    return kernel


def _nothing(*arguments: Any) -> None:
    """The operator on tensors without data: it returns nothing and changes no shape."""
    del arguments


for _name, _schema in SCHEMAS.items():
    _LIBRARY.define(_name + _schema)
    _LIBRARY.impl(_name, _on_cpu(_name), "CPU")
    _LIBRARY.impl(_name, _on_cuda(_name), "CUDA")
    _LIBRARY.impl(_name, _nothing, "Meta")


# --- the operators with their arguments in words -------------------------------------------------------------------


def encode_(
    vector: Tensor,
    levels: Tensor | int,
    scales: Tensor,
    packed: Tensor,
    *,
    bucket_size: int,
    norm: str,
    packing: int,
    key: Key | Words,
    multiple: float = 0.0,
    stochastic: bool = True,
    among: Among = ALONE,
) -> None:
    """Encode by steps 1 to 7 into ``scales`` and ``packed``.

    vector: float32, bfloat16 or float16 [n], contiguous.  levels: float32[L], rising from -1 to 1, 2 <= L <= 512, or L
    alone: equally spaced, by step 5 (norm l2, linf or rms).  scales: float32[ceil(n / bucket_size) *
    scales_per_bucket(norm)].  packed: uint8[coding.packed_bytes(n, packing)].  multiple: of rms.  stochastic: False for
    given levels that are thresholds.  among: the worker's place among those with this key, and their number (step 6).
    NonFiniteError for a scale that is not finite; ValueError for arguments outside the specification.
    """
    check_input(vector, bucket_size, norm)
    given, count = (levels, levels.numel()) if isinstance(levels, Tensor) else (None, levels)
    if isinstance(count, bool) or not isinstance(count, int | np.integer):
        raise ValueError(
            f"levels={count!r}: must be a tensor of levels or their number, an integer from 2 to {MAX_LEVELS}"
        )
    if given is None and not stochastic:
        raise ValueError(ALWAYS_AT_RANDOM)
    if given is None and norm == "quantile":
        why = "under quantile the outer levels are not equally spaced"
        raise ValueError(f"norm='quantile': uniform levels take l2, linf or rms ({why})")
    noise = [*words_of(key), *among]
    torch.ops.nuq.encode_(vector, given, count, scales, packed, bucket_size, norm, multiple, packing, noise, stochastic)


def decode_(
    packed: Tensor,
    scales: Tensor,
    levels: Tensor,
    total: Tensor,
    *,
    bucket_size: int,
    packing: int,
    accumulate: bool,
    dither: Key | Words | None = None,
) -> None:
    """Decode by step 8 into ``total`` float32[n], or add; dither: the encoder's key; ValueError beyond the levels."""
    k0, k1 = words_of(dither) if dither else (0, 0)
    torch.ops.nuq.decode_(packed, scales, levels, total, bucket_size, packing, accumulate, dither is not None, k0, k1)


def hadamard_(vector: Tensor, block: int, key: Key | Words, *, inverse: bool = False) -> None:
    """Rotate by step 9 in place. vector: float32[n], contiguous, any n; block: a power of two."""
    check_block(block)
    k0, k1 = words_of(key)
    torch.ops.nuq.hadamard_(vector, block, k0, k1, inverse)


def bucket_scales(vector: Tensor, bucket_size: int, norm: str, multiple: float = 0.0) -> Tensor:
    """The scales of step 2: float32[ceil(n / bucket_size) * scales_per_bucket(norm)]; errors as ``encode_``."""
    check_input(vector, bucket_size, norm)
    kernels = _cpu_kernels() if vector.device.type == "cpu" else reference
    return kernels.bucket_scales(vector, bucket_size, norm, multiple)


def bucket_dots(a: Tensor, b: Tensor, bucket_size: int) -> Tensor:
    """The scalar product of every bucket, summed as in step 2: two float32[n] -> float64[ceil(n / bucket_size)]."""
    return (_cpu_kernels() if a.device.type == "cpu" else reference).bucket_dots(a, b, bucket_size)


def leading_bits(num_coordinates: int, key: Key | Words, count: int, device: torch.device | None = None) -> Tensor:
    """The first ``count`` (1 .. 8) bits of every coordinate's ``h`` (step 6): uint8[num_coordinates]."""
    if device is not None and device.type != "cpu":
        return reference.leading_bits(num_coordinates, *words_of(key), count, device)
    return _cpu_kernels().leading_bits(num_coordinates, *words_of(key), count)
