"""Device code of encode: norm, normalise, round, pack.  One program reads its part of the input once."""

# What Triton compiles is not Python to a type checker.
# pyright: reportGeneralTypeIssues=false, reportAttributeAccessIssue=false
# pyright: reportOperatorIssue=false, reportCallIssue=false
# pyright: reportArgumentType=false, reportAssignmentType=false, reportIndexIssue=false, reportReturnType=false

from __future__ import annotations

import triton
import triton.language as tl

from nuq.kernels.cuda.pieces import (
    FACTOR,
    SMALLEST,
    block_sums,
    halve,
    hash_bits,
    interval,
    inverse,
    magnitudes,
    packed_words,
    pick_pair,
    word_of_four,
)


@triton.jit
def _start(n, BUCKET: tl.constexpr, ROWS: tl.constexpr, PIECES: tl.constexpr, WIDTH: tl.constexpr):
    """The start of this program's tile in its bucket and in the vector (int64), and the number of its coordinates.

    The number is that of the coordinates that follow, at most the tile's own.
    """
    pid = tl.program_id(0)
    piece = (pid % PIECES) * WIDTH
    start = (pid // PIECES).to(tl.int64) * (ROWS * BUCKET) + piece
    own = ROWS * BUCKET if PIECES == 1 else WIDTH
    return piece, start, tl.minimum(n.to(tl.int64) - start, own).to(tl.int32)


@triton.jit
def _offsets(UNIT: tl.constexpr, ROWS: tl.constexpr, R: tl.constexpr, NB: tl.constexpr, K: tl.constexpr):
    """The (row, offset within it) of a tile's coordinates, UNIT of them together.

    Shapes: [1, R * ROWS * NB, 1] and [1, R * ROWS * NB, K / UNIT].
    """
    run = tl.arange(0, R * ROWS * NB)[None, :, None]
    block = run % (ROWS * NB)
    along = run // (ROWS * NB) * (K // UNIT) + tl.arange(0, K // UNIT)[None, None, :]
    return block // NB, (block % NB) * (R * K // UNIT) + along


@triton.jit
def _valid(row, offset, piece, left, BUCKET: tl.constexpr):
    """Whether a coordinate lies within its bucket and within the vector."""
    return (piece + offset < BUCKET) & (row * BUCKET + offset < left)


@triton.jit
def _of_runs(values, R: tl.constexpr, ROWS: tl.constexpr, NB: tl.constexpr):
    """Repeat one number per row as one per run of K coordinates: [1, R * ROWS * NB, 1]."""
    return tl.reshape(tl.broadcast_to(values[None, :, None], (R, ROWS, NB)), (1, R * ROWS * NB, 1))


@triton.jit
def _maxima(x, ROWS: tl.constexpr, R: tl.constexpr, NB: tl.constexpr, K: tl.constexpr, LANES: tl.constexpr):
    """The bits of the largest |x| of every lane: int32[ROWS, LANES]."""
    bits = tl.max(tl.reshape(magnitudes(x), (R, ROWS * NB, K)), axis=0)
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
def _intervals(levels, t, L: tl.constexpr, ENDS: tl.constexpr):
    """Tables of the intervals' lower ends and of the reciprocals of their widths, float32[2^k].

    ENDS: the outermost are -t and t.
    """
    place = tl.arange(0, triton.next_power_of_2(L))
    lower = tl.load(levels + place, mask=place < L - 1, other=-1.0)
    upper = tl.load(levels + place + 1, mask=place < L - 1, other=1.0)
    if ENDS:
        lower = tl.where(place == 0, -t, lower)
        upper = tl.where(place == L - 2, t, upper)
    return lower, tl.div_rn(1.0, upper - lower)


@triton.jit
def _fractions(r, k, t, levels, lower, width, L: tl.constexpr, COUNT: tl.constexpr, ENDS: tl.constexpr):
    """The q of step 4: the position of r within its interval, the k-th.

    ENDS: the outermost levels are -t and t, which the tables do not say.
    """
    low, scale = pick_pair(lower, width, k, COUNT)
    if ENDS:
        if L == 2:
            scale = tl.broadcast_to(tl.div_rn(1.0, t + t), scale.shape)
        else:
            scale = tl.where(k == L - 2, tl.div_rn(1.0, t - tl.load(levels + L - 2)), scale)
            scale = tl.where(k == 0, tl.div_rn(1.0, tl.load(levels + 1) + t), scale)
        low = tl.where(k == 0, -t, low)
    return (r - low) * scale


@triton.jit
def _round_uniform(r, h, L: tl.constexpr, F: tl.constexpr):
    """Step 5: the codes of r, int32."""
    HALF: tl.constexpr = (L - 1) << (F - 1)
    HALF_FLOAT: tl.constexpr = float((L - 1) << (F - 1))
    return ((r * HALF_FLOAT).to(tl.int32) + HALF + (h >> (32 - F)).to(tl.int32)) >> F


@triton.jit(do_not_specialize=["n", "k0", "k1", "factor", "summand"])
def encode_kernel(
    vector,
    levels,
    scales,
    out,
    n,
    multiple,
    k0,
    k1,
    factor,
    summand,
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
    """The kernel of encode: the scales (unless GIVEN) and the codes of a tile.

    BITS 1..8: packed, 0: one code to an element of ``out``.
    """
    WIDTH: tl.constexpr = R * NB * K
    COUNT: tl.constexpr = ROWS * WIDTH
    EVEN: tl.constexpr = BUCKET % WIDTH == 0  # the tile has no indices beyond the buckets
    LOW: tl.constexpr = EVEN and (ROWS == 1 or BUCKET == WIDTH)  # and begins at a multiple of its size
    piece, start, left = _start(n, BUCKET, ROWS, PIECES, WIDTH)
    row, offset = _offsets(1, ROWS, R, NB, K)
    indices = row * BUCKET + offset
    full = EVEN and left >= (ROWS * BUCKET if PIECES == 1 else WIDTH)
    if full:
        # Without a mask, so that four numbers (eight of 16 bits) are one load.
        x = tl.load(vector + start + indices)
    else:
        x = tl.load(vector + start + indices, mask=_valid(row, offset, piece, left, BUCKET), other=0.0)
    x = x.to(tl.float32)
    TABLES: tl.constexpr = STOCHASTIC and not UNIFORM
    # Under quantile the ends differ from row to row, and with them the tables: of one row they are computed once its
    # scale is known.
    LATE: tl.constexpr = NORM == "quantile" and ROWS == 1
    if TABLES and not LATE:
        lower, width = _intervals(levels, 1.0, L, False)

    bucket = (tl.program_id(0) // PIECES).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    lengths = tl.minimum(tl.maximum(left - tl.arange(0, ROWS) * BUCKET, 0), BUCKET)
    if GIVEN:
        if NORM == "quantile":
            scale = tl.load(scales + 2 * bucket, mask=lengths > 0, other=0.0)
            top = tl.load(scales + 2 * bucket + 1, mask=lengths > 0, other=0.0)
        else:
            scale = tl.load(scales + bucket, mask=lengths > 0, other=0.0)
            top = scale
    else:
        scale, top = _scales(x, lengths, multiple, NORM, LANES, ROWS, R, NB, K)
        if NORM == "quantile":
            tl.store(scales + 2 * bucket, scale, mask=lengths > 0)
            tl.store(scales + 2 * bucket + 1, top, mask=lengths > 0)
        else:
            tl.store(scales + bucket, scale, mask=lengths > 0)

    r = x * _of_runs(inverse(scale), R, ROWS, NB)
    if NORM == "quantile":
        row_t = tl.where(scale > 0, top * inverse(scale), 1.0)
        t = _of_runs(row_t, R, ROWS, NB)
    else:
        t = 1.0
    r = tl.minimum(tl.maximum(r, -t), t)
    if STOCHASTIC:
        h = hash_bits(start, indices, k0, k1, LOW, factor, summand)
    if UNIFORM:
        codes = _round_uniform(r, h, L, F)
    else:
        if TABLES and LATE:
            lower, width = _intervals(levels, row_t, L, True)
        codes = interval(r, levels, L, COUNT)
        if STOCHASTIC:
            q = _fractions(r, codes, t, levels, lower, width, L, COUNT, NORM == "quantile" and not LATE)
            # (h >> 8) * 2^-24, the same number with one instruction less.
            u = (h & 0xFFFFFF00).to(tl.float32) * 2.3283064365386963e-10  # 2^-32
            codes += (u < q).to(tl.int32)

    if BITS == 0:
        codes = codes.to(out.dtype.element_ty)
        if full:
            tl.store(out + start + indices, codes)
        else:
            tl.store(out + start + indices, codes, mask=_valid(row, offset, piece, left, BUCKET))
    else:
        UNIT: tl.constexpr = 4 if BITS == 8 else 8
        BYTES: tl.constexpr = UNIT * BITS // 8
        units_row, unit = _offsets(UNIT, ROWS, R, NB, K)
        group = units_row * (BUCKET // UNIT) + unit
        first = out + start // UNIT * BYTES
        codes = codes.to(tl.uint32, bitcast=True)
        if full:
            # in both branches: before them, the compiler keeps more numbers in registers at once
            words = packed_words(codes, BITS, UNIT)
            if ALIGNED and (BYTES == 1 or BYTES == 2 or BYTES == 4):
                TYPE: tl.constexpr = tl.uint8 if BYTES == 1 else (tl.uint16 if BYTES == 2 else tl.uint32)
                tl.store(first.to(tl.pointer_type(TYPE)) + group, words.to(TYPE))
            elif ALIGNED and BUCKET % 32 == 0 and K % 32 == 0:
                # single bytes of 3 bits a code cost a kernel two thirds of its speed on an H100
                row_of_four, four = _offsets(32, ROWS, R, NB, K)
                to = first.to(tl.pointer_type(tl.uint32)) + (row_of_four * (BUCKET // 32) + four) * BITS
                for number in tl.static_range(BITS):
                    tl.store(to + number, word_of_four(words, number, BITS))
            else:
                for byte in tl.static_range(BYTES):
                    tl.store(first + group * BYTES + byte, (words >> (8 * byte)).to(tl.uint8))
        else:
            if PIECES == 1:
                ends = _of_runs(lengths, R, ROWS, NB)
            else:
                ends = tl.minimum(left, BUCKET - piece)
            words = packed_words(codes, BITS, UNIT)
            # The last byte of all is padded with zeros; a byte counts where its first bit belongs to a coordinate of
            # its bucket.
            bits = tl.minimum(tl.maximum(ends - unit * UNIT, 0), UNIT) * BITS
            words = words & ((tl.full(words.shape, 1, tl.uint64) << bits.to(tl.uint64)) - 1).to(words.dtype)
            for byte in tl.static_range(BYTES):
                tl.store(first + group * BYTES + byte, (words >> (8 * byte)).to(tl.uint8), mask=8 * byte < bits)


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
    """The partial norms of one piece of a large bucket: its blocks' sums of squares and its lanes' maxima.

    The sums are float64[buckets, BLOCKS], the maxima int32, as bits.
    """
    piece, start, left = _start(n, BUCKET, ROWS, PIECES, R * NB * K)
    row, offset = _offsets(1, ROWS, R, NB, K)
    if BUCKET % (R * NB * K) == 0 and left >= R * NB * K:
        x = tl.load(vector + start + offset)
    else:
        x = tl.load(vector + start + offset, mask=_valid(row, offset, piece, left, BUCKET), other=0.0)
    x = x.to(tl.float32)
    pid = tl.program_id(0)
    if SUMS:
        to = sums + (pid // PIECES).to(tl.int64) * BLOCKS + (pid % PIECES) * NB
        tl.store(to + tl.arange(0, NB), block_sums(x, R, NB, K))
    if MAXIMA:
        lanes = tl.reshape(_maxima(x, ROWS, R, NB, K, LANES), (LANES,))
        tl.store(maxima + pid.to(tl.int64) * LANES + tl.arange(0, LANES), lanes)


@triton.jit(do_not_specialize=["n", "num_bytes"])
def pack_kernel(codes, out, n, num_bytes, PACKING: tl.constexpr, SIZE: tl.constexpr):
    """The kernel of packing, one byte of packed codes per element, for any packing and any position.

    It serves shapes whose buckets do not end on a byte.
    """
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
