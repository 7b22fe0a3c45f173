"""The part of the protobuf wire format that a TensorBoard ``Event`` needs, and the scalars of any single event."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

# The type of a TensorProto of one number -> how its bytes are unpacked, and the field that holds it in place of bytes.
# float, double, int32, uint8, int16, int8, int64; bool, bfloat16, uint16, half, uint32, uint64
_NUMBERS = {1: ("<f", 5), 2: ("<d", 6), 3: ("<i", 7), 4: ("<B", 7), 5: ("<h", 7), 6: ("<b", 7), 9: ("<q", 10)}
_NUMBERS |= {10: ("<?", 11), 14: ("<H", 13), 17: ("<H", 7), 19: ("<e", 13), 22: ("<I", 16), 23: ("<Q", 17)}
_BFLOAT16 = 14
_HISTOGRAM = 5


def event_scalars(event: bytes, passed_over: set[str] | None = None) -> Iterator[tuple[str, int, float, float]]:
    """The (tag, step, wall time, value) of each scalar in one serialised Event.

    passed_over: gets the tags of all other values but histograms, which have a reader of their own.
    """
    whole = decode(event)
    step = signed(whole.numbers.get(2, 0))
    wall_time = _float(whole.first(1), "<d")
    for summary in whole.pieces.get(5, []):
        for piece in decode(summary).pieces.get(1, []):
            item = decode(piece)
            value = _float(item.first(2), "<f") if 2 in item.pieces else _tensor_scalar(item.first(8))
            tag = item.first(1).decode("utf-8", "replace")
            if value is not None:
                yield tag, step, wall_time or 0.0, value
            elif passed_over is not None and item.pieces.keys() - {
                1,
                9,
                _HISTOGRAM,
            }:  # tag and metadata alone: no value
                passed_over.add(tag)


def signed(number: int) -> int:
    """A varint of 64 bits as the whole number that was written."""
    return number - ((number >> 63) << 64)


def _tensor_scalar(tensor: bytes) -> float | None:
    """The number in a TensorProto of one number, as newer writers store scalars; None for anything else."""
    parts = decode(tensor)
    kind = parts.numbers.get(1, 0)
    if kind not in _NUMBERS:
        return None
    layout, field = _NUMBERS[kind]
    data = parts.first(4)
    if not data and kind in (1, 2):
        data = parts.first(field)
    elif not data:  # whole numbers, and the bits of 16-bit ones, are varints
        packed = parts.first(field)
        number, end = varint(packed, 0) if packed else (parts.numbers.get(field), 0)
        if number is None or end != len(packed):
            return None
        data = (number & 0xFFFFFFFFFFFFFFFF).to_bytes(8, "little")[: struct.calcsize(layout)]
    if kind == _BFLOAT16:
        data, layout = bytes(2) + data, "<f"
    return _float(data, layout)


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
