"""The entropy coders in NumPy, which nuq/native/src/simd/rans.cpp and huffman.cpp must reproduce byte for byte.

Steps through the positions of a lane or of a piece; everything beside one another in the format is one vector
operation.  ``nuq.native.entropy`` has the same functions; ``threads`` is for them.  Arguments are checked by
``nuq.coding.entropy``.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nuq.native.entropy import HUFFMAN_BITS, Bytes, Codes, Ints, code_type

_BLOCK = 5 << 18  # codes packed at a time: fills whole bytes in every width
_POWERS_OF_3 = np.array([1, 3, 9, 27, 81], dtype=np.uint8)
RANS_LOW = 1 << 15  # states live in [2^15, 2^31); a state below reads one 16-bit word


def count(codes: Codes, num_symbols: int, contexts: Bytes | None, num_contexts: int, threads: int) -> Ints:
    """The counts of all codes by context: int64[num_contexts, num_symbols]; ValueError for one that is too large."""
    if codes.size and int(codes.max()) >= num_symbols:
        raise ValueError(f"code {int(codes.max())}: must be below num_symbols={num_symbols}")
    if contexts is None:
        return np.bincount(codes, minlength=num_symbols)[None]
    if contexts.size and int(contexts.max()) >= num_contexts:
        raise ValueError(f"context {int(contexts.max())}: must be below num_contexts={num_contexts}")
    joint = contexts.astype(np.int64) * num_symbols + codes
    return np.bincount(joint, minlength=num_contexts * num_symbols).reshape(num_contexts, num_symbols)


def _laid_out(values: NDArray, chunk: int, lanes: int) -> NDArray:
    """The vector [n] laid out as [chunks, positions, lanes], padded with zeros."""
    chunks = -(-values.size // chunk)
    padded = np.zeros(chunks * chunk, dtype=np.int64)
    padded[: values.size] = values
    return padded.reshape(chunks, chunk // lanes, lanes)


def rans_encode(
    codes: Codes, frequencies: Ints, table_bits: int, lanes: int, chunk: int, contexts: Bytes | None, threads: int
) -> tuple[Ints, Bytes]:
    """The bytes of every chunk, and the chunks one after another: states uint32[lanes] and words uint16 each.

    frequencies: [num_contexts, num_symbols]; chunk: codes, a multiple of lanes (the last chunk may be shorter).
    """
    num_symbols = frequencies.shape[1]
    flat = frequencies.reshape(-1)
    starts = (np.cumsum(frequencies, axis=1) - frequencies).reshape(-1)
    entries = _laid_out(codes if contexts is None else contexts.astype(np.int64) * num_symbols + codes, chunk, lanes)
    chunks, positions, _ = entries.shape
    coded = np.zeros(chunks * chunk, dtype=bool)
    coded[: codes.size] = True
    coded = coded.reshape(entries.shape)
    words = np.zeros(entries.shape, dtype=np.uint16)
    written = np.zeros(entries.shape, dtype=bool)
    states = np.full((chunks, lanes), RANS_LOW, dtype=np.int64)
    for position in reversed(range(positions)):
        active = slice(None) if coded[-1, position, -1] else coded[:, position]
        entry = entries[:, position][active]
        f, x = flat[entry], states[active]
        full = x >= f << (31 - table_bits)
        words[:, position][active] = x & 0xFFFF
        written[:, position][active] = full
        x = np.where(full, x >> 16, x)
        quotient = x // f
        states[active] = (quotient << table_bits) + (x - quotient * f) + starts[entry]
    parts: list[Bytes] = []
    for index in range(chunks):
        parts += [states[index].astype("<u4").view(np.uint8), words[index][written[index]].astype("<u2").view(np.uint8)]
    sizes = np.array([head.size + tail.size for head, tail in zip(parts[::2], parts[1::2], strict=True)])
    return sizes, np.concatenate(parts)


def rans_decode(
    data: Bytes,
    sizes: Ints,
    num_codes: int,
    frequencies: Ints,
    table_bits: int,
    lanes: int,
    chunk: int,
    contexts: Bytes | None,
    threads: int,
) -> Codes | None:
    """The inverse of ``rans_encode``; None where a chunk does not end where the encoder began."""
    num_contexts, num_symbols = frequencies.shape
    total = 1 << table_bits
    symbol_of = np.zeros((num_contexts, total), dtype=np.int64)
    starts = np.cumsum(frequencies, axis=1) - frequencies
    for context in range(num_contexts):
        if frequencies[context].any():
            symbol_of[context] = np.repeat(np.arange(num_symbols), frequencies[context])
    entry_of = (symbol_of + num_symbols * np.arange(num_contexts)[:, None]).reshape(-1)
    frequency_of = frequencies.reshape(-1)[entry_of]
    offset_of = np.tile(np.arange(total), num_contexts) - starts.reshape(-1)[entry_of]
    chunks = len(sizes)
    begin = np.cumsum(sizes) - sizes
    if (sizes < 4 * lanes).any() or (sizes % 2).any():
        return None  # a chunk is shorter than its states
    heads = begin[:, None] + np.arange(4 * lanes)
    states = data[heads].view("<u4").astype(np.int64)
    if (states < RANS_LOW).any() or (states >> 31).any():
        return None  # a state outside [2^15, 2^31)
    tails = [data[first + 4 * lanes : first + size].view("<u2") for first, size in zip(begin, sizes, strict=True)]
    words = np.concatenate([*tails, np.zeros(1, dtype="<u2")]).astype(np.int64)
    ends = np.cumsum((sizes - 4 * lanes) // 2)
    at = ends - (sizes - 4 * lanes) // 2
    codes = np.zeros((chunks, chunk // lanes, lanes), dtype=code_type(num_symbols))
    place = None if contexts is None else _laid_out(contexts, chunk, lanes) << table_bits
    last = num_codes - (chunks - 1) * chunk  # codes of the last chunk
    for position in range(chunk // lanes if chunks > 1 else -(-last // lanes)):
        slot = states & (total - 1)
        if place is not None:
            slot |= place[:, position]
        codes[:, position] = symbol_of.reshape(-1)[slot]
        x = frequency_of[slot] * (states >> table_bits) + offset_of[slot]
        low = x < RANS_LOW
        if (position + 1) * lanes > last:  # lanes of the last chunk that are done
            idle = np.arange(position * lanes, (position + 1) * lanes) >= last
            x[-1, idle], low[-1, idle] = states[-1, idle], False
        rank = np.cumsum(low, axis=1)
        word = words[np.minimum(at[:, None] + rank - 1, words.size - 1)]
        states = np.where(low, x << 16 | word, x)
        at += rank[:, -1]
    if (at != ends).any() or (states != RANS_LOW).any():
        return None
    return codes.reshape(-1)[:num_codes]


def pack(codes: Codes, num_symbols: int, threads: int) -> Bytes:
    """Pack the codes in fixed width, or five ternary codes to a byte: the layout of ``nuq.kernels.bit_packing``."""
    bits, parts = (num_symbols - 1).bit_length(), [np.empty(0, dtype=np.uint8)]
    for at in range(0, codes.size, _BLOCK):
        block = codes[at : at + _BLOCK]
        if num_symbols == 3:
            digits = np.zeros(-(-block.size // 5) * 5, dtype=np.uint8)
            digits[: block.size] = block
            parts.append(digits.reshape(-1, 5) @ _POWERS_OF_3)
        else:
            rows = block.astype("<u2" if bits > 8 else "u1").view(np.uint8).reshape(block.size, -1)
            parts.append(np.packbits(np.unpackbits(rows, axis=1, count=bits, bitorder="little"), bitorder="little"))
    return np.concatenate(parts)


def unpack(data: Bytes, num_codes: int, num_symbols: int, threads: int) -> Codes | None:
    """The inverse of ``pack``, from bytes of the right number; None where a code is no symbol."""
    bits = (num_symbols - 1).bit_length()
    codes = np.zeros(num_codes, dtype=code_type(num_symbols))
    for at in range(0, num_codes, _BLOCK):
        num = min(_BLOCK, num_codes - at)
        if num_symbols == 3:
            block = data[at // 5 : -(-(at + num) // 5)]
            if int(block.max()) > 242:
                return None  # five ternary codes are at most 242
            codes[at : at + num] = (block[:, None] // _POWERS_OF_3 % 3).reshape(-1)[:num]
        else:
            rows = np.unpackbits(data[at * bits // 8 : -(-(at + num) * bits // 8)], count=num * bits, bitorder="little")
            numbers = np.packbits(rows.reshape(num, bits), axis=1, bitorder="little")
            codes[at : at + num] = numbers.view("<u2" if bits > 8 else "u1")[:, 0]
    return None if num_codes and int(codes.max()) >= num_symbols else codes


def pack_bits(values: Ints, widths: Ints) -> Bytes:
    """The lowest ``widths`` bits of every value as one little-endian bit stream, padded with zeros to a byte."""
    ends = np.cumsum(widths)
    within = np.arange(ends[-1] if ends.size else 0) - np.repeat(ends - widths, widths)
    return np.packbits((np.repeat(values, widths) >> within & 1).astype(np.uint8), bitorder="little")


def huffman_encode(codes: Codes, words: Ints, piece: int, threads: int) -> tuple[Ints, Bytes]:
    """The bytes of every piece, and the pieces in turn, each padded to a byte; words: of ``huffman_words``."""
    pieces = (words[codes[at : at + piece]] for at in range(0, codes.size, piece))
    parts = [pack_bits(word & 0xFFFF, word >> 16) for word in pieces]
    return np.array([part.size for part in parts]), np.concatenate(parts)


def huffman_decode(
    data: Bytes, sizes: Ints, num_codes: int, num_symbols: int, windows: NDArray[np.uint16], piece: int, threads: int
) -> Codes | None:
    """The inverse, by ``huffman_windows``; None where a piece does not end where the next one begins."""
    entries = windows.astype(np.int64)
    pieces = len(sizes)
    ends = np.cumsum(sizes)
    longest = min(piece, num_codes)
    padded = np.concatenate([data, np.zeros(longest * HUFFMAN_BITS // 8 + 3, dtype=np.uint8)]).astype(np.int32)
    three = padded[:-2] | padded[1:-1] << 8 | padded[2:] << 16
    codes = np.zeros((longest, pieces), dtype=code_type(num_symbols))
    at = 8 * (ends - sizes)
    last = num_codes - (pieces - 1) * piece
    for position in range(longest):
        if position == last:  # the last piece is done
            pieces -= 1
        here = at[:pieces]
        entry = entries[three[here >> 3] >> (here & 7) & ((1 << HUFFMAN_BITS) - 1)]
        codes[position, :pieces] = entry & ((1 << HUFFMAN_BITS) - 1)
        at[:pieces] += entry >> HUFFMAN_BITS
    padding = three[at >> 3] >> (at & 7) & ((1 << (-at % 8)) - 1)
    if (-(-at // 8) != ends).any() or padding.any():
        return None
    return codes.T.reshape(-1)[:num_codes]
