r"""The specification of the bits of encode and decode: keys, constants, and the checks of arguments.

Three implementations produce the same bytes from the same input and key: plain PyTorch (``nuq.kernels.reference``: any
device), C++ (``nuq/native``: CPU, where a compiler built it) and Triton (``nuq/kernels/cuda``: GPU).  ``torch.ops.nuq``
chooses by device.

1. The input (float32, bfloat16 or float16) is widened to float32 and cut into buckets; the last one may be shorter.
2. Scale of a bucket, float32.  A scale below ``2^-126`` counts as zero (the bucket decodes to zeros); one that is not
   finite is an error.  With ``s`` the float64 sum of squares by halving (zero-pad the bucket to ``P = 2^k``, cut it
   into blocks of ``min(P, 1024)``, within each block ``s[i] += s[i + h]`` for ``h = half the block .. 1``, then the
   same over the blocks' sums):

   - l2: ``float32(sqrt(s))``;
   - linf: the largest ``|x|``;
   - rms: ``max(linf, multiple * float32(sqrt(s / length)))``;
   - quantile: two numbers.  ``q`` = the smallest of the lanes' maxima, lane ``j`` being the ``|x_i|`` with
     ``i = j mod lanes``, ``lanes = 2^floor(log2(min(bucket_size, n) / 32))`` within 1 .. 64 (lanes without a coordinate
     are left out), or linf where that is below ``2^-126``: about the 94 to 97 % quantile, at the price of a maximum.
     The scale is ``64 q``, which few coordinates reach; the second number, ``top = linf``, takes the place of the
     outermost level times the scale, so nothing is clipped.  Both are zero where linf is below ``2^-126``.

3. ``inv = 1 / scale`` once per bucket (0 for a zero bucket); ``r = clamp(x * inv, -t, t)`` with ``t = 1``, under
   quantile ``t = top * inv`` (1 for a zero bucket).
4. Levels ``l_0 .. l_{L-1}``, under quantile the ends replaced by ``-t`` and ``t`` (interior levels may lie beyond them
   and are then not used): ``k`` = number of interior levels ``<= r``; ``q = (r - l_k) * w_k`` with
   ``w_k = 1 / (l_{k+1} - l_k)``; ``code = k + (u < q)``; without stochastic rounding ``code = k``, the interior levels
   then being thresholds.  Each arithmetic step is one IEEE rounding to float32.
5. Uniform levels (l2, linf, rms) have integer arithmetic of their own: ``F = min(24, 30 - b)`` for ``b`` bits a code,
   ``H = (L - 1) 2^(F-1)``, ``code = (int32(r * float32(H)) + H + (h >> (32 - F))) >> F``, the conversion rounding
   towards zero.
6. ``u = (h >> 8) * 2^-24`` with ``h`` the 32-bit hash of the coordinate's index ``c`` under the key ``(k0, k1)``::

       x = c ^ k0;  x ^= x >> 16;  x *= 0x7feb352d;  x ^= x >> 15;  x ^= k1;  x *= 0x846ca68b;  x ^= x >> 16

   so a coordinate's random number depends on (seed, step, worker, parameter, index) and, but for what follows, on
   nothing else.

   Correlated rounding: the ``M`` workers whose mean is wanted have ``k0`` and ``k1`` in common, and each has a place
   ``i = 0 .. M - 1`` of its own.  ``A = ceil(M / 2)`` places are even and ``B = floor(M / 2)`` odd.  With
   ``j = floor(i / 2)`` the last product above becomes::

       x = 0x846ca68b p x + floor(2^32 j / A)               in an even place, p = 1 (of an odd M: B)
       x = 2^32 - 1 - (0x846ca68b p x + floor(2^32 j / B))  in an odd one, p = 1 (of an odd M: A)

   Places are drawn at every step, so that no two workers, whose gradients may be larger than the others', are always
   neighbours: a worker's is the rank of ``r_j = mixed(mixed(k0, k1), j)`` among all ``j = 0 .. M - 1``, where j is its
   number, ``mixed(x, y)`` the hash of ``x ^ y`` under the key (0, 0), and ``(k0, k1)`` the words before the
   parameter is mixed into them.

   Each ``h_i`` by itself is as uniform as ``h``, to ``M 2^-32``, so each worker stays unbiased whoever else takes part.
   Together, with ``z`` for what they have in common, the ``u`` are ``frac(p z + j / A)`` in even places and
   ``1 - frac(q z + j / B)`` in odd ones, and ``A p = B q``; all to ``2^-16``, which the last step of the hash changes.
   So their sum does not depend on ``z``: what one worker rounds up, another rounds down.  And one of them lies in each
   of ``M`` equal intervals (Suresh et al., ICML 2022, whose workers draw their numbers within them independently):
   where a number of an even place passes the border ``m / M`` upwards, ``A p z = A m / M`` modulo 1, which is
   ``-B m / M`` as well, one of an odd place passes it downwards.  Receivers need not know of it.  No pair of workers
   errs alike on average over steps, but at a single coordinate the mean's variance may be up to 6 % above that of
   workers by themselves (a search over places within intervals, M up to 8).  A rotation is common to the workers too,
   or their coordinates would not be the same ones; what is clipped of a rotated vector they then clip alike.
7. Codes are packed as ``nuq.kernels.bit_packing`` says.
8. Decoding: ``scale * l_code``, one rounding; under quantile the two ends decode to ``-top`` and ``top``.  With
   subtractive dither (uniform levels), ``scale * (l_code - (v - 0.5) * d)``, ``v = (h >> (32 - F)) * 2^-F`` the number
   that rounded the coordinate and ``d = float32(2 / (L - 1))``: the error is uniform within half a step and independent
   of the coordinate (Roberts, 1962).  Added to the total with one more rounding.
9. Hadamard rotation, in place: blocks of ``block = 2^k`` coordinates, what is left in blocks of its binary digits,
   largest first.  Signs flip where the top bit of ``h`` is set, then ``(a, b) <- (a + b, a - b)`` at distance
   ``1, 2, 4 .. block / 2``, then times ``float32(1 / sqrt(block))``.  The inverse does the same and flips the signs
   last.

Unbiased: ``E[decoded] = x`` for every level set that reaches from -1 to 1.  Level sets without zero turn an exact zero
into one of the two smallest levels at random; its expectation is zero.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nuq.errors import NonFiniteError
from nuq.kernels import bit_packing

NORMS = ("l2", "linf", "rms", "quantile")
SMALLEST_NORM = 2.0**-126
QUANTILE_FACTOR = 64.0
MAX_COORDINATES = 1 << 31
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
_MASK = _EVERYONE = 0xFFFFFFFF  # the latter in place of a worker


@dataclass(frozen=True)
class Key:
    """The key of one vector: all that its random numbers depend on.

    workers: how many round together, this one among them, and may do so in a correlated way; 0: it is by itself.
    piece_of: dimensions of the parameter that a vector is a flat piece of (2 where it is of several); 0: its own are
    those that count.  It is for methods that treat vectors and matrices differently; no random number depends on it.
    """

    seed: int
    step: int
    worker: int
    parameter: str = ""
    piece_of: int = 0
    workers: int = 0

    def of(self, parameter: str) -> Key:
        """The key of one vector of this name; a purpose that is already there becomes a prefix."""
        return replace(self, parameter=f"{self.parameter}/{parameter}" if self.parameter else parameter)

    def words(self) -> Words:
        """Two 32-bit words mixed from all parts: (k0, k1) of the specification."""
        return self._words

    @cached_property
    def _words(self) -> Words:
        checksum = zlib.crc32(self.parameter.encode())
        first, second = (_mixed(salt, checksum) for salt in self._salts)
        return first, second

    def together(self, correlated: bool = True) -> tuple[Key, Among]:
        """The key behind the random numbers that this worker rounds with, and its place among those who share them."""
        if not correlated or self.workers < 2:
            return self, ALONE
        check_among((self.worker, self.workers))
        shared = Key(self.seed, self.step, _EVERYONE, self.parameter, self.piece_of)
        return shared, (_places(self.workers, shared._salts)[self.worker], self.workers)

    @cached_property
    def _salts(self) -> Words:
        """What goes before the parameter into each of the two words."""
        first, second = 0x9E3779B9, 0x85EBCA6B
        try:
            parts = [part & _MASK for part in (self.seed, self.seed >> 32, self.step, self.worker)]
        except TypeError:
            given = f"seed={self.seed!r}, step={self.step!r}, worker={self.worker!r}"
            raise ValueError(f"{given}: must be integers, from which the random numbers are drawn") from None
        for part in parts:
            first, second = _mixed(first, part), _mixed(second, part)
        return first, second


Words = tuple[int, int]
Among = tuple[int, int]  # a place and the number of places: i and M of step 6
ALONE: Among = (0, 1)
ALWAYS_AT_RANDOM = "stochastic=False: takes thresholds; to equally spaced levels coordinates are rounded at random"
Noise = Sequence[int]  # the words and the place of a call: k0, k1, i and M of step 6
MOST_TOGETHER = 1 << 16
LAST_FACTOR = 0x846CA68B


def _mixed(x: Any, part: Any) -> Any:
    """A 32-bit word with another mixed into it; one of them may be an array of uint64."""
    x = x ^ part
    x = ((x ^ (x >> 16)) * 0x7FEB352D) & _MASK
    x = ((x ^ (x >> 15)) * LAST_FACTOR) & _MASK
    return x ^ (x >> 16)


def words_of_names(key: Key, names: Sequence[str], known: dict[str, NDArray[np.uint64]]) -> NDArray[np.uint32]:
    """The words of ``key.of(name)`` for every name, uint32[count, 2]; known: the names' checksums by prefix, kept."""
    if key.parameter not in known:
        found = [zlib.crc32(key.of(name).parameter.encode()) for name in names]
        known[key.parameter] = np.array(found, dtype=np.uint64)
    checksums = known[key.parameter]
    return np.stack([_mixed(salt, checksums) for salt in key._salts], axis=1).astype(np.uint32)


