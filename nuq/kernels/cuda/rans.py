"""Device code of rANS: ``nuq.coding.entropy_reference.rans_encode`` and ``rans_decode``, with the same words.

One program of one warp takes a chunk and holds the state of every lane.  The positions of a chunk follow one another,
so that a chunk takes as long as its lanes have codes, and only several hundred chunks (of 96 KiB) fill a GPU.  What
does not depend on the states is asked for four positions ahead: codes, contexts, and the cache line of the words that
are read next.

An entry of a table is the frequency less one, and 14 bits above it the first slot (encoding) or the place within the
symbol's slots (decoding): ``frequency - 1 | other << 14``.
"""

# What Triton compiles is not Python to a type checker.
# pyright: reportGeneralTypeIssues=false, reportAttributeAccessIssue=false
# pyright: reportOperatorIssue=false, reportCallIssue=false
# pyright: reportArgumentType=false, reportAssignmentType=false, reportIndexIssue=false, reportReturnType=false

from __future__ import annotations

import triton
import triton.language as tl

HALF = tl.constexpr(14)  # bits of an entry's lower half
BELOW = tl.constexpr((1 << 14) - 1)
LOW = tl.constexpr(1 << 15)  # the smallest state
AHEAD = tl.constexpr(128)  # words between those that are read and those that are brought into the cache


@triton.jit
def _loaded(numbers, at, size):
    return tl.load(numbers + at, mask=(at >= 0) & (at < size), other=0).to(tl.int32)


@triton.jit
def _row(codes, contexts, at, size, num_symbols, CONTEXTS: tl.constexpr):
    """The places in the table of the codes at ``at``."""
    row = _loaded(codes, at, size)
    if CONTEXTS:
        row += _loaded(contexts, at, size) * num_symbols
    return row


