"""Device code of the Hadamard rotation, in place."""

# What Triton compiles is not Python to a type checker.
# pyright: reportGeneralTypeIssues=false, reportAttributeAccessIssue=false, reportOperatorIssue=false, reportCallIssue=false
# pyright: reportArgumentType=false, reportAssignmentType=false, reportIndexIssue=false, reportReturnType=false

from __future__ import annotations

import triton
import triton.language as tl

from nuq.cuda.pieces import hash_bits


@triton.jit
def _flip(x, start, i, k0, k1):
    """-x where the top bit of the coordinate's h is set."""
    sign = hash_bits(start, i, k0, k1, True) & 0x80000000
    return (x.to(tl.uint32, bitcast=True) ^ sign).to(tl.float32, bitcast=True)


@triton.jit
def _butterfly(x, D: tl.constexpr, SIZE: tl.constexpr):
    """(a, b) <- (a + b, a - b) at distance D of x float32[SIZE]; a - b as the sum of a and -b, which is the same number."""
    pairs = tl.reshape(x, (SIZE // (2 * D), 2, D))
    second = tl.arange(0, 2)[None, :, None] == 1
    plus = tl.sum(pairs, axis=1)[:, None, :]
    minus = tl.sum(tl.where(second, -pairs, pairs), axis=1)[:, None, :]
    return tl.reshape(tl.where(second, minus, plus), (SIZE,))


@triton.jit
def _tail_factors(size_bits, BITS: tl.constexpr):
    """float32(1 / sqrt(2^floor(log2(size_bits)))), the factor of the tail block that a coordinate is in."""
    factor = tl.full(size_bits.shape, 1.0, tl.float32)
    for bit in tl.static_range(BITS):
        factor = tl.where((size_bits >> bit) == 1, (2.0**-0.5) ** (bit % 2) * 0.5 ** (bit // 2), factor)
    return factor


@triton.jit(do_not_specialize=["n", "k0", "k1"])
def hadamard_kernel(
    vector,
    n,
    k0,
    k1,
    factor,
    BLOCK: tl.constexpr,
    SIZE: tl.constexpr,
    FLIP_FIRST: tl.constexpr,
    FLIP_LAST: tl.constexpr,
    TAIL: tl.constexpr,
):
    """Blocks of BLOCK within SIZE coordinates.  TAIL: what follows the last whole block, in blocks of its binary digits."""
    i = tl.arange(0, SIZE)
    start = n // BLOCK * BLOCK if TAIL else tl.program_id(0).to(tl.int64) * SIZE
    to = vector + start + i
    left = n - start if TAIL else n // BLOCK * BLOCK - start
    whole = left >= SIZE
    if whole:
        x = tl.load(to)
    else:
        x = tl.load(to, mask=i < left, other=0.0)
    if FLIP_FIRST:
        x = _flip(x, start, i, k0, k1)
    # The block of a tail's coordinate is the highest digit in which its place differs from the tail's length.
    size = (i ^ left.to(tl.int32)) if TAIL else i
    for step in tl.static_range(BLOCK.bit_length() - 1):
        turned = _butterfly(x, 1 << step, SIZE)
        x = tl.where((size >> (step + 1)) > 0, turned, x) if TAIL else turned
    x = x * (_tail_factors(size, BLOCK.bit_length() - 1) if TAIL else factor)
    if FLIP_LAST:
        x = _flip(x, start, i, k0, k1)
    if whole:
        tl.store(to, x)
    else:
        tl.store(to, x, mask=i < left)
