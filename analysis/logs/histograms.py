"""The histograms of a run, read back from its event files: what was measured, and the law that was fitted to it.

Few files at a time are read for a figure, so records are taken one by one; checksums are verified as in ``analysis.logs.events``, and of a
damaged file what lies before the damage is kept.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from analysis.logs.crc32c import crc32c, masked
from analysis.logs.load import merged

COORDINATES, FIT = "stats/coordinates", "stats/fit"  # the tags that training logs
_HEADER, _FOOTER = 12, 4
_ATTEMPT = re.compile(r"\.a(\d+)$")


@dataclass(frozen=True)
class Histogram:
    """edges: float64[n + 1], increasing; counts: float64[n], of any scale (training logs shares of one)."""

    step: int
    edges: np.ndarray
    counts: np.ndarray


def read(folder: Path, tag: str) -> list[Histogram]:
    """The histograms that a run logged under ``tag``, in step order.

    Where attempts overlap, the later file wins from its first step on (``analysis.logs.load.merged``).
    """
    steps: list[int] = []
    files: list[int] = []
    found: dict[int, Histogram] = {}  # index into ``steps`` -> what was logged there
    for file, path in enumerate(sorted(folder.glob("events.out.tfevents.*"), key=_begun)):
        for step, histogram in _values(path.read_bytes(), tag.encode()):
            if histogram is not None:
                found[len(steps)] = Histogram(step, *histogram)
            steps.append(step)
            files.append(file)
    stay = merged(np.array(steps, np.int64), np.array(files, np.int64))
    last = {histogram.step: histogram for index, histogram in found.items() if stay[index]}
    return [last[step] for step in sorted(last)]


def _begun(path: Path) -> tuple[int, str]:
    match = _ATTEMPT.search(path.name)
    return int(match[1]) if match else 0, path.name


# --- records ------------------------------------------------------------------------------------------------------


def _values(content: bytes, tag: bytes) -> Iterator[tuple[int, tuple[np.ndarray, np.ndarray] | None]]:
    """(step, edges and counts under ``tag``) of each event that holds a value."""
    for event in _events(content):
        if tag not in event and event[9:10] == b"\x10":  # a step behind the wall time: a value of another tag, of which the step is enough
            yield _signed(_varint(event, 10)[0]), None
            continue
        fields = dict(_fields(event))
        value = _value(fields.get(5, b""))
        if value is None:
            continue
        name, histogram = value
        yield _signed(int.from_bytes(fields.get(2, b""), "little")), _histogram(histogram) if name == tag and histogram else None


def _signed(number: int) -> int:
    number &= 0xFFFFFFFFFFFFFFFF
    return number - ((number >> 63) << 64)


def _events(content: bytes) -> Iterator[bytes]:
    """What the whole records hold, up to the first that is cut off or has a wrong checksum."""
    starts, lengths = [], []
    position = 0
    while position + _HEADER + _FOOTER <= len(content):
        (length,) = struct.unpack_from("<Q", content, position)
        end = position + _HEADER + length + _FOOTER
        if end > len(content):
            break
        starts.append(position)
        lengths.append(length)
        position = end
    good = _sound(np.frombuffer(content, np.uint8), np.array(starts, np.int64), np.array(lengths, np.int64))
    for start, length, sound in zip(starts, lengths, good.tolist(), strict=True):
        if not sound:
            return
        yield content[start + _HEADER : start + _HEADER + length]


def _sound(data: np.ndarray, start: np.ndarray, length: np.ndarray) -> np.ndarray:
    """Which records have right checksums, of their length and of what they hold; records of one length are checked together."""
    good = np.zeros(len(start), bool)
    for size in np.unique(length).tolist():
        which = np.flatnonzero(length == size)
        columns = np.ascontiguousarray(data[start[which, None] + np.arange(_HEADER + size + _FOOTER)].T)
        good[which] = _checksum(columns[8:_HEADER]) == masked(crc32c(columns[:8]))
        good[which] &= _checksum(columns[-_FOOTER:]) == masked(crc32c(columns[_HEADER:-_FOOTER]))
    return good


def _checksum(columns: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(columns.T).view("<u4")[:, 0]


# --- protobuf -----------------------------------------------------------------------------------------------------


def _fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """(number, bytes) of each field, a varint as eight bytes in little endian; up to where the bytes stop making sense."""
    position = 0
    while position < len(message):
        key, position = _varint(message, position)
        kind = key & 7
        if kind == 0:
            number, position = _varint(message, position)
            yield key >> 3, (number & 0xFFFFFFFFFFFFFFFF).to_bytes(8, "little")
            continue
        if kind == 2:
            size, position = _varint(message, position)
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
        else:
            return
        if position + size > len(message):
            return
        yield key >> 3, message[position : position + size]
        position += size


def _varint(message: bytes, position: int) -> tuple[int, int]:
    """A number of seven bits a byte, and where it ends."""
    value = shift = 0
    while position < len(message):
        byte = message[position]
        value |= (byte & 0x7F) << shift
        position, shift = position + 1, shift + 7
        if byte < 0x80:
            break
    return value, position


def _value(summary: bytes) -> tuple[bytes, bytes] | None:
    """Tag and HistogramProto (empty for a scalar) of a summary's last value; None for one that holds neither."""
    parts = dict(_fields(dict(_fields(summary)).get(1, b"")))
    held = parts.get(5, b"") or parts.get(2, b"") or parts.get(8, b"")
    return (parts.get(1, b""), parts.get(5, b"")) if held else None


def _histogram(proto: bytes) -> tuple[np.ndarray, np.ndarray] | None:
    """edges and counts of a HistogramProto; None for a damaged or empty one.

    Its limits are upper edges.  An empty first bucket gives the first edge; else that is the smallest value, and the last edge is at
    most the largest, as in histograms whose outer buckets are open.
    """
    pieces: dict[int, list[bytes]] = {}
    for number, piece in _fields(proto):
        pieces.setdefault(number, []).append(piece)
    packed = [b"".join(pieces.get(number, [])) for number in (6, 7)]
    if not packed[0] or len(packed[0]) != len(packed[1]) or len(packed[0]) % 8:
        return None
    edges, counts = (np.frombuffer(part, "<f8").astype(np.float64) for part in packed)
    low, high = (struct.unpack("<d", pieces.get(number, [bytes(8)])[-1])[0] for number in (1, 2))
    if counts[0] == 0 and len(counts) > 1:
        counts = counts[1:]
    else:
        edges = np.append(min(low, edges[0]), edges)
    if counts[-1] > 0 and edges[-2] < high < edges[-1] and edges[-1] > 1e300:
        edges[-1] = high
    wide = np.diff(edges) > 0
    return (edges, counts) if wide.all() else (np.append(edges[:-1][wide], edges[-1]), counts[wide])
