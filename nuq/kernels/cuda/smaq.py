"""Device code of ``nuq.kernels.smaq``: one program takes a block of 4096 coordinates, or measures several."""

# What Triton compiles is not Python to a type checker.
# pyright: reportGeneralTypeIssues=false, reportAttributeAccessIssue=false
# pyright: reportOperatorIssue=false, reportCallIssue=false
# pyright: reportArgumentType=false, reportAssignmentType=false, reportIndexIssue=false, reportReturnType=false

from __future__ import annotations

import triton
import triton.language as tl

from nuq.kernels import smaq_reference
from nuq.kernels.cuda.pieces import halve, hash_bits, packed_words

BLOCK = tl.constexpr(smaq_reference.BLOCK)
GROUPS = tl.constexpr(smaq_reference.BLOCK // 8)
ROOM = tl.constexpr(smaq_reference.BLOCK // 8 + 2 * smaq_reference.BLOCK)  # bytes of a block in code_kernel's room


@triton.jit
def _lengths(n, num_codes, MASKED: tl.constexpr):
    """The block of this program: its first coordinate (int64), its coordinates, and those of them that have codes."""
    block = tl.program_id(0).to(tl.int64)
    length = tl.minimum(n.to(tl.int64) - block * BLOCK, BLOCK).to(tl.int32)
    count = length
    if MASKED:
        count = tl.load(num_codes + block).to(tl.int32) & 0xFFFF
    return block * BLOCK, length, count


# --- measure -------------------------------------------------------------------------------------------------------


@triton.jit(do_not_specialize=["n", "stride"])
def measure_kernel(vector, pivot, found, n, stride, BLOCKS: tl.constexpr, LANES: tl.constexpr):
    """The kernel of step 1, for BLOCKS blocks, into float64[5, stride].

    The rows are the sum, squares, number of zeros, lowest and -highest of every block.
    """
    block = tl.program_id(0).to(tl.int64) * BLOCKS + tl.arange(0, BLOCKS)
    first = block[:, None] * BLOCK + tl.arange(0, LANES)[None, :]
    sums = tl.zeros((BLOCKS, LANES), tl.float64)
    squares = sums
    nonzeros = tl.zeros((BLOCKS, LANES), tl.int32)
    lowest = tl.full((BLOCKS, LANES), float("inf"), tl.float32)
    highest = -lowest
    for step in tl.range(0, BLOCK // LANES, loop_unroll_factor=8):  # eight loads are on their way at once
        at = first + step * LANES
        x = tl.load(vector + at, mask=at < n, other=0.0).to(tl.float32)
        nonzero = x != 0
        wide = tl.where(nonzero, x.to(tl.float64) - pivot, 0.0)
        sums += wide
        squares += wide * wide
        nonzeros += nonzero.to(tl.int32)
        lowest = tl.where(nonzero, tl.minimum(lowest, x), lowest)
        highest = tl.where(nonzero, tl.maximum(highest, x), highest)
    lengths = tl.minimum(n - block * BLOCK, BLOCK)
    to, some = found + block, lengths > 0
    tl.store(to, halve(sums, BLOCKS, LANES), mask=some)
    tl.store(to + stride, halve(squares, BLOCKS, LANES), mask=some)
    tl.store(to + 2 * stride, (lengths - tl.sum(nonzeros, axis=1)).to(tl.float64), mask=some)
    tl.store(to + 3 * stride, tl.min(lowest, axis=1).to(tl.float64), mask=some)
    tl.store(to + 4 * stride, -tl.max(highest, axis=1).to(tl.float64), mask=some)


# --- encode --------------------------------------------------------------------------------------------------------


@triton.jit(do_not_specialize=["n", "k0", "k1", "last_factor", "last_summand", "turned"])
def code_kernel(
    vector,
    num_codes,
    outliers,
    room,
    n,
    factor,
    mean,
    inverse,
    threshold,
    small_slope,
    large_slope,
    small_most,
    large_most,
    k0,
    k1,
    last_factor,
    last_summand,
    turned,  # the bits of h that are turned round where z is negative
    MASKED: tl.constexpr,
    CONSTANT: tl.constexpr,
    LOW_BITS: tl.constexpr,
    EXTRA_BITS: tl.constexpr,
    STOCHASTIC: tl.constexpr,
):
    """The kernel of steps 3 and 4 into ROOM bytes.

    They hold the mask, a byte for every code (low part, the class above), one for every outlier's other bits.
    """
    pid = tl.program_id(0).to(tl.int64)
    start = pid * BLOCK
    left = tl.minimum(n.to(tl.int64) - start, BLOCK).to(tl.int32)
    j = tl.arange(0, BLOCK)
    if left == BLOCK:
        x = tl.load(vector + start + j)  # without a mask, so that neighbours are loaded together
    else:
        x = tl.load(vector + start + j, mask=j < left, other=0.0)
    x = x.to(tl.float32)
    z = (x * factor - mean) * inverse
    size = tl.abs(z)
    beyond = size > threshold
    kept = x != 0 if MASKED else j < left
    outside = kept & (beyond if not CONSTANT else False)
    # Both numbers in one word: one scan counts codes and outliers.
    flags = kept.to(tl.int32) | (outside.to(tl.int32) << 16)
    both = tl.sum(flags, axis=0)
    tl.store(num_codes + pid, (both & 0xFFFF).to(tl.int16))
    tl.store(outliers + pid, (both >> 16).to(tl.int16))
    to = room + pid * ROOM
    if MASKED:
        words = packed_words(tl.reshape(kept.to(tl.uint32), (1, 1, BLOCK)), 1, 8)
        tl.store(to + tl.arange(0, GROUPS), tl.reshape(words, (GROUPS,)).to(tl.uint8))
    if not CONSTANT:
        ends = tl.cumsum(flags, axis=0)
        place = (ends & 0xFFFF) - 1 if MASKED else j
        signs = z.to(tl.int32, bitcast=True) >> 31  # of -0 too
        if STOCHASTIC:
            h = hash_bits(start, place, k0, k1, True, last_factor, last_summand)
            noise = ((h ^ (signs & turned).to(tl.uint32, bitcast=True)) >> 8).to(tl.int32)
        else:
            noise = 1 << 23
        large = tl.minimum((size - threshold) * large_slope, large_most)
        q = tl.where(beyond, large, tl.minimum(size * small_slope, small_most))
        k = ((q * 16777216.0).to(tl.int32) + noise) >> 24
        SIZE_BITS: tl.constexpr = LOW_BITS - 1
        code = (k & ((1 << SIZE_BITS) - 1)) | (signs & (1 << SIZE_BITS)) | (beyond.to(tl.int32) << 7)
        if MASKED:
            tl.store(to + GROUPS + place, code.to(tl.uint8), mask=kept)
        else:
            tl.store(to + GROUPS + j, code.to(tl.uint8))
        if EXTRA_BITS:
            tl.store(to + GROUPS + BLOCK + (ends >> 16) - 1, (k >> SIZE_BITS).to(tl.uint8), mask=outside)


@triton.jit
def _pack(codes, count, to, SHIFT: tl.constexpr, BITS: tl.constexpr):
    """Pack BITS bits of each of ``count`` bytes, from bit SHIFT on, one after another to ``to``; returns the end."""
    group = tl.arange(0, GROUPS)
    j = group[:, None] * 8 + tl.arange(0, 8)[None, :]
    code = tl.load(codes + j, mask=(group * 8 < count)[:, None], other=0).to(tl.uint32)
    code = tl.where(j < count, (code >> SHIFT) & ((1 << BITS) - 1), 0)
    words = tl.reshape(packed_words(tl.reshape(code, (1, 1, BLOCK)), BITS, 8), (GROUPS,))
    num_bytes = (count * BITS + 7) >> 3
    for byte in tl.static_range(BITS):
        at = group * BITS + byte
        tl.store(to + at, (words >> (8 * byte)).to(tl.uint8), mask=at < num_bytes)
    return to + num_bytes


@triton.jit(do_not_specialize=["n"])
def join_kernel(
    room,
    num_codes,
    outliers,
    starts,
    to,
    n,
    MASKED: tl.constexpr,
    CONSTANT: tl.constexpr,
    LOW_BITS: tl.constexpr,
    EXTRA_BITS: tl.constexpr,
):
    """The kernel of step 5: copy what code_kernel left of every block to its place in the message."""
    start, length, count = _lengths(n, num_codes, MASKED)
    block = start // BLOCK
    room += block * ROOM
    to += tl.load(starts + block)
    if MASKED:
        byte = tl.arange(0, GROUPS)
        num_bytes = (length + 7) >> 3
        tl.store(to + byte, tl.load(room + byte), mask=byte < num_bytes)
        to += num_bytes
    if not CONSTANT:
        to = _pack(room + GROUPS, count, to, 7, 1)
        to = _pack(room + GROUPS, count, to, 0, LOW_BITS)
        if EXTRA_BITS:
            _pack(room + GROUPS + BLOCK, tl.load(outliers + block).to(tl.int32), to, 0, EXTRA_BITS)


# --- decode --------------------------------------------------------------------------------------------------------


@triton.jit
def _bits_set(bitmap, num_bytes):
    byte = tl.arange(0, GROUPS)
    bits = tl.load(bitmap + byte, mask=byte < num_bytes, other=0).to(tl.int32)
    return tl.sum(tl.sum((bits[:, None] >> tl.arange(0, 8)[None, :]) & 1, axis=1), axis=0)


@triton.jit(do_not_specialize=["n"])
def check_kernel(data, starts, num_codes, outliers, damaged, n, MASKED: tl.constexpr, CONSTANT: tl.constexpr):
    """The kernel that sets ``damaged`` to 1 where a bitmap holds another number than it should.

    Nothing is read where it is 1 already.
    """
    start, length, count = _lengths(n, num_codes, MASKED)
    block = start // BLOCK
    if tl.load(damaged) == 0:
        at = data + tl.load(starts + block)
        if MASKED:
            num_bytes = (length + 7) >> 3
            tl.store(damaged, 1, mask=_bits_set(at, num_bytes) != count)
            at += num_bytes
        if not CONSTANT:
            long = tl.load(outliers + block).to(tl.int32) & 0xFFFF
            tl.store(damaged, 1, mask=_bits_set(at, (count + 7) >> 3) != long)


@triton.jit
def _bits_at(section, place, valid, BITS: tl.constexpr):
    """The numbers of BITS bits at some indices of a section: int32, 0 where not valid.

    Reads no byte that holds none of their bits.
    """
    bit = place * BITS
    at = section + (bit >> 3)
    word = tl.load(at, mask=valid, other=0).to(tl.int32)
    if 8 % BITS != 0:
        word |= tl.load(at + 1, mask=valid & ((bit & 7) + BITS > 8), other=0).to(tl.int32) << 8
    return (word >> (bit & 7)) & ((1 << BITS) - 1)


@triton.jit(do_not_specialize=["n"])
def decode_kernel(
    data,
    starts,
    num_codes,
    table,
    total,
    damaged,
    n,
    MASKED: tl.constexpr,
    CONSTANT: tl.constexpr,
    LOW_BITS: tl.constexpr,
    EXTRA_BITS: tl.constexpr,
    ACCUMULATE: tl.constexpr,
):
    """The kernel of step 6, unless ``damaged``.

    Every coordinate finds its code by counting the coordinates before it that have one.
    """
    start, length, count = _lengths(n, num_codes, MASKED)
    if tl.load(damaged) == 0:
        at = data + tl.load(starts + start // BLOCK)
        j = tl.arange(0, BLOCK)
        kept = j < length
        place = j
        if MASKED:
            bits = _bits_at(at, j, kept, 1)
            kept = bits > 0
            place = tl.cumsum(bits, axis=0) - 1
            at += (length + 7) >> 3
        if CONSTANT:
            values = tl.where(kept, tl.load(table), 0.0)
        else:
            outside = _bits_at(at, place, kept, 1)
            at += (count + 7) >> 3
            code = _bits_at(at, place, kept, LOW_BITS) | (outside << 7)
            if EXTRA_BITS:
                at += (count * LOW_BITS + 7) >> 3
                code |= _bits_at(at, tl.cumsum(outside, axis=0) - 1, outside > 0, EXTRA_BITS) << LOW_BITS
            values = tl.load(table + code, mask=kept, other=0.0)
        to = total + start + j
        if length == BLOCK:
            tl.store(to, tl.load(to) + values if ACCUMULATE else values)
        else:
            inside = j < length
            tl.store(to, tl.load(to, mask=inside, other=0.0) + values if ACCUMULATE else values, mask=inside)
