"""Device code of decode: unpack, look up, scale, add.  Every byte is read once, every total read and written once."""

# What Triton compiles is not Python to a type checker.
# pyright: reportGeneralTypeIssues=false, reportAttributeAccessIssue=false, reportOperatorIssue=false, reportCallIssue=false
# pyright: reportArgumentType=false, reportAssignmentType=false, reportIndexIssue=false, reportReturnType=false

from __future__ import annotations

import triton
import triton.language as tl

from nuq.cuda.pieces import hash_bits, pick


@triton.jit
def _ternary(packed, start, places, valid):
    """Base-3 digits of the coordinates at ``start + places``: (codes int32, whether their bytes hold five digits)."""
    at = (start % 5).to(tl.uint32) + places.to(tl.uint32)
    byte = tl.load(packed + start // 5 + (at // 5).to(tl.int32), mask=valid, other=0).to(tl.uint32)
    digit = at % 5
    # byte // 3^digit through the reciprocal, rounded up to 2^-16: exact for every byte.
    low = tl.where(digit == 0, 65536, tl.where(digit == 1, 21846, 7282))
    quotient = (byte * tl.where(digit <= 2, low, tl.where(digit == 3, 2428, 810)).to(tl.uint32)) >> 16
    return (quotient - 3 * ((quotient * 171) >> 9)).to(tl.int32), byte <= 242


@triton.jit
def _anywhere(packed, start, places, valid, num_bytes, BITS: tl.constexpr):
    """Codes of BITS bits at any bit position: int32, from one or two bytes each."""
    bit = ((start * BITS) & 7).to(tl.int32) + places * BITS
    first = (start * BITS) >> 3
    at = bit >> 3
    word = tl.load(packed + first + at, mask=valid, other=0).to(tl.int32)
    if 8 % BITS != 0:
        more = valid & (first + at + 1 < num_bytes)
        word |= tl.load(packed + first + at + 1, mask=more, other=0).to(tl.int32) << 8
    return (word >> (bit & 7)) & ((1 << BITS) - 1)


@triton.jit
def _words(packed, group, bytes_left, BITS: tl.constexpr, WORD: tl.constexpr):
    """BITS bytes from ``packed + group * BITS`` each as the halves of a word: two uint32 of 4 * BITS bits, eight codes together."""
    if WORD:
        TYPE: tl.constexpr = tl.uint8 if BITS == 1 else (tl.uint16 if BITS == 2 else tl.uint32)
        whole = tl.load(packed.to(tl.pointer_type(TYPE)) + group).to(tl.uint32)
        low, high = whole, whole >> (4 * BITS)
    elif BITS <= 4:
        whole = tl.zeros(group.shape, tl.uint32)
        for byte in tl.static_range(BITS):
            whole |= tl.load(packed + group * BITS + byte, mask=byte < bytes_left, other=0).to(tl.uint32) << (8 * byte)
        low, high = whole, whole >> (4 * BITS)
    else:
        wide = tl.zeros(group.shape, tl.uint64)
        for byte in tl.static_range(BITS):
            wide |= tl.load(packed + group * BITS + byte, mask=byte < bytes_left, other=0).to(tl.uint64) << (8 * byte)
        low, high = wide.to(tl.uint32), (wide >> (4 * BITS)).to(tl.uint32)
    return low, high


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
    """Step 8 for a tile.  GROUPS: eight codes fill whole bytes; CHECKED: a code may be no level's, then ``damaged`` becomes 1."""
    pid = tl.program_id(0)
    piece = (pid % PIECES) * WIDTH
    start = (pid // PIECES).to(tl.int64) * (ROWS * BUCKET) + piece
    left = tl.minimum(n.to(tl.int64) - start, ROWS * BUCKET).to(tl.int32)
    row = tl.arange(0, ROWS)[:, None]
    offset = tl.arange(0, WIDTH)[None, :]
    places = row * BUCKET + offset
    EVEN: tl.constexpr = BUCKET % WIDTH == 0
    full = (left >= ROWS * BUCKET) if PIECES == 1 else (left >= WIDTH)
    valid = (piece + offset < BUCKET) & (places < left)
    sound = valid

    if PACKING == 0:
        codes, sound = _ternary(packed, start, places, valid)
    elif GROUPS:
        if PIECES == 1:
            ends = tl.minimum(left - row * BUCKET, BUCKET)
        else:
            ends = tl.minimum(left, BUCKET - piece)
        offset8 = tl.arange(0, WIDTH // 8)[None, :]
        group = row * (BUCKET // 8) + offset8
        first = packed + start // 8 * PACKING
        bytes_left = ((ends * PACKING + 7) >> 3) - offset8 * PACKING
        if ALIGNED and EVEN and (PACKING == 1 or PACKING == 2 or PACKING == 4):
            if full:
                low, high = _words(first, group, bytes_left, PACKING, True)
            else:
                low, high = _words(first, group, bytes_left, PACKING, False)
        else:
            low, high = _words(first, group, bytes_left, PACKING, False)
        j = tl.arange(0, 8)[None, None, :]
        half = tl.where(j < 4, low[:, :, None], high[:, :, None])
        codes = (half >> ((j & 3) * PACKING).to(tl.uint32)).to(tl.int32) & ((1 << PACKING) - 1)
        codes = tl.reshape(codes, (ROWS, WIDTH))
    else:
        codes = _anywhere(packed, start, places, valid, num_bytes, PACKING)
    if CHECKED:
        bad = valid & (codes >= L)
        if PACKING == 0:
            bad = bad | (valid & (sound == 0))
        tl.store(damaged + tl.zeros((ROWS, WIDTH), tl.int32), tl.full((ROWS, WIDTH), 1, tl.int32), mask=bad)
        codes = tl.minimum(codes, L - 1)

    place = tl.arange(0, triton.next_power_of_2(L))
    values = pick(tl.load(levels + place, mask=place < L, other=0.0), codes, ROWS * WIDTH)
    if DITHER:
        h = hash_bits(start, places, k0, k1, EVEN and ((ROWS == 1) or (BUCKET == WIDTH)))
        noise = (h >> (32 - F)).to(tl.float32) * (1.0 / (1 << F))
        values = values - (noise - 0.5) * STEP
    bucket = (pid // PIECES).to(tl.int64) * ROWS + row
    if ENDS:
        scale = tl.load(scales + 2 * bucket, mask=row * BUCKET < left, other=0.0)
        top = tl.load(scales + 2 * bucket + 1, mask=row * BUCKET < left, other=0.0)
        values = tl.where(codes == 0, -top, tl.where(codes == L - 1, top, values * scale))
    else:
        values = values * tl.load(scales + bucket, mask=row * BUCKET < left, other=0.0)
    to = total + start + places
    if full:
        if EVEN:
            if ACCUMULATE:
                values = tl.load(to) + values
            tl.store(to, values)
        else:
            inside = piece + offset < BUCKET
            if ACCUMULATE:
                values = tl.load(to, mask=inside, other=0.0) + values
            tl.store(to, values, mask=inside)
    else:
        if ACCUMULATE:
            values = tl.load(to, mask=valid, other=0.0) + values
        tl.store(to, values, mask=valid)
