"""The entropy coders in C++: the functions of ``nuq.coding.entropy_reference``, with the same bytes, on all threads.

``nuq.coding.entropy`` checks what it passes, so that the kernels read and write within what is allocated here.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nuq.native import INT, LONG, POINTER, calls

Ints = NDArray[np.int64]
Bytes = NDArray[np.uint8]
Codes = NDArray[np.unsignedinteger]  # uint8, or uint16 where there are more than 256 symbols

HUFFMAN_BITS = 12  # the longest code: its decoding table (8 KiB) stays in the first-level cache
_CODES = [POINTER, INT, LONG]  # codes, whether they take two bytes, their number
_CONTEXTS = [POINTER, INT, INT]  # contexts, their number, the number of symbols
_call = calls(
    {
        "nuq_entropy_count": ([*_CODES, *_CONTEXTS, POINTER, INT], INT),
        "nuq_entropy_join": ([POINTER, LONG, INT, POINTER, LONG, POINTER, INT], None),
        "nuq_pack": ([*_CODES, INT, POINTER, INT], None),
        "nuq_unpack": ([POINTER, LONG, LONG, INT, INT, INT, POINTER, INT], INT),
        "nuq_rans_encode": ([*_CODES, *_CONTEXTS, POINTER, INT, INT, LONG, POINTER, LONG, POINTER, INT], None),
        "nuq_rans_decode": (
            [POINTER, POINTER, LONG, INT, *_CONTEXTS, POINTER, INT, INT, LONG, POINTER, INT],
            INT,
        ),
        "nuq_huffman_encode": ([*_CODES, POINTER, LONG, POINTER, LONG, POINTER, INT], None),
        "nuq_huffman_decode": ([POINTER, LONG, POINTER, LONG, INT, POINTER, LONG, POINTER, INT], INT),
    }
)


def code_type(num_symbols: int) -> type[np.uint8 | np.uint16]:
    """The type of codes of so many symbols."""
    return np.uint8 if num_symbols <= 256 else np.uint16


def _begins(sizes: NDArray) -> NDArray[np.uint64]:
    return np.concatenate([np.zeros(1, dtype=np.uint64), np.cumsum(sizes, dtype=np.uint64)])


def _joined(scratch: Bytes, stride: int, at_end: bool, sizes: NDArray[np.uint64], threads: int) -> tuple[Ints, Bytes]:
    begin = _begins(sizes)
    joined = np.empty(int(begin[-1]), dtype=np.uint8)
    _call("nuq_entropy_join", scratch, stride, at_end, begin, len(sizes), joined, threads)
    return sizes.astype(np.int64), joined


def count(codes: Codes, num_symbols: int, contexts: Bytes | None, num_contexts: int, threads: int) -> Ints:
    """The counts of all codes by context: int64[num_contexts, num_symbols]; ValueError for one that is too large."""
    counts = np.zeros((num_contexts, num_symbols), dtype=np.int64)
    given = (codes, codes.itemsize == 2, codes.size, contexts, num_contexts, num_symbols)
    if not _call("nuq_entropy_count", *given, counts, threads):
        if int(codes.max()) >= num_symbols:
            raise ValueError(f"code {int(codes.max())}: must be below num_symbols={num_symbols}")
        assert contexts is not None
        raise ValueError(f"context {int(contexts.max())}: must be below num_contexts={num_contexts}")
    return counts


def pack(codes: Codes, num_symbols: int, threads: int) -> Bytes:
    """Pack the codes in fixed width, or five ternary codes to a byte: the layout of ``nuq.kernels.bit_packing``."""
    bits = 0 if num_symbols == 3 else (num_symbols - 1).bit_length()
    packed = np.empty(-(-codes.size * bits // 8) if bits else -(-codes.size // 5), dtype=np.uint8)
    _call("nuq_pack", codes, codes.itemsize == 2, codes.size, bits, packed, threads)
    return packed


def unpack(data: Bytes, num_codes: int, num_symbols: int, threads: int) -> Codes | None:
    """The inverse of ``pack``, from bytes of the right number; None where a code is no symbol."""
    bits = 0 if num_symbols == 3 else (num_symbols - 1).bit_length()
    codes = np.empty(num_codes, dtype=code_type(num_symbols))
    legal = _call("nuq_unpack", data, data.size, num_codes, bits, num_symbols, codes.itemsize == 2, codes, threads)
    return codes if legal else None


def rans_encode(
    codes: Codes, frequencies: Ints, table_bits: int, lanes: int, chunk: int, contexts: Bytes | None, threads: int
) -> tuple[Ints, Bytes]:
    """The number of bytes of every chunk, and the chunks one after another."""
    num_contexts, num_symbols = frequencies.shape
    table = np.ascontiguousarray(frequencies, dtype=np.uint32)
    sizes = np.zeros(-(-codes.size // chunk), dtype=np.uint64)
    stride = 2 * chunk + 4 * lanes + 2  # at most a word a code; one word is written in vain
    scratch = np.empty(stride * len(sizes), dtype=np.uint8)  # what is not written costs no memory
    given = (codes, codes.itemsize == 2, codes.size, contexts, num_contexts, num_symbols)
    _call("nuq_rans_encode", *given, table, table_bits, lanes, chunk, scratch, stride, sizes, threads)
    return _joined(scratch, stride, True, sizes, threads)


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
    table = np.ascontiguousarray(frequencies, dtype=np.uint32)
    codes = np.empty(num_codes, dtype=code_type(num_symbols))
    given = (data, _begins(sizes), num_codes, codes.itemsize == 2, contexts, num_contexts, num_symbols)
    return codes if _call("nuq_rans_decode", *given, table, table_bits, lanes, chunk, codes, threads) else None


def huffman_encode(codes: Codes, words: Ints, piece: int, threads: int) -> tuple[Ints, Bytes]:
    """The bytes of every piece, and the pieces in turn, each padded to a byte; words: of ``huffman_words``."""
    table = words.astype(np.uint32)
    sizes = np.zeros(-(-codes.size // piece), dtype=np.uint64)
    stride = piece * HUFFMAN_BITS // 8 + 16  # whole words are written
    scratch = np.empty(stride * len(sizes), dtype=np.uint8)
    _call("nuq_huffman_encode", codes, codes.itemsize == 2, codes.size, table, piece, scratch, stride, sizes, threads)
    return _joined(scratch, stride, False, sizes, threads)


def huffman_decode(
    data: Bytes, sizes: Ints, num_codes: int, num_symbols: int, windows: NDArray[np.uint16], piece: int, threads: int
) -> Codes | None:
    """The inverse, by ``huffman_windows``; None where a piece does not end where the next one begins."""
    codes = np.empty(num_codes, dtype=code_type(num_symbols))
    begin, wide = _begins(sizes), codes.itemsize == 2
    whole = _call("nuq_huffman_decode", data, data.size, begin, num_codes, wide, windows, piece, codes, threads)
    return codes if whole else None
