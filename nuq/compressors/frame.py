"""The frame: what one worker sends at once, the messages of several segments behind one table.

::

    "NF", version uint8, 0, CRC-32 uint32, number of messages uint32             (little-endian)
    for each message: tag 4 bytes, coordinates uint32, end uint64                where its body ends in the frame
    bodies, each from a multiple of 4 bytes on, the bytes between them zero

The CRC covers all that follows it, so a frame cut short or changed on the way raises MessageError.  A frame is a
multiple of 4 bytes long, so that several can follow one another.  One message takes 28 bytes beside its body, every
further one 16.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nuq.compressors.checksum import crc32
from nuq.compressors.message import Message, raw
from nuq.errors import MessageError, NonFiniteError
from nuq.kernels.spec import Key, words_of_names

VERSION = 1
_MAGIC = b"NF"
_HEAD = struct.Struct("<2sBBII")
_CHECKED_FROM = 8  # bytes: magic, version and the CRC itself
_ENTRY = np.dtype([("tag", "<u4"), ("num_coordinates", "<u4"), ("end", "<u8")])
_ALIGNMENT = 4
_MOST_COORDINATES = (1 << 32) - 1

Places = NDArray[np.int64]


class Table:
    """The table of a frame: tags, coordinates, and where the bodies start and end, in bytes of the frame."""

    def __init__(self, entries: NDArray[np.void]) -> None:
        self.entries = entries
        self.ends: Places = entries["end"].astype(np.int64)
        first = [_HEAD.size + entries.nbytes]
        self.starts: Places = np.concatenate([first, _aligned(self.ends)])[: len(entries)].astype(np.int64)

    @classmethod
    def of(cls, counts: Sequence[int], body_bytes: Sequence[int]) -> Table:
        """The table of messages whose tags are yet to be written; ValueError for more coordinates than fit an entry."""
        if max(counts, default=0) > _MOST_COORDINATES:
            rule = "one message in a frame holds fewer than 2^32 coordinates; cut it into several"
            raise ValueError(f"num_coordinates={max(counts)}: {rule}")
        entries = np.zeros(len(counts), dtype=_ENTRY)
        entries["num_coordinates"] = counts
        sizes = np.asarray(body_bytes, dtype=np.int64)
        starts = _HEAD.size + entries.nbytes + np.concatenate([[0], np.cumsum(_aligned(sizes))])
        entries["end"] = starts[:-1] + sizes
        return cls(entries)

    @cached_property
    def num_bytes(self) -> int:
        """The length of the frame."""
        return int(_aligned(self.ends[-1])) if len(self.ends) else _HEAD.size

    @cached_property
    def gaps(self) -> Places:
        """The bytes between the bodies."""
        gaps = zip(self.ends.tolist(), [*self.starts.tolist()[1:], self.num_bytes], strict=False)
        return np.array([byte for end, start in gaps for byte in range(end, start)], dtype=np.int64)


def _aligned(ends: Places) -> Places:
    return -(-ends // _ALIGNMENT) * _ALIGNMENT


@dataclass(frozen=True, eq=False)
class Pieces:
    """The pieces of a flat vector that one compressor encodes into a frame, and that it decodes out of one.

    numbers: of their messages in the frame.  starts, sizes: of the coordinates.  names: what keys their random numbers.
    shapes: of the parameters; None for vectors of several.  cut: whether a piece is one of a parameter that was cut.
    """

    numbers: Places
    starts: Places
    sizes: Places
    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...] | None, ...]
    cut: tuple[bool, ...]

    @classmethod
    def of(
        cls,
        places: Sequence[Sequence[int]],
        names: Sequence[str],
        shapes: Sequence[tuple[int, ...] | None],
        cut: Sequence[bool],
    ) -> Pieces:
        """The pieces, from all their numbers, starts and sizes, and the rest of each."""
        numbers, starts, sizes = np.array(places, dtype=np.int64)
        return cls(numbers, starts, sizes, tuple(names), tuple(shapes), tuple(cut))

    @cached_property
    def _checksums(self) -> dict[str, NDArray[np.uint64]]:
        return {}

    def words(self, key: Key) -> NDArray[np.uint32]:
        """The words (k0, k1) behind the random numbers of every piece: uint32[count, 2]."""
        return words_of_names(key, self.names, self._checksums)

    def places(self) -> Iterator[tuple[int, int, int]]:
        """The number of the message, the start and the size of every piece."""
        return zip(self.numbers.tolist(), self.starts.tolist(), self.sizes.tolist(), strict=True)

    def each(self, vector: Tensor, key: Key, *, shaped: bool) -> Iterator[tuple[int, Tensor, Key]]:
        """The number, coordinates (whole parameters, if ``shaped``, in their shapes) and key of every piece."""
        pieces = zip(self.places(), self.names, self.shapes, self.cut, strict=True)
        for (number, start, size), name, shape, cut in pieces:
            piece, own = vector[start : start + size], key.of(name)
            if shaped and shape is not None:
                if cut:
                    own = replace(own, piece_of=len(shape))
                else:
                    piece = piece.view(shape)
            yield number, piece, own


class Frame:
    """The messages of one worker; ``data`` uint8 is the whole frame, on the device of the gradient."""

    def __init__(self, table: Table, data: Tensor) -> None:
        self.data, self.starts, self.ends, self._entries = data, table.starts, table.ends, table.entries
        self.num_bytes = table.num_bytes

    @classmethod
    def room_for(cls, table: Table, device: torch.device) -> Frame:
        """A frame whose bodies are yet to be written."""
        frame = cls(table, torch.empty(table.num_bytes, dtype=torch.uint8, device=device))
        frame._entries = table.entries.copy()
        if table.gaps.size:
            frame.data[torch.from_numpy(table.gaps).to(device)] = 0
        return frame

    @classmethod
    def of(cls, messages: Sequence[Message], device: torch.device) -> Frame:
        """The frame of these messages, in this order."""
        counts = [message.num_coordinates for message in messages]
        frame = cls.room_for(Table.of(counts, [message.body.numel() for message in messages]), device)
        for number, message in enumerate(messages):
            frame.put(number, message)
        return frame

    @property
    def num_messages(self) -> int:
        return len(self._entries)

    @property
    def counts(self) -> list[int]:
        """The coordinates that every message claims."""
        return self._entries["num_coordinates"].tolist()

    def body(self, number: int) -> Tensor:
        """The body of one message: a view."""
        return self.data[self.starts[number] : self.ends[number]]

    def message(self, number: int) -> Message:
        """One message, whose body is a view."""
        entry = self._entries[number]
        return Message(int(entry["tag"]).to_bytes(4, "little"), int(entry["num_coordinates"]), self.body(number))

    def tag(self, numbers: NDArray[np.int64], tag: bytes) -> None:
        """Write the tag of some messages, whose bodies are written apart."""
        self._entries["tag"][numbers] = int.from_bytes(tag, "little")

    def tagged(self, numbers: NDArray[np.int64], tag: bytes) -> bool:
        """Whether all these messages have this tag."""
        return bool((self._entries["tag"][numbers] == int.from_bytes(tag, "little")).all())

    def put(self, number: int, message: Message) -> None:
        """Write one message."""
        assert message.num_coordinates == self._entries["num_coordinates"][number]
        self._entries["tag"][number] = int.from_bytes(message.tag, "little")
        self.body(number).copy_(message.body)

    def sealed(self) -> Tensor:
        """The whole frame, with its table and its checksum: uint8[bytes]."""
        head = _HEAD.pack(_MAGIC, VERSION, 0, 0, len(self._entries)) + self._entries.tobytes()
        self.data[: len(head)] = raw(head)
        self.data[4:8] = raw(struct.pack("<I", _checksum(self.data)))
        return self.data

    @classmethod
    def read(cls, data: Tensor) -> Frame:
        """The frame that ``data`` uint8[bytes] begins with; MessageError where it is none, or damaged."""
        size = data.numel()
        if size < _HEAD.size:
            raise MessageError(f"a frame cut short: {size} bytes, its head takes {_HEAD.size}")
        head = bytes(data[: _HEAD.size].cpu().numpy())
        magic, version, zero, checksum, count = _HEAD.unpack(head)
        if magic == b"NQ":
            raise MessageError("messages without a frame, as older versions sent them: use one version on all ranks")
        if magic != _MAGIC or zero:
            raise MessageError(f"no frame: it begins {head[:4]!r} where {_MAGIC!r}, the version and 0 are expected")
        if version != VERSION:
            rule = f"this library reads version {VERSION}; use one version on all ranks"
            raise MessageError(f"a frame of version {version}: {rule}")
        behind = _HEAD.size + _ENTRY.itemsize * count
        if behind > size:
            raise MessageError(f"a frame cut short: {size} bytes, its table takes {behind}")
        table = Table(np.frombuffer(data[_HEAD.size : behind].cpu().numpy().tobytes(), dtype=_ENTRY))
        if (table.entries["end"] > size).any() or (table.ends < table.starts).any() or table.num_bytes > size:
            raise MessageError(f"bodies beyond a frame of {size} bytes: damaged")
        if _checksum(data[: table.num_bytes]) != checksum:
            raise MessageError("a frame damaged on the way: its checksum does not fit")
        return cls(table, data.clone() if data.data_ptr() % _ALIGNMENT else data)


class PieceError(NonFiniteError):
    """The error for a piece that is not finite, by the number of its message."""

    def __init__(self, number: int, why: str) -> None:
        super().__init__(why)
        self.number = number

    def __reduce__(self) -> tuple[type[NonFiniteError], tuple[str]]:
        return NonFiniteError, (str(self),)


@contextmanager
def told(number: int) -> Iterator[None]:
    """A NonFiniteError inside as the PieceError of this message."""
    try:
        yield
    except NonFiniteError as error:
        raise PieceError(number, str(error)) from error


def _checksum(data: Tensor) -> int:
    return crc32(data[_CHECKED_FROM:])
