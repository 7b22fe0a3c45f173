"""A reader of TensorBoard event files, checksums verified, without TensorFlow, TensorBoard or torch.

A file is a chain of records (``analysis.logs.framing``), and each record a protobuf ``Event``.  Nearly all records of a
run are single scalars, so records of equal length are checked and taken apart together, as rows of a matrix; whatever
has another shape goes one by one through the decoder in ``analysis.logs.protobuf``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from analysis.logs.crc32c import crc32c, masked
from analysis.logs.framing import FOOTER, HEADER, records
from analysis.logs.protobuf import event_scalars
from files.plain import Unreadable, read_bytes

MOST_BYTES = 1 << 30  # of one file, which is read whole; a scalar takes some 50
_AT_ONCE = 1 << 17  # records
_ODD = np.uint64(0x9E3779B97F4A7C15)  # 2^64 over the golden ratio: spreads the bits of a word (Knuth, TAOCP 3, 6.4)


class Scalars(NamedTuple):
    """One row per logged scalar.

    Rows of one tag whose steps grow are in the order of the files; ``record`` gives the order of all others.
    """

    record: np.ndarray  # int64, counts the records of all the files
    file: np.ndarray  # int64, index into the paths
    tag: np.ndarray  # int64, index into ``tags``
    step: np.ndarray  # int64
    wall_time: np.ndarray  # float64, unix seconds
    value: np.ndarray  # float64
    tags: list[str]
    damage: dict[int, str]  # index into the paths -> what is wrong, and how much was kept
    begun: np.ndarray  # float64, the wall time of each file's first event; infinite where there is none
    passed_over: dict[int, set[str]]  # index into the paths -> tags of values that are neither scalars nor histograms


class _Rows(NamedTuple):
    record: np.ndarray
    tag: np.ndarray
    step: np.ndarray
    wall_time: np.ndarray
    value: np.ndarray


class _Content(NamedTuple):
    # uint8, the files end to end, and zeros so that rows may be read that are wider than the last record
    data: np.ndarray
    start: np.ndarray  # int64, where the bytes of each record begin, after its header
    length: np.ndarray  # int64
    file: np.ndarray  # int64, of each record


def read(paths: Sequence[Path]) -> Scalars:
    """All scalars of the event files; a damaged file gives those before the damage, one that cannot be read none."""
    tags: dict[str, int] = {}
    damage: dict[int, str] = {}
    content, sizes = _content(paths, damage)
    first_bad = np.full(len(paths), len(content.start), np.int64)
    parts = [_rows([])]
    passed_over: dict[int, set[str]] = {}
    for begin in range(0, len(content.start), _AT_ONCE):
        for which in _groups(content.length[begin : begin + _AT_ONCE]):
            which += begin
            length = int(content.length[which[0]])
            rows = _windows(content, which, length)
            good = masked(crc32c(rows.T[:length])) == _view(rows[:, length : length + FOOTER], "<u4")
            np.minimum.at(first_bad, content.file[which[~good]], which[~good])
            parts.append(_scalars(rows[good], length, which[good], tags, content.file, passed_over))
    found = _Rows(*(np.concatenate([part[k] for part in parts]) for k in range(5)))
    file = content.file[found.record]
    bad = np.flatnonzero(first_bad < len(content.start))
    for index in bad.tolist():
        before = int(np.searchsorted(content.file, index))
        lost = int(sizes[: index + 1].sum()) - int(content.start[first_bad[index]]) + HEADER
        good = first_bad[index] - before
        damage[index] = f"has a wrong checksum after record {good}; kept those ({lost} bytes left out)"
    if len(bad):  # a record that is wrong makes all that follow doubtful
        stay = found.record < first_bad[file]
        found, file = _Rows(*(column[stay] for column in found)), file[stay]
    return Scalars(found.record, file, *found[1:], list(tags), damage, _begun(content, len(paths)), passed_over)


def _begun(content: _Content, num_files: int) -> np.ndarray:
    """The wall time of each file's first event, which begins with it; infinite where a file has no such event."""
    begun = np.full(num_files, np.inf)
    files, first = np.unique(content.file, return_index=True)
    for file, start in zip(files.tolist(), content.start[first].tolist(), strict=True):
        if content.data[start] == 0x09:
            begun[file] = content.data[start + 1 : start + 9].view("<f8")[0]
    return begun


def _content(paths: Sequence[Path], damage: dict[int, str]) -> tuple[_Content, np.ndarray]:
    """The files end to end with the records in them, and their sizes; ``damage`` gets a note on each damaged file."""
    contents, starts, lengths = [], [], []
    sizes = np.zeros(len(paths), np.int64)
    for index, path in enumerate(paths):
        try:
            content = read_bytes(path, MOST_BYTES)
        except (OSError, Unreadable) as error:
            damage[index] = str(error) if isinstance(error, Unreadable) else f"cannot be read ({type(error).__name__})"
            content = b""
        found = records(content)
        if found.end < len(content):
            what = "has a wrong checksum" if found.wrong else "is cut off or damaged"
            lost = len(content) - found.end
            damage[index] = f"{what} after record {len(found.start)}; kept those ({lost} bytes left out)"
        starts.append(found.start + (int(sizes.sum()) + HEADER))
        lengths.append(found.length)
        contents.append(content)
        sizes[index] = len(content)
    data = np.frombuffer(b"".join([*contents, bytes(8)]), np.uint8)
    none = np.zeros(0, np.int64)
    file = np.repeat(np.arange(len(paths)), [len(start) for start in starts])
    return _Content(data, np.concatenate([none, *starts]), np.concatenate([none, *lengths]), file), sizes


