"""The message: the bytes that travel from one worker to the others, and nothing else.

A message is a 28-byte header and a body whose layout belongs to the method::

    "NQ", version uint8, 0, tag 4 bytes, CRC-32 uint32, coordinates uint64, body bytes uint64     (little-endian)

The CRC covers tag, both counts and body, so a message cut short or changed on the way raises MessageError.  Several
messages of one worker travel in a frame (``nuq.compressors.frame``), without these headers.
"""

from __future__ import annotations

import math
import struct
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nuq.compressors.checksum import crc32
from nuq.errors import MessageError
from nuq.kernels.host import numpy_of
from nuq.kernels.spec import DTYPES, MAX_COORDINATES

_HEADER = struct.Struct("<2sBB4sIQQ")
_COVERED = struct.Struct("<4sQQ")
HEADER_BYTES = _HEADER.size
VERSION = 2
UNASKED_COORDINATES, UNASKED_PER_BYTE = 1 << 24, 1 << 10  # what a message may claim where the caller names no limit


def in_a_row(tensor: Tensor) -> Tensor:
    """A tensor's numbers [n], one beside the other (a single one's stride may be anything to PyTorch)."""
    return tensor.detach().reshape(-1).contiguous().as_strided((tensor.numel(),), (1,))


def flat(tensor: Tensor) -> Tensor:
    """A tensor as float32[n], contiguous; ValueError for another type, or more coordinates than a message holds."""
    if tensor.dtype not in DTYPES:
        raise ValueError(f"a tensor of {tensor.dtype}: must be one of {', '.join(map(str, DTYPES))}")
    if tensor.numel() > MAX_COORDINATES:
        rule = "one message holds at most 2^31 coordinates; cut it into several"
        raise ValueError(f"num_coordinates={tensor.numel()}: {rule}")
    return in_a_row(tensor).to(torch.float32)


def as_bytes(*tensors: Tensor) -> Tensor:
    """The memory of the tensors, one after another: uint8[total bytes]."""
    return torch.cat([_memory(tensor) for tensor in tensors])


def _memory(tensor: Tensor) -> Tensor:
    row = tensor.contiguous()  # a dimension of one row has any stride all the same
    return row.as_strided((row.numel(),), (1,)).view(torch.uint8)


def raw(data: bytes) -> Tensor:
    """The bytes as uint8[len(data)], on the CPU."""
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)


def from_bytes(data: Tensor, dtype: torch.dtype) -> Tensor:
    """The uint8 memory as a tensor of ``dtype`` (copied, so that it is aligned)."""
    return data.clone().view(dtype)


def unpacked(layout: struct.Struct, data: Tensor) -> tuple[Any, ...]:
    """The numbers at the start of ``data`` uint8[layout.size or more], on any device."""
    return layout.unpack(bytes(data[: layout.size].cpu().numpy()))


def largest(values: Tensor) -> float:
    """The largest magnitude, or 0 where there is none; NaN where one is no number."""
    return float(values.abs().amax()) if values.numel() else 0.0


def finite(values: Tensor, what: str) -> Tensor:
    """The values themselves; MessageError where one, which is called ``what``, is not finite."""
    if not math.isfinite(largest(values)):
        raise MessageError(f"a {what} that is not finite: damaged")
    return values