@triton.jit
def _encoded(x, entry, active, end, bits):
    """The states after one more code, and the end of what is still to be written; words are written before ``end``."""
    f = (entry & BELOW) + 1
    full = active & ((x >> (31 - bits)) >= f)
    count = tl.sum(full.to(tl.int32), axis=0)
    rank = tl.cumsum(full.to(tl.int32), axis=0) - full.to(tl.int32)
    tl.store(end - count + rank, x.to(tl.int16), mask=full)
    kept = tl.where(full, x >> 16, x)
    quotient = (kept.to(tl.uint32) // f.to(tl.uint32)).to(tl.int32)
    coded = (quotient << bits) + (kept - quotient * f) + (entry >> HALF)
    return tl.where(active, coded, x), end - count


@triton.jit(do_not_specialize=["n", "chunk", "stride", "num_symbols", "bits"])
def encode_kernel(
    codes, contexts, table, scratch, sizes, n, chunk, stride, num_symbols, bits,
    LANES: tl.constexpr, CONTEXTS: tl.constexpr,
):  # fmt: skip
    """Chunk k of the codes, so that it ends at word ``(k + 1) * stride`` of ``scratch``, and its words in ``sizes``."""
    number = tl.program_id(0).to(tl.int64)
    codes += number * chunk
    contexts += number * chunk
    size = tl.minimum(n - number * chunk, chunk).to(tl.int32)
    lane = tl.arange(0, LANES)
    x = tl.full((LANES,), LOW, tl.int32)
    last = scratch + (number + 1) * stride
    end = last
    at = tl.cdiv(size, 4 * LANES) * (4 * LANES) - LANES + lane
    r0 = _row(codes, contexts, at, size, num_symbols, CONTEXTS)
    r1 = _row(codes, contexts, at - LANES, size, num_symbols, CONTEXTS)
    r2 = _row(codes, contexts, at - 2 * LANES, size, num_symbols, CONTEXTS)
    r3 = _row(codes, contexts, at - 3 * LANES, size, num_symbols, CONTEXTS)
    for _ in range(tl.cdiv(size, 4 * LANES)):
        e0 = tl.load(table + r0)
        e1 = tl.load(table + r1)
        e2 = tl.load(table + r2)
        e3 = tl.load(table + r3)
        r0 = _row(codes, contexts, at - 4 * LANES, size, num_symbols, CONTEXTS)
        r1 = _row(codes, contexts, at - 5 * LANES, size, num_symbols, CONTEXTS)
        r2 = _row(codes, contexts, at - 6 * LANES, size, num_symbols, CONTEXTS)
        r3 = _row(codes, contexts, at - 7 * LANES, size, num_symbols, CONTEXTS)
        x, end = _encoded(x, e0, at < size, end, bits)
        x, end = _encoded(x, e1, at - LANES < size, end, bits)
        x, end = _encoded(x, e2, at - 2 * LANES < size, end, bits)
        x, end = _encoded(x, e3, at - 3 * LANES < size, end, bits)
        at -= 4 * LANES
    end -= 2 * LANES
    tl.store(end + 2 * lane, x.to(tl.int16))
    tl.store(end + 2 * lane + 1, (x >> 16).to(tl.int16))
    tl.store(sizes + number, ((last.to(tl.int64) - end.to(tl.int64)) // 2).to(tl.int32))


@triton.jit
def _decoded(x, context, active, out, slots, symbols, words, at, num_words, bits):
    """The states before one more code, which is written to ``out``, and the next word that is to be read."""
    slot = (x & ((1 << bits) - 1)) | (context << bits)
    entry = tl.load(slots + slot)
    tl.store(out, tl.load(symbols + slot), mask=active)
    before = ((entry & BELOW) + 1) * (x >> bits) + (entry >> HALF)
    low = active & (before < LOW)
    place = at + tl.cumsum(low.to(tl.int32), axis=0) - low.to(tl.int32)
    word = tl.load(words + place, mask=low & (place < num_words), other=0).to(tl.int32) & 0xFFFF
    return tl.where(active, tl.where(low, (before << 16) | word, before), x), at + tl.sum(low.to(tl.int32), axis=0)


@triton.jit
def _context(contexts, at, size, CONTEXTS: tl.constexpr):
    if CONTEXTS:
        return _loaded(contexts, at, size)
    return tl.zeros_like(at)


@triton.jit(do_not_specialize=["n", "chunk", "bits"])
def decode_kernel(
    words, begins, contexts, slots, symbols, codes, whole, n, chunk, bits, LANES: tl.constexpr, CONTEXTS: tl.constexpr
):
    """The codes of chunk k, words ``begins[k] .. begins[k + 1]``; 0 in ``whole[k]`` where it is damaged, else 1."""
    number = tl.program_id(0).to(tl.int64)
    codes += number * chunk
    contexts += number * chunk
    size = tl.minimum(n - number * chunk, chunk).to(tl.int32)
    begin = tl.load(begins + number)
    num_words = (tl.load(begins + number + 1) - begin).to(tl.int32) - 2 * LANES
    lane = tl.arange(0, LANES)
    low_halves = tl.load(words + begin + 2 * lane).to(tl.int32) & 0xFFFF
    x = low_halves | (tl.load(words + begin + 2 * lane + 1).to(tl.int32) << 16)
    legal = tl.min(x, axis=0) >= LOW
    words += begin + 2 * LANES
    next_word = 0
    at = lane
    c0 = _context(contexts, at, size, CONTEXTS)
    c1 = _context(contexts, at + LANES, size, CONTEXTS)
    c2 = _context(contexts, at + 2 * LANES, size, CONTEXTS)
    c3 = _context(contexts, at + 3 * LANES, size, CONTEXTS)
    touched = tl.zeros((LANES,), tl.int32)
    seen = tl.zeros((LANES,), tl.int32)
    for _ in range(tl.cdiv(size, 4 * LANES)):
        seen |= touched  # of the turn before, so that nothing waits for it
        touched = _loaded(words, next_word + AHEAD + 2 * lane, num_words)
        d0, d1, d2, d3 = c0, c1, c2, c3
        c0 = _context(contexts, at + 4 * LANES, size, CONTEXTS)
        c1 = _context(contexts, at + 5 * LANES, size, CONTEXTS)
        c2 = _context(contexts, at + 6 * LANES, size, CONTEXTS)
        c3 = _context(contexts, at + 7 * LANES, size, CONTEXTS)
        out = codes + at
        x, next_word = _decoded(x, d0, at < size, out, slots, symbols, words, next_word, num_words, bits)
        out += LANES
        x, next_word = _decoded(x, d1, at + LANES < size, out, slots, symbols, words, next_word, num_words, bits)
        out += LANES
        x, next_word = _decoded(x, d2, at + 2 * LANES < size, out, slots, symbols, words, next_word, num_words, bits)
        out += LANES
        x, next_word = _decoded(x, d3, at + 3 * LANES < size, out, slots, symbols, words, next_word, num_words, bits)
        at += 4 * LANES
    done = legal & (next_word == num_words) & (tl.max(x, axis=0) == LOW) & (tl.min(x, axis=0) == LOW)
    used = tl.max(seen, axis=0) < (1 << 16)  # always, but the compiler must not know it
    tl.store(whole + number, (done & used).to(tl.int32))
