"""The tables of the entropy coders: quantised frequencies for rANS, code lengths for Huffman; integers only.

Nothing here rounds a floating-point number, so a histogram gives the same table, and the same bytes of it, on every
machine.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from nuq.errors import MessageError
from nuq.native.entropy import HUFFMAN_BITS, Bytes, Ints

LOG_ONE = 1 << 16  # fixed point of the logarithms below
MAX_TABLE_BITS = 14


@cache
def log2_table() -> Ints:
    """``floor(65536 log2 f)`` for f = 0 (counted as 0), 1 .. 2^14, by squaring a mantissa once for every bit."""
    f = np.arange(1, (1 << MAX_TABLE_BITS) + 1, dtype=np.int64)
    whole = np.searchsorted(1 << np.arange(MAX_TABLE_BITS + 1), f, side="right") - 1
    mantissa, log = f << (30 - whole), whole
    for _ in range(16):
        mantissa = mantissa * mantissa >> 30
        carry = mantissa >> 31
        log, mantissa = 2 * log + carry, mantissa >> carry
    return np.concatenate([np.zeros(1, dtype=np.int64), log])


def rans_bits(counts: Ints, frequencies: Ints, table_bits: int) -> int:
    """The bits that rANS takes for symbols with these counts under these frequencies, without tables and states."""
    return int(np.sum(counts * (table_bits * LOG_ONE - log2_table()[frequencies]))) // LOG_ONE


def quantised(counts: Ints, table_bits: int) -> Ints:
    """Frequencies that sum to ``2^table_bits``, nearly proportional to the counts, at least 1 for a positive count.

    Symbols too rare for their share get 1; the rest share what is left, by largest remainder (ties: the lower symbol).
    """
    frequencies = np.zeros_like(counts)
    rare = np.zeros(counts.shape, dtype=bool)
    while True:
        shared = (counts > 0) & ~rare
        if not shared.any():  # only where there is nothing to code
            return frequencies
        slots, mass = (1 << table_bits) - int(rare.sum()), int(counts[shared].sum())
        share, remainder = np.divmod(counts[shared] * slots, mass)
        if share.min() >= 1:
            break
        rare[np.flatnonzero(shared)[share < 1]] = True
    frequencies[rare] = 1
    largest = np.argsort(-remainder, kind="stable")[: slots - int(share.sum())]
    share[largest] += 1
    frequencies[shared] = share
    return frequencies


def huffman_lengths(counts: Ints) -> Ints:
    """Lengths of an optimal prefix code, none above ``HUFFMAN_BITS``; at least two symbols must have a count.

    The method is package-merge (Larmore and Hirschberg, J. ACM 1990): coins of the symbols' counts at every length,
    pairs of a length being coins of the length before it; the cheapest 2(n - 1) coins at length 1 say how often each
    symbol is taken.
    """
    present = np.flatnonzero(counts)
    order = present[np.argsort(counts[present], kind="stable")]
    weights = counts[order]
    num = len(order)
    coins, single = weights, [np.ones(num, dtype=bool)]
    for _ in range(HUFFMAN_BITS - 1):
        pairs = coins[: len(coins) // 2 * 2].reshape(-1, 2).sum(axis=1)
        merged = np.concatenate([weights, pairs])
        cheapest = np.argsort(merged, kind="stable")
        coins = merged[cheapest]
        single.append(cheapest < num)
    lengths = np.zeros_like(counts)
    taken = 2 * (num - 1)
    for is_symbol in reversed(single):
        symbols = int(is_symbol[:taken].sum())  # always the cheapest ones
        lengths[order[:symbols]] += 1
        taken = 2 * (taken - symbols)
    return lengths


@cache
def _reversed_bits() -> Ints:
    """The HUFFMAN_BITS bits of every window in reverse order."""
    windows = np.arange(1 << HUFFMAN_BITS)
    return np.sum([(windows >> bit & 1) << (HUFFMAN_BITS - 1 - bit) for bit in range(HUFFMAN_BITS)], axis=0)


def huffman_words(lengths: Ints) -> Ints:
    """The canonical code of every symbol, its first bit lowest, and ``length << 16`` above it."""
    words = np.zeros_like(lengths)
    symbols = np.flatnonzero(lengths)
    symbols = symbols[np.argsort(lengths[symbols], kind="stable")]
    sizes = (1 << HUFFMAN_BITS) >> lengths[symbols]  # windows that begin with the code
    words[symbols] = _reversed_bits()[np.cumsum(sizes) - sizes] | lengths[symbols] << 16
    return words


def huffman_windows(lengths: Ints) -> NDArray[np.uint16]:
    """The symbol, of a complete code, that begins each window of 12 bits (first bit lowest), and its length << 12."""
    symbols = np.flatnonzero(lengths)
    symbols = symbols[np.argsort(lengths[symbols], kind="stable")]
    entries = np.repeat(symbols | lengths[symbols] << HUFFMAN_BITS, (1 << HUFFMAN_BITS) >> lengths[symbols])
    return entries[_reversed_bits()].astype(np.uint16)


def write_table(values: Ints, mantissas: bool) -> bytes:
    """Write a table as a little-endian bit stream, padded to a byte.

    A value is 4 bits, its bit length, and the bits below its highest one (frequencies: ``mantissas``), or simply 4 bits
    (lengths).  A zero (4 zero bits) is followed by 4 bits: how many more zeros follow, 0 to 15.
    """
    stream, filled, symbol, entries = 0, 0, 0, values.tolist()
    while symbol < len(entries):
        value = entries[symbol]
        if value:
            width = value.bit_length()
            stream |= (width | (value - (1 << (width - 1))) << 4 if mantissas else value) << filled
            filled += 3 + width if mantissas else 4
            symbol += 1
        else:
            more = 0
            while more < 15 and symbol + more + 1 < len(entries) and not entries[symbol + more + 1]:
                more += 1
            stream |= more << (filled + 4)
            filled += 8
            symbol += 1 + more
    return stream.to_bytes(-(-filled // 8), "little")


def read_table(data: Bytes, num_symbols: int, mantissas: bool) -> tuple[Ints, int]:
    """The inverse of ``write_table``: the values, and the number of bytes that they took; MessageError for damage."""
    available = data[: (18 * num_symbols + 7) // 8].tobytes()  # a value takes 4 + 14 bits at most
    stream, filled = int.from_bytes(available, "little"), 0
    values: list[int] = []
    while len(values) < num_symbols:
        nibble = stream >> filled & 15
        filled += 4
        if not nibble:
            values += [0] * (1 + (stream >> filled & 15))
            filled += 4
        elif mantissas:
            values.append(1 << (nibble - 1) | (stream >> filled & ((1 << (nibble - 1)) - 1)))
            filled += nibble - 1
        else:
            values.append(nibble)
        if filled > 8 * len(available):
            raise MessageError("the table is cut short: the encoding is damaged")
    size = -(-filled // 8)
    if len(values) != num_symbols or stream >> filled & ((1 << (8 * size - filled)) - 1):
        raise MessageError(f"the table has no {num_symbols} symbols: the encoding is damaged")
    return np.array(values, dtype=np.int64), size


def read_frequencies(data: Bytes, num_symbols: int, table_bits: int) -> tuple[Ints, int]:
    """Read a rANS table: its frequencies, which sum to ``2^table_bits`` or (an unused context) to 0, and its bytes."""
    frequencies, size = read_table(data, num_symbols, mantissas=True)
    if frequencies.sum() not in (0, 1 << table_bits):
        raise MessageError(f"frequencies sum to {frequencies.sum()}, not to {1 << table_bits}: the encoding is damaged")
    return frequencies, size


def read_lengths(data: Bytes, num_symbols: int) -> tuple[Ints, int]:
    """Read a Huffman table: the lengths of a complete code (Kraft sum 1), and the number of its bytes."""
    lengths, size = read_table(data, num_symbols, mantissas=False)
    if lengths.max() > HUFFMAN_BITS or np.sum(1 << (HUFFMAN_BITS - lengths[lengths > 0])) != 1 << HUFFMAN_BITS:
        raise MessageError("the code lengths are no complete prefix code: the encoding is damaged")
    return lengths, size