@dataclass(frozen=True)
class Message:
    """A message: the tag of its layout (four letters), its coordinates, and its body uint8 on the gradient's device."""

    tag: bytes
    num_coordinates: int
    body: Tensor
    whole: Tensor | None = None  # header and body in one piece, where the body was written into ``room_for`` it

    @classmethod
    def room_for(cls, tag: bytes, num_coordinates: int, body_bytes: int, device: torch.device) -> Message:
        """A message whose body is yet to be written; its header then needs no copy of the body."""
        whole = torch.empty(HEADER_BYTES + body_bytes, dtype=torch.uint8, device=device)
        return cls(tag, num_coordinates, whole[HEADER_BYTES:], whole)

    @classmethod
    def of(cls, tag: bytes, num_coordinates: int, head: bytes, *parts: Tensor) -> Message:
        """The message of a head and the memory of the parts, one after another, on the device of the first part."""
        pieces = [raw(head), *map(_memory, parts)]
        message = cls.room_for(tag, num_coordinates, sum(piece.numel() for piece in pieces), parts[0].device)
        torch.cat([piece.to(message.body.device) for piece in pieces], out=message.body)
        return message

    @property
    def num_bytes(self) -> int:
        """The length of the message in bytes, header included."""
        return HEADER_BYTES + self.body.numel()

    def check_count(self, max_coordinates: int | None = None) -> None:
        """Check the claimed size: MessageError for more than ``max_coordinates``, or than any message may have.

        Few bytes may truly stand for many coordinates (a constant, a few indices among zeros), so a receiver should say
        how many it expects.  One that does not lets 2^24 coordinates through, 64 MiB of float32, or 1024 for every byte
        of the body.
        """
        most, told = max_coordinates, ""
        if most is None:
            most = max(UNASKED_COORDINATES, UNASKED_PER_BYTE * self.body.numel())
            told = f" for {self.body.numel()} bytes, unless max_coordinates allows them"
        most = min(most, MAX_COORDINATES)
        if self.num_coordinates > most:
            raise MessageError(f"{self.num_coordinates} coordinates: must be at most {most}{told}")

    def check_tag(self, tag: bytes, least_bytes: int, what: str) -> None:
        """Check the family of a message: MessageError ("is not ...") for another tag or a shorter body."""
        if self.tag != tag or self.body.numel() < least_bytes:
            raise MessageError(f"a message tagged {self.tag!r} with {self.body.numel()} bytes is not {what} ({tag!r})")

    def check_whole(self, tag: bytes, body_bytes: int, what: str) -> None:
        """Check the family and the length of a message: MessageError ("is not ... with ...") for another of either."""
        if self.tag != tag or self.body.numel() != body_bytes:
            found = f"a message tagged {self.tag!r} with {self.body.numel()} bytes"
            raise MessageError(f"{found} is not {tag!r} with {what} a coordinate")

    def check_fits(self, total: Tensor) -> None:
        """Check the claimed size: MessageError unless it is the number of coordinates of the total."""
        if self.num_coordinates != total.numel():
            raise MessageError(f"{self.num_coordinates} coordinates where {total.numel()} are expected")

    def _checksum(self) -> int:
        covered = _COVERED.pack(self.tag, self.num_coordinates, self.body.numel())
        return crc32(self.body, zlib.crc32(covered))

    def to_bytes(self) -> Tensor:
        """The whole message: uint8[num_bytes]."""
        counts = (self.num_coordinates, self.body.numel())
        header = raw(_HEADER.pack(b"NQ", VERSION, 0, self.tag, self._checksum(), *counts))
        if self.whole is None:
            return torch.cat([header.to(self.body.device), self.body])
        self.whole[:HEADER_BYTES] = header
        return self.whole


class Reader:
    """A reader of the parts of a body in turn, from byte ``at`` on; MessageError where it is too short or too long."""

    def __init__(self, body: Tensor, at: int = 0) -> None:
        self.body, self.at = body, at

    @property
    def left(self) -> int:
        return self.body.numel() - self.at

    def take(self, size: int) -> Tensor:
        """The next ``size`` bytes: uint8[size]."""
        if size > self.left:
            raise MessageError(f"{self.left} bytes where {size} are needed: the message is cut short")
        self.at += size
        return self.body[self.at - size : self.at]

    def rest(self) -> Tensor:
        return self.take(self.left)

    def array(self, size: int) -> NDArray[np.uint8]:
        """The next coded bytes, as an array that the processor reads."""
        return np.ascontiguousarray(numpy_of(self.take(size), "codes"))

    def numbers(self, layout: struct.Struct) -> tuple[Any, ...]:
        return unpacked(layout, self.take(layout.size))

    def floats(self, count: int) -> Tensor:
        """The next ``count`` numbers: float32[count], finite."""
        return finite(from_bytes(self.take(4 * count), torch.float32), "number")

    def end(self) -> None:
        if self.left:
            raise MessageError(f"{self.body.numel()} bytes where {self.at} are expected: damaged")


def parse(data: Tensor) -> Message:
    """The message that ``data`` uint8[bytes] holds; MessageError where it is none, or damaged."""
    if data.numel() < HEADER_BYTES:
        raise MessageError(f"message cut short: {data.numel()} bytes, a header takes {HEADER_BYTES}")
    header = bytes(data[:HEADER_BYTES].cpu().numpy())
    magic, version, zero, tag, checksum, num_coordinates, body_bytes = _HEADER.unpack(header)
    if magic != b"NQ" or zero != 0:
        raise MessageError(f"not a message: it starts with {header[:4]!r} where b'NQ' and the version are expected")
    if version != VERSION:
        rule = f"this library reads version {VERSION}; use one version on all ranks"
        raise MessageError(f"message of version {version}: {rule}")
    message = Message(tag, num_coordinates, data[HEADER_BYTES:])
    if message.body.numel() != body_bytes:
        raise MessageError(f"a body of {message.body.numel()} bytes where the header says {body_bytes}")
    if message._checksum() != checksum:
        raise MessageError("message damaged on the way: its checksum does not fit")
    return message
