"""The operators of ``nuq.ops`` on CPU tensors in C++ (``src/quantize.cpp``, ``src/hadamard.cpp``): the bits of ``nuq.reference``.

Every size is checked before an address goes to C++.  Tensors that are not contiguous are copied.  Threads:
``torch.get_num_threads()``; their number changes no bit.  Where an encoder raises NonFiniteError, scales and packed hold nothing of
use; where ``decode_`` raises, the total is as it was.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import torch
from jaxtyping import Float, Float32, Float64, UInt8
from torch import Tensor

from nuq import coding
from nuq.cpu import library
from nuq.ops import DTYPES, NORMS, check_input, check_scales, lanes, num_buckets, scales_per_bucket

_POINTER, _LONG, _INT, _WORD, _FLOAT = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int, ctypes.c_uint32, ctypes.c_float
_SIGNATURES: dict[str, tuple[list[Any], Any]] = {
    "nuq_encode": (
        [_POINTER, _INT, _LONG, _LONG, _INT, _INT, _FLOAT, _POINTER, _POINTER, _INT, _POINTER, _INT, _INT, _WORD, _WORD, _INT],
        _LONG,
    ),
    "nuq_decode": ([_POINTER, _INT, _POINTER, _INT, _POINTER, _INT, _POINTER, _LONG, _LONG, _INT, _INT, _WORD, _WORD, _INT], _INT),
    "nuq_bucket_dots": ([_POINTER, _POINTER, _LONG, _LONG, _POINTER, _INT], None),
    "nuq_leading_bits": ([_LONG, _WORD, _WORD, _INT, _POINTER, _INT], None),
    "nuq_hadamard": ([_POINTER, _LONG, _LONG, _WORD, _WORD, _INT, _INT], None),
}


@cache
def _function(name: str) -> Any:
    loaded = library()
    if loaded is None:
        raise RuntimeError("the C++ kernels are not built")
    function = getattr(loaded, name)
    function.argtypes, function.restype = _SIGNATURES[name]
    return function


def _check_tensor(tensor: Tensor, what: str, dtype: torch.dtype, size: int | None = None) -> None:
    if tensor.device.type != "cpu":
        raise ValueError(f"{what} on {tensor.device}: must be on the CPU")
    if tensor.dtype != dtype:
        raise ValueError(f"{what} of {tensor.dtype}: must be {dtype}")
    if size is not None and tensor.numel() != size:
        raise ValueError(f"{what} of {tensor.numel()} elements: must have {size}")


def _check_packing(packing: int, num_levels: int | None = None) -> None:
    if not 0 <= packing <= 16:
        raise ValueError(f"packing={packing}: must be between 0 and 16")
    if num_levels is not None and num_levels > (3 if packing == coding.TERNARY else 1 << packing):
        raise ValueError(f"packing={packing}: does not hold {num_levels} levels")


def _in_place(tensor: Tensor) -> Tensor:
    """The tensor itself, or a contiguous copy that its owner has to copy back."""
    return tensor if tensor.is_contiguous() else tensor.contiguous()


def _encode(
    vector: Tensor,
    levels: Tensor | None,
    num_levels: int,
    scales: Tensor,
    packed: Tensor | None,
    bucket_size: int,
    norm: str,
    multiple: float,
    packing: int,
    k0: int,
    k1: int,
    stochastic: bool,
) -> None:
    check_input(vector, bucket_size, norm)
    n = vector.numel()
    _check_tensor(vector, "a vector", vector.dtype)
    _check_tensor(scales, "scales", torch.float32, num_buckets(n, bucket_size) * scales_per_bucket(norm))
    if packed is not None:
        coding.code_bits(num_levels)
        _check_packing(packing, num_levels if stochastic else num_levels - 1)  # thresholds: one code fewer
        _check_tensor(packed, "packed codes", torch.uint8, coding.packed_bytes(n, packing))
    vector, scales_, packed_ = vector.contiguous(), _in_place(scales), None if packed is None else _in_place(packed)
    bad = _function("nuq_encode")(
        vector.data_ptr(),
        DTYPES.index(vector.dtype),
        n,
        bucket_size,
        NORMS.index(norm),
        lanes(bucket_size, n),
        multiple,
        scales_.data_ptr(),
        None if packed_ is None else packed_.data_ptr(),
        packing,
        None if levels is None else levels.data_ptr(),
        num_levels,
        stochastic,
        k0,
        k1,
        torch.get_num_threads(),
    )
    if bad >= 0:
        check_scales(scales_, norm)
    if scales_ is not scales:
        scales.copy_(scales_)
    if packed is not None and packed_ is not None and packed_ is not packed:
        packed.copy_(packed_)


def encode_(
    vector: Float[Tensor, " n"],
    levels: Float32[Tensor, " L"],
    scales: Float32[Tensor, " scales"],
    packed: UInt8[Tensor, " bytes"],
    bucket_size: int,
    norm: str,
    multiple: float,
    packing: int,
    k0: int,
    k1: int,
    stochastic: bool,
) -> None:
    """``ops.encode_``; ValueError for a size, type or packing that does not fit, NonFiniteError for a scale that is not finite."""
    _check_tensor(levels, "levels", torch.float32)
    levels = levels.contiguous()
    _encode(vector, levels, levels.numel(), scales, packed, bucket_size, norm, multiple, packing, k0, k1, stochastic)


def encode_uniform_(
    vector: Float[Tensor, " n"],
    num_levels: int,
    scales: Float32[Tensor, " scales"],
    packed: UInt8[Tensor, " bytes"],
    bucket_size: int,
    norm: str,
    multiple: float,
    packing: int,
    k0: int,
    k1: int,
) -> None:
    """``ops.encode_uniform_``; errors as ``encode_``."""
    _encode(vector, None, num_levels, scales, packed, bucket_size, norm, multiple, packing, k0, k1, True)


def bucket_scales(vector: Float[Tensor, " n"], bucket_size: int, norm: str, multiple: float = 0.0) -> Float32[Tensor, " scales"]:
    """``ops.bucket_scales``: step 2 alone; errors as ``encode_``."""
    check_input(vector, bucket_size, norm)
    scales = torch.empty(num_buckets(vector.numel(), bucket_size) * scales_per_bucket(norm))
    _encode(vector, None, 2, scales, None, bucket_size, norm, multiple, 1, 0, 0, True)
    return scales


def decode_(
    packed: UInt8[Tensor, " bytes"],
    scales: Float32[Tensor, " scales"],
    levels: Float32[Tensor, " L"],
    total: Float32[Tensor, " n"],
    bucket_size: int,
    packing: int,
    accumulate: bool,
    dither: bool,
    k0: int,
    k1: int,
) -> None:
    """``ops.decode_``; ValueError for a size or type that does not fit and for codes beyond the levels (nothing is written then)."""
    n, num_levels = total.numel(), levels.numel()
    if bucket_size < 1:
        raise ValueError(f"bucket_size={bucket_size}: must be at least 1")
    coding.code_bits(num_levels)
    _check_packing(packing)
    _check_tensor(total, "a total", torch.float32)
    _check_tensor(levels, "levels", torch.float32)
    _check_tensor(packed, "packed codes", torch.uint8)
    _check_tensor(scales, "scales", torch.float32)
    size = coding.packed_bytes(n, packing)
    if packed.numel() != size:
        raise ValueError(f"{packed.numel()} packed bytes: {n} codes take {size}")
    buckets = num_buckets(n, bucket_size)
    if scales.numel() not in (buckets, 2 * buckets):
        raise ValueError(f"{scales.numel()} scales: {buckets} buckets have {buckets}, or twice as many under quantile")
    packed, scales, levels, total_ = packed.contiguous(), scales.contiguous(), levels.contiguous(), _in_place(total)
    damaged = _function("nuq_decode")(
        packed.data_ptr(),
        packing,
        scales.data_ptr(),
        scales.numel() != buckets,
        levels.data_ptr(),
        num_levels,
        total_.data_ptr(),
        n,
        bucket_size,
        accumulate,
        dither,
        k0,
        k1,
        torch.get_num_threads(),
    )
    if damaged:
        raise ValueError(f"a code beyond {num_levels} levels: the codes are damaged")
    if total_ is not total:
        total.copy_(total_)


def hadamard_(vector: Float32[Tensor, " n"], block: int, k0: int, k1: int, inverse: bool) -> None:
    """``ops.hadamard_``; ValueError for another type than float32 and for a block that is no power of two."""
    _check_tensor(vector, "a vector", torch.float32)
    if block < 1 or block & (block - 1):
        raise ValueError(f"block={block}: must be a power of two")
    rotated = _in_place(vector)
    _function("nuq_hadamard")(rotated.data_ptr(), rotated.numel(), min(block, 1 << 62), k0, k1, inverse, torch.get_num_threads())
    if rotated is not vector:
        vector.copy_(rotated)


def leading_bits(num_coordinates: int, k0: int, k1: int, count: int) -> UInt8[Tensor, " n"]:
    """``ops.leading_bits``."""
    bits = torch.empty(num_coordinates, dtype=torch.uint8)
    _function("nuq_leading_bits")(num_coordinates, k0, k1, count, bits.data_ptr(), torch.get_num_threads())
    return bits


def bucket_dots(a: Float32[Tensor, " n"], b: Float32[Tensor, " n"], bucket_size: int) -> Float64[Tensor, " buckets"]:
    """``ops.bucket_dots``."""
    n = a.numel()
    _check_tensor(a, "a vector", torch.float32)
    _check_tensor(b, "a vector", torch.float32, n)
    a, b = a.contiguous(), b.contiguous()
    sums = torch.empty(num_buckets(n, bucket_size), dtype=torch.float64)
    _function("nuq_bucket_dots")(a.data_ptr(), b.data_ptr(), n, min(bucket_size, max(n, 1)), sums.data_ptr(), torch.get_num_threads())
    return sums