@lru_cache(maxsize=16)
def _places(workers: int, salts: Words) -> list[int]:
    """The places of the workers that round together, by number; without NumPy, whose calls would cost more."""
    start = _mixed(*salts)
    drawn = [_mixed(start, worker) for worker in range(workers)]
    found = [0] * workers
    for place, worker in enumerate(sorted(range(workers), key=drawn.__getitem__)):
        found[worker] = place
    return found


def words_of(key: Key | Words) -> Words:
    """The words (k0, k1) of a key, or as they came in a message."""
    return key.words() if isinstance(key, Key) else key


def check_among(among: Among) -> None:
    """Check a place among workers that round together: ValueError unless there is one, and they are not too many."""
    if not 0 <= among[0] < among[1] <= MOST_TOGETHER:
        rule = f"must be 0 or more and below the number of workers, which is at most {MOST_TOGETHER}"
        raise ValueError(f"worker {among[0]} of {among[1]}: {rule}")


def last_product(among: Among) -> Words:
    """The factor and the summand of the last product of step 6, for the worker in one of the places."""
    own, workers = among
    if workers == 1:
        return LAST_FACTOR, 0
    alike = (workers + 1 - own % 2) // 2  # workers in even places, or in odd ones
    factor, summand = LAST_FACTOR * (workers - alike if workers % 2 else 1), (own // 2 << 32) // alike
    return (-factor & _MASK, ~summand & _MASK) if own % 2 else (factor & _MASK, summand)


def rotation_words(words: Words) -> Words:
    """The words behind a rotation's signs, mixed from those behind the rounding, all that a receiver has."""
    return Key(words[0], words[1], 0, "rotation").words()


def signed(word: int) -> int:
    """A 32-bit word as the int32 of the same bits."""
    return word - (1 << 32) if word >= 1 << 31 else word


def num_buckets(num_coordinates: int, bucket_size: int) -> int:
    """The number of buckets: ceil(num_coordinates / bucket_size)."""
    return -(-num_coordinates // bucket_size)


def scales_per_bucket(norm: str) -> int:
    """The number of float32 numbers that travel per bucket: 2 under quantile, else 1."""
    return 2 if norm == "quantile" else 1


def check_num_coordinates(count: int) -> None:
    """Check a number of coordinates: ValueError for more than one vector holds."""
    if count > MAX_COORDINATES:
        raise ValueError(f"num_coordinates={count}: one vector holds at most 2^31 coordinates; cut it into several")


def check_bucket_size(bucket_size: int) -> None:
    """Check a bucket size: ValueError unless it is an integer of at least 1."""
    if not isinstance(bucket_size, int | np.integer):
        raise ValueError(f"bucket_size={bucket_size!r}: must be of type int")
    if bucket_size < 1:
        raise ValueError(f"bucket_size={bucket_size}: must be at least 1")


def check_block(block: int) -> None:
    """Check a block: ValueError unless step 9 covers it."""
    if block < 1 or block & (block - 1):
        raise ValueError(f"block={block}: must be a power of two")


def check_input(vector: Tensor, bucket_size: int, norm: str) -> None:
    """Check a vector, its bucket size and its norm: ValueError unless the specification covers them."""
    if norm not in NORMS:
        raise ValueError(f"norm={norm!r}: must be one of {', '.join(NORMS)}")
    if vector.dtype not in DTYPES:
        raise ValueError(f"a vector of {vector.dtype}: must be one of {', '.join(map(str, DTYPES))}")
    if vector.dim() != 1:
        raise ValueError(f"a tensor of shape {tuple(vector.shape)}: must be flat")
    check_num_coordinates(vector.numel())
    check_bucket_size(bucket_size)


def check_scales(scales: Tensor, norm: str) -> None:
    """Check scales: NonFiniteError where one is infinite or not a number."""
    finite = torch.isfinite(scales)
    if not bool(finite.all()):
        bad = int((~finite).nonzero()[0])
        found = f"the {norm} norm of bucket {bad // scales_per_bucket(norm)} is {float(scales[bad])}"
        raise NonFiniteError(f"{found}: the gradient is not finite or overflows float32")


def lanes(bucket_size: int, num_coordinates: int) -> int:
    """The number of lanes of step 2 under quantile."""
    size = min(bucket_size, num_coordinates)
    return min(max(1 << int(math.log2(max(size // 32, 1))), 1), 64)


def hadamard_blocks(num_coordinates: int, block: int) -> list[tuple[int, int]]:
    """The (start, size) of step 9's blocks after the last whole one: the binary digits of the rest."""
    start, rest = num_coordinates // block * block, num_coordinates % block
    blocks = []
    while rest:
        size = 1 << (rest.bit_length() - 1)
        blocks.append((start, size))
        start, rest = start + size, rest - size
    return blocks


# --- what the kernels take for granted: a wrong size or type would read or write beside the tensors -----------------


def check_tensor(tensor: Tensor, what: str, device: torch.device, dtype: torch.dtype, size: int | None = None) -> None:
    """Check a tensor: ValueError unless it is on that device, of that type and (where given) of that many elements."""
    if tensor.device != device:
        raise ValueError(f"{what} on {tensor.device}: must be on {device}")
    if tensor.dtype != dtype:
        raise ValueError(f"{what} of {tensor.dtype}: must be {dtype}")
    if size is not None and tensor.numel() != size:
        raise ValueError(f"{what} of {tensor.numel()} elements: must have {size}")


def check_encode(
    vector: Tensor,
    num_levels: int,
    scales: Tensor,
    packed: Tensor | None,
    bucket_size: int,
    norm: str,
    packing: int,
    stochastic: bool,
    given: bool,
) -> None:
    """Check the arguments of encode: ValueError for a size, type, device or packing that does not fit.

    packed: None where only the scales are wanted.  given: whether levels are.
    """
    check_input(vector, bucket_size, norm)
    if not stochastic and not given:
        raise ValueError(ALWAYS_AT_RANDOM)
    n, device = vector.numel(), vector.device
    check_tensor(scales, "scales", device, torch.float32, num_buckets(n, bucket_size) * scales_per_bucket(norm))
    if packed is not None:
        bit_packing.code_bits(num_levels)
        bit_packing.check_packing(packing, num_levels if stochastic else num_levels - 1)  # thresholds: one code fewer
        check_tensor(packed, "packed codes", device, torch.uint8, bit_packing.packed_bytes(n, packing))


def check_decode(total: Tensor, packed: Tensor, scales: Tensor, levels: Tensor, bucket_size: int, packing: int) -> None:
    """Check the arguments of decode: ValueError for a size, type, device or packing that does not fit."""
    check_bucket_size(bucket_size)
    bit_packing.code_bits(levels.numel())
    bit_packing.check_packing(packing)
    n, device = total.numel(), total.device
    for tensor, what in ((total, "a total"), (levels, "levels"), (scales, "scales")):
        check_tensor(tensor, what, device, torch.float32)
    check_tensor(packed, "packed codes", device, torch.uint8)
    bit_packing.check_size(packed, n, packing)
    buckets = num_buckets(n, bucket_size)
    if scales.numel() not in (buckets, 2 * buckets):
        raise ValueError(f"{scales.numel()} scales: {buckets} buckets have {buckets}, or twice as many under quantile")
