"""Entropy coding of codes by Huffman or rANS.

rANS comes within 2 % of the entropy; Huffman cannot take less than one bit a code.  An encoding is read with nothing
but its bytes, the number of codes and the number of symbols (and the contexts, where it was written with them).  It is
little-endian, and begins with a byte that says how it goes on:

- 0, raw: packed as ``nuq.kernels.bit_packing`` does it (one symbol: nothing).  Every encoding that would be larger than
  this becomes this.
- 1, constant: the code uint16 that all are.
- 2, Huffman: code lengths, bytes of every piece but the last uint16, pieces.  A piece is 8192 codes (the last: what is
  left) as a bit stream of its own, so that pieces are decoded beside one another.
- 3, rANS: ``table_bits + 16 log2(lanes)`` uint8, chunks uint16, frequencies, bytes of every chunk but the last uint32,
  chunks.
- 4, rANS with contexts: the same, with the frequencies of every context.

Tables are as in ``nuq.coding.entropy_tables``.  A chunk of rANS holds ``ceil(n / chunks)`` codes, rounded up to a
multiple of 32 (the last: what is left).  Code ``i`` of it is coded by state ``i mod lanes``.  The chunk is the states
that decoding starts with (uint32), and the 16-bit words that it reads, in its order.  With ``M = 2^table_bits``, a
symbol of frequency ``f`` whose slots start at ``c`` (the symbols before it), a state ``x`` decodes to the symbol in
whose slots ``x mod M`` falls and becomes ``f floor(x / M) + x mod M - c``; below ``2^15`` it becomes ``2^16 x + word``.
Decoding ends with every state at ``2^15`` and all words read: damage shows with all but certainty.  Huffman's and raw
codes show less of it; a message has its CRC for that.

Differences from the papers, which build the Huffman code from the levels' probabilities under the fitted distribution
(ALQ, Faghri et al. 2020; QSGD uses Elias codes): here from the histogram of the very codes, with the table sent along,
so the code is optimal for them and the receiver needs no distribution.  rANS: Duda, arXiv 1311.2540.

Overhead of rANS beside the frequencies: 6 bytes, and 4 a chunk for its size and about 2 for each of its up to 32 lanes;
chunks are made of at least 96 KiB and lanes of at least 512 bytes, where that leaves a lane at most 2^14 codes.
"""

from __future__ import annotations

from types import ModuleType
from typing import Final, NamedTuple

import numpy as np

from nuq import native
from nuq.coding import entropy_reference
from nuq.coding.entropy_tables import (
    MAX_TABLE_BITS,
    huffman_lengths,
    huffman_windows,
    huffman_words,
    quantised,
    rans_bits,
    read_frequencies,
    read_lengths,
    write_table,
)
from nuq.errors import MessageError
from nuq.native import entropy as entropy_cpu
from nuq.native.entropy import Bytes, Codes, Ints, code_type

CODERS = ("huffman", "rans")
MAX_SYMBOLS = 512
MAX_CONTEXTS = 16
PIECE = 8192  # codes of a piece of Huffman: 2 bytes and half a one of padding for some 3 KiB
RAW, CONSTANT, HUFFMAN, RANS, RANS_CONTEXTS = range(5)
_MAX_LANES = 32
_CHUNK_BYTES: Final = 96 << 10
_LANE_BYTES: Final = 512
_LANE_CODES: Final = 1 << 14
_TABLE_BITS: Final = (12, MAX_TABLE_BITS)
NO_FREQUENCIES = "no frequencies where there are codes: the encoding is damaged, or not of these contexts"
NOT_WHOLE = "a chunk does not end where it began: the encoding is damaged"


def _kernels() -> ModuleType:
    return entropy_reference if native.library() is None else entropy_cpu


