"""Device code that the kernels share: hash, search among levels, sums and maxima in a fixed order, packed words."""

# What Triton compiles is not Python to a type checker.
# pyright: reportGeneralTypeIssues=false, reportAttributeAccessIssue=false
# pyright: reportOperatorIssue=false, reportCallIssue=false, reportOptionalMemberAccess=false
# pyright: reportArgumentType=false, reportAssignmentType=false, reportIndexIssue=false, reportReturnType=false

from __future__ import annotations

import triton
import triton.language as tl

from nuq.kernels.spec import QUANTILE_FACTOR, SMALLEST_NORM

SMALLEST = tl.constexpr(SMALLEST_NORM)
FACTOR = tl.constexpr(QUANTILE_FACTOR)


@triton.jit
def hash_bits(start, indices, k0, k1, ALIGNED: tl.constexpr, factor=None, summand=None):
    """The h of step 6 for the coordinates ``start + indices``: uint32, under the key's two words (32-bit integers).

    factor, summand: of the last product of workers that round together (32-bit integers).

    ALIGNED: start is a multiple of a power of two that is at most 2^16 and above every place.  Then the upper half of
    the index is the same for the whole tile, and the first two steps of the hash need one instruction per coordinate
    instead of four.
    """
    first = k0.to(tl.uint32, bitcast=True)
    start = start.to(tl.uint32)
    if ALIGNED:
        once = start ^ first
        x = indices.to(tl.uint32) ^ (once ^ (once >> 16))
    else:
        x = (start + indices.to(tl.uint32)) ^ first
        x ^= x >> 16
    x *= 0x7FEB352D
    x ^= x >> 15
    x ^= k1.to(tl.uint32, bitcast=True)
    if factor is None:
        x *= 0x846CA68B
    else:
        x = x * factor.to(tl.uint32, bitcast=True) + summand.to(tl.uint32, bitcast=True)
    x ^= x >> 16
    return x


@triton.jit
def halve(s, ROWS: tl.constexpr, SIZE: tl.constexpr):
    """The tree of step 2 over the last dimension: [ROWS, SIZE] -> [ROWS], s[i] += s[i + h] for h = SIZE / 2 .. 1."""
    for step in tl.static_range(SIZE.bit_length() - 1):
        s = tl.sum(tl.reshape(s, (ROWS, 2, SIZE >> (step + 1))), axis=1)  # two terms: one addition, whatever the order
    return tl.reshape(s, (ROWS,))


@triton.jit
def block_sums(x, R: tl.constexpr, BLOCKS: tl.constexpr, K: tl.constexpr):
    """The sums of squares of x float32[1, R * BLOCKS, K] by the tree: float64[BLOCKS].

    x holds coordinate r * K + k of each block.
    """
    wide = x.to(tl.float64)
    s = wide * wide
    for step in tl.static_range(R.bit_length() - 1):
        s = tl.sum(tl.reshape(s, (2, (R >> (step + 1)) * BLOCKS, K)), axis=0)
    return halve(tl.reshape(s, (BLOCKS, K)), BLOCKS, K)


@triton.jit
def magnitudes(x):
    """The bits of |x| as int32, which are ordered as the magnitudes are.

    A NaN lies above infinity, so a maximum keeps it.
    """
    return x.to(tl.int32, bitcast=True) & 0x7FFFFFFF


@triton.jit
def inverse(scale):
    """The inverse 1 / scale, or 0 for a zero bucket."""
    some = scale > 0
    return tl.where(some, tl.div_rn(1.0, tl.where(some, scale, 1.0)), 0.0)


@triton.jit
def pick(table, index, COUNT: tl.constexpr):
    """Look up table[index] for a table in registers [S] and an index tensor of COUNT elements and any shape."""
    return tl.reshape(tl.gather(table, tl.reshape(index, (COUNT,)), 0), index.shape)


