"""Device code that the kernels share: the hash, the search among the levels, sums and maxima in a fixed order."""

# What Triton compiles is not Python to a type checker.
# pyright: reportGeneralTypeIssues=false, reportAttributeAccessIssue=false, reportOperatorIssue=false, reportCallIssue=false
# pyright: reportArgumentType=false, reportAssignmentType=false, reportIndexIssue=false, reportReturnType=false

from __future__ import annotations

import triton
import triton.language as tl

from nuq.ops import QUANTILE_FACTOR, SMALLEST_NORM

SMALLEST = tl.constexpr(SMALLEST_NORM)
FACTOR = tl.constexpr(QUANTILE_FACTOR)


@triton.jit
def hash_bits(c, k0, k1):
    """Step 6's h: uint32 for coordinates c (uint32) under the two words of the key (any 32-bit integers)."""
    x = c ^ k0.to(tl.uint32, bitcast=True)
    x ^= x >> 16
    x *= 0x7FEB352D
    x ^= x >> 15
    x ^= k1.to(tl.uint32, bitcast=True)
    x *= 0x846CA68B
    x ^= x >> 16
    return x


@triton.jit
def halve(s, ROWS: tl.constexpr, SIZE: tl.constexpr):
    """Step 2's tree over the last dimension: [ROWS, SIZE] -> [ROWS], s[i] += s[i + h] for h = SIZE / 2 .. 1."""
    for step in tl.static_range(SIZE.bit_length() - 1):
        s = tl.sum(tl.reshape(s, (ROWS, 2, SIZE >> (step + 1))), axis=1)  # two terms: one addition, whatever the order
    return tl.reshape(s, (ROWS,))


@triton.jit
def block_sums(x, R: tl.constexpr, BLOCKS: tl.constexpr, K: tl.constexpr):
    """float64[BLOCKS] sums of squares of x float32[R, BLOCKS, K], coordinate r * K + k of each block, by the tree."""
    wide = x.to(tl.float64)
    s = wide * wide
    for step in tl.static_range(R.bit_length() - 1):
        s = tl.sum(tl.reshape(s, (2, R >> (step + 1), BLOCKS, K)), axis=0)
    return halve(tl.reshape(s, (BLOCKS, K)), BLOCKS, K)


@triton.jit
def magnitudes(x):
    """Bits of |x| as int32: they are ordered as the magnitudes are, and a NaN lies above infinity, so a maximum keeps it."""
    return x.to(tl.int32, bitcast=True) & 0x7FFFFFFF


@triton.jit
def inverse(scale):
    """1 / scale, 0 for a zero bucket."""
    some = scale > 0
    return tl.where(some, tl.div_rn(1.0, tl.where(some, scale, 1.0)), 0.0)


@triton.jit
def pick(table, index, COUNT: tl.constexpr):
    """table[index] for a table in registers [S] and an index tensor of COUNT elements and any shape."""
    return tl.reshape(tl.gather(table, tl.reshape(index, (COUNT,)), 0), index.shape)


@triton.jit
def interval(r, levels, L: tl.constexpr, COUNT: tl.constexpr):
    """Step 4's k: how many interior levels are <= r, int32 of r's shape."""
    k = tl.zeros(r.shape, tl.int32)
    if L <= 16:
        for i in tl.static_range(1, L - 1):
            k += (r >= tl.load(levels + i)).to(tl.int32)
    else:
        # Binary search in a table whose unused end is infinite: k is the last place whose level is <= r (place 0 always is).
        BITS: tl.constexpr = (L - 2).bit_length()
        place = tl.arange(0, 1 << BITS)
        table = tl.load(levels + place, mask=place < L - 1, other=float("inf"))
        for step in tl.static_range(BITS):
            middle = k + (1 << (BITS - 1 - step))
            k = tl.where(r >= pick(table, middle, COUNT), middle, k)
    return k
