"""The operators of ``nuq.kernels.operators`` on CPU tensors in C++, with the bits of ``nuq.kernels.reference``.

The sources are ``src/quantize.cpp`` and ``src/hadamard.cpp``.  Every size is checked before an address goes to C++.
Tensors that are not contiguous are copied.  Threads: ``torch.get_num_threads()``; their number changes no bit.  Where
an encoder raises NonFiniteError, scales and packed hold nothing of use; where ``decode_`` raises, the total is as it
was.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Float32, Float64, UInt8
from torch import Tensor

from nuq import native
from nuq.kernels.spec import (
    ALONE,
    DTYPES,
    NORMS,
    Noise,
    check_among,
    check_block,
    check_decode,
    check_encode,
    check_input,
    check_scales,
    check_tensor,
    lanes,
    num_buckets,
    scales_per_bucket,
)
from nuq.native import FLOAT, INT, LONG, POINTER, WORD, Signature, functions

_CPU = torch.device("cpu")
_VECTOR, _OUTPUTS = (POINTER, INT, LONG, LONG, INT, INT, FLOAT), (POINTER, POINTER, INT)
_SIGNATURES: dict[str, Signature] = {
    "nuq_encode": ([*_VECTOR, *_OUTPUTS, *(POINTER, INT, INT), *[WORD] * 4, INT], LONG),
    "nuq_decode": ([*(POINTER, INT) * 3, *(POINTER, LONG, LONG), INT, INT, WORD, WORD, INT], INT),
    "nuq_bucket_dots": ([POINTER, POINTER, LONG, LONG, POINTER, INT], None),
    "nuq_leading_bits": ([LONG, WORD, WORD, INT, POINTER, INT], None),
    "nuq_hadamard": ([POINTER, LONG, LONG, WORD, WORD, INT, INT], None),
}
_function = functions(_SIGNATURES)


def in_cpp(tensor: Tensor, *, contiguous: bool = False) -> bool:
    """Whether work on this tensor runs in C++: on the CPU, where the library is; contiguous: if it is that, too."""
    return tensor.device.type == "cpu" and (tensor.is_contiguous() or not contiguous) and native.library() is not None


def encode_(
    vector: Float[Tensor, " n"],
    levels: Float32[Tensor, " L"] | None,
    num_levels: int,
    scales: Float32[Tensor, " scales"],
    packed: UInt8[Tensor, " bytes"] | None,
    bucket_size: int,
    norm: str,
    multiple: float,
    packing: int,
    noise: Noise,
    stochastic: bool,
) -> None:
    """The operator ``ops.encode_``; without ``packed`` step 2 alone.

    ValueError for a size, type or packing that does not fit, NonFiniteError for a scale that is not finite.
    """
    if levels is not None:
        check_tensor(levels, "levels", _CPU, torch.float32, num_levels)
        levels = levels.contiguous()
    check_tensor(vector, "a vector", _CPU, vector.dtype)
    check_encode(vector, num_levels, scales, packed, bucket_size, norm, packing, stochastic, levels is not None)
    k0, k1, own, workers = noise
    check_among((own, workers))
    n = vector.numel()
    # the tensors themselves, or contiguous copies that are copied back
    vector, scales_, packed_ = vector.contiguous(), scales.contiguous(), None if packed is None else packed.contiguous()
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
        own,
        workers,
        torch.get_num_threads(),
    )
    if bad >= 0:
        check_scales(scales_, norm)
    if scales_ is not scales:
        scales.copy_(scales_)
    if packed is not None and packed_ is not None and packed_ is not packed:
        packed.copy_(packed_)


def bucket_scales(
    vector: Float[Tensor, " n"], bucket_size: int, norm: str, multiple: float = 0.0
) -> Float32[Tensor, " scales"]:
    """The operator ``ops.bucket_scales``: step 2 alone; errors as ``encode_``."""
    check_input(vector, bucket_size, norm)
    scales = torch.empty(
        num_buckets(vector.numel(), bucket_size) * scales_per_bucket(norm), dtype=torch.float32, device="cpu"
    )
    encode_(vector, None, 2, scales, None, bucket_size, norm, multiple, 1, (0, 0, *ALONE), True)
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
    """The operator ``ops.decode_``; ValueError, before anything is written, for what does not fit or is no level's."""
    check_tensor(total, "a total", _CPU, torch.float32)
    check_decode(total, packed, scales, levels, bucket_size, packing)
    n, num_levels = total.numel(), levels.numel()
    packed, scales, levels, total_ = packed.contiguous(), scales.contiguous(), levels.contiguous(), total.contiguous()
    damaged = _function("nuq_decode")(
        packed.data_ptr(),
        packing,
        scales.data_ptr(),
        scales.numel() != num_buckets(n, bucket_size),
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
    """The operator ``ops.hadamard_``; ValueError for another type than float32, or a block that is no power of two."""
    check_tensor(vector, "a vector", _CPU, torch.float32)
    check_block(block)
    rotated = vector.contiguous()
    _function("nuq_hadamard")(
        rotated.data_ptr(), rotated.numel(), min(block, 1 << 62), k0, k1, inverse, torch.get_num_threads()
    )
    if rotated is not vector:
        vector.copy_(rotated)


def leading_bits(num_coordinates: int, k0: int, k1: int, count: int) -> UInt8[Tensor, " n"]:
    """The operator ``ops.leading_bits``."""
    bits = torch.empty(num_coordinates, dtype=torch.uint8, device="cpu")
    _function("nuq_leading_bits")(num_coordinates, k0, k1, count, bits.data_ptr(), torch.get_num_threads())
    return bits


def bucket_dots(a: Float32[Tensor, " n"], b: Float32[Tensor, " n"], bucket_size: int) -> Float64[Tensor, " buckets"]:
    """The operator ``ops.bucket_dots``."""
    n = a.numel()
    check_tensor(a, "a vector", _CPU, torch.float32)
    check_tensor(b, "a vector", _CPU, torch.float32, n)
    a, b = a.contiguous(), b.contiguous()
    sums = torch.empty(num_buckets(n, bucket_size), dtype=torch.float64, device="cpu")
    _function("nuq_bucket_dots")(
        a.data_ptr(), b.data_ptr(), n, min(bucket_size, max(n, 1)), sums.data_ptr(), torch.get_num_threads()
    )
    return sums
