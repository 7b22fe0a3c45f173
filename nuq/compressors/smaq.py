"""SmaQ: short codes near the mean and longer ones for outliers, in units of the tensor's standard deviation.

A coordinate within one standard deviation of the mean takes 6 bits, one of them its class and one its sign, in steps of
1/15; an outlier takes 8, in steps of 1.5/63 from 1 to 2.5 standard deviations, where it is clamped.  Numbers are
rounded at random.  On a normal distribution that is 6.635 bits a coordinate, 4.82 times fewer than float32's, all told.
The clamp, whose error grows with the tails, makes it biased, and no contraction either.  The paper's table says no
more; what else a tensor of a training run needs is ours (``nuq.kernels.smaq`` specifies it):

- Exact zeros.  Where they are many (ReLU's outputs) a bitmap of the nonzeros takes their place, the statistics are the
  nonzeros' and only these have codes; masked zeros stay exactly zero.  So a ratio may exceed 32/6 = 5.33, the most of
  the published format, which ``zeros=coded`` is: zeros have codes like all others, and those that ReLU made may come
  back as positive numbers.
- Signs.  Decoded numbers are clamped to the tensor's own range, and a tensor whose nonzeros have one sign has a mask
  for its zeros however few: what is not negative stays so, zeros stay zeros, and what is positive stays positive, which
  ReLU's backward pass asks for.
- Constant, one-element and empty tensors, and those of one number and zeros, are exact.
- Statistics in float64: neither the largest nor the smallest numbers overflow.
- ``samples``: from random indices (the paper draws 16); all coordinates count where the sampled ones are alike.

Body of a message::

    flags uint8 (1: zeros are masked), bits inside, bits of outliers uint8, 1 zero byte
    threshold, limit, mean, standard deviation, lowest, highest      float32
    codes of each block uint16                                       where zeros are masked
    outliers of each block uint16
    blocks of 4096 coordinates: mask, classes, low parts, further bits of outliers (``nuq.kernels.smaq``, step 5)

A constant tensor is the first 28 bytes.
"""

from __future__ import annotations

import math
import struct
from functools import partial

import numpy as np
import torch
from torch import Tensor

from nuq.compressors.compressor import InPlace, Write, write_constant
from nuq.compressors.message import HEADER_BYTES, Message, from_bytes, raw, unpacked
from nuq.errors import MessageError
from nuq.kernels import smaq
from nuq.kernels.spec import MAX_COORDINATES, Key, num_buckets
from nuq.settings.formats import SmaQ as Settings

TAG = b"SMAQ"
_HEAD = struct.Struct("<BBBx6f")
_MASKED = 1


class SmaQ(InPlace):
    """The SmaQ compressor; ValueError out of the ranges of ``nuq.settings.formats``, or if outliers have no room."""

    exact_bytes = False

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        short, long = settings.bits_inlier, settings.bits_outlier
        near, far = settings.inlier_threshold, settings.outlier_limit
        if long < short:
            raise ValueError(f"bits_outlier={long}: must be at least bits_inlier={short}")
        if not np.float32(far) > np.float32(near):
            raise ValueError(f"outlier_limit={far}: must be above inlier_threshold={near}")
        self.codes = smaq.Codes(short, long, float(np.float32(near)), float(np.float32(far)))
        self.samples = settings.samples
        self.masks = settings.zeros == "masked"

    def encode(self, vector: Tensor, key: Key) -> Message:
        """Encode a tensor; NonFiniteError where it is not finite."""
        key, among = key.together(self.correlated)
        vector, n, words, codes = vector.detach().contiguous(), vector.numel(), key.words(), self.codes
        if n > MAX_COORDINATES:
            raise ValueError(f"num_coordinates={n}: one message holds at most 2^31 coordinates; cut it into several")
        statistics, masked = smaq.TensorStatistics(0.0, 0.0, 0.0, 0.0), False
        if n:
            statistics, masked = smaq.measured(vector, codes.bits_inlier, self.samples, words, masks=self.masks)
        settings = (codes.bits_inlier, codes.bits_outlier, codes.threshold, codes.limit)
        numbers = (statistics.mean, statistics.std, statistics.lowest, statistics.highest)
        head = _HEAD.pack(_MASKED * masked, *settings, *numbers)
        if statistics.constant and not masked:
            message = Message.room_for(TAG, n, _HEAD.size, vector.device)
            write = None
        else:
            noise = (words if self.stochastic else None, among)
            counts, size, write = smaq.encode(vector, codes, statistics, masked, *noise)
            counts = (counts if masked else counts[1]).reshape(-1).view(torch.uint8)
            message = Message.room_for(TAG, n, _HEAD.size + counts.numel() + size, vector.device)
            message.body[_HEAD.size : _HEAD.size + counts.numel()] = counts
            write(message.body[_HEAD.size + counts.numel() :])
        message.body[: _HEAD.size] = raw(head)
        return message

    def _opened(self, message: Message) -> Write:
        body, n = message.body, message.num_coordinates
        message.check_tag(TAG, _HEAD.size, "of SmaQ's codes")
        flags, short, long, near, far, *numbers = unpacked(_HEAD, body)
        statistics, masked = smaq.TensorStatistics(*numbers), flags == _MASKED
        if flags > _MASKED or not 3 <= short <= long <= 8 or not 0 < near < far < math.inf:
            raise MessageError(f"flags {flags}, {short} and {long} bits, threshold {near}, limit {far}: damaged")
        if not all(map(math.isfinite, numbers)) or statistics.lowest > statistics.highest or statistics.std < 0:
            mean, std, lowest, highest = numbers
            raise MessageError(f"mean {mean}, deviation {std}, range {lowest} to {highest}: damaged")
        if statistics.constant and not masked:
            if body.numel() != _HEAD.size:
                raise MessageError(f"{body.numel()} bytes where a constant takes {_HEAD.size}: damaged")
            return partial(write_constant, statistics.mean)
        blocks = num_buckets(n, smaq.BLOCK)
        data = body[_HEAD.size :]
        listed = 2 * blocks * (2 if masked else 1)
        if data.numel() < listed or not blocks:
            raise MessageError(f"{body.numel()} bytes, too few for {n} coordinates: the message is cut short")
        counts = from_bytes(data[:listed], torch.int16).view(-1, blocks)
        codes = smaq.Codes(short, long, near, far)

        def write(total: Tensor, *, accumulate: bool) -> None:
            if not smaq.decode(data[listed:], counts, codes, statistics, masked, total, accumulate=accumulate):
                raise MessageError(f"{body.numel()} bytes do not hold the codes of {n} coordinates: damaged")

        return write

    def message_bytes(self, num_coordinates: int) -> int:
        """The largest length of a message: every coordinate an outlier, and all but one of them nonzero."""
        low, extra = self.codes.low_bits, self.codes.extra_bits

        def block(n: int) -> int:
            return 4 + 2 * -(-n // 8) + -(-n * low // 8) + -(-n * extra // 8)

        whole, rest = divmod(num_coordinates, smaq.BLOCK)
        return HEADER_BYTES + _HEAD.size + whole * block(smaq.BLOCK) + (block(rest) if rest else 0)
