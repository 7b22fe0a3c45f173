"""Natural compression: every coordinate becomes one of the two powers of two around it, at random.

Horvath et al., 2019, arXiv 1905.10988.

The method is unbiased; for a coordinate of ``2^e (1 + m)`` the variance is ``4^e m (1 - m) <= x^2 / 8`` (their Theorem
1: the second moment is at most 9/8 of the square), whatever the vector: no norm, no buckets.  On N(0, 1) it is .0817 of
``|x|^2``.

Difference from the paper, which sends sign and exponent of a float32 in 9 bits and mentions 8 bits for clipped
exponents: the vector's largest coordinate sets the exponents, and a byte holds the sign with zero or one of 127 powers.
What is smaller than the smallest power, 2^126 times below the largest, goes to it or to zero at random: nothing is
clipped and 8 bits stay unbiased, with at most ``2^-126 |x|_max`` times the coordinate added to its variance.  A
coordinate above 2^127 could become 2^128, which float32 does not hold: NonFiniteError.

Body of a message::

    exponent field of the smallest power uint8, 3 zero bytes
    codes uint8            sign, and 0 or 1 + j for 2^j times the smallest power

For n coordinates that makes ``28 + 4 + n`` bytes, header included.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from nuq.compressors.compressor import InPlace, Write
from nuq.compressors.message import HEADER_BYTES, Message
from nuq.errors import MessageError, NonFiniteError
from nuq.kernels import casts, operators
from nuq.kernels.spec import Key
from nuq.settings.baselines import Natural

TAG = b"NATC"
_HEAD_BYTES = 4
_LARGEST_LEAST = 254 - casts.MOST_POWERS + 1


class NaturalCompression(InPlace):
    """A compressor that sends one of the two powers of two around every coordinate, drawn at random."""

    settings: Natural

    def encode(self, vector: Tensor, key: Key) -> Message:
        """Encode a gradient; NonFiniteError where it is not finite, or has a coordinate above 2^127."""
        n = vector.numel()
        largest = float(operators.bucket_scales(vector.contiguous(), max(n, 1), "linf").amax()) if n else 0.0
        least = casts.smallest_power(largest) if largest else 1
        if not least:
            raise NonFiniteError(f"a coordinate of {largest:.4g}: above 2^127 its power of two may overflow float32")
        vector = vector.to(torch.float32).contiguous()
        message = Message.room_for(TAG, n, _HEAD_BYTES + n, vector.device)
        message.body[:_HEAD_BYTES] = torch.tensor([least, 0, 0, 0], dtype=torch.uint8, device="cpu")
        if largest:
            key, among = key.together(self.correlated)
            casts.to_natural_(vector, message.body[_HEAD_BYTES:], key.words(), least, among=among)
        else:
            message.body[_HEAD_BYTES:] = 0
        return message

    def _opened(self, message: Message) -> Write:
        body, n = message.body, message.num_coordinates
        message.check_whole(TAG, _HEAD_BYTES + n, "a byte")
        least = int(body[0])
        if not 1 <= least <= _LARGEST_LEAST:
            raise MessageError(f"powers of two from exponent field {least} on: damaged")
        levels, scale = casts.natural_values(least, body.device)
        given = (body[_HEAD_BYTES:], scale[: min(n, 1)], levels)
        return partial(operators.decode_, *given, bucket_size=max(n, 1), packing=8)

    def message_bytes(self, num_coordinates: int) -> int:
        return HEADER_BYTES + _HEAD_BYTES + num_coordinates