def packed_bytes(num_codes: int, num_symbols: int) -> int:
    """The number of bytes of the codes in raw form, without the byte that says so."""
    return -(-num_codes // 5) if num_symbols == 3 else -(-num_codes * (num_symbols - 1).bit_length() // 8)


def encoded_bound(num_codes: int, num_symbols: int) -> int:
    """The largest number of bytes that ``encode`` returns."""
    return 1 + packed_bytes(num_codes, num_symbols)


def _check(num_symbols: int, coder: str, contexts: Bytes | None, num_contexts: int, num_codes: int) -> None:
    if coder not in CODERS:
        raise ValueError(f"coder={coder!r}: must be one of {', '.join(CODERS)}")
    if not 1 <= num_symbols <= MAX_SYMBOLS:
        raise ValueError(f"num_symbols={num_symbols}: must be between 1 and {MAX_SYMBOLS}")
    if num_codes < 0:
        raise ValueError(f"num_codes={num_codes}: must not be negative")
    if contexts is None:
        return
    if coder != "rans":
        raise ValueError(f"contexts with coder={coder!r}: only rans codes with contexts")
    if not 1 <= num_contexts <= MAX_CONTEXTS:
        raise ValueError(f"num_contexts={num_contexts}: must be between 1 and {MAX_CONTEXTS}")
    if contexts.dtype != np.uint8 or contexts.shape != (num_codes,):
        raise ValueError(
            f"contexts {contexts.dtype}{list(contexts.shape)}: must be uint8[{num_codes}], one for each code"
        )


def encode(
    codes: Codes,
    num_symbols: int,
    coder: str,
    contexts: Bytes | None = None,
    num_contexts: int = MAX_CONTEXTS,
    threads: int = 0,
) -> Bytes:
    """The bytes of ``codes``, never more than ``encoded_bound``.

    codes: uint8[n] or uint16[n], each below num_symbols (1 .. 512).  coder: "huffman" or "rans".  contexts: uint8[n]
    below num_contexts (1 .. 16), with rANS: codes are coded with the frequencies of their context, which
        the decoder must be given too.  Worth it where the receiver knows something that the codes depend on, as the
        dither; left out where their tables would cost more than they save.
    threads: how many the library may use; 0 is as many as OpenMP takes.  The bytes do not depend on it.
    """
    if codes.ndim != 1 or codes.dtype not in (np.uint8, np.uint16):
        raise ValueError(f"codes {codes.dtype}{list(codes.shape)}: must be uint8 or uint16, in one dimension")
    _check(num_symbols, coder, contexts, num_contexts, codes.size)
    codes = np.ascontiguousarray(codes)
    contexts = None if contexts is None else np.ascontiguousarray(contexts)
    counts = _kernels().count(codes, num_symbols, contexts, 1 if contexts is None else num_contexts, threads)
    codes = codes.astype(code_type(num_symbols), copy=False)
    used = np.flatnonzero(counts.sum(axis=0))
    coded = None
    if len(used) == 1 and num_symbols > 1:
        coded = np.concatenate([_numbers(CONSTANT, "u1"), _numbers(used, "<u2")])
    elif len(used) > 1:
        limit = packed_bytes(codes.size, num_symbols)
        if coder == "huffman":
            coded = _encode_huffman(codes, counts[0], limit, threads)
        else:
            coded = _encode_rans(codes, counts, limit, contexts, threads)
    if coded is not None and coded.size <= encoded_bound(codes.size, num_symbols):
        return coded
    packed = _kernels().pack(codes, num_symbols, threads) if num_symbols > 1 else codes[:0]
    return np.concatenate([_numbers(RAW, "u1"), packed])


def decode(
    data: Bytes,
    num_codes: int,
    num_symbols: int,
    coder: str,
    contexts: Bytes | None = None,
    num_contexts: int = MAX_CONTEXTS,
    threads: int = 0,
) -> Codes:
    """The decoded codes: uint8[num_codes], or uint16[num_codes] for more than 256 symbols.

    Everything but ``data`` as in ``encode``.  MessageError for bytes that are no whole encoding of so many codes;
    memory and time are bounded by ``num_codes``, whatever the bytes.
    """
    if data.ndim != 1 or data.dtype != np.uint8:
        raise ValueError(f"data {data.dtype}{list(data.shape)}: must be uint8, in one dimension")
    _check(num_symbols, coder, contexts, num_contexts, num_codes)
    if contexts is not None and contexts.size and int(contexts.max()) >= num_contexts:
        raise ValueError(f"context {int(contexts.max())}: must be below num_contexts={num_contexts}")
    if not data.size:
        raise MessageError("no bytes: the encoding is cut short")
    data = np.ascontiguousarray(data)
    form, body = int(data[0]), data[1:]
    if form == RAW:
        return _unpack(body, num_codes, num_symbols, threads)
    if form == CONSTANT and num_codes:
        if body.size != 2 or (code := int(body.view("<u2")[0])) >= num_symbols:
            raise MessageError(f"a constant that is no code below {num_symbols}: the encoding is damaged")
        return np.full(num_codes, code, dtype=code_type(num_symbols))
    coded = [HUFFMAN] if coder == "huffman" else [RANS] if contexts is None else [RANS, RANS_CONTEXTS]
    legal = [RAW, CONSTANT, *coded]
    if form not in legal or num_codes < 2 or num_symbols < 2:
        raise MessageError(
            f"an encoding of form {form} where {num_codes} codes by {coder} are of form {', '.join(map(str, legal))}"
        )
    if form == HUFFMAN:
        return _decode_huffman(body, num_codes, num_symbols, threads)
    return _decode_rans(body, num_codes, num_symbols, None if form == RANS else contexts, num_contexts, threads)


def _numbers(values: int | Ints, dtype: str) -> Bytes:
    return np.atleast_1d(np.asarray(values)).astype(dtype).view(np.uint8)


def _read(data: Bytes, num: int, dtype: str) -> tuple[Ints, Bytes]:
    """The first ``num`` numbers, and the bytes that follow them."""
    size = num * np.dtype(dtype).itemsize
    if data.size < size:
        raise MessageError(f"{data.size} bytes where {size} are needed: the encoding is cut short")
    return data[:size].view(dtype).astype(np.int64), data[size:]


def _read_sizes(data: Bytes, num: int, dtype: str, elsewhere: int = 0) -> tuple[Ints, Bytes]:
    """The sizes of ``num`` parts, and the parts; the size of the last part is what is left.

    elsewhere: bytes that follow the data but are not in it.
    """
    sizes, rest = _read(data, num - 1, dtype)
    left = rest.size + elsewhere
    last = left - int(sizes.sum())
    if last < 0:
        raise MessageError(f"{left} bytes where {left - last} are needed: the encoding is cut short")
    return np.append(sizes, last), rest


def _unpack(data: Bytes, num_codes: int, num_symbols: int, threads: int) -> Codes:
    size = packed_bytes(num_codes, num_symbols)
    if data.size != size:
        raise MessageError(f"{data.size} packed bytes: {num_codes} codes of {num_symbols} symbols take {size}")
    if num_symbols == 1:
        return np.zeros(num_codes, dtype=np.uint8)
    codes = _kernels().unpack(data, num_codes, num_symbols, threads)
    if codes is None:
        raise MessageError(f"a code beyond {num_symbols} symbols: the encoding is damaged")
    return codes


# --- Huffman ------------------------------------------------------------------------------------------------------


def _encode_huffman(codes: Codes, counts: Ints, limit: int, threads: int) -> Bytes | None:
    lengths = huffman_lengths(counts)
    if int(np.sum(counts * lengths)) // 8 >= limit:
        return None
    sizes, pieces = _kernels().huffman_encode(codes, huffman_words(lengths), PIECE, threads)
    table = np.frombuffer(write_table(lengths, mantissas=False), dtype=np.uint8)
    return np.concatenate([_numbers(HUFFMAN, "u1"), table, _numbers(sizes[:-1], "<u2"), pieces])


def _decode_huffman(body: Bytes, num_codes: int, num_symbols: int, threads: int) -> Codes:
    lengths, size = read_lengths(body, num_symbols)
    sizes, pieces = _read_sizes(body[size:], -(-num_codes // PIECE), "<u2")
    if 8 * pieces.size < num_codes:
        raise MessageError(
            f"{pieces.size} bytes where {num_codes} codes take a bit each, or more: the encoding is cut short"
        )
    windows = huffman_windows(lengths)
    codes = _kernels().huffman_decode(pieces, sizes, num_codes, num_symbols, windows, PIECE, threads)
    if codes is None:
        raise MessageError("a piece does not end where the next one begins: the encoding is damaged")
    return codes


# --- rANS ---------------------------------------------------------------------------------------------------------


def _chunk_codes(num_codes: int, chunks: int) -> int:
    return -(-num_codes // (chunks * _MAX_LANES)) * _MAX_LANES


def _layout(num_codes: int, coded_bytes: int) -> tuple[int, int]:
    """log2 of the number of lanes, and the number of chunks, for codes that take about so many bytes."""
    by_size = (coded_bytes // _LANE_BYTES).bit_length() - 1
    by_steps = ((num_codes - 1) // _LANE_CODES).bit_length()
    log_lanes = min(max(by_size, by_steps, 0), _MAX_LANES.bit_length() - 1)
    chunks = min(max(coded_bytes // _CHUNK_BYTES, 1), 0xFFFF)
    chunks -= chunks % 2 if chunks > 1 else 0  # an even number, for two threads
    return log_lanes, -(-num_codes // _chunk_codes(num_codes, chunks))


class _Plan(NamedTuple):
    """Quantised frequencies int64[contexts, symbols], their bytes, and the bits that the codes take under them."""

    table_bits: int
    frequencies: Ints
    tables: bytes
    bits: int

    @property
    def size(self) -> int:
        return len(self.tables) + self.bits // 8


def _plan(counts: Ints) -> _Plan:
    table_bits, frequencies, bits = 0, counts, 0
    for tried_bits in _TABLE_BITS:  # the larger table only where it saves a thousandth
        tried = np.stack([quantised(row, tried_bits) for row in counts])
        cost = rans_bits(counts, tried, tried_bits)
        if not table_bits or cost < bits - (bits >> 10):
            table_bits, frequencies, bits = tried_bits, tried, cost
    return _Plan(table_bits, frequencies, b"".join(write_table(row, mantissas=True) for row in frequencies), bits)


class Rans(NamedTuple):
    """How codes are coded by rANS: the arguments of ``rans_encode``, and what the head says of them.

    frequencies: int64[num_contexts, num_symbols], one row where contexts would cost more than they save.
    """

    frequencies: Ints
    table_bits: int
    log_lanes: int
    chunk: int
    tables: bytes
    with_contexts: bool

    @property
    def arguments(self) -> tuple[Ints, int, int, int]:
        """Frequencies, table bits, lanes, codes of a chunk."""
        return self.frequencies, self.table_bits, 1 << self.log_lanes, self.chunk

    def head(self, sizes: Ints) -> Bytes:
        """The bytes before the chunks, which are of these sizes."""
        forms = np.array([RANS_CONTEXTS if self.with_contexts else RANS, self.table_bits | self.log_lanes << 4])
        tables = np.frombuffer(self.tables, dtype=np.uint8)
        return np.concatenate([_numbers(forms, "u1"), _numbers(len(sizes), "<u2"), tables, _numbers(sizes[:-1], "<u4")])


def planned_rans(counts: Ints, num_codes: int, limit: int) -> Rans | None:
    """The coding of codes with these counts, int64[num_contexts, num_symbols]; None for no less than limit bytes."""
    plan, with_contexts = _plan(counts), len(counts) > 1
    if with_contexts and (alone := _plan(counts.sum(axis=0, keepdims=True))).size <= plan.size:
        plan, with_contexts = alone, False
    if plan.bits // 8 >= limit:
        return None
    log_lanes, chunks = _layout(num_codes, plan.bits // 8)
    chunk = _chunk_codes(num_codes, chunks)
    return Rans(plan.frequencies, plan.table_bits, log_lanes, chunk, plan.tables, with_contexts)


def _encode_rans(codes: Codes, counts: Ints, limit: int, contexts: Bytes | None, threads: int) -> Bytes | None:
    plan = planned_rans(counts, codes.size, limit)
    if plan is None:
        return None
    sizes, coded = _kernels().rans_encode(codes, *plan.arguments, contexts if plan.with_contexts else None, threads)
    return np.concatenate([plan.head(sizes), coded])


def longest_rans_head(chunks: int, num_symbols: int, num_contexts: int) -> int:
    """The largest number of bytes that ``read_rans_head`` reads."""
    return 3 + num_contexts * -(-18 * num_symbols // 8) + 4 * chunks  # a frequency takes 4 + 14 bits at most


def read_rans_head(
    body: Bytes, num_bytes: int, num_codes: int, num_symbols: int, num_contexts: int
) -> tuple[int, Ints, tuple[Ints, int, int, int]]:
    """Where the chunks begin in the body, their bytes, and ``Rans.arguments``.

    body: what follows the form's byte, at least its first ``longest_rans_head`` bytes; num_bytes: the length of the
    whole of it.  MessageError where no encoding begins so.
    """
    (form,), rest = _read(body, 1, "u1")
    (chunks,), rest = _read(rest, 1, "<u2")
    table_bits, lanes, chunks = int(form) & 15, 1 << (int(form) >> 4), int(chunks)
    known = table_bits in _TABLE_BITS and lanes <= _MAX_LANES
    if not known or not chunks or (chunks - 1) * _chunk_codes(num_codes, chunks) >= num_codes:
        raise MessageError(
            f"{table_bits} bits, {lanes} lanes, {chunks} chunks for {num_codes} codes: the encoding is damaged"
        )
    rows: list[Ints] = []
    for _ in range(num_contexts):
        row, size = read_frequencies(rest, num_symbols, table_bits)
        rows.append(row)
        rest = rest[size:]
    sizes, rest = _read_sizes(rest, chunks, "<u4", num_bytes - body.size)
    return body.size - rest.size, sizes, (np.stack(rows), table_bits, lanes, _chunk_codes(num_codes, chunks))


def _decode_rans(
    body: Bytes, num_codes: int, num_symbols: int, contexts: Bytes | None, num_contexts: int, threads: int
) -> Codes:
    num_rows = 1 if contexts is None else num_contexts
    start, sizes, how = read_rans_head(body, body.size, num_codes, num_symbols, num_rows)
    empty = how[0].sum(axis=1) == 0
    if empty.any() and (contexts is None or empty[np.unique(contexts)].any()):
        raise MessageError(NO_FREQUENCIES)
    contexts = None if contexts is None else np.ascontiguousarray(contexts)
    codes = _kernels().rans_decode(body[start:], sizes, num_codes, *how, contexts, threads)
    if codes is None:
        raise MessageError(NOT_WHOLE)
    return codes
