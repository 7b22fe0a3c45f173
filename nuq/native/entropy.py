"""The entropy coders in C++: the functions of ``nuq.coding.entropy_reference``, with the same bytes, on all threads.

``nuq.coding.entropy`` checks what it passes, so that the kernels read and write within what is allocated here.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nuq.coding.entropy_tables import HUFFMAN_BITS, Bytes, Codes, Damaged, Ints, huffman_windows, huffman_words
from nuq.native import library


def _call(name: str, *arguments: NDArray | int | None) -> int:
    """Call a function: arrays as pointers (contiguous ones), None as null, integers as 64 bits or less."""
    loaded = library()
    assert loaded is not None
    passed: list[Any] = []
    for argument in arguments:
        if isinstance(argument, np.ndarray):
            assert argument.flags.c_contiguous
            passed.append(ctypes.c_void_p(argument.ctypes.data))
        else:
            passed.append(ctypes.c_uint64(argument) if argument is not None else ctypes.c_void_p(None))
    return getattr(loaded, name)(*passed)


def _begins(sizes: NDArray) -> NDArray[np.uint64]:
    return np.concatenate([np.zeros(1, dtype=np.uint64), np.cumsum(sizes, dtype=np.uint64)])


def _joined(scratch: Bytes, stride: int, at_end: bool, sizes: NDArray[np.uint64], threads: int) -> tuple[Ints, Bytes]:
    begin = _begins(sizes)
    joined = np.empty(int(begin[-1]), dtype=np.uint8)
    _call("nuq_entropy_join", scratch, stride, at_end, begin, len(sizes), joined, threads)
    return sizes.astype(np.int64), joined


def count(codes: Codes, num_symbols: int, contexts: Bytes | None, num_contexts: int, threads: int) -> Ints:
    """The counts of all codes by context: int64[num_contexts, num_symbols].

    ValueError where a code or a context is too large.
    """
    counts = np.zeros((num_contexts, num_symbols), dtype=np.int64)
    if not _call(
        "nuq_entropy_count",
        codes,
        codes.itemsize == 2,
        codes.size,
        contexts,
        num_contexts,
        num_symbols,
        counts,
        threads,
    ):
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


def unpack(data: Bytes, num_codes: int, num_symbols: int, threads: int) -> Codes:
    """The inverse of ``pack``, from bytes of the right number; Damaged where a code is no symbol."""
    bits = 0 if num_symbols == 3 else (num_symbols - 1).bit_length()
    codes = np.empty(num_codes, dtype=np.uint8 if num_symbols <= 256 else np.uint16)
    if not _call("nuq_unpack", data, data.size, num_codes, bits, num_symbols, codes.itemsize == 2, codes, threads):
        raise Damaged(f"a code beyond {num_symbols} symbols: the encoding is damaged")
    return codes


def rans_encode(
    codes: Codes, frequencies: Ints, table_bits: int, lanes: int, chunk: int, contexts: Bytes | None, threads: int
) -> tuple[Ints, Bytes]:
    """The number of bytes of every chunk, and the chunks one after another."""
    num_contexts, num_symbols = frequencies.shape
    table = np.ascontiguousarray(frequencies, dtype=np.uint32)
    sizes = np.zeros(-(-codes.size // chunk), dtype=np.uint64)
    stride = 2 * chunk + 4 * lanes + 2  # at most a word a code; one word is written in vain
    scratch = np.empty(stride * len(sizes), dtype=np.uint8)  # what is not written costs no memory
    wide = codes.itemsize == 2
    _call(
        "nuq_rans_encode",
        *(codes, wide, codes.size, contexts, num_contexts, num_symbols),
        *(table, table_bits, lanes, chunk, scratch, stride, sizes, threads),
    )
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
) -> Codes:
    """The inverse of ``rans_encode``; Damaged where a chunk does not end where the encoder began."""
    num_contexts, num_symbols = frequencies.shape
    table = np.ascontiguousarray(frequencies, dtype=np.uint32)
    codes = np.empty(num_codes, dtype=np.uint8 if num_symbols <= 256 else np.uint16)
    wide = codes.itemsize == 2
    if not _call(
        "nuq_rans_decode",
        *(data, _begins(sizes), num_codes, wide, contexts, num_contexts, num_symbols),
        *(table, table_bits, lanes, chunk, codes, threads),
    ):
        raise Damaged("a chunk does not end where it began: the encoding is damaged")
    return codes


def huffman_encode(codes: Codes, lengths: Ints, piece: int, threads: int) -> tuple[Ints, Bytes]:
    """The bytes of every piece of ``piece`` codes, and the pieces one after another, each padded to a byte."""
    words = huffman_words(lengths).astype(np.uint32)
    sizes = np.zeros(-(-codes.size // piece), dtype=np.uint64)
    stride = piece * HUFFMAN_BITS // 8 + 16  # whole words are written
    scratch = np.empty(stride * len(sizes), dtype=np.uint8)
    _call("nuq_huffman_encode", codes, codes.itemsize == 2, codes.size, words, piece, scratch, stride, sizes, threads)
    return _joined(scratch, stride, False, sizes, threads)


def huffman_decode(data: Bytes, sizes: Ints, num_codes: int, lengths: Ints, piece: int, threads: int) -> Codes:
    """The inverse of ``huffman_encode``; Damaged where a piece does not end where the next one begins."""
    codes = np.empty(num_codes, dtype=np.uint8 if lengths.size <= 256 else np.uint16)
    windows, begin = huffman_windows(lengths), _begins(sizes)
    if not _call(
        "nuq_huffman_decode", data, data.size, begin, num_codes, codes.itemsize == 2, windows, piece, codes, threads
    ):
        raise Damaged("a piece does not end where the next one begins: the encoding is damaged")
    return codes
