"""The part of the protobuf wire format that a TensorBoard ``Event`` needs, and the scalars of any single event."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple


def event_scalars(event: bytes) -> Iterator[tuple[str, int, float, float]]:
    """The (tag, step, wall time, value) of each scalar in one serialised Event; other values are passed over."""
    whole = decode(event)
    step = signed(whole.numbers.get(2, 0))
    wall_time = _float(whole.first(1), "<d")
    for summary in whole.pieces.get(5, []):
        for piece in decode(summary).pieces.get(1, []):
            item = decode(piece)
            value = _float(item.first(2), "<f") if 2 in item.pieces else _tensor_scalar(item.first(8))
            if value is not None:
                yield item.first(1).decode("utf-8", "replace"), step, wall_time or 0.0, value


def signed(number: int) -> int:
    """A varint of 64 bits as the whole number that was written."""
    return number - ((number >> 63) << 64)


def _tensor_scalar(tensor: bytes) -> float | None:
    """The number in a TensorProto of one float or double, as newer writers store scalars; None for anything else."""
    parts = decode(tensor)
    layout = {1: ("<f", 5), 2: ("<d", 6)}.get(parts.numbers.get(1, 0))
    return _float(parts.first(4) or parts.first(layout[1]), layout[0]) if layout else None


def _float(data: bytes, layout: str) -> float | None:
    return struct.unpack(layout, data)[0] if len(data) == struct.calcsize(layout) else None


class Message(NamedTuple):
    """The fields of a protobuf message by number: the last varint of each, and all pieces of bytes."""

    numbers: dict[int, int]
    pieces: dict[int, list[bytes]]

    def first(self, number: int) -> bytes:
        return self.pieces.get(number, [b""])[0]


def decode(message: bytes) -> Message:
    """The fields of a message, taken apart up to where its bytes stop making sense."""
    found = Message({}, {})
    position = 0
    while position < len(message):
        key, position = varint(message, position)
        kind = key & 7
        if kind == 0:
            found.numbers[key >> 3], position = varint(message, position)
            continue
        if kind == 2:
            size, position = varint(message, position)
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
        else:
            break
        if position + size > len(message):
            break
        found.pieces.setdefault(key >> 3, []).append(message[position : position + size])
        position += size
    return found


def varint(message: bytes, position: int) -> tuple[int, int]:
    """A number of seven bits a byte, and the position where it ends."""
    value = shift = 0
    while position < len(message):
        byte = message[position]
        value |= (byte & 0x7F) << shift
        position, shift = position + 1, shift + 7
        if byte < 0x80:
            break
    return value & 0xFFFFFFFFFFFFFFFF, position
