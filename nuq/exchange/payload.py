"""The payload: one worker's gradient as bytes, the messages of its segments in one frame.

A worker whose gradient is not finite still has to say something, or the others would wait for it: its payload then is a
marker that names the worker and the segment, and whoever decodes it raises NonFiniteError.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from nuq.compressors.compressor import Compressor
from nuq.compressors.frame import Frame, PieceError, Pieces, Table, told
from nuq.compressors.full_precision import FullPrecision
from nuq.compressors.message import HEADER_BYTES, Message, from_bytes
from nuq.errors import MessageError, NonFiniteError
from nuq.exchange.finite import first_not_finite
from nuq.exchange.flat_layout import FlatLayout, Segment
from nuq.kernels.spec import MOST_TOGETHER, Key

MARKER = b"!NAN"
_SLACK_BYTES = 1 << 12  # for a marker, and formulas that are a few bytes short


def joined(pieces: Sequence[Tensor], device: torch.device) -> Tensor:
    """The uint8 tensors one after another, without a copy where there is only one."""
    if len(pieces) == 1:
        return pieces[0]
    return torch.cat(list(pieces)) if pieces else torch.empty(0, dtype=torch.uint8, device=device)


@dataclass
class _Plan:
    """What is known of every payload of a layout: who encodes which segments, and the table if lengths are known.

    encoded: how many payloads were; bytes_each: of all their messages by segment, where lengths are not known.
    """

    groups: list[tuple[Compressor, Pieces]]
    table: Table | None
    counts: list[int]
    most_bytes: int
    bytes_each: list[int]
    encoded: int = 0


def checked(told_bytes: int, most_bytes: int, rank: int) -> int:
    """The length of a payload that another rank told; MessageError where it can have no such length."""
    if not 0 <= told_bytes <= most_bytes:
        raise MessageError(f"rank {rank} tells of a payload of {told_bytes} bytes: it can have 0 to {most_bytes}")
    return told_bytes


class PayloadCodec:
    """Compressors as a codec of payloads: encode, decode, and the length where it is known beforehand.

    compressors: by the number that ``Segment.encoder`` names; several where layers have methods of their own.
    """

    def __init__(self, *compressors: Compressor) -> None:
        self.compressors = compressors
        self._exact = FullPrecision()
        self._plans: WeakKeyDictionary[FlatLayout, _Plan] = WeakKeyDictionary()

    @property
    def fixed(self) -> bool:
        """Whether the length of every payload is known beforehand."""
        return all(compressor.exact_bytes for compressor in self.compressors)

    def _of(self, segment: Segment) -> Compressor:
        return self._exact if segment.exact else self.compressors[segment.encoder]

    def _plan(self, layout: FlatLayout) -> _Plan:
        if (known := self._plans.get(layout)) is not None:
            return known
        members: dict[Compressor, list[int]] = {}
        for number, segment in enumerate(layout.segments):
            members.setdefault(self._of(segment), []).append(number)
        groups = [(compressor, _pieces(layout, numbers)) for compressor, numbers in members.items()]
        counts = [segment.size for segment in layout.segments]
        sizes = [self._of(segment).message_bytes(segment.size) - HEADER_BYTES for segment in layout.segments]
        longest = Table.of(counts, sizes)
        fixed = all(compressor.exact_bytes for compressor in members)
        most_bytes = longest.num_bytes + _SLACK_BYTES
        plan = self._plans[layout] = _Plan(groups, longest if fixed else None, counts, most_bytes, [0] * len(counts))
        return plan

    def size(self, layout: FlatLayout) -> int | None:
        """The number of bytes of a payload; None where they depend on the values."""
        table = self._plan(layout).table
        return None if table is None else table.num_bytes if layout.segments else 0

    def most_bytes(self, layout: FlatLayout) -> int:
        """The most bytes that a payload of the layout can have, or somewhat more."""
        return self._plan(layout).most_bytes

    def encode(self, vector: Tensor, layout: FlatLayout, key: Key) -> Tensor:
        """Encode a gradient: uint8[bytes].  NonFiniteError where it is not finite."""
        plan = self._plan(layout)
        if not layout.segments:
            return torch.empty(0, dtype=torch.uint8, device=vector.device)
        plan.encoded += 1
        if plan.table is not None:
            frame = Frame.room_for(plan.table, vector.device)
            for compressor, pieces in plan.groups:
                compressor.encode_pieces(vector, pieces, key, frame)
            return frame.sealed()
        messages: list[Message | None] = [None] * len(layout.segments)
        for compressor, pieces in plan.groups:
            for number, piece, own in pieces.each(vector, key, shaped=compressor.shaped):
                with told(number):
                    messages[number] = message = compressor.encode(piece, own)
                    plan.bytes_each[number] += message.num_bytes
        return Frame.of([message for message in messages if message is not None], vector.device).sealed()

    def bits_by_vector(self) -> dict[str, float]:
        """Bits a coordinate of all messages encoded so far, with their headers, by the name of the vector."""
        num_bytes: Counter[str] = Counter()
        coordinates: Counter[str] = Counter()
        for layout, plan in self._plans.items():
            for segment, measured in zip(layout.segments, plan.bytes_each, strict=True):
                fixed = plan.encoded * self._of(segment).message_bytes(segment.size)
                num_bytes[segment.name] += measured if plan.table is None else fixed
                coordinates[segment.name] += plan.encoded * segment.size
        return {name: 8 * num_bytes[name] / count for name, count in coordinates.items() if count}

    def encode_or_mark(self, vector: Tensor, layout: FlatLayout, key: Key) -> Tensor:
        """The payload, or the marker that says which segment is not finite."""
        try:
            return self.encode(vector, layout, key)
        except PieceError as error:
            # the first segment that is not finite, or the one that overflows in what is made of it
            first = first_not_finite(vector[segment.place] for segment in layout.segments[: error.number])
            number = error.number if first is None else first
            return self.marker(key.worker, number, layout, vector.device)

    def encode_or_mark_each(
        self, vector: Tensor, layouts: Sequence[FlatLayout], key: Key, *, together: bool = False
    ) -> list[Tensor]:
        """The payloads of parts of a vector; together: markers for all, of one segment each, if one is not finite."""
        if not together:
            return [self.encode_or_mark(vector, layout, key) for layout in layouts]
        try:
            return [self.encode(vector, layout, key) for layout in layouts]
        except PieceError:
            return [self.marker(key.worker, 0, layout, vector.device) for layout in layouts]

    def marker(self, worker: int, number: int, layout: FlatLayout, device: torch.device) -> Tensor:
        """The bytes that replace a payload of ``layout`` whose segment ``number`` is not finite on ``worker``."""
        # as short as any body: 4 bytes
        body = torch.tensor([worker], dtype=torch.int32, device=device).view(torch.uint8)
        marker = Frame.of([Message(MARKER, number, body)], device).sealed()
        padded = torch.zeros(max(self.size(layout) or 0, marker.numel()), dtype=torch.uint8, device=device)
        padded[: marker.numel()] = marker
        return padded

    def add(self, payload: Tensor, layout: FlatLayout, total: Tensor) -> None:
        """Decode a payload and add it to the total float32[n], in which the segments lie as the layout says.

        MessageError for a payload that is damaged or of another layout; RemoteNonFinite where it is a marker.
        """
        if not layout.segments and not payload.numel():
            return
        frame, plan = Frame.read(payload.to(total.device)), self._plan(layout)
        if frame.num_messages and (first := frame.message(0)).tag == MARKER:
            worker = int(from_bytes(first.body, torch.int32)) if first.body.numel() == 4 else -1
            if not 0 <= worker < MOST_TOGETHER or first.num_coordinates >= len(layout.segments):
                raise MessageError(f"a marker of worker {worker} and segment {first.num_coordinates}: damaged")
            raise RemoteNonFinite(worker, first.num_coordinates, layout.segments)
        if frame.num_bytes != payload.numel():
            raise MessageError(f"{payload.numel()} bytes where a frame of {frame.num_bytes} is expected")
        if (found := frame.counts) != plan.counts:
            raise MessageError(_other_layout(found, layout.segments))
        for compressor, pieces in plan.groups:
            compressor.add_pieces(frame, pieces, total)


def _pieces(layout: FlatLayout, numbers: Sequence[int]) -> Pieces:
    """The pieces of some segments of a layout."""
    chosen = [layout.segments[number] for number in numbers]
    places = (numbers, [own.start for own in chosen], [own.size for own in chosen])
    names, shapes = [own.key_name for own in chosen], [own.shape for own in chosen]
    return Pieces.of(places, names, shapes, [own.first >= 0 for own in chosen])


def _other_layout(found: Sequence[int], segments: Sequence[Segment]) -> str:
    """The sentence on a payload of another layout."""
    for number, segment in enumerate(segments):
        if number >= len(found) or found[number] != segment.size:
            what = f"a message of {found[number]} coordinates" if number < len(found) else "nothing"
            return f"{what} where {segment.size} coordinates of {segment.name!r} are expected"
    return f"more messages than the {len(segments)} segments of the vector"


def check_mean(mean: Tensor, layout: FlatLayout, dtype: torch.dtype = torch.float32) -> None:
    """Check that a mean is finite in ``dtype``; NonFiniteError, alike on all ranks that hold the same mean, if not.

    Finite gradients may add up to a mean beyond ``dtype``.
    """
    mean = mean.to(dtype)
    if math.isfinite(float(mean.sum(dtype=torch.float32))):  # a finite sum has finite terms: one pass
        return
    number = first_not_finite(mean[segment.place] for segment in layout.segments)
    if number is not None:
        name, kind = layout.segments[number].name, str(dtype).removeprefix("torch.")
        raise NonFiniteError(f"the workers' mean of {name!r} is not finite or overflows {kind}")


@contextmanager
def told_plainly() -> Iterator[None]:
    """A RemoteNonFinite as the NonFiniteError that users know, which can be pickled, with its words."""
    try:
        yield
    except RemoteNonFinite as error:
        raise NonFiniteError(str(error)) from None


class RemoteNonFinite(NonFiniteError):
    """The error for a marker in place of a payload: that worker's gradient of that segment is not finite."""

    def __init__(self, worker: int, number: int, segments: Sequence[Segment]) -> None:
        self.worker, self.number = worker, number
        self.name = segments[number].name
        super().__init__(f"the gradient of {self.name!r} on worker {worker} is not finite or overflows float32")
