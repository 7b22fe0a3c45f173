"""The payload: one worker's gradient as bytes, the messages of its parts one after another.

A flat vector is tiled by parts: the whole of it under the name ``model``, or one part per parameter.  Parts marked
``exact`` travel in full precision (small tensors, whose headers and norms would cost more than they save).  A
collective that cuts the vector into shards cuts the parts with it; a piece of a part has random numbers of its own.

A worker whose gradient is not finite still has to say something, or the others would wait for it: its payload then is a
marker that names the worker and the part, and whoever decodes it raises NonFiniteError.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from nuq.compressors.compressor import Compressor
from nuq.compressors.full_precision import FullPrecision
from nuq.compressors.message import HEADER_BYTES, Message, split_payload
from nuq.errors import MessageError, NonFiniteError
from nuq.kernels.spec import Key

MARKER = b"!NAN"
_ALIGNMENT = 64  # coordinates: shards begin where packed codes and vector registers like it


@dataclass(frozen=True)
class Segment:
    """A segment of a flat vector: ``size`` coordinates from ``start`` on.

    first: the number of the first one within ``name``, -1 for the whole.

    encoder: the number of the one that encodes it (``PayloadCodec``).  shape: of the parameter, row after row; None for
    vectors of several.
    """

    name: str
    start: int
    size: int
    exact: bool = False
    first: int = -1
    encoder: int = 0
    shape: tuple[int, ...] | None = None

    @property
    def key_name(self) -> str:
        """The name that keys the random numbers: the parameter's name, and the place within it where it was cut."""
        return self.name if self.first < 0 else f"{self.name}[{self.first}]"


def num_coordinates(parts: Sequence[Segment]) -> int:
    """The number of coordinates of all parts together."""
    return sum(part.size for part in parts)


