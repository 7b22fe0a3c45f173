"""One byte per coordinate: the index of a value in a fixed table, in units of the bucket's largest ``|x|``.

- ``block8``: 8-bit block-wise quantization (Dettmers et al., ICLR 2022, there of optimizer states), with their dynamic
  tree code or equally spaced values;
- ``fp8``: e4m3 or e5m2 (Micikevicius et al., 2022), scaled so that the largest coordinate becomes the format's largest
  value; with ``scale=none`` the plain cast (``nuq.compressors.casts``).

The tables differ, the method does not (``nuq.levels.code_tables``): ``nuq.kernels.operators`` steps 1 to 4, with the
Linf norm.  Rounding to the nearest is biased, and a contraction since every table has a zero; at random it is unbiased.
Differences from the papers: a coordinate in the middle of two values goes to the upper one (IEEE: to the even one);
under stochastic rounding the dynamic code's lowest value is -1 in place of -.99297, so that nothing has to be clipped.
The table's place travels in place of a floating-point format's own bits: the same information.

Body of a message::

    bucket size uint32, table uint8, 3 zero bytes
    scales float32         one per bucket
    codes uint8            one per coordinate

For n coordinates and buckets of d that makes ``28 + 8 + 4*ceil(n/d) + n`` bytes, header included.
"""

from __future__ import annotations

import struct
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor

from nuq.compressors.casts import HalfCast
from nuq.compressors.compressor import InPlace, Write
from nuq.compressors.message import HEADER_BYTES, Message, finite, from_bytes, raw, unpacked
from nuq.errors import MessageError
from nuq.kernels import operators, spec
from nuq.kernels.spec import Key
from nuq.levels import code_tables
from nuq.settings.baselines import FP8, Block8

TAG = b"BLK8"
_HEAD = struct.Struct("<IB3x")
_TABLES = tuple(code_tables.TABLES)


@cache
def _on(device: torch.device, name: str, which: str) -> Tensor:
    """The ``code_tables.values`` or ``code_tables.thresholds`` of a table, as float32 on the device."""
    return torch.tensor(getattr(code_tables, which)(name), dtype=torch.float32, device=device)


class Blockwise(InPlace):
    """The block8 method: a byte per coordinate, the index of the nearest value of a fixed table."""

    def __init__(self, settings: Block8 | FP8) -> None:
        super().__init__(settings)
        self.bucket_size = settings.bucket_size
        self.table = "dynamic to -1" if self.stochastic and settings.table == "dynamic" else settings.table

    def encode(self, vector: Tensor, key: Key) -> Message:
        """Encode a gradient; NonFiniteError where it is not finite."""
        vector = vector.contiguous()
        codes_at = _HEAD.size + 4 * spec.num_buckets(vector.numel(), self.bucket_size)
        message = Message.room_for(TAG, vector.numel(), codes_at + vector.numel(), vector.device)
        body = message.body
        body[: _HEAD.size] = raw(_HEAD.pack(self.bucket_size, _TABLES.index(self.table)))
        scales = body[_HEAD.size : codes_at].view(torch.float32)
        key, among = key.together(self.correlated)
        how: dict[str, Any] = {"bucket_size": self.bucket_size, "norm": "linf", "packing": 8}
        how |= {"key": key, "among": among}
        if self.stochastic and self.table == "linear":
            levels = code_tables.values("linear").size
        else:
            levels = _on(vector.device, self.table, "values" if self.stochastic else "thresholds")
        operators.encode_(vector, levels, scales, body[codes_at:], stochastic=self.stochastic, **how)
        return message

    def _opened(self, message: Message) -> Write:
        body, n = message.body, message.num_coordinates
        message.check_tag(TAG, _HEAD.size, "of 8-bit codes")
        bucket_size, table = unpacked(_HEAD, body)
        if bucket_size < 1 or table >= len(_TABLES):
            raise MessageError(f"bucket size {bucket_size}, table {table}: damaged")
        codes_at = _HEAD.size + 4 * spec.num_buckets(n, bucket_size)
        if body.numel() != codes_at + n:
            raise MessageError(f"{body.numel()} bytes where {n} such coordinates take {codes_at + n}")
        scales = finite(from_bytes(body[_HEAD.size : codes_at], torch.float32), "scale")
        levels = _on(body.device, _TABLES[table], "values")
        return partial(operators.decode_, body[codes_at:], scales, levels, bucket_size=bucket_size, packing=8)

    def message_bytes(self, num_coordinates: int) -> int:
        return HEADER_BYTES + _HEAD.size + 4 * spec.num_buckets(num_coordinates, self.bucket_size) + num_coordinates


def fp8(settings: FP8) -> InPlace:
    """The fp8 method: e4m3 or e5m2, in units of the bucket's largest coordinate or unscaled."""
    if settings.scale == "bucket":
        return Blockwise(settings)
    return HalfCast(settings, torch.float8_e4m3fn if settings.table == "e4m3" else torch.float8_e5m2, "none")