@triton.jit
def pick_pair(first, second, index, COUNT: tl.constexpr):
    """Look up (first[index], second[index]) in two float32 tables, by one 64-bit look-up."""
    low = first.to(tl.uint32, bitcast=True).to(tl.uint64)
    high = second.to(tl.uint32, bitcast=True).to(tl.uint64)
    both = pick(low | (high << 32), index, COUNT)
    return both.to(tl.uint32).to(tl.float32, bitcast=True), (both >> 32).to(tl.uint32).to(tl.float32, bitcast=True)


@triton.jit
def _threshold(levels, PLACE: tl.constexpr, L: tl.constexpr):
    """The level PLACE as a threshold, or infinity where it is not an interior level."""
    if PLACE < L - 1:
        level = tl.load(levels + PLACE)
    else:
        level = float("inf")
    return level


@triton.jit
def interval(r, levels, L: tl.constexpr, COUNT: tl.constexpr):
    """The k of step 4: the number of interior levels <= r, int32 of r's shape.

    Binary search for the last place whose level is <= r among 0 (always <= r), the interior levels and infinities up to
    a power of two.  The first two probes are among three numbers and come from registers, the others are looked up.
    """
    BITS: tl.constexpr = (L - 2).bit_length()
    k = tl.zeros(r.shape, tl.int32)
    if BITS >= 1:
        above = r >= _threshold(levels, 1 << (BITS - 1), L)
        k = tl.where(above, 1 << (BITS - 1), 0)
        if BITS >= 2:
            QUARTER: tl.constexpr = 1 << (BITS - 2)
            probe = tl.where(above, _threshold(levels, 3 * QUARTER, L), _threshold(levels, QUARTER, L))
            k = tl.where(r >= probe, k + QUARTER, k)
        if BITS >= 3:
            place = tl.arange(0, 1 << BITS)
            table = tl.load(levels + place, mask=place < L - 1, other=float("inf"))
            for step in tl.static_range(2, BITS):
                middle = k + (1 << (BITS - 1 - step))
                k = tl.where(r >= pick(table, middle, COUNT), middle, k)
    return k


@triton.jit
def packed_words(codes, BITS: tl.constexpr, UNIT: tl.constexpr):
    """Pack UNIT codes each, [A, B, K] -> [A, B, K / UNIT], into one word of UNIT * BITS bits: uint32 or uint64.

    UNIT: 4 for 8 bits, else 8.
    """
    A: tl.constexpr = codes.shape[0]
    B: tl.constexpr = codes.shape[1]
    K: tl.constexpr = codes.shape[2]
    # Four neighbours are in one thread: their shifts are constants.
    words = tl.sum(
        tl.reshape(codes, (A, B, K // 4, 4)) << (tl.arange(0, 4)[None, None, None, :] * BITS).to(tl.uint32), axis=3
    )
    if UNIT == 8:
        halves = tl.reshape(words, (A, B, K // 8, 2))
        half = tl.arange(0, 2)[None, None, None, :]
        if BITS <= 4:
            words = tl.sum(halves << (half * (4 * BITS)).to(tl.uint32), axis=3)
        else:
            words = tl.sum(halves.to(tl.uint64) << (half * (4 * BITS)).to(tl.uint64), axis=3)
    return words


@triton.jit
def word_of_four(words, number: tl.constexpr, BITS: tl.constexpr):
    """The 32-bit word ``number`` < BITS of every four units of ``packed_words``: [A, B, C] -> uint32[A, B, C / 4]."""
    fours = tl.reshape(words, (words.shape[0], words.shape[1], words.shape[2] // 4, 4))
    shift = tl.arange(0, 4)[None, None, None, :] * (8 * BITS) - 32 * number
    LONGEST: tl.constexpr = 31 if BITS <= 4 else 63
    left = fours << tl.minimum(tl.maximum(shift, 0), 31).to(words.dtype)
    right = fours >> tl.minimum(tl.maximum(-shift, 0), LONGEST).to(words.dtype)
    part = tl.where(shift >= 32, 0, tl.where(shift >= 0, left, right))
    return tl.sum(part.to(tl.uint32), axis=3)  # no two share a bit