def _groups(keys: np.ndarray) -> Iterator[np.ndarray]:
    """The positions of each distinct key, ascending; keys are not negative."""
    narrow = keys.astype(np.uint16) if len(keys) and keys.max() < 1 << 16 else keys  # the sort is by radix then
    order = np.argsort(narrow, kind="stable")
    edges = np.flatnonzero(np.diff(keys[order])) + 1
    yield from (positions for positions in np.split(order, edges) if len(positions))


def _windows(content: _Content, which: np.ndarray, length: int) -> np.ndarray:
    """The bytes of records of one length with their footers, and anything behind: (n, a multiple of 8)."""
    width = -(-(length + FOOTER) // 8) * 8
    return np.lib.stride_tricks.sliding_window_view(content.data, width)[content.start[which]]


def _view(rows: np.ndarray, dtype: str) -> np.ndarray:
    return np.ascontiguousarray(rows).view(dtype)[:, 0]


# --- scalars ------------------------------------------------------------------------------------------------------


def _rows(found: Sequence[tuple[int, int, int, float, float]]) -> _Rows:
    columns = list(zip(*found, strict=True)) if found else [()] * 5
    kinds = (np.int64, np.int64, np.int64, np.float64, np.float64)
    return _Rows(*(np.array(column, kind) for column, kind in zip(columns, kinds, strict=True)))


def _scalars(
    rows: np.ndarray,
    length: int,
    record: np.ndarray,
    tags: dict[str, int],
    file: np.ndarray,
    passed_over: dict[int, set[str]],
) -> _Rows:
    """The scalars of sound records of one length; new tags are added to ``tags``.

    file: of each record; passed_over: by file, gets the tags of what is no scalar.
    """
    parts, left = [], np.ones(len(rows), bool)
    for step_bytes, chosen in _by_step_bytes(rows, length):
        which = slice(None) if len(chosen) == len(rows) else chosen
        part, plain = _plain_scalars(rows[which], length, step_bytes, record[which], tags)
        left[chosen[plain]] = False
        parts.append(part)
    others = []
    for index in np.flatnonzero(left).tolist():
        event, number = rows[index, :length].tobytes(), int(record[index])
        left_out = passed_over.setdefault(int(file[number]), set())
        others += [(number, tags.setdefault(tag, len(tags)), *rest) for tag, *rest in event_scalars(event, left_out)]
    return _Rows(*(np.concatenate(columns) for columns in zip(*parts, _rows(others), strict=True)))


def _by_step_bytes(rows: np.ndarray, length: int) -> Iterator[tuple[int, np.ndarray]]:
    """The rows that begin as scalars do, grouped: (bytes of the step's field, 0 for an absent step 0; the rows)."""
    if length < 18:
        return
    more = rows[:, 9] == 0x10
    num_bytes = np.where(more, 1, np.where(rows[:, 9] == 0x2A, 0, 100)).astype(np.uint8)
    for k in range(10, min(length, 20)):
        if not more.any():
            break
        num_bytes += more
        more &= rows[:, k] >= 0x80
    num_bytes[more | (rows[:, 0] != 0x09)] = 100
    for chosen in _groups(num_bytes):
        if num_bytes[chosen[0]] < 100:
            yield int(num_bytes[chosen[0]]), chosen


def _plain_scalars(
    rows: np.ndarray, length: int, step_bytes: int, record: np.ndarray, tags: dict[str, int]
) -> tuple[_Rows, np.ndarray]:
    """The events of the one layout that scalar writers produce, and which of the rows these are.

    09 wall_time(8) [10 step(varint)] 2a len { 0a len { 0a len tag 15 value(4) } }
    """
    at = 9 + step_bytes
    tag_bytes = length - at - 11
    if tag_bytes < 0 or length - at - 2 >= 0x80:
        return _rows([]), np.zeros(len(rows), bool)
    like = _representatives(rows, slice(at, length - 4))
    layout = bytes((0x2A, length - at - 2, 0x0A, length - at - 4, 0x0A, tag_bytes))
    code = np.full(len(rows), -1, np.int64)
    for index in np.flatnonzero(like == np.arange(len(rows))).tolist():
        event = rows[index].tobytes()
        if event[at : at + 6] == layout and event[length - 5] == 0x15:
            tag = event[at + 6 : length - 5].decode("utf-8", "replace")
            code[index] = tags.setdefault(tag, len(tags))
    code = code[like]
    plain = code >= 0
    if not plain.all():
        rows, record, code = rows[plain], record[plain], code[plain]
    step = np.zeros(len(rows), np.uint64)
    for k in range(step_bytes - 1):
        step |= (rows[:, 10 + k] & 0x7F).astype(np.uint64) << np.uint64(7 * k)
    value = _view(rows[:, length - 4 : length], "<f4").astype(np.float64)
    return _Rows(record, code, step.view(np.int64), _view(rows[:, 1:9], "<f8"), value), plain


def _representatives(rows: np.ndarray, of: slice) -> np.ndarray:
    """The index, for each row, of a row with the same bytes in ``of``; that row is its own representative."""
    mask = np.zeros(rows.shape[1], np.uint8)
    mask[of] = 0xFF
    words, masks = rows.view("<u8"), mask.view("<u8")
    columns = [words[:, k] & masks[k] for k in np.flatnonzero(masks).tolist()]
    mixed = np.zeros(len(rows), np.uint64)
    for column in columns:
        mixed = (mixed ^ column) * _ODD
        mixed ^= mixed >> np.uint64(29)
    key = mixed >> np.uint64(48)
    one_of_key = np.empty(1 << 16, np.int64)
    one_of_key[key] = np.arange(len(rows))
    like = one_of_key[key]
    if all((column == column[like]).all() for column in columns):
        return like
    # two had the same key
    _, first, inverse = np.unique(np.stack(columns, axis=1), axis=0, return_index=True, return_inverse=True)
    return first[inverse.reshape(-1)]
