r"""Encode and decode: the operators, and the specification of their bits.

Three implementations produce the same bytes from the same input and key: plain PyTorch (``nuq.kernels.reference``: any device), C++
(``nuq/native``: CPU, where a compiler built it) and Triton (``nuq/kernels/cuda``: GPU).  ``torch.ops.nuq`` chooses by device.

1. The input (float32, bfloat16 or float16) is widened to float32 and cut into buckets; the last one may be shorter.
2. Scale of a bucket, float32.  A scale below ``2^-126`` counts as zero (the bucket decodes to zeros); one that is not finite is an
   error.  With ``s`` the float64 sum of squares by halving (zero-pad the bucket to ``P = 2^k``, cut it into blocks of
   ``min(P, 1024)``, within each block ``s[i] += s[i + h]`` for ``h = half the block .. 1``, then the same over the blocks' sums):

   - l2: ``float32(sqrt(s))``;
   - linf: the largest ``|x|``;
   - rms: ``max(linf, multiple * float32(sqrt(s / length)))``;
   - quantile: two numbers.  ``q`` = the smallest of the lanes' maxima, lane ``j`` being the ``|x_i|`` with ``i = j mod lanes``,
     ``lanes = 2^floor(log2(min(bucket_size, n) / 32))`` within 1 .. 64 (lanes without a coordinate are left out), or linf where
     that is below ``2^-126``: about the 94 to 97 % quantile, at the price of a maximum.  The scale is ``64 q``, which few coordinates
     reach; the second number, ``top = linf``, takes the place of the outermost level times the scale, so nothing is clipped.  Both
     are zero where linf is below ``2^-126``.

3. ``inv = 1 / scale`` once per bucket (0 for a zero bucket); ``r = clamp(x * inv, -t, t)`` with ``t = 1``, under quantile
   ``t = top * inv`` (1 for a zero bucket).
4. Levels ``l_0 .. l_{L-1}``, under quantile the ends replaced by ``-t`` and ``t`` (interior levels may lie beyond them and are then
   not used): ``k`` = number of interior levels ``<= r``;
   ``q = (r - l_k) * w_k`` with ``w_k = 1 / (l_{k+1} - l_k)``; ``code = k + (u < q)``; without stochastic rounding ``code = k``, the
   interior levels then being thresholds.  Each arithmetic step is one IEEE rounding to float32.
5. Uniform levels (l2, linf, rms) have integer arithmetic of their own: ``F = min(24, 30 - b)`` for ``b`` bits a code,
   ``H = (L - 1) 2^(F-1)``, ``code = (int32(r * float32(H)) + H + (h >> (32 - F))) >> F``, the conversion rounding towards zero.
6. ``u = (h >> 8) * 2^-24`` with ``h`` the 32-bit hash of the coordinate's index ``c`` under the key ``(k0, k1)``::

       x = c ^ k0;  x ^= x >> 16;  x *= 0x7feb352d;  x ^= x >> 15;  x ^= k1;  x *= 0x846ca68b;  x ^= x >> 16

   so a coordinate's random number depends on (seed, step, worker, parameter, index) and on nothing else.
7. Codes are packed as ``nuq.kernels.bit_packing`` says.
8. Decoding: ``scale * l_code``, one rounding; under quantile the two ends decode to ``-top`` and ``top``.  With subtractive dither
   (uniform levels), ``scale * (l_code - (v - 0.5) * d)``, ``v = (h >> (32 - F)) * 2^-F`` the number that rounded the coordinate and
   ``d = float32(2 / (L - 1))``: the error is uniform within half a step and independent of the coordinate (Roberts, 1962).
   Added to the total with one more rounding.
9. Hadamard rotation, in place: blocks of ``block = 2^k`` coordinates, what is left in blocks of its binary digits, largest first.
   Signs flip where the top bit of ``h`` is set, then ``(a, b) <- (a + b, a - b)`` at distance ``1, 2, 4 .. block / 2``, then times
   ``float32(1 / sqrt(block))``.  The inverse does the same and flips the signs last.

Unbiased: ``E[decoded] = x`` for every level set that reaches from -1 to 1.  Level sets without zero turn an exact zero
into one of the two smallest levels at random; its expectation is zero.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import torch
from torch import Tensor

NORMS = ("l2", "linf", "rms", "quantile")
SMALLEST_NORM = 2.0**-126
QUANTILE_FACTOR = 64.0
MAX_COORDINATES = 1 << 31
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
_MASK = 0xFFFFFFFF


class NonFiniteError(ArithmeticError):
    """A loss, gradient or bucket norm that is infinite or not a number."""


@dataclass(frozen=True)
class Key:
    """What the random numbers of one vector depend on.

    piece_of: dimensions of the parameter that a vector is a flat piece of (2 where it is of several); 0: its own are those that count.
    For methods that treat vectors and matrices differently; no random number depends on it.
    """

    seed: int
    step: int
    worker: int
    parameter: str = ""
    piece_of: int = 0

    def of(self, parameter: str) -> Key:
        """The key of one vector; a purpose that is already there becomes a prefix."""
        return replace(self, parameter=f"{self.parameter}/{parameter}" if self.parameter else parameter)

    def words(self) -> tuple[int, int]:
        """Two 32-bit words mixed from all parts: (k0, k1) of the specification."""
        words = []
        for salt in (0x9E3779B9, 0x85EBCA6B):
            x = salt
            for part in (self.seed, self.seed >> 32, self.step, self.worker, zlib.crc32(self.parameter.encode())):
                x ^= part & _MASK
                x = ((x ^ (x >> 16)) * 0x7FEB352D) & _MASK
                x = ((x ^ (x >> 15)) * 0x846CA68B) & _MASK
                x ^= x >> 16
            words.append(x)
        return words[0], words[1]


Words = tuple[int, int]


def words_of(key: Key | Words) -> Words:
    """(k0, k1) of a key, or as they came in a message."""
    return key.words() if isinstance(key, Key) else key


def rotation_words(words: Words) -> Words:
    """The words behind a rotation's signs, mixed once more from those behind the rounding: a receiver has only these."""
    return Key(words[0], words[1], 0, "rotation").words()


