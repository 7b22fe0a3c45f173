"""TensorBoard event files to arrays, checksums verified, without TensorFlow, TensorBoard or torch.

A file is a chain of TFRecords: length (uint64), its masked CRC-32C, that many bytes, their masked CRC-32C.  The bytes are
a protobuf ``Event``.  Nearly all records of a run are single scalars, so records of equal length are checked and taken
apart together; whatever has another shape goes through a small decoder of the protobuf wire format.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from analysis.crc32c import crc32c, masked

_HEADER, _FOOTER = 12, 4
_BATCH_BYTES = 64 << 20  # files read and taken apart at once


class Scalars(NamedTuple):
    """One row per logged scalar, in the order of the files and of the records in them."""

    file: np.ndarray  # int64, index into the paths
    tag: np.ndarray  # int64, index into ``tags``
    step: np.ndarray  # int64
    wall_time: np.ndarray  # float64, unix seconds
    value: np.ndarray  # float64
    tags: list[str]
    damage: dict[int, str]  # index into the paths -> what is wrong, and how much was kept


class _Rows(NamedTuple):
    record: np.ndarray
    tag: np.ndarray
    step: np.ndarray
    wall_time: np.ndarray
    value: np.ndarray


def read(paths: Sequence[Path]) -> Scalars:
    """All scalars of the event files; of a damaged file, those before the damage."""
    tags: dict[str, int] = {}
    damage: dict[int, str] = {}
    parts = [(np.zeros(0, np.int64), _no_rows())]
    for first, last in _batches(paths):
        content, records, of_file = _framed(paths, first, last, damage)
        good = _sound(content, records)
        _cut_after_damage(paths, records, of_file, good, damage)
        rows = _scalars(content, records[good], tags)
        parts.append((of_file[good][rows.record], rows))
    file = np.concatenate([file for file, _ in parts])
    _, tag, step, wall_time, value = (np.concatenate([rows[k] for _, rows in parts]) for k in range(5))
    return Scalars(file, tag, step, wall_time, value, list(tags), damage)


def _batches(paths: Sequence[Path]) -> Iterator[tuple[int, int]]:
    first, size = 0, 0
    for index, path in enumerate(paths):
        size += path.stat().st_size
        if size >= _BATCH_BYTES or index == len(paths) - 1:
            yield first, index + 1
            first, size = index + 1, 0


# --- framing and checksums ----------------------------------------------------------------------------------------


def _framed(paths: Sequence[Path], first: int, last: int, damage: dict[int, str]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Contents of the files end to end; (start, length) of every record in them; the file of every record."""
    contents, starts, lengths, counts = [], [], [], []
    offset = 0
    for index in range(first, last):
        content = paths[index].read_bytes()
        found, end = _frame(content)
        if end < len(content):
            damage[index] = f"is cut off or damaged after record {len(found)}; kept those ({len(content) - end} bytes left out)"
        starts += [offset + start for start, _ in found]
        lengths += [length for _, length in found]
        counts.append(len(found))
        contents.append(content)
        offset += len(content)
    records = np.stack([np.array(starts, np.int64), np.array(lengths, np.int64)], axis=1)
    return np.frombuffer(b"".join(contents), np.uint8), records, np.repeat(np.arange(first, last), counts)


def _frame(content: bytes) -> tuple[list[tuple[int, int]], int]:
    """(start, length) of each whole record, and where the last one ends."""
    unpack = struct.Struct("<Q").unpack_from
    found = []
    position, size = 0, len(content)
    while position + _HEADER + _FOOTER <= size:
        (length,) = unpack(content, position)
        end = position + _HEADER + length + _FOOTER
        if end > size:
            break
        found.append((position, length))
        position = end
    return found, position


def _columns(content: np.ndarray, starts: np.ndarray, length: int) -> np.ndarray:
    """Bytes start .. start + length of each record as (length, n), contiguous along n."""
    if length == 0:
        return np.zeros((0, len(starts)), np.uint8)
    return np.ascontiguousarray(np.lib.stride_tricks.sliding_window_view(content, length)[starts].T)


