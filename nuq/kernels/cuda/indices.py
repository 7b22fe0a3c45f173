"""Device code of index coding: the gaps, Rice codes, classes and streams of bits of ``nuq.coding.index_coding``.

One program takes a block of BLOCK gaps, which have one parameter, or SIZE places or bytes of a bitmap.  Streams are
written in words of 32 bits, in which neighbouring programs set their bits by an atomic or; they are read byte by byte,
as a message's parts begin anywhere.
"""

# What Triton compiles is not Python to a type checker.
# pyright: reportGeneralTypeIssues=false, reportAttributeAccessIssue=false
# pyright: reportOperatorIssue=false, reportCallIssue=false
# pyright: reportArgumentType=false, reportAssignmentType=false, reportIndexIssue=false, reportReturnType=false

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _gaps(indices, at, k):
    """The gaps at these places: int64, 0 beyond the last one."""
    place = tl.load(indices + at, mask=at < k, other=0).to(tl.int64)
    before = tl.load(indices + at - 1, mask=(at > 0) & (at < k), other=-1).to(tl.int64)
    return place - before - 1


@triton.jit
def _class_of(gaps, MANTISSA: tl.constexpr):
    """The class of every gap, and the number of its low bits."""
    leading = (gaps + 1).to(tl.float64).to(tl.int64, bitcast=True) >> (52 - MANTISSA)  # exact: below 2^53
    classes = leading - (1023 << MANTISSA)
    return classes, tl.maximum((classes >> MANTISSA) - MANTISSA, 0)


@triton.jit
def _starts(begin, widths):
    return begin + tl.cumsum(widths, axis=0) - widths