def num_buckets(num_coordinates: int, bucket_size: int) -> int:
    """ceil(num_coordinates / bucket_size)"""
    return -(-num_coordinates // bucket_size)


def scales_per_bucket(norm: str) -> int:
    """float32 numbers that travel per bucket: 2 under quantile, else 1."""
    return 2 if norm == "quantile" else 1


def check_bucket_size(bucket_size: int) -> None:
    """ValueError for a bucket without a coordinate."""
    if bucket_size < 1:
        raise ValueError(f"bucket_size={bucket_size}: must be at least 1")


def check_block(block: int) -> None:
    """ValueError unless step 9 covers the block."""
    if block < 1 or block & (block - 1):
        raise ValueError(f"block={block}: must be a power of two")


def check_input(vector: Tensor, bucket_size: int, norm: str) -> None:
    """ValueError unless the specification covers the vector, the bucket size and the norm."""
    if norm not in NORMS:
        raise ValueError(f"norm={norm!r}: must be one of {', '.join(NORMS)}")
    if vector.dtype not in DTYPES:
        raise ValueError(f"a vector of {vector.dtype}: must be one of {', '.join(map(str, DTYPES))}")
    if vector.dim() != 1:
        raise ValueError(f"a tensor of shape {tuple(vector.shape)}: must be flat")
    if vector.numel() > MAX_COORDINATES:
        raise ValueError(f"num_coordinates={vector.numel()}: one vector holds at most 2^31 coordinates; cut it into several")
    check_bucket_size(bucket_size)


def check_scales(scales: Tensor, norm: str) -> None:
    """NonFiniteError where a bucket's scale is infinite or not a number."""
    finite = torch.isfinite(scales)
    if not bool(finite.all()):
        bad = int((~finite).nonzero()[0])
        raise NonFiniteError(
            f"the {norm} norm of bucket {bad // scales_per_bucket(norm)} is {float(scales[bad])}: "
            "the gradient is not finite or overflows float32"
        )


# --- the operators: torch.ops.nuq ----------------------------------------------------------------------------------

_LIBRARY = torch.library.Library("nuq", "DEF")
SCHEMAS = {
    "encode_": "(Tensor vector, Tensor levels, Tensor(a!) scales, Tensor(b!) packed, int bucket_size, str norm, float multiple, "
    "int packing, int k0, int k1, bool stochastic) -> ()",
    "encode_uniform_": "(Tensor vector, int num_levels, Tensor(a!) scales, Tensor(b!) packed, int bucket_size, str norm, "
    "float multiple, int packing, int k0, int k1) -> ()",
    "decode_": "(Tensor packed, Tensor scales, Tensor levels, Tensor(a!) total, int bucket_size, int packing, bool accumulate, "
    "bool dither, int k0, int k1) -> ()",
    "hadamard_": "(Tensor(a!) vector, int block, int k0, int k1, bool inverse) -> ()",
}


@cache
def _cpu_kernels() -> Any:
    from nuq import native
    from nuq.kernels import cpu as kernels
    from nuq.kernels import reference

    return reference if native.library() is None else kernels


def _on_cpu(name: str) -> Callable[..., None]:
    """The C++ kernel where it is built, else the reference."""

    def kernel(*arguments: Any) -> None:
        getattr(_cpu_kernels(), name)(*arguments)

    return kernel


def _on_cuda(name: str) -> Callable[..., None]:
    def kernel(*arguments: Any) -> None:
        from nuq.kernels.cuda import kernels

        getattr(kernels, name)(*arguments)

    return kernel


def _nothing(*arguments: Any) -> None:
    """On tensors without data: the operators return nothing and change no shape."""
    del arguments


for _name, _schema in SCHEMAS.items():
    _LIBRARY.define(_name + _schema)
    _LIBRARY.impl(_name, _on_cpu(_name), "CPU")
    _LIBRARY.impl(_name, _on_cuda(_name), "CUDA")
    _LIBRARY.impl(_name, _nothing, "Meta")


# --- the operators with their arguments in words -------------------------------------------------------------------


def encode_(
    vector: Tensor,
    levels: Tensor,
    scales: Tensor,
    packed: Tensor,
    *,
    bucket_size: int,
    norm: str,
    packing: int,
    key: Key | Words,
    multiple: float = 0.0,
    stochastic: bool = True,
) -> None:
    """Steps 1 to 4, 6 and 7 into ``scales`` and ``packed``.

    vector: float32, bfloat16 or float16 [n], contiguous.  levels: float32[L], rising from -1 to 1, 2 <= L <= 512.
    scales: float32[ceil(n / bucket_size) * scales_per_bucket(norm)].  packed: uint8[coding.packed_bytes(n, packing)].
    multiple: of rms.  NonFiniteError for a scale that is not finite; ValueError for arguments outside the specification.
    """
    check_input(vector, bucket_size, norm)
    k0, k1 = words_of(key)
    torch.ops.nuq.encode_(vector, levels, scales, packed, bucket_size, norm, multiple, packing, k0, k1, stochastic)


def encode_uniform_(
    vector: Tensor,
    num_levels: int,
    scales: Tensor,
    packed: Tensor,
    *,
    bucket_size: int,
    norm: str,
    packing: int,
    key: Key | Words,
    multiple: float = 0.0,
) -> None:
    """Steps 1 to 3 and 5 to 7: as ``encode_`` for ``num_levels`` equally spaced levels; norm: l2, linf or rms."""
    check_input(vector, bucket_size, norm)
    if norm == "quantile":
        raise ValueError("norm='quantile': uniform levels take l2, linf or rms (under quantile the outer levels are not equally spaced)")
    k0, k1 = words_of(key)
    torch.ops.nuq.encode_uniform_(vector, num_levels, scales, packed, bucket_size, norm, multiple, packing, k0, k1)


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
    """Step 8 into ``total`` float32[n], or added to it.  dither: the encoder's key; ValueError for codes beyond the levels."""
    k0, k1 = words_of(dither) if dither else (0, 0)
    torch.ops.nuq.decode_(packed, scales, levels, total, bucket_size, packing, accumulate, dither is not None, k0, k1)


def hadamard_(vector: Tensor, block: int, key: Key | Words, *, inverse: bool = False) -> None:
    """Step 9 in place.  vector: float32[n], contiguous, any n; block: a power of two."""
    check_block(block)
    k0, k1 = words_of(key)
    torch.ops.nuq.hadamard_(vector, block, k0, k1, inverse)


def bucket_scales(vector: Tensor, bucket_size: int, norm: str, multiple: float = 0.0) -> Tensor:
    """Step 2 alone: float32[ceil(n / bucket_size) * scales_per_bucket(norm)]; errors as ``encode_``."""
    from nuq.kernels import reference

    check_input(vector, bucket_size, norm)
    return (_cpu_kernels() if vector.device.type == "cpu" else reference).bucket_scales(vector, bucket_size, norm, multiple)


def bucket_dots(a: Tensor, b: Tensor, bucket_size: int) -> Tensor:
    """Scalar product of every bucket, summed as in step 2: two float32[n] -> float64[ceil(n / bucket_size)]."""
    from nuq.kernels import reference

    return (_cpu_kernels() if a.device.type == "cpu" else reference).bucket_dots(a, b, bucket_size)


def leading_bits(num_coordinates: int, key: Key | Words, count: int) -> Tensor:
    """The first ``count`` (1 .. 8) bits of every coordinate's ``h`` (step 6): uint8[num_coordinates] on the CPU."""
    return _cpu_kernels().leading_bits(num_coordinates, *words_of(key), count)


def lanes(bucket_size: int, num_coordinates: int) -> int:
    """Step 2's number of lanes under quantile."""
    size = min(bucket_size, num_coordinates)
    return min(max(1 << int(math.log2(max(size // 32, 1))), 1), 64)


def hadamard_blocks(num_coordinates: int, block: int) -> list[tuple[int, int]]:
    """Step 9's (start, size) of the blocks after the last whole one: the binary digits of the rest."""
    start, rest = num_coordinates // block * block, num_coordinates % block
    blocks = []
    while rest:
        size = 1 << (rest.bit_length() - 1)
        blocks.append((start, size))
        start, rest = start + size, rest - size
    return blocks
