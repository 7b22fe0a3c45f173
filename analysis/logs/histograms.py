"""The histograms of a run, read back from its event files: the measured one and the distribution fitted to it.

Few files at a time are read for a figure, so records are taken one by one; checksums are verified as in
``analysis.logs.events``, and of a damaged file the records before the damage are kept.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from analysis.logs.crc32c import crc32c, masked
from analysis.logs.framing import FOOTER, HEADER, Records, records
from analysis.logs.protobuf import decode, signed, varint
from analysis.logs.reading import ATTEMPT, attempt, merged
from files.plain import Unreadable, read_bytes

COORDINATES, FIT = "stats/coordinates", "stats/fit"  # the tags that training logs


@dataclass(frozen=True)
class Histogram:
    """A histogram: edges float64[n + 1], increasing; counts float64[n], of any scale (training logs shares of one)."""

    step: int
    edges: np.ndarray
    counts: np.ndarray


def read(folder: Path, tag: str) -> list[Histogram]:
    """The histograms that a run logged under ``tag``, in step order.

    Where attempts overlap, the later file wins beyond its first step, and at that step where it has a value there
    (``analysis.logs.reading.merged``). A file that cannot be read counts as empty, as it does for scalars.
    """
    steps: list[int] = []
    files: list[int] = []
    found: dict[int, Histogram] = {}  # index into ``steps`` -> what was logged there
    paths = sorted(folder.glob("events.out.tfevents.*"), key=lambda path: attempt(path.name))
    contents = [_content(path) for path in paths]
    if not any(tag.encode() in content for content in contents):
        return []  # without a look at the checksums
    for file, content in enumerate(contents):
        for step, histogram in _values(content, tag.encode()):
            if histogram is not None:
                found[len(steps)] = Histogram(step, *histogram)
            steps.append(step)
            files.append(file)
    own = np.array([ATTEMPT.search(path.name) is not None for path in paths], bool)
    of_tag = np.array([index in found for index in range(len(steps))], bool)
    stay = merged(np.array(steps, np.int64), np.array(files, np.int64), of_tag, own)
    last = {histogram.step: histogram for index, histogram in found.items() if stay[index]}
    return [last[step] for step in sorted(last)]


def _content(path: Path) -> bytes:
    with suppress(OSError, Unreadable):
        return read_bytes(path, None)
    return b""


# --- records ------------------------------------------------------------------------------------------------------


def _values(content: bytes, tag: bytes) -> Iterator[tuple[int, tuple[np.ndarray, np.ndarray] | None]]:
    """The (step, edges and counts under ``tag``) of each event that holds a value."""
    for event in _events(content):
        # a step behind the wall time: a value of another tag, of which the step is enough
        if tag not in event and event[9:10] == b"\x10":
            yield signed(varint(event, 10)[0]), None
            continue
        whole = decode(event)
        value = decode(decode(whole.first(5)).first(1))
        if any(value.first(number) for number in (2, 5, 8)):  # a scalar, a histogram or a tensor
            found = _histogram(value.first(5)) if value.first(1) == tag and value.first(5) else None
            yield signed(whole.numbers.get(2, 0)), found


def _events(content: bytes) -> Iterator[bytes]:
    """The content of the whole records, up to the first that is cut off or has a wrong checksum."""
    found = records(content)
    good = _sound(np.frombuffer(content, np.uint8), found)
    for start, length, sound in zip(found.start.tolist(), found.length.tolist(), good.tolist(), strict=True):
        if not sound:
            return
        yield content[start + HEADER : start + HEADER + length]


def _sound(data: np.ndarray, found: Records) -> np.ndarray:
    """Whether each record has the right checksum; the records of one length are checked together."""
    good = np.zeros(len(found.start), bool)
    for size in np.unique(found.length).tolist():
        which = np.flatnonzero(found.length == size)
        columns = np.ascontiguousarray(data[found.start[which, None] + HEADER + np.arange(size + FOOTER)].T)
        good[which] = np.ascontiguousarray(columns[size:].T).view("<u4")[:, 0] == masked(crc32c(columns[:size]))
    return good


def _histogram(proto: bytes) -> tuple[np.ndarray, np.ndarray] | None:
    """The edges and counts of a HistogramProto; None for a damaged or empty one.

    Its limits are upper edges.  An empty first bucket gives the first edge; else that is the smallest value, and the
    last edge is at most the largest, as in histograms whose outer buckets are open.
    """
    pieces = decode(proto).pieces
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
