"""Device code of encode: norm, normalise, round, pack.  One program reads its part of the input once."""

# What Triton compiles is not Python to a type checker.
# pyright: reportGeneralTypeIssues=false, reportAttributeAccessIssue=false, reportOperatorIssue=false, reportCallIssue=false
# pyright: reportArgumentType=false, reportAssignmentType=false, reportIndexIssue=false, reportReturnType=false

from __future__ import annotations

import triton
import triton.language as tl

from nuq.cuda.pieces import FACTOR, SMALLEST, block_sums, halve, hash_bits, interval, inverse, magnitudes, pick


@triton.jit
def _places(n, BUCKET: tl.constexpr, ROWS: tl.constexpr, PIECES: tl.constexpr, R: tl.constexpr, NB: tl.constexpr, K: tl.constexpr):
    """The tile of this program.

    Returns its first coordinate (int64), the coordinates left from there (int32, enough for the tile), the coordinates of the tile
    relative to the first [R, ROWS * NB, K], whether each lies within its bucket, and within the vector too.
    """
    BLOCK: tl.constexpr = R * K
    pid = tl.program_id(0)
    piece = (pid % PIECES) * (NB * BLOCK)
    start = (pid // PIECES).to(tl.int64) * (ROWS * BUCKET) + piece
    left = tl.minimum(n.to(tl.int64) - start, ROWS * BUCKET).to(tl.int32)
    block = tl.arange(0, ROWS * NB)[None, :, None]
    within = (block % NB) * BLOCK + tl.arange(0, R)[:, None, None] * K + tl.arange(0, K)[None, None, :]
    places = (block // NB) * BUCKET + within
    inside = piece + within < BUCKET
    return start, left, places, inside, inside & (places < left)


@triton.jit
def _of_blocks(values, ROWS: tl.constexpr, NB: tl.constexpr):
    """One number per row -> one per block, as [1, ROWS * NB, 1]."""
    return tl.reshape(tl.broadcast_to(values[:, None], (ROWS, NB)), (1, ROWS * NB, 1))


@triton.jit
def _maxima(x, ROWS: tl.constexpr, R: tl.constexpr, NB: tl.constexpr, K: tl.constexpr, LANES: tl.constexpr):
    """Bits of the largest |x| of every lane: int32[ROWS, LANES]."""
    bits = tl.max(magnitudes(x), axis=0)
    bits = tl.max(tl.reshape(bits, (ROWS * NB, K // LANES, LANES)), axis=1)
    return tl.max(tl.reshape(bits, (ROWS, NB, LANES)), axis=1)


@triton.jit
def _scales(
    x,
    lengths,
    multiple,
    NORM: tl.constexpr,
    LANES: tl.constexpr,
    ROWS: tl.constexpr,
    R: tl.constexpr,
    NB: tl.constexpr,
    K: tl.constexpr,
):
    """Step 2: float32[ROWS] scales and tops (the same where the norm has none) of whole buckets."""
    if NORM == "l2":
        s = halve(tl.reshape(block_sums(x, R, ROWS * NB, K), (ROWS, NB)), ROWS, NB)
        scale = tl.sqrt(s).to(tl.float32)
        top = scale
    else:
        lanes = _maxima(x, ROWS, R, NB, K, LANES)
        largest = tl.max(lanes, axis=1).to(tl.float32, bitcast=True)
        if NORM == "quantile":
            # A lane without a coordinate counts as infinite.
            some = tl.arange(0, LANES)[None, :] < lengths[:, None]
            low = tl.min(tl.where(some, lanes, 0x7F800000), axis=1).to(tl.float32, bitcast=True)
            scale = FACTOR * tl.where(low < SMALLEST, largest, low)
            scale = tl.where(largest < SMALLEST, 0.0, scale)
            top = largest
        elif NORM == "rms":
            s = halve(tl.reshape(block_sums(x, R, ROWS * NB, K), (ROWS, NB)), ROWS, NB)
            rms = tl.sqrt(s / tl.maximum(lengths, 1).to(tl.float64)).to(tl.float32) * multiple
            scale = tl.where(largest >= rms, largest, rms)
            top = scale
        else:
            scale = largest
            top = scale
    return tl.where(scale < SMALLEST, 0.0, scale), tl.where(top < SMALLEST, 0.0, top)


@triton.jit
def _round(r, t, h, levels, L: tl.constexpr, COUNT: tl.constexpr, ENDS: tl.constexpr, STOCHASTIC: tl.constexpr):
    """Step 4: the codes of r, int32.  ENDS: the outermost levels are -t and t."""
    k = interval(r, levels, L, COUNT)
    if STOCHASTIC:
        place = tl.arange(0, triton.next_power_of_2(L))
        lower = tl.load(levels + place, mask=place < L - 1, other=-1.0)
        upper = tl.load(levels + place + 1, mask=place < L - 1, other=1.0)
        width = pick(tl.div_rn(1.0, upper - lower), k, COUNT)
        lower = pick(lower, k, COUNT)
        if ENDS:
            if L == 2:
                width = tl.broadcast_to(tl.div_rn(1.0, t + t), width.shape)
            else:
                width = tl.where(k == L - 2, tl.div_rn(1.0, t - tl.load(levels + L - 2)), width)
                width = tl.where(k == 0, tl.div_rn(1.0, tl.load(levels + 1) + t), width)
            lower = tl.where(k == 0, -t, lower)
        u = (h >> 8).to(tl.float32) * 5.9604644775390625e-08  # 2^-24
        k += (u < (r - lower) * width).to(tl.int32)
    return k


@triton.jit
def _round_uniform(r, h, L: tl.constexpr, F: tl.constexpr):
    """Step 5: the codes of r, int32."""
    HALF: tl.constexpr = (L - 1) << (F - 1)
    HALF_FLOAT: tl.constexpr = float((L - 1) << (F - 1))
    return ((r * HALF_FLOAT).to(tl.int32) + HALF + (h >> (32 - F)).to(tl.int32)) >> F


@triton.jit
def _words(codes, BITS: tl.constexpr):
    """Eight codes each, [A, B, K] -> [A, B, K // 8], as one word of 8 * BITS bits: uint32 or uint64."""
    SHAPE: tl.constexpr = (codes.shape[0], codes.shape[1], codes.shape[2] // 8, 8)
    j = tl.arange(0, 8)[None, None, None, :].to(tl.uint32)
    codes = tl.reshape(codes, SHAPE)
    if BITS <= 4:
        words = tl.sum(codes << (j * BITS), axis=3)
    else:
        # Four codes of up to 7 bits fill 28; the second four follow in the upper half of a wider word.
        zero = tl.zeros(SHAPE, tl.uint32)
        low = tl.sum(tl.where(j < 4, codes << ((j & 3) * BITS), zero), axis=3)
        high = tl.sum(tl.where(j >= 4, codes << ((j & 3) * BITS), zero), axis=3)
        words = low.to(tl.uint64) | (high.to(tl.uint64) << (4 * BITS))
    return words


@triton.jit(do_not_specialize=["n", "k0", "k1"])
def encode_kernel(
    vector,
    levels,
    scales,
    out,
    n,
    multiple,
    k0,
    k1,
    BUCKET: tl.constexpr,
    NORM: tl.constexpr,
    LANES: tl.constexpr,
    L: tl.constexpr,
    UNIFORM: tl.constexpr,
    F: tl.constexpr,
    STOCHASTIC: tl.constexpr,
    BITS: tl.constexpr,
    ALIGNED: tl.constexpr,
    GIVEN: tl.constexpr,
    ROWS: tl.constexpr,
    PIECES: tl.constexpr,
    R: tl.constexpr,
    NB: tl.constexpr,
    K: tl.constexpr,
):
    """Scales (unless GIVEN) and codes of a tile; BITS 1..7: packed, else one code to an element of ``out``."""
    COUNT: tl.constexpr = ROWS * R * NB * K
    start, left, places, inside, valid = _places(n, BUCKET, ROWS, PIECES, R, NB, K)
    EVEN: tl.constexpr = BUCKET % (R * NB * K) == 0
    full = (left >= ROWS * BUCKET) if PIECES == 1 else (left >= COUNT)
    if full:
        # Without a mask, so that four numbers (eight of 16 bits) are one load.
        if EVEN:
            x = tl.load(vector + start + places)
        else:
            x = tl.load(vector + start + places, mask=inside, other=0.0)
    else:
        x = tl.load(vector + start + places, mask=valid, other=0.0)
    x = x.to(tl.float32)

    row = (tl.program_id(0) // PIECES).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    lengths = tl.minimum(tl.maximum(left - tl.arange(0, ROWS) * BUCKET, 0), BUCKET)
    if GIVEN:
        if NORM == "quantile":
            scale = tl.load(scales + 2 * row, mask=lengths > 0, other=0.0)
            top = tl.load(scales + 2 * row + 1, mask=lengths > 0, other=0.0)
        else:
            scale = tl.load(scales + row, mask=lengths > 0, other=0.0)
            top = scale
    else:
        scale, top = _scales(x, lengths, multiple, NORM, LANES, ROWS, R, NB, K)
        if NORM == "quantile":
            tl.store(scales + 2 * row, scale, mask=lengths > 0)
            tl.store(scales + 2 * row + 1, top, mask=lengths > 0)
        else:
            tl.store(scales + row, scale, mask=lengths > 0)

    r = x * _of_blocks(inverse(scale), ROWS, NB)
    if NORM == "quantile":
        t = _of_blocks(tl.where(scale > 0, top * inverse(scale), 1.0), ROWS, NB)
    else:
        t = 1.0
    r = tl.minimum(tl.maximum(r, -t), t)
    h = hash_bits((start.to(tl.uint32) + places.to(tl.uint32)), k0, k1)
    if UNIFORM:
        codes = _round_uniform(r, h, L, F)
    else:
        codes = _round(r, t, h, levels, L, COUNT, NORM == "quantile", STOCHASTIC)

    if BITS == 0 or BITS > 7:
        codes = codes.to(out.dtype.element_ty)
        if full and EVEN:
            tl.store(out + start + places, codes)
        else:
            tl.store(out + start + places, codes, mask=valid)
    else:
        SHAPE: tl.constexpr = (1, ROWS * NB, 1)
        block = tl.reshape(tl.arange(0, ROWS * NB), SHAPE)
        within = (block % NB) * (R * K // 8) + tl.arange(0, R)[:, None, None] * (K // 8) + tl.arange(0, K // 8)[None, None, :]
        group = (block // NB) * (BUCKET // 8) + within
        first = out + start // 8 * BITS
        codes = codes.to(tl.uint32, bitcast=True)
        if full and EVEN:
            words = _words(codes, BITS)
            if ALIGNED and (BITS == 1 or BITS == 2 or BITS == 4):
                TYPE: tl.constexpr = tl.uint8 if BITS == 1 else (tl.uint16 if BITS == 2 else tl.uint32)
                tl.store(first.to(tl.pointer_type(TYPE)) + group, words.to(TYPE))
            else:
                for byte in tl.static_range(BITS):
                    tl.store(first + group * BITS + byte, (words >> (8 * byte)).to(tl.uint8))
        else:
            words = _words(tl.where(valid, codes, 0), BITS)
            # A byte counts where its first bit belongs to a coordinate of its bucket (the last byte of all is padded with zeros).
            if PIECES == 1:
                ends = _of_blocks(lengths, ROWS, NB)
            else:
                ends = tl.minimum(left, BUCKET - (tl.program_id(0) % PIECES) * (R * NB * K))
            for byte in tl.static_range(BITS):
                tl.store(first + group * BITS + byte, (words >> (8 * byte)).to(tl.uint8), mask=(within * BITS + byte) * 8 < ends * BITS)


@triton.jit(do_not_specialize=["n"])
def partial_kernel(
    vector,
    sums,
    maxima,
    n,
    BUCKET: tl.constexpr,
    LANES: tl.constexpr,
    SUMS: tl.constexpr,
    MAXIMA: tl.constexpr,
    BLOCKS: tl.constexpr,
    ROWS: tl.constexpr,
    PIECES: tl.constexpr,
    R: tl.constexpr,
    NB: tl.constexpr,
    K: tl.constexpr,
):
    """Of one piece of a large bucket: its blocks' sums of squares (float64[buckets, BLOCKS]), its lanes' maxima (int32, as bits)."""
    start, _, places, _, valid = _places(n, BUCKET, ROWS, PIECES, R, NB, K)
    x = tl.load(vector + start + places, mask=valid, other=0.0).to(tl.float32)
    pid = tl.program_id(0)
    if SUMS:
        to = sums + (pid // PIECES).to(tl.int64) * BLOCKS + (pid % PIECES) * NB
        tl.store(to + tl.arange(0, NB), block_sums(x, R, NB, K))
    if MAXIMA:
        lanes = tl.reshape(_maxima(x, ROWS, R, NB, K, LANES), (LANES,))
        tl.store(maxima + pid.to(tl.int64) * LANES + tl.arange(0, LANES), lanes)


@triton.jit(do_not_specialize=["n", "num_bytes"])
def pack_kernel(codes, out, n, num_bytes, PACKING: tl.constexpr, SIZE: tl.constexpr):
    """One byte of packed codes per element, any packing and any position: for shapes whose buckets do not end on a byte."""
    at = tl.program_id(0).to(tl.int64) * SIZE + tl.arange(0, SIZE)
    byte = tl.zeros((SIZE,), tl.int32)
    if PACKING == 0:
        power = 1
        for digit in tl.static_range(5):
            code = tl.load(codes + 5 * at + digit, mask=5 * at + digit < n, other=0).to(tl.int32)
            byte += code * power
            power *= 3
    else:
        first = 8 * at // PACKING
        for i in tl.static_range((PACKING + 14) // PACKING):
            code = tl.load(codes + first + i, mask=first + i < n, other=0).to(tl.int32)
            shift = ((first + i) * PACKING - 8 * at).to(tl.int32)
            byte |= tl.where(shift >= 0, code << tl.maximum(shift, 0), code >> tl.maximum(-shift, 0))
    tl.store(out + at, (byte & 0xFF).to(tl.uint8), mask=at < num_bytes)
