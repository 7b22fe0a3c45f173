"""What the two implementations of index coding, of the CPU and of a GPU, have in common: the forms and their sizes."""

from __future__ import annotations

from nuq.coding.entropy_tables import Ints, quantised, rans_bits, write_table

FORMS = ("auto", "int32", "bitmap", "delta")
INT32, BITMAP, RICE, RANS, OTHERS = range(5)
BLOCK = 512  # gaps with one parameter: its byte adds 1/64 bit to each
MANTISSA = 3
NUM_CLASSES = 32 << MANTISSA
MAX_CONTEXTS = 16
_RANS_FROM = 1 << 10  # fewer gaps cannot make up for the table
_TABLE_BITS, _ESTIMATED = 12, 1 << 16  # of the estimate: its table, and about the gaps that it looks at


def options_of(form: str, k: int, n: int) -> dict[int, int]:
    """The forms without gaps that are allowed, and the bytes that k indices among n take in them."""
    sizes = {INT32: 4 * k, BITMAP: -(-n // 8)}
    return sizes if form == "auto" else {BITMAP: sizes[BITMAP]} if form == "bitmap" else {INT32: sizes[INT32]}


def sampled_every(k: int) -> int:
    """One block of how many the estimate of rANS looks at; 0 where rANS cannot be the smallest form."""
    return max(k // _ESTIMATED, 1) if k >= _RANS_FROM else 0


def estimated_bytes(counts: Ints, low_bits: int, blocks: int, sampled: int, k: int) -> int:
    """The approximate bytes of rANS; in integers, so that all machines choose alike.

    counts: of the classes of sampled gaps, int64[contexts, classes]; low_bits: of them.
    """
    coded, tables = low_bits, 0
    for row in counts[counts.any(axis=1)]:
        frequencies = quantised(row, _TABLE_BITS)
        coded += rans_bits(row, frequencies, _TABLE_BITS)
        tables += len(write_table(frequencies, mantissas=True))
    return -(-blocks // 2) + tables + coded * k // (8 * sampled)