def cut(parts: Sequence[Segment], num_shards: int) -> list[list[Segment]]:
    """Cut the parts into shards of nearly equal length; the last ones may be empty where there is little to cut."""
    total = num_coordinates(parts)
    bounds = [min(-(-total * i // num_shards // _ALIGNMENT) * _ALIGNMENT, total) for i in range(num_shards)] + [total]
    shards: list[list[Segment]] = []
    for low, high in itertools.pairwise(bounds):
        inside = []
        for part in parts:
            start, end = max(part.start, low), min(part.start + part.size, high)
            if start < end:
                whole = end - start == part.size
                inside.append(
                    replace(part, start=start, size=end - start, first=part.first if whole else start - part.start)
                )
        shards.append(inside)
    return shards


def joined(pieces: Sequence[Tensor], device: torch.device) -> Tensor:
    """The uint8 tensors one after another, without a copy where there is only one."""
    if len(pieces) == 1:
        return pieces[0]
    return torch.cat(list(pieces)) if pieces else torch.empty(0, dtype=torch.uint8, device=device)


class PayloadCodec:
    """A method as a codec of payloads: encode, decode, and the length where it is known beforehand.

    others: of the parts with encoder 1, 2, ..., where layers have methods of their own.
    """

    def __init__(self, compressor: Compressor, others: Sequence[PayloadCodec] = ()) -> None:
        self.compressor, self.others = compressor, tuple(others)
        self._exact = FullPrecision()

    @property
    def every(self) -> tuple[PayloadCodec, ...]:
        """The codecs by the number of the encoder; those after the first have no others."""
        return (self, *self.others)

    @property
    def fixed(self) -> bool:
        """Whether the length of every payload is known beforehand."""
        return all(codec.compressor.exact_bytes for codec in self.every)

    def _by(self, part: Segment) -> PayloadCodec:
        return self.others[part.encoder - 1] if part.encoder else self

    def _of(self, part: Segment) -> Compressor:
        return self._exact if part.exact else self._by(part).compressor

    def size(self, parts: Sequence[Segment]) -> int | None:
        """The number of bytes of a payload; None where they depend on the values."""
        if not all(part.exact or self._by(part).compressor.exact_bytes for part in parts):
            return None
        return sum(self._of(part).message_bytes(part.size) for part in parts)

    def encode(self, vector: Tensor, parts: Sequence[Segment], key: Key) -> Tensor:
        """Encode a gradient: uint8[bytes].  NonFiniteError where it is not finite."""
        return joined([self._encoded(vector, part, key) for part in parts], vector.device)

    def _encoded(self, vector: Tensor, part: Segment, key: Key) -> Tensor:
        piece = vector[part.start : part.start + part.size]
        if part.shape is not None and not part.exact and self._by(part).compressor.shaped:
            if part.first < 0:
                piece = piece.view(part.shape)
            else:
                key = replace(key, piece_of=len(part.shape))
        return self._of(part).encode(piece, key.of(part.key_name)).to_bytes()

    def encode_or_mark(self, vector: Tensor, parts: Sequence[Segment], key: Key) -> Tensor:
        """The payload, or the marker that says which part is not finite."""
        messages = []
        for number, part in enumerate(parts):
            try:
                messages.append(self._encoded(vector, part, key))
            except NonFiniteError:
                return self.marker(key.worker, number, parts, vector.device)
        return joined(messages, vector.device)

    def marker(self, worker: int, number: int, parts: Sequence[Segment], device: torch.device) -> Tensor:
        """The bytes that replace a payload of ``parts`` whose part ``number`` is not finite on ``worker``."""
        marker = Message(MARKER, worker << 32 | number, torch.empty(0, dtype=torch.uint8)).to_bytes()
        padded = torch.zeros(self.size(parts) or HEADER_BYTES, dtype=torch.uint8, device=device)
        padded[:HEADER_BYTES] = marker
        return padded

    def add(self, payload: Tensor, parts: Sequence[Segment], total: Tensor, *, base: int = 0) -> None:
        """Decode a payload and add it to the total.

        total: float32, its first coordinate is number ``base`` of the vector.

        MessageError for a payload that is damaged or of other parts; RemoteNonFinite where it is a marker.
        """
        messages = split_payload(payload.to(total.device))
        for part in parts:
            message = next(messages, None)
            if message is not None and message.tag == MARKER:
                raise RemoteNonFinite(message.num_coordinates >> 32, message.num_coordinates & 0xFFFFFFFF, parts)
            if message is None or message.num_coordinates != part.size:
                found = "nothing" if message is None else f"a message of {message.num_coordinates} coordinates"
                raise MessageError(f"{found} where {part.size} coordinates of {part.name!r} are expected")
            place = total[part.start - base : part.start - base + part.size]
            self._of(part).add(message, place)
        if next(messages, None) is not None:
            raise MessageError(f"more messages than the {len(parts)} parts of the vector")


def check_mean(mean: Tensor, parts: Sequence[Segment], dtype: torch.dtype = torch.float32) -> None:
    """Check that a mean is finite in ``dtype``; NonFiniteError, alike on all ranks that hold the same mean, if not.

    Finite gradients may add up to a mean beyond ``dtype``.
    """
    mean = mean.to(dtype)
    if math.isfinite(float(mean.sum(dtype=torch.float32))):  # a finite sum has finite terms: one pass
        return
    for part in parts:
        if not bool(torch.isfinite(mean[part.start : part.start + part.size]).all()):
            raise NonFiniteError(
                f"the mean gradient of {part.name!r} is not finite or overflows {str(dtype).removeprefix('torch.')}"
            )


@contextmanager
def told_plainly() -> Iterator[None]:
    """A RemoteNonFinite as the NonFiniteError that users know, which can be pickled, with its words."""
    try:
        yield
    except RemoteNonFinite as error:
        raise NonFiniteError(str(error)) from None


class RemoteNonFinite(NonFiniteError):
    """The error for a marker in place of a payload: that worker's gradient of that part is not finite."""

    def __init__(self, worker: int, number: int, parts: Sequence[Segment]) -> None:
        self.worker, self.number = worker, number
        self.name = parts[number].name if number < len(parts) else "?"
        super().__init__(f"the gradient of {self.name!r} on worker {worker} is not finite or overflows float32")
