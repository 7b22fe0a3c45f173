r"""Quantize and dequantize: the plain PyTorch reference, and the specification of its bits.

Every implementation (this one, C++, Triton) produces the same bytes from the same input and key:

1. The input is widened to float32 and cut into buckets; the last one may be shorter.
2. Norm of a bucket.  L2: ``float32(sqrt(s))`` with ``s`` the float64 sum of squares by halving: zero-pad the bucket to
   ``P = 2^k``, then ``s[i] += s[i + h]`` for ``h = P/2 .. 1``.  Linf: the largest ``|x|``.  A norm below ``2^-126``
   counts as zero (the whole bucket decodes to zeros); a norm that is not finite is an error.
3. ``inv = 1 / norm`` once per bucket; ``r = clamp(x * inv, -1, 1)``.
4. ``k`` = number of interior levels ``<= r``; ``q = (r - l_k) * w_k`` with ``w_k = float32(1 / (l_{k+1} - l_k))``;
   ``code = k + (u < q)``.  Each arithmetic step is one IEEE rounding to float32.
5. ``u = (h >> 8) * 2^-24`` with ``h`` the 32-bit hash of the coordinate's index ``c`` under the key ``(k0, k1)``::

       x = c ^ k0;  x ^= x >> 16;  x *= 0x7feb352d;  x ^= x >> 15;  x ^= k1;  x *= 0x846ca68b;  x ^= x >> 16

   so a coordinate's random number depends on (seed, step, worker, parameter, index) and on nothing else.
6. Decoding: ``norm * l_code``, one rounding.

Unbiased: ``E[decoded] = x`` for every level set that reaches from -1 to 1.  Level sets without zero turn an exact zero
into one of the two smallest levels at random; its expectation is zero.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Float32, Float64, Int32, UInt8
from torch import Tensor

NORMS = ("l2", "linf")
SMALLEST_NORM = 2.0**-126
_MASK = 0xFFFFFFFF


class NonFiniteError(ArithmeticError):
    """A loss, gradient or bucket norm that is infinite or not a number."""


@dataclass(frozen=True)
class Key:
    """What the random numbers of one vector depend on."""

    seed: int
    step: int
    worker: int
    parameter: str = ""

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


def _signed(word: int) -> int:
    """A 32-bit word as the int32 of the same bits."""
    return word - (1 << 32) if word >= 1 << 31 else word


def _shift(x: Tensor, count: int) -> Tensor:
    """Logical right shift of int32."""
    return (x >> count) & ((1 << (32 - count)) - 1)


def hash_bits(num_coordinates: int, key: Key, device: torch.device | None = None) -> Int32[Tensor, " n"]:
    """Step 5's ``h`` for coordinates 0 .. num_coordinates-1: int32[num_coordinates] holding 32 random bits each."""
    if num_coordinates > 1 << 31:
        raise ValueError(f"num_coordinates={num_coordinates}: one vector holds at most 2^31 coordinates; cut it into several")
    k0, k1 = key.words()
    x = torch.arange(num_coordinates, dtype=torch.int32, device=device) ^ _signed(k0)
    x ^= _shift(x, 16)
    x *= 0x7FEB352D
    x ^= _shift(x, 15)
    x ^= _signed(k1)
    x *= _signed(0x846CA68B)
    x ^= _shift(x, 16)
    return x


def uniforms(num_coordinates: int, key: Key, device: torch.device | None = None) -> Float32[Tensor, " n"]:
    """Uniform random numbers in [0, 1) on a grid of 2^-24: float32[num_coordinates]."""
    return _shift(hash_bits(num_coordinates, key, device), 8).to(torch.float32) * 2.0**-24


def num_buckets(num_coordinates: int, bucket_size: int) -> int:
    """ceil(num_coordinates / bucket_size)"""
    return -(-num_coordinates // bucket_size)


def bucketed(vector: Float[Tensor, " n"], bucket_size: int) -> Float32[Tensor, "buckets size"]:
    """The vector as float32[num_buckets, bucket_size], the last bucket padded with zeros."""
    bucket_size = min(bucket_size, max(vector.numel(), 1))
    count = num_buckets(vector.numel(), bucket_size)
    padded = torch.nn.functional.pad(vector.to(torch.float32), (0, count * bucket_size - vector.numel()))
    return padded.view(count, bucket_size)


def tree_sum(values: Float64[Tensor, "rows n"]) -> Float64[Tensor, " rows"]:
    """Sum over the last dimension by halving: float64[rows, n] -> float64[rows]."""
    size = 1 << max(values.shape[-1] - 1, 0).bit_length()
    values = torch.nn.functional.pad(values, (0, size - values.shape[-1]))
    while size > 1:
        size //= 2
        values = values[:, :size] + values[:, size:]
    return values[:, 0]


def bucket_norms(buckets: Float32[Tensor, "buckets size"], norm: str) -> Float32[Tensor, " buckets"]:
    """Norm of every bucket: float32[num_buckets]; NonFiniteError where one is infinite or not a number."""
    if norm not in NORMS:
        raise ValueError(f"norm={norm!r}: must be one of {', '.join(NORMS)}")
    if norm == "l2":
        norms = tree_sum(buckets.to(torch.float64).square()).sqrt().to(torch.float32)
    else:
        norms = buckets.abs().amax(dim=1) if buckets.numel() else buckets.new_zeros(buckets.shape[0])
    if not bool(torch.isfinite(norms).all()):
        bad = int((~torch.isfinite(norms)).nonzero()[0])
        raise NonFiniteError(f"the {norm} norm of bucket {bad} is {float(norms[bad])}: the gradient is not finite or overflows float32")
    return torch.where(norms < SMALLEST_NORM, torch.zeros_like(norms), norms)


def normalized(buckets: Float32[Tensor, "buckets size"], norms: Float32[Tensor, " buckets"]) -> Float32[Tensor, "buckets size"]:
    """Step 3: coordinates divided by their bucket's norm, clamped to [-1, 1]; zeros where the norm is zero."""
    inverse = torch.where(norms > 0, 1.0 / norms, torch.zeros_like(norms))
    return (buckets * inverse[:, None]).clamp(-1.0, 1.0)


def quantize(
    vector: Float[Tensor, " n"], levels: Float32[Tensor, " L"], bucket_size: int, norm: str, key: Key
) -> tuple[UInt8[Tensor, " n"], Float32[Tensor, " buckets"]]:
    """Stochastic rounding of every normalised coordinate to a neighbouring level.

    vector: any float dtype, [n]; levels: float32[L], increasing from -1 to 1, L <= 256.
    Returns codes uint8[n] and norms float32[ceil(n / bucket_size)].
    """
    buckets = bucketed(vector, bucket_size)
    norms = bucket_norms(buckets, norm)
    r = normalized(buckets, norms).reshape(-1)[: vector.numel()]
    k = torch.bucketize(r, levels[1:-1], right=True, out_int32=True)
    q = (r - levels[k]) * (1.0 / (levels[1:] - levels[:-1]))[k]
    codes = k + (uniforms(vector.numel(), key, vector.device) < q)
    return codes.to(torch.uint8), norms


def dequantize(
    codes: UInt8[Tensor, " n"], norms: Float32[Tensor, " buckets"], levels: Float32[Tensor, " L"], bucket_size: int
) -> Float32[Tensor, " n"]:
    """norm * level for every code: uint8[n], float32[num_buckets], float32[L] -> float32[n]."""
    values = levels[codes.to(torch.int64)]
    repeats = min(bucket_size, max(codes.numel(), 1))  # a bucket may be larger than the vector
    return values * norms.repeat_interleave(repeats)[: codes.numel()]
