"""The quantizer of the QSGD .. ALQ family: stochastic rounding of bucket-normalised coordinates to levels.

Four options compose with every set of levels: ``rotation`` (a Hadamard rotation before, its inverse after), ``coding``
(entropy coding of the codes), correlated ``rounding`` (of the workers whose mean is wanted) and, on equally spaced
levels in its place, subtractive ``dither``.  ``nuq.compressors.body`` lays out the messages; levels that are not
equally spaced travel with every message, so a receiver needs nothing else to decode it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from nuq.compressors.body import Layout
from nuq.compressors.compressor import MOST, InPlace, Write, careful
from nuq.compressors.frame import Frame, PieceError, Pieces
from nuq.compressors.message import HEADER_BYTES, Message, largest
from nuq.kernels import bit_packing, operators, reference, spec
from nuq.kernels import pieces as kernels
from nuq.kernels.pieces import Format
from nuq.kernels.spec import Among, Key
from nuq.levels.level_sets import Levels
from nuq.settings.quantizers import Bucketed

TAG = b"LVLS"
ROTATION_BLOCK = 1024  # coordinates: what stays in the first cache, and is mixed well enough for a normal distribution
Solved = Callable[[], tuple[Levels, float | None]]  # levels, and the multiplier of exponential ones


class _InUse(NamedTuple):
    """Levels in use: as they are, the p of exponential ones, float32[L] as they travel, and the format of pieces."""

    levels: Levels
    multiplier: float | None
    table: Tensor
    pieces: Format


class Quantizer(InPlace):
    """Stochastic rounding of bucket-normalised coordinates to levels.  Unbiased unless it clips.

    levels: or a function that solves for levels and their multiplier when they are first read.  settings: bucket size,
    rotation and coding; dither where they have it.  uniform: the levels are equally spaced.  multiple: of the rms norm
    (``nuq.kernels.operators``, step 2).  multiplier: the p of exponential levels, where the levels have one.  rate:
    bits of a coded normal coordinate, where they are known.
    """

    def __init__(
        self,
        levels: Levels | Solved,
        settings: Bucketed,
        norm: str,
        *,
        uniform: bool = False,
        multiple: float = 0.0,
        clip_sigma: float = 0.0,
        multiplier: float | None = None,
        rate: float | None = None,
    ) -> None:
        spec.check_bucket_size(settings.bucket_size)
        self.rate = rate
        self.bucket_size = settings.bucket_size
        self.norm = norm
        self.multiple = multiple
        self.uniform = uniform
        self.clip_sigma = clip_sigma
        self.dither = getattr(settings, "dither", "none") == "subtractive"
        self.correlated = settings.rounding == "correlated" and not self.dither
        self.coder = settings.coding
        self.exact_bytes = self.coder == "packed"
        self.block = ROTATION_BLOCK if settings.rotation == "hadamard" else 1
        self._chosen: _InUse | Callable[[], _InUse]
        if callable(levels):
            self._solve_later(levels)
        else:
            self.set_levels(levels, multiplier)

    def set_levels(self, levels: Levels, multiplier: float | None = None) -> None:
        if not isinstance(levels, Levels):
            rule = "must be nuq.levels.level_sets.Levels, which checks them: Levels(values)"
            raise ValueError(f"levels={levels!r}: {rule}")
        self._chosen = self._used(levels, multiplier)

    def _solve_later(self, solve: Solved) -> None:
        """Use the levels that ``solve`` gives, which is called when they are first read."""
        self._chosen = cache(lambda: self._used(*solve()))  # several threads may read them

    @property
    def _in_use(self) -> _InUse:
        return self._chosen() if callable(self._chosen) else self._chosen

    def _used(self, levels: Levels, multiplier: float | None) -> _InUse:
        table = torch.tensor(levels.values, dtype=torch.float32, device="cpu")
        layout = self._layout_of(levels, 0)
        head = layout.head()
        how = (layout.packing, layout.levels(head) if self.uniform else table, not self.uniform, bytes(head.numpy()))
        pieces = Format(self.bucket_size, self.norm, *how, self.multiple)
        return _InUse(levels, multiplier, table, pieces)

    @property
    def levels(self) -> Levels:
        return self._in_use.levels

    @property
    def multiplier(self) -> float | None:
        return self._in_use.multiplier

    def _layout(self, num_coordinates: int, words: spec.Words = (0, 0)) -> Layout:
        return self._layout_of(self.levels, num_coordinates, words)

    def _layout_of(self, levels: Levels, num_coordinates: int, words: spec.Words = (0, 0)) -> Layout:
        sizes = (num_coordinates, self.bucket_size, levels.num_levels)
        switches = (self.uniform, spec.scales_per_bucket(self.norm) == 2, self.dither)
        return Layout(*sizes, *switches, self.coder, self.block, words)

    def rotated(self, vector: Tensor, key: Key) -> Tensor:
        """The vector that is cut into buckets: the gradient or its rotation, clipped where the method clips."""
        if self.block > 1:
            vector = vector.to(torch.float32, copy=True)
            operators.hadamard_(vector, self.block, spec.rotation_words(key.words()))
        return clip(vector, self.bucket_size, self.clip_sigma) if self.clip_sigma else vector.contiguous()

    def encode(self, vector: Tensor, key: Key) -> Message:
        key, among = key.together(self.correlated)
        layout = self._layout(vector.numel(), key.words())
        vector = self.rotated(vector, key)
        if self.coder == "packed":
            message = Message.room_for(TAG, vector.numel(), layout.body_bytes(), vector.device)
            self._write(vector, key, among, layout, message.body, message.body[layout.codes_at :])
            return message
        code_bytes = bit_packing.packed_bytes(vector.numel(), layout.packing)
        codes = torch.empty(code_bytes, dtype=torch.uint8, device=vector.device)
        before = torch.empty(layout.codes_at, dtype=torch.uint8, device=vector.device)
        self._write(vector, key, among, layout, before, codes)
        coded = layout.coded(codes)
        message = Message.room_for(TAG, vector.numel(), layout.codes_at + coded.numel(), vector.device)
        message.body[: layout.codes_at] = before
        message.body[layout.codes_at :] = coded
        return message

    def _write(self, vector: Tensor, key: Key, among: Among, layout: Layout, body: Tensor, codes: Tensor) -> None:
        """Write everything before the codes into ``body``, and the codes into ``codes``."""
        body[: layout.levels_at] = layout.head()
        scales = body[layout.scales_at : layout.codes_at].view(torch.float32)
        how: dict[str, Any] = {"bucket_size": self.bucket_size, "packing": layout.packing, "key": key, "among": among}
        how |= {"norm": self.norm, "multiple": self.multiple}
        levels = layout.num_levels if self.uniform else self._in_use.table.to(vector.device)
        if isinstance(levels, Tensor):
            body[layout.levels_at : layout.scales_at] = levels.view(torch.uint8)
        operators.encode_(vector, levels, scales, codes, **how)

    def _opened(self, message: Message) -> Write:
        layout, body = Layout.read(message, TAG), message.body
        scales, levels = layout.scales(body), layout.levels(body)
        how: dict[str, Any] = {"bucket_size": layout.bucket_size, "packing": layout.packing}
        dither = layout.words if layout.dither else None
        write = partial(operators.decode_, layout.codes(body), scales, levels, dither=dither, **how)
        if layout.block > 1:
            write = partial(_write_rotated, write, layout)
        reach = layout.block**0.5 * (2 if layout.dither else 1)
        return write if reach * largest(scales) < MOST else careful(write)

    def _together(self, *tensors: Tensor) -> bool:
        """Whether pieces go in one call: without entropy coding, rotation, clipping and dither, on the CPU."""
        plain = self.coder == "packed" and self.block == 1 and not self.clip_sigma and not self.dither
        return plain and kernels.together(*tensors)

    def encode_pieces(self, vector: Tensor, pieces: Pieces, key: Key, frame: Frame) -> None:
        if not self._together(vector, frame.data):
            super().encode_pieces(vector, pieces, key, frame)
            return
        bodies, ends = frame.starts[pieces.numbers], frame.ends[pieces.numbers]
        key, among = key.together(self.correlated)
        places = (pieces.starts, pieces.sizes, pieces.words(key), among, frame.data, bodies, ends)
        bad = kernels.encode_(vector, *places, self._in_use.pieces)
        if bad >= 0:
            number = int(pieces.numbers[bad])
            raise PieceError(number, f"the {self.norm} norm of a bucket is not finite or overflows float32")
        frame.tag(pieces.numbers, TAG)

    def add_pieces(self, frame: Frame, pieces: Pieces, total: Tensor) -> None:
        if not self._together(frame.data, total) or not frame.tagged(pieces.numbers, TAG):
            super().add_pieces(frame, pieces, total)
            return
        places = [frame.starts[pieces.numbers], frame.ends[pieces.numbers], pieces.starts, pieces.sizes]
        done = 0
        while done < len(pieces.numbers):
            bodies, ends, starts, sizes = (each[done:] for each in places)
            left_out = kernels.add_(frame.data, bodies, ends, total, starts, sizes, self._in_use.pieces)
            if left_out < 0:
                return
            done += left_out + 1
            start, size = int(starts[left_out]), int(sizes[left_out])
            self.add(frame.message(int(pieces.numbers[done - 1])), total[start : start + size])

    def encode_sum(self, vector: Tensor, kept: Tensor | None, key: Key) -> tuple[Tensor, Message, Tensor]:
        if vector.dim() == 1 and self._together(vector, *([] if kept is None else [kept])):
            size = vector.numel()
            message = Message.room_for(TAG, size, self._layout(size).body_bytes(), vector.device)
            decoded = torch.empty(size, dtype=torch.float32, device=vector.device)
            wanted = vector if kept is None else torch.empty_like(decoded)
            own, among = key.together(self.correlated)
            if kernels.encode_one(vector, kept, wanted, own.words(), among, message.body, decoded, self._in_use.pieces):
                return wanted, message, decoded
        return super().encode_sum(vector, kept, key)

    def add_scaled(self, message: Message, factor: float, total: Tensor) -> None:
        body = message.body
        if message.tag == TAG and body.data_ptr() % 4 == 0 and self._together(body, total):
            message.check_fits(total)
            if kernels.add_one(body, total, self._in_use.pieces, factor):
                return
        super().add_scaled(message, factor, total)

    def message_bytes(self, num_coordinates: int) -> int:
        """The length of a message; with entropy coding, its largest length."""
        return HEADER_BYTES + self._layout(num_coordinates).body_bytes()

    def usual_bytes(self, num_coordinates: int) -> int:
        """The length of a message of normal coordinates, where it is known, else ``message_bytes``."""
        if self.rate is None:
            return self.message_bytes(num_coordinates)
        return HEADER_BYTES + round(self.rate * num_coordinates / 8)

    def state_dict(self) -> dict[str, Any]:
        levels = torch.tensor(self.levels.values, dtype=torch.float64, device="cpu")
        return {"levels": levels, "multiplier": self.multiplier}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.set_levels(Levels(state["levels"].cpu().numpy()), state["multiplier"])


def _write_rotated(write: Write, layout: Layout, total: Tensor, *, accumulate: bool) -> None:
    """Write or add the decoded vector, rotated back."""
    rotated = torch.empty_like(total) if accumulate else total
    write(rotated, accumulate=False)
    operators.hadamard_(rotated, layout.block, spec.rotation_words(layout.words), inverse=True)
    if accumulate:
        total += rotated


def clip(vector: Tensor, bucket_size: int, num_sigmas: float) -> Tensor:
    """Clamp every coordinate to num_sigmas standard deviations of its bucket (TernGrad, Section 3.2): biased."""
    if not vector.numel():
        return vector
    buckets = reference.bucketed(vector, bucket_size)
    lengths = reference.bucket_lengths(vector.numel(), bucket_size, vector.device)[:, None]
    wide = buckets.to(torch.float64)
    mean = reference.tree_sum(wide)[:, None] / lengths
    sigma = (reference.tree_sum(wide.square())[:, None] / lengths - mean.square()).clamp_min(0.0).sqrt()
    limit = (num_sigmas * sigma).to(torch.float32)
    return torch.clamp(buckets, -limit, limit).reshape(-1)[: vector.numel()]
