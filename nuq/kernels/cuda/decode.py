"""Device code of decode: unpack, look up, scale, add.  Every byte is read once, every total read and written once."""

# What Triton compiles is not Python to a type checker.
# pyright: reportGeneralTypeIssues=false, reportAttributeAccessIssue=false
# pyright: reportOperatorIssue=false, reportCallIssue=false
# pyright: reportArgumentType=false, reportAssignmentType=false, reportIndexIssue=false, reportReturnType=false

from __future__ import annotations

import triton
import triton.language as tl

from nuq.kernels.cuda.pieces import hash_bits, pick


@triton.jit
def _load(pointer, mask, FULL: tl.constexpr):
    """Load, without a mask where all of it is there, so that neighbours are loaded together."""
    if FULL:
        value = tl.load(pointer)
    else:
        value = tl.load(pointer, mask=mask, other=0)
    return value


@triton.jit
def _ternary(packed, start, indices, valid, FULL: tl.constexpr):
    """The base-3 digits at ``start + indices``: (codes int32, whether their bytes hold five digits)."""
    at = (start % 5).to(tl.uint32) + indices.to(tl.uint32)
    byte = _load(packed + start // 5 + (at // 5).to(tl.int32), valid, FULL).to(tl.uint32)
    digit = at % 5
    # byte // 3^digit through the reciprocal, rounded up to 2^-16: exact for every byte.
    low = tl.where(digit == 0, 65536, tl.where(digit == 1, 21846, 7282))
    quotient = (byte * tl.where(digit <= 2, low, tl.where(digit == 3, 2428, 810)).to(tl.uint32)) >> 16
    return (quotient - 3 * ((quotient * 171) >> 9)).to(tl.int32), byte <= 242


@triton.jit
def _anywhere(packed, start, indices, valid, num_bytes, BITS: tl.constexpr, FULL: tl.constexpr):
    """The codes of BITS bits at any bit position: int32, from one or two bytes each."""
    bit = ((start * BITS) & 7).to(tl.int32) + indices * BITS
    first = (start * BITS) >> 3
    at = bit >> 3
    word = _load(packed + first + at, valid, FULL).to(tl.int32)
    if 8 % BITS != 0:
        more = first + at + 1 < num_bytes  # the last code of all may end in the first of its bytes
        word |= tl.load(packed + first + at + 1, mask=more if FULL else valid & more, other=0).to(tl.int32) << 8
    return (word >> (bit & 7)) & ((1 << BITS) - 1)


@triton.jit
def _eights(packed, group, bytes_left, BITS: tl.constexpr, ALIGNED: tl.constexpr, FULL: tl.constexpr):
    """Groups of eight codes from the BITS bytes at ``packed + group * BITS``: int32[ROWS, groups, 8]."""
    if FULL and ALIGNED and (BITS == 1 or BITS == 2 or BITS == 4):
        TYPE: tl.constexpr = tl.uint8 if BITS == 1 else (tl.uint16 if BITS == 2 else tl.uint32)
        whole = tl.load(packed.to(tl.pointer_type(TYPE)) + group).to(tl.uint32)
        low, high = whole, whole >> (4 * BITS)
    elif BITS <= 4:
        whole = tl.zeros(group.shape, tl.uint32)
        for byte in tl.static_range(BITS):
            whole |= _load(packed + group * BITS + byte, byte < bytes_left, FULL).to(tl.uint32) << (8 * byte)
        low, high = whole, whole >> (4 * BITS)
    else:
        wide = tl.zeros(group.shape, tl.uint64)
        for byte in tl.static_range(BITS):
            wide |= _load(packed + group * BITS + byte, byte < bytes_left, FULL).to(tl.uint64) << (8 * byte)
        low, high = wide.to(tl.uint32), (wide >> (4 * BITS)).to(tl.uint32)
    j = tl.arange(0, 8)[None, None, :]
    half = tl.where(j < 4, low[:, :, None], high[:, :, None])
    return (half >> ((j & 3) * BITS).to(tl.uint32)).to(tl.int32) & ((1 << BITS) - 1)


@triton.jit
def _decode(
    packed,
    scales,
    levels,
    total,
    damaged,
    num_bytes,
    k0,
    k1,
    piece,
    start,
    left,
    FULL: tl.constexpr,
    BUCKET: tl.constexpr,
    L: tl.constexpr,
    PACKING: tl.constexpr,
    GROUPS: tl.constexpr,
    ALIGNED: tl.constexpr,
    CHECKED: tl.constexpr,
    ENDS: tl.constexpr,
    DITHER: tl.constexpr,
    STEP: tl.constexpr,
    F: tl.constexpr,
    ACCUMULATE: tl.constexpr,
    ROWS: tl.constexpr,
    PIECES: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """Decode a tile.

    FULL: all its indices are coordinates of the vector.
    """
    row = tl.arange(0, ROWS)[:, None]
    offset = tl.arange(0, WIDTH)[None, :]
    indices = row * BUCKET + offset
    valid = (piece + offset < BUCKET) & (indices < left)
    if PACKING == 0:
        codes, sound = _ternary(packed, start, indices, valid, FULL)
    elif GROUPS:
        if PIECES == 1:
            ends = tl.minimum(left - row * BUCKET, BUCKET)
        else:
            ends = tl.minimum(left, BUCKET - piece)
        eight = tl.arange(0, WIDTH // 8)[None, :]
        bytes_left = ((ends * PACKING + 7) >> 3) - eight * PACKING
        codes = _eights(packed + start // 8 * PACKING, row * (BUCKET // 8) + eight, bytes_left, PACKING, ALIGNED, FULL)
        codes = tl.reshape(codes, (ROWS, WIDTH))
    elif PACKING == 8:
        codes = _load(packed + start + indices, valid, FULL).to(tl.int32)
    else:
        codes = _anywhere(packed, start, indices, valid, num_bytes, PACKING, FULL)
    if CHECKED:
        bad = codes >= L
        if PACKING == 0:
            bad = bad | (sound == 0)
        if not FULL:
            bad = bad & valid
        # each row has eight coordinates, so that few stores stand in the program
        FOLD: tl.constexpr = 8 if ROWS * WIDTH >= 8 else 1
        some = tl.max(tl.reshape(bad.to(tl.int32), (ROWS * WIDTH // FOLD, FOLD)), axis=1)
        tl.store(damaged + tl.zeros(some.shape, tl.int32), some, mask=some > 0)
        codes = tl.minimum(codes, L - 1)

    place = tl.arange(0, triton.next_power_of_2(L))
    values = pick(tl.load(levels + place, mask=place < L, other=0.0), codes, ROWS * WIDTH)
    if DITHER:
        h = hash_bits(start, indices, k0, k1, BUCKET % WIDTH == 0 and (ROWS == 1 or BUCKET == WIDTH))
        noise = (h >> (32 - F)).to(tl.float32) * (1.0 / (1 << F))
        values = values - (noise - 0.5) * STEP
    bucket = (tl.program_id(0) // PIECES).to(tl.int64) * ROWS + row
    here = row * BUCKET < left
    if ENDS:
        scale, top = _load(scales + 2 * bucket, here, FULL), _load(scales + 2 * bucket + 1, here, FULL)
        # -top is 0 - top to Triton: +0 for a zero bucket, where the specification has -0.
        values = tl.where(codes == 0, top * -1.0, tl.where(codes == L - 1, top, values * scale))
    else:
        values = values * _load(scales + bucket, here, FULL)
    to = total + start + indices
    if ACCUMULATE:
        values = _load(to, valid, FULL) + values
    if FULL:
        tl.store(to, values)
    else:
        tl.store(to, values, mask=valid)


@triton.jit(do_not_specialize=["n", "num_bytes", "k0", "k1"])
def decode_kernel(
    packed,
    scales,
    levels,
    total,
    damaged,
    n,
    num_bytes,
    k0,
    k1,
    BUCKET: tl.constexpr,
    L: tl.constexpr,
    PACKING: tl.constexpr,
    GROUPS: tl.constexpr,
    ALIGNED: tl.constexpr,
    CHECKED: tl.constexpr,
    ENDS: tl.constexpr,
    DITHER: tl.constexpr,
    STEP: tl.constexpr,
    F: tl.constexpr,
    ACCUMULATE: tl.constexpr,
    ROWS: tl.constexpr,
    PIECES: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """The kernel of step 8, for one tile.

    GROUPS: eight codes fill whole bytes; CHECKED: a code may be no level's, then ``damaged`` becomes 1.
    """
    piece = (tl.program_id(0) % PIECES) * WIDTH
    start = (tl.program_id(0) // PIECES).to(tl.int64) * (ROWS * BUCKET) + piece
    own = ROWS * BUCKET if PIECES == 1 else WIDTH  # coordinates, of a whole tile
    left = tl.minimum(n.to(tl.int64) - start, own).to(tl.int32)
    if (BUCKET % WIDTH == 0) and left >= own:
        _decode(
            packed, scales, levels, total, damaged, num_bytes, k0, k1, piece, start, left, True,
            BUCKET, L, PACKING, GROUPS, ALIGNED, CHECKED, ENDS, DITHER, STEP, F, ACCUMULATE, ROWS, PIECES, WIDTH,
        )  # fmt: skip
    else:
        _decode(
            packed, scales, levels, total, damaged, num_bytes, k0, k1, piece, start, left, False,
            BUCKET, L, PACKING, GROUPS, ALIGNED, CHECKED, ENDS, DITHER, STEP, F, ACCUMULATE, ROWS, PIECES, WIDTH,
        )  # fmt: skip
