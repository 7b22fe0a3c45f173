"""S2FP8: one byte per coordinate, the e5m2 of a power of the coordinate ("shifted and squeezed").

Cambier et al., ICLR 2020, arXiv 2001.05674.  With m the mean and M the largest of log2 |x| over the nonzeros, ``alpha =
15 / (M - m)`` and ``beta = -alpha m``, a coordinate travels as e5m2 of ``y = +- 2^(alpha log2 |x| + beta)``, whose
logarithms have mean 0 and maximum 15; decoded, ``|x| = 2^((log2 |y| - beta) / alpha)``.  Rounding is to the nearest y
(the paper: biased; a coordinate in the middle of two goes to the upper one), or at random between the two decoded
values (ours: unbiased, with less reach: what lies below the smallest becomes it or zero).

It is one table of 241 values per tensor, ``+- 2^((log2 y - 15) (M - m) / 15)`` in units of the largest ``|x|``, in
which the operators of ``nuq.kernels.operators`` find the code.  Zeros are exact, and so are constant tensors, the
largest coordinate being y = 2^15.

Differences from the paper: the mean is that of ``nuq.kernels.log2_mean``; ``M - m`` is kept within 2^-10 .. 60, so that
neither a nearly constant tensor nor one of very different sizes makes a table that float32 cannot tell apart; a tensor
below 2^-126 becomes zeros.

Body of a message::

    M - m, largest |x|      float32
    codes uint8             the place in the table, one per coordinate
"""

from __future__ import annotations

import math
import struct
from functools import lru_cache, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nuq.compressors.compressor import InPlace, Write
from nuq.compressors.message import HEADER_BYTES, Message, from_bytes, raw, unpacked
from nuq.errors import MessageError
from nuq.kernels import operators
from nuq.kernels.log2_mean import mean_log2
from nuq.kernels.spec import Key
from nuq.levels import code_tables
from nuq.settings.formats import S2FP8 as Settings

TAG = b"S2F8"
_HEAD = struct.Struct("<ff")
_TOP = 15  # log2 of the largest y
_LEAST_REACH, _MOST_REACH = 2.0**-10, 60.0
_SIZES = np.array([y for y in code_tables.float8(5, 2, infinities=True) * 57344 if 0 < y <= 2**_TOP])


@lru_cache(maxsize=16)
def _table(reach: float, nearest: bool) -> Tensor:
    """The values of the codes, or (nearest) the thresholds between them: float32, rising from -1 to 1."""
    sizes = np.concatenate([(_SIZES[1:] + _SIZES[:-1]) / 2, [2.0**_TOP]]) if nearest else _SIZES
    sizes = np.concatenate([_SIZES[:1] / 2, sizes]) if nearest else sizes
    positive = np.exp2((np.log2(sizes) - _TOP) * (reach / _TOP))
    return torch.from_numpy(np.concatenate([-positive[::-1], [] if nearest else [0.0], positive]).astype(np.float32))


class S2FP8(InPlace):
    """A compressor that sends a byte a coordinate: the e5m2 of a power of it that fits the tensor's range."""

    settings: Settings

    def encode(self, vector: Tensor, key: Key) -> Message:
        """Encode a tensor; NonFiniteError where it is not finite."""
        vector = vector.contiguous().to(torch.float32)
        n = vector.numel()
        how: dict[str, Any] = {"bucket_size": max(n, 1), "norm": "linf"}
        largest = float(operators.bucket_scales(vector, **how)) if n else 0.0
        spread = math.log2(largest) - mean_log2(vector) if largest else 0.0
        reach = float(np.float32(min(max(spread, _LEAST_REACH), _MOST_REACH)))
        message = Message.room_for(TAG, n, _HEAD.size + n, vector.device)
        if n:
            scales = torch.empty(1, dtype=torch.float32, device=vector.device)
            table = _table(reach, not self.stochastic).to(vector.device)
            key, among = key.together(self.correlated)
            how |= {"packing": 8, "key": key, "among": among, "stochastic": self.stochastic}
            operators.encode_(vector, table, scales, message.body[_HEAD.size :], **how)
        message.body[: _HEAD.size] = raw(_HEAD.pack(reach, largest))
        return message

    def _opened(self, message: Message) -> Write:
        body, n = message.body, message.num_coordinates
        message.check_whole(TAG, _HEAD.size + n, "a byte")
        reach, largest = unpacked(_HEAD, body)
        if not _LEAST_REACH <= reach <= _MOST_REACH or not math.isfinite(largest):
            raise MessageError(f"reach {reach}, largest {largest}: damaged")
        scales = from_bytes(body[4 : _HEAD.size], torch.float32)[: min(n, 1)]  # of no bucket: none
        levels = _table(reach, False).to(body.device)
        return partial(operators.decode_, body[_HEAD.size :], scales, levels, bucket_size=max(n, 1), packing=8)

    def message_bytes(self, num_coordinates: int) -> int:
        return HEADER_BYTES + _HEAD.size + num_coordinates