@triton.jit(do_not_specialize=["k"])
def rice_kernel(indices, parameters, low_bits, unary_bits, k, BLOCK: tl.constexpr):
    """The parameter of a block of gaps, and the bits that Rice takes: of two parameters the better one."""
    number = tl.program_id(0).to(tl.int64)
    gaps = _gaps(indices, number * BLOCK + tl.arange(0, BLOCK), k)
    count = tl.minimum(k - number * BLOCK, BLOCK)
    mean = tl.maximum(tl.sum(gaps, axis=0) * 7 // (10 * count), 1)
    lower = mean * 0
    for bit in tl.static_range(1, 32):
        lower += ((mean >> bit) > 0).to(tl.int64)
    less, more = tl.sum(gaps >> lower, axis=0), tl.sum(gaps >> (lower + 1), axis=0)
    raised = (count + more < less).to(tl.int64)
    tl.store(parameters + number, (lower + raised).to(tl.uint8))
    tl.store(low_bits + number, count * (lower + raised))
    tl.store(unary_bits + number, count + tl.where(raised > 0, more, less))


@triton.jit(do_not_specialize=["smallest", "k", "every"])
def classes_kernel(
    indices, parameters, classes, contexts, low_bits, smallest, k, every,
    BLOCK: tl.constexpr, MANTISSA: tl.constexpr, CONTEXTS: tl.constexpr,
):  # fmt: skip
    """The classes and contexts of one block of ``every``, one such block after another, and its low bits."""
    number = tl.program_id(0).to(tl.int64)
    own = tl.arange(0, BLOCK)
    at = number * every * BLOCK + own
    found, low = _class_of(_gaps(indices, at, k), MANTISSA)
    context = tl.minimum(tl.load(parameters + number * every).to(tl.int32) - smallest, CONTEXTS - 1)
    tl.store(classes + number * BLOCK + own, found.to(tl.uint8), mask=at < k)
    tl.store(contexts + number * BLOCK + own, (own * 0 + context).to(tl.uint8), mask=at < k)
    tl.store(low_bits + number, tl.sum(low, axis=0))  # a gap of 0 has none


@triton.jit(do_not_specialize=["k"])
def low_bits_kernel(classes, low_bits, k, BLOCK: tl.constexpr, MANTISSA: tl.constexpr):
    """The low bits of a block of gaps of these classes."""
    number = tl.program_id(0).to(tl.int64)
    at = number * BLOCK + tl.arange(0, BLOCK)
    found = tl.load(classes + at, mask=at < k, other=0).to(tl.int64)
    tl.store(low_bits + number, tl.sum(tl.maximum((found >> MANTISSA) - MANTISSA, 0), axis=0))


@triton.jit(do_not_specialize=["k"])
def write_kernel(
    indices, parameters, low_begins, unary_begins, low_words, unary_words, k,
    BLOCK: tl.constexpr, MANTISSA: tl.constexpr, RICE: tl.constexpr,
):  # fmt: skip
    """The low bits of a block of gaps, and (RICE) its quotients in unary, each from its first bit on."""
    number = tl.program_id(0).to(tl.int64)
    at = number * BLOCK + tl.arange(0, BLOCK)
    gaps = _gaps(indices, at, k)
    if RICE:
        widths = gaps * 0 + tl.load(parameters + number).to(tl.int64)
        values = gaps & ((1 << widths) - 1)
        lengths = tl.where(at < k, (gaps >> widths) + 1, 0)
        ones = _starts(tl.load(unary_begins + number), lengths) + lengths - 1
        tl.atomic_or(unary_words + (ones >> 5), (1 << (ones & 31)).to(tl.int32), mask=at < k, sem="relaxed")
        widths = tl.where(at < k, widths, 0)
    else:
        _, widths = _class_of(gaps, MANTISSA)
        values = (gaps + 1) & ((1 << widths) - 1)
    starts = _starts(tl.load(low_begins + number), widths)
    shifted = values << (starts & 31)
    words = low_words + (starts >> 5)
    tl.atomic_or(words, shifted.to(tl.int32), mask=values > 0, sem="relaxed")
    tl.atomic_or(words + 1, (shifted >> 32).to(tl.int32), mask=(shifted >> 32) > 0, sem="relaxed")


@triton.jit(do_not_specialize=["num_bytes", "most", "k"])
def read_kernel(
    heads, parameters, low_begins, low_bytes, steps, num_bytes, most, k,
    BLOCK: tl.constexpr, MANTISSA: tl.constexpr, RICE: tl.constexpr,
):  # fmt: skip
    """The steps from index to index (gaps and one, at most ``most``) of a block.

    heads: the places of the ones that end the quotients (RICE), or the classes.
    """
    number = tl.program_id(0).to(tl.int64)
    at = number * BLOCK + tl.arange(0, BLOCK)
    head = tl.load(heads + at, mask=at < k, other=0).to(tl.int64)
    if RICE:
        before = tl.load(heads + at - 1, mask=(at > 0) & (at < k), other=-1).to(tl.int64)
        widths = head * 0 + tl.load(parameters + number).to(tl.int64)
        high = ((head - before - 1) << widths) + 1
    else:
        exponents = head >> MANTISSA
        widths = tl.maximum(exponents - MANTISSA, 0)
        leading = (1 << MANTISSA) | (head & ((1 << MANTISSA) - 1))
        high = (leading << widths) >> tl.maximum(MANTISSA - exponents, 0)
    starts = _starts(tl.load(low_begins + number), widths)
    low = head * 0
    for byte in tl.static_range(5):  # of at most 31 bits
        place = (starts >> 3) + byte
        low |= tl.load(low_bytes + place, mask=(at < k) & (place < num_bytes), other=0).to(tl.int64) << (8 * byte)
    low = (low >> (starts & 7)) & ((1 << widths) - 1)
    tl.store(steps + at, tl.minimum(high + low, most), mask=at < k)


@triton.jit(do_not_specialize=["k"])
def set_kernel(places, words, k, SIZE: tl.constexpr):
    """Set the bits at these places."""
    at = tl.program_id(0).to(tl.int64) * SIZE + tl.arange(0, SIZE)
    place = tl.load(places + at, mask=at < k, other=0)
    tl.atomic_or(words + (place >> 5), 1 << (place & 31), mask=at < k, sem="relaxed")


@triton.jit
def _number_set(byte):
    total = byte & 1
    for bit in tl.static_range(1, 8):
        total += (byte >> bit) & 1
    return total


@triton.jit(do_not_specialize=["num_bytes"])
def count_kernel(data, counts, num_bytes, SIZE: tl.constexpr):
    """How many bits are set in SIZE bytes."""
    at = tl.program_id(0).to(tl.int64) * SIZE + tl.arange(0, SIZE)
    byte = tl.load(data + at, mask=at < num_bytes, other=0).to(tl.int32)
    tl.store(counts + tl.program_id(0), tl.sum(_number_set(byte), axis=0))


@triton.jit(do_not_specialize=["num_bytes"])
def find_kernel(data, begins, places, num_bytes, SIZE: tl.constexpr):
    """The places of the bits that are set in SIZE bytes, ascending."""
    at = tl.program_id(0).to(tl.int64) * SIZE + tl.arange(0, SIZE)
    byte = tl.load(data + at, mask=at < num_bytes, other=0).to(tl.int32)
    rank = _starts(tl.load(begins + tl.program_id(0)), _number_set(byte).to(tl.int64))
    for bit in tl.static_range(8):
        one = (byte >> bit) & 1
        tl.store(places + rank, (8 * at + bit).to(tl.int32), mask=one > 0)
        rank += one
