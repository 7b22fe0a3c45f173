"""The positions of the records of an event file.

A file is a chain of TFRecords: length (uint64), its masked CRC-32C, that many bytes, their masked CRC-32C.  Following
the chain takes a step of Python for each of 20 million records; instead, all places that look like the header of a
short record (seven zero bytes after the first, and the right checksum) are found at once, and the chain is followed
only where a record does not end at the next such place.
"""

from __future__ import annotations

import functools
import struct
from typing import NamedTuple

import numpy as np

from analysis.logs.crc32c import crc32c, masked

HEADER, FOOTER = 12, 4
_SHORT = 256  # lengths below this have seven zero bytes


class Records(NamedTuple):
    """The whole records of a file whose headers have right checksums, up to the first header that has not."""

    start: np.ndarray  # int64, where the header begins
    length: np.ndarray  # int64, bytes between header and footer
    end: int  # the end of the last record
    wrong: bool  # whether the header that stands there has a wrong checksum; else too few bytes follow it, or none


def records(content: bytes) -> Records:
    """The records of a file, taken apart; their content is not looked at."""
    data = np.frombuffer(content, np.uint8)
    place, length = _short_headers(data)
    end = place + length + (HEADER + FOOTER)
    breaks = np.append(np.flatnonzero(end[:-1] != place[1:]), len(place) - 1)
    unpack = struct.Struct("<Q").unpack_from
    spans: list[tuple[np.ndarray, np.ndarray, bool]] = []  # (start, length, whether the headers have been checked)
    single: list[tuple[int, int]] = []  # records that are not in ``place``, since the last span
    position, size = 0, len(content)
    while position + HEADER + FOOTER <= size:
        first = int(np.searchsorted(place, position))
        if first < len(place) and place[first] == position:
            last = int(breaks[np.searchsorted(breaks, first)]) + 1
            last -= int(end[last - 1] > size)
            if last == first:
                break
            spans += [_unchecked(single), (place[first:last], length[first:last], True)]
            single = []
            position = int(end[last - 1])
        else:
            (num_bytes,) = unpack(content, position)
            if position + HEADER + num_bytes + FOOTER > size:
                break
            single.append((position, num_bytes))
            position += HEADER + num_bytes + FOOTER
    spans.append(_unchecked(single))
    start, length = (np.concatenate([span[k] for span in spans]) for k in range(2))
    unchecked = np.flatnonzero(np.repeat([not span[2] for span in spans], [len(span[0]) for span in spans]))
    wrong = unchecked[~_sound_headers(data, start[unchecked])]
    if len(wrong):
        first = int(wrong[0])
        return Records(start[:first], length[:first], int(start[first]), True)
    return Records(start, length, position, False)


def _unchecked(pairs: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray, bool]:
    table = np.array(pairs, np.int64).reshape(-1, 2)
    return table[:, 0], table[:, 1], False


def _sound_headers(data: np.ndarray, start: np.ndarray) -> np.ndarray:
    """Whether the checksums of the record lengths at ``start`` are right."""
    headers = np.zeros((HEADER, len(start)), np.uint8)
    for k in range(HEADER if len(start) else 0):
        headers[k] = data[k:].take(start)
    return masked(crc32c(headers[:8])) == np.ascontiguousarray(headers[8:].T).view("<u4")[:, 0]


@functools.cache
def _checksums() -> np.ndarray:
    """The masked checksum of the length field of each short length, as four bytes; uint8 (4, _SHORT)."""
    columns = np.zeros((8, _SHORT), np.uint8)
    columns[0] = np.arange(_SHORT)
    return np.ascontiguousarray(masked(crc32c(columns)).astype("<u4").view(np.uint8).reshape(_SHORT, 4).T)


def _short_headers(data: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The (start, length) of every place that is the header of a record below 256 bytes, some inside of records."""
    if len(data) < HEADER + FOOTER:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    zero = data[1:-8] == 0
    two = zero[:-1] & zero[1:]
    four = two[:-2] & two[2:]
    place = np.flatnonzero(four[:-3] & four[3:])  # zeros at place + 1 .. place + 7
    length = data.take(place)
    for k, checksum in enumerate(_checksums()):
        fits = data[8 + k :].take(place) == checksum.take(length)
        if not fits.all():
            place, length = place[fits], length[fits]
    return place, length.astype(np.int64)
