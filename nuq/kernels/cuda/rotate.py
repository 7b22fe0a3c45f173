"""Device code of the Hadamard rotation, in place."""

# What Triton compiles is not Python to a type checker.
# pyright: reportGeneralTypeIssues=false, reportAttributeAccessIssue=false
# pyright: reportOperatorIssue=false, reportCallIssue=false
# pyright: reportArgumentType=false, reportAssignmentType=false, reportIndexIssue=false, reportReturnType=false

from __future__ import annotations

import triton
import triton.language as tl

from nuq.kernels.cuda.pieces import hash_bits


@triton.jit
def _flip(x, start, i, k0, k1, ALIGNED: tl.constexpr):
    """Flip the sign of x where the top bit of the coordinate's h is set."""
    sign = hash_bits(start, i, k0, k1, ALIGNED) & 0x80000000
    return (x.to(tl.uint32, bitcast=True) ^ sign).to(tl.float32, bitcast=True)


@triton.jit
def _within(x, D: tl.constexpr, SIZE: tl.constexpr):
    """The butterfly (a, b) <- (a + b, a - b) at distance D of x float32[SIZE], for pairs in one thread.

    A - b as the sum of a and -b.
    """
    pairs = tl.reshape(x, (SIZE // (2 * D), 2, D))
    second = tl.arange(0, 2)[None, :, None] == 1
    plus = tl.sum(pairs, axis=1)[:, None, :]
    minus = tl.sum(tl.where(second, -pairs, pairs), axis=1)[:, None, :]
    return tl.reshape(tl.where(second, minus, plus), x.shape)


@triton.jit
def _across(x, D: tl.constexpr, LANES: tl.constexpr):
    """The butterfly (a, b) <- (a + b, a - b) between rows D apart of x [A, LANES, B, C].

    The partner comes from another thread of the warp.
    """
    lane = tl.arange(0, LANES)[None, :, None, None]
    partner = tl.gather(x, tl.broadcast_to(lane ^ D, x.shape), 1)
    return partner + tl.where((lane & D) != 0, -x, x)


@triton.jit
def _tail_factors(size_bits, BITS: tl.constexpr):
    """The factor of the tail block that a coordinate is in: float32(1 / sqrt(2^floor(log2(size_bits))))."""
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
    FLIP_FIRST: tl.constexpr,
    FLIP_LAST: tl.constexpr,
    TAIL: tl.constexpr,
    R: tl.constexpr,
    NB: tl.constexpr,
    LANES: tl.constexpr,
    J: tl.constexpr,
):
    """The kernel that rotates blocks of BLOCK coordinates.

    TAIL: what follows the last whole block, in blocks of its binary digits.

    A tile is [NB, LANES, R, J]: J neighbours, and R of them a row of LANES * J coordinates apart, lie in one thread's
    registers; LANES threads of a warp hold a row; so a warp holds a block of up to 1024, NB of which a program takes.
    A tail has R = 1 and is spread over warps.
    """
    SIZE: tl.constexpr = R * NB * LANES * J
    ROW: tl.constexpr = LANES * J
    # In this order of dimensions, neighbouring threads load neighbours.
    i = tl.arange(0, R)[:, None, None, None] * ROW + tl.arange(0, NB)[None, :, None, None] * (R * ROW)
    i = i + tl.arange(0, LANES)[None, None, :, None] * J + tl.arange(0, J)[None, None, None, :]
    start = n // BLOCK * BLOCK if TAIL else tl.program_id(0).to(tl.int64) * SIZE
    to = vector + start + i
    left = n - start if TAIL else n // BLOCK * BLOCK - start
    whole = left >= SIZE
    if whole:
        x = tl.load(to)
    else:
        x = tl.load(to, mask=i < left, other=0.0)
    if FLIP_FIRST:
        x = _flip(x, start, i, k0, k1, True)
    # The block of a tail's coordinate is the highest digit in which its place differs from the tail's length.
    size = (i ^ left.to(tl.int32)) if TAIL else i
    x = tl.permute(x, (1, 2, 0, 3))
    for step in tl.static_range(BLOCK.bit_length() - 1):
        if (1 << step) < J:
            turned = _within(x, 1 << step, SIZE)
        elif (1 << step) < ROW:
            turned = _across(x, (1 << step) // J, LANES)
        elif (1 << step) < ROW * R:
            turned = _within(x, (1 << step) // LANES, SIZE)
        else:
            turned = _within(x, 1 << step, SIZE)  # in another warp, in fact
        x = tl.where(tl.permute((size >> (step + 1)) > 0, (1, 2, 0, 3)), turned, x) if TAIL else turned
    x = tl.permute(x, (2, 0, 1, 3))
    x = x * (_tail_factors(size, BLOCK.bit_length() - 1) if TAIL else factor)
    if FLIP_LAST:
        x = _flip(x, start, i, k0, k1, True)
    if whole:
        tl.store(to, x)
    else:
        tl.store(to, x, mask=i < left)


@triton.jit(do_not_specialize=["k0", "k1"])
def outer_kernel(
    vector, start, k0, k1, factor, D: tl.constexpr, RADIX: tl.constexpr, COLUMNS: tl.constexpr, FLIP_LAST: tl.constexpr
):
    """The kernel that rotates blocks too large for one program, from coordinate ``start`` on.

    It takes the distances D, 2 D .. RADIX / 2 * D, then multiplies by factor.
    """
    pid = tl.program_id(0)
    PARTS: tl.constexpr = D // COLUMNS
    first = start + (pid // PARTS).to(tl.int64) * (RADIX * D) + (pid % PARTS) * COLUMNS
    indices = tl.arange(0, RADIX)[:, None].to(tl.int64) * D + tl.arange(0, COLUMNS)[None, :]
    x = tl.load(vector + first + indices)
    for step in tl.static_range(RADIX.bit_length() - 1):
        x = _within(x, COLUMNS << step, RADIX * COLUMNS)
    x = x * factor
    if FLIP_LAST:
        x = _flip(x, first, indices, k0, k1, False)
    tl.store(vector + first + indices, x)