def _uint32(columns: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(columns.T).view("<u4")[:, 0]


def _groups(keys: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """(key, the positions that have it) for each distinct key."""
    order = np.argsort(keys, kind="stable")
    edges = np.flatnonzero(np.diff(keys[order])) + 1
    for positions in np.split(order, edges):
        if len(positions):
            yield int(keys[positions[0]]), positions


def _sound(content: np.ndarray, records: np.ndarray) -> np.ndarray:
    """Which records have right checksums, of their length and of their bytes."""
    good = np.ones(len(records), bool)
    for length, which in _groups(records[:, 1]):
        columns = _columns(content, records[which, 0], _HEADER + length + _FOOTER)
        body = columns[_HEADER : _HEADER + length]
        good[which] = masked(crc32c(columns[:8])) == _uint32(columns[8:_HEADER])
        good[which] &= masked(crc32c(body)) == _uint32(columns[_HEADER + length :])
    return good


def _cut_after_damage(paths: Sequence[Path], records: np.ndarray, of_file: np.ndarray, good: np.ndarray, damage: dict[int, str]) -> None:
    """Mark everything after a file's first bad record as bad too: beyond a wrong length nothing can be trusted."""
    for index in np.unique(of_file[~good]):
        span = np.flatnonzero(of_file == index)
        bad = span[0] + int(np.argmin(good[span]))
        good[bad : span[-1] + 1] = False
        lost = paths[index].stat().st_size - int(records[bad, 0] - records[span[0], 0])
        damage[int(index)] = f"has a wrong checksum after record {bad - span[0]}; kept those ({lost} bytes left out)"


# --- protobuf -----------------------------------------------------------------------------------------------------


def _no_rows() -> _Rows:
    return _Rows(*(np.zeros(0, dtype) for dtype in (np.int64, np.int64, np.int64, np.float64, np.float64)))


def _scalars(content: np.ndarray, records: np.ndarray, tags: dict[str, int]) -> _Rows:
    """The scalars of sound records, in record order; new tags are added to ``tags``."""
    parts = [_no_rows()]
    plain = np.zeros(len(records), bool)
    for length, which in _groups(records[:, 1]):
        if length < 18:
            continue
        starts = records[which, 0] + _HEADER
        for step_bytes, chosen in _groups(_step_bytes(content, starts, length)):
            if step_bytes >= 0:
                rows = _plain_scalars(content, starts[chosen], length, step_bytes, which[chosen], tags)
                plain[rows.record] = True
                parts.append(rows)
    parts.append(_other_scalars(content, records, np.flatnonzero(~plain), tags))
    together = _Rows(*(np.concatenate([part[k] for part in parts]) for k in range(5)))
    order = np.argsort(together.record, kind="stable")
    return _Rows(*(column[order] for column in together))


def _step_bytes(content: np.ndarray, starts: np.ndarray, length: int) -> np.ndarray:
    """Bytes of each event's step field: 0 where it is absent (step 0), -1 where the event does not begin like a scalar's."""
    columns = _columns(content, starts, min(length, 20))
    is_event = columns[0] == 0x09
    field = columns[9]
    more = columns[10:] >= 0x80
    num_bytes = np.argmin(more, axis=0) + 1
    known = np.where(field == 0x10, 1 + num_bytes, np.where(field == 0x2A, 0, -1))
    return np.where(is_event & ((field != 0x10) | ~more.all(axis=0)), known, -1)


def _plain_scalars(
    content: np.ndarray, starts: np.ndarray, length: int, step_bytes: int, record: np.ndarray, tags: dict[str, int]
) -> _Rows:
    """Events of the one layout that scalar writers produce; others are left for the general decoder.

    09 wall_time(8) [10 step(varint)] 2a len { 0a len { 0a len tag 15 value(4) } }
    """
    at = 9 + step_bytes
    tag_bytes = length - at - 11
    if tag_bytes < 0 or length - at - 2 >= 0x80:
        return _no_rows()
    columns = _columns(content, starts, length)
    expected = {0: 0x2A, 1: length - at - 2, 2: 0x0A, 3: length - at - 4, 4: 0x0A, 5: tag_bytes, 6 + tag_bytes: 0x15}
    fits = np.logical_and.reduce([columns[at + offset] == byte for offset, byte in expected.items()])
    columns, record = columns[:, fits], record[fits]
    if not len(record):
        return _no_rows()
    step = np.zeros(len(record), np.uint64)
    for k in range(step_bytes - 1):
        step |= (columns[10 + k] & 0x7F).astype(np.uint64) << np.uint64(7 * k)
    wall_time = np.ascontiguousarray(columns[1:9].T).view("<f8")[:, 0]
    value = np.ascontiguousarray(columns[-4:].T).view("<f4")[:, 0].astype(np.float64)
    return _Rows(record, _tag_codes(columns[at + 6 : at + 6 + tag_bytes], tags), step.view(np.int64), wall_time, value)


def _tag_codes(columns: np.ndarray, tags: dict[str, int]) -> np.ndarray:
    if not len(columns):
        return np.full(columns.shape[1], tags.setdefault("", len(tags)), np.int64)
    names, inverse = np.unique(np.ascontiguousarray(columns.T).view(f"S{len(columns)}")[:, 0], return_inverse=True)
    codes = [tags.setdefault(name.decode("utf-8", "replace"), len(tags)) for name in names.tolist()]
    return np.array(codes, np.int64)[inverse]


def _other_scalars(content: np.ndarray, records: np.ndarray, which: np.ndarray, tags: dict[str, int]) -> _Rows:
    """Scalars of events of any layout (several in one event, values kept as tensors), decoded one by one."""
    found: list[tuple[int, int, int, float, float]] = []
    for index in which.tolist():
        start, length = records[index].tolist()
        event = content[start + _HEADER : start + _HEADER + length].tobytes()
        for tag, step, wall_time, value in event_scalars(event):
            found.append((index, tags.setdefault(tag, len(tags)), step, wall_time, value))
    columns = list(zip(*found, strict=True)) if found else [()] * 5
    return _Rows(*(np.array(column, empty.dtype) for column, empty in zip(columns, _no_rows(), strict=True)))


def event_scalars(event: bytes) -> Iterator[tuple[str, int, float, float]]:
    """(tag, step, wall time, value) of each scalar in one serialised Event; what is no scalar is passed over."""
    whole = _decode(event)
    step = whole.numbers.get(2, 0)
    step -= (step >> 63) << 64
    wall_time = _float(whole.first(1), "<d")
    for summary in whole.pieces.get(5, []):
        for piece in _decode(summary).pieces.get(1, []):
            item = _decode(piece)
            value = _float(item.first(2), "<f") if 2 in item.pieces else _tensor_scalar(item.first(8))
            if value is not None:
                yield item.first(1).decode("utf-8", "replace"), step, wall_time or 0.0, value


def _tensor_scalar(tensor: bytes) -> float | None:
    """The number in a TensorProto of one float or double, as newer writers store scalars; None for anything else."""
    parts = _decode(tensor)
    layout = {1: ("<f", 5), 2: ("<d", 6)}.get(parts.numbers.get(1, 0))
    return _float(parts.first(4) or parts.first(layout[1]), layout[0]) if layout else None


def _float(data: bytes, layout: str) -> float | None:
    return struct.unpack(layout, data)[0] if len(data) == struct.calcsize(layout) else None


class _Message(NamedTuple):
    """Fields of a protobuf message by number: the last varint of each, and all pieces of bytes."""

    numbers: dict[int, int]
    pieces: dict[int, list[bytes]]

    def first(self, number: int) -> bytes:
        return self.pieces.get(number, [b""])[0]


def _decode(message: bytes) -> _Message:
    """Take a message apart, up to where its bytes stop making sense."""
    found = _Message({}, {})
    position = 0
    while position < len(message):
        key, position = _varint(message, position)
        kind = key & 7
        if kind == 0:
            found.numbers[key >> 3], position = _varint(message, position)
            continue
        if kind == 2:
            size, position = _varint(message, position)
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
        else:
            break
        if position + size > len(message):
            break
        found.pieces.setdefault(key >> 3, []).append(message[position : position + size])
        position += size
    return found


def _varint(message: bytes, position: int) -> tuple[int, int]:
    """A number of seven bits a byte, and where it ends."""
    value = shift = 0
    while position < len(message):
        byte = message[position]
        value |= (byte & 0x7F) << shift
        position, shift = position + 1, shift + 7
        if byte < 0x80:
            break
    return value & 0xFFFFFFFFFFFFFFFF, position
