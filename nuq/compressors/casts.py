"""Casts to two bytes per coordinate (bfloat16, float16) or to one byte (float8 without a scale).

Numbers are rounded to the nearest (the default: biased, a contraction) or at random (``nuq.kernels.casts``: unbiased).
Neither gives an infinity for a finite gradient: ``bf16`` clamps at 3.39e38; ``fp16`` multiplies the vector by a power
of two that brings its largest coordinate to 2^14 .. 2^15 (coordinates 2^-39 times smaller vanish), clamping at 3.40e38,
or with ``scale=none`` clamps at 65504.  A vector of float16 without a coordinate of 3e-8 or more is lost with
``scale=none``: no contraction then.  The same holds for ``fp8 scale=none``: e4m3 clamps at 448 and loses what is below
.00098, e5m2 clamps at 57344 and loses what is below 7.7e-6.

Body of a message::

    format uint8, 1 zero byte, exponent int16     the receiver multiplies by 2^exponent
    codes                                         bfloat16 or float16, little-endian, or float8

For n coordinates that makes ``28 + 4 + 2n`` bytes, header included, or ``28 + 4 + n``.

With ``coding=rans`` the same numbers of two bytes take fewer: sizes are alike within a layer, so that the exponent of a
bfloat16 takes about 2.8 bits of its 8 beside the largest of its block of 128 (``nuq.coding.planes``).  Sign and
mantissa are all but uniform and stay as they are, unless a quarter of all coordinates are zero.  Where this would be no
shorter, a message is as above; else its format is 4 higher::

    format uint8, 1 zero byte, exponent int16, bytes of tops uint32, bytes of gaps uint32
    tops, gaps                                    coded by rANS (``nuq.coding.entropy``)
    rests                                         n bytes; fewer are coded by rANS

Lossless coding of the exponents of bfloat16 is known from weights (DFloat11, Zhang et al. 2025, arXiv 2504.11651, by
Huffman); the tops are ours.
"""

from __future__ import annotations

import math
import struct
from functools import partial

import torch
from torch import Tensor

from nuq.coding import planes
from nuq.coding.planes import Planes
from nuq.compressors import floats
from nuq.compressors.body import entropy_coded, entropy_decoded
from nuq.compressors.compressor import InPlace, Write
from nuq.compressors.message import HEADER_BYTES, Message, Reader, raw, unpacked
from nuq.errors import MessageError
from nuq.kernels import casts, operators
from nuq.kernels.spec import Key
from nuq.settings.baselines import BF16, FP8, FP16

TAG = b"CAST"
_HEAD = struct.Struct("<Bxh")
_SIZES = struct.Struct("<II")
# the order is part of the message format
_FORMATS = (torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.float8_e5m2)
_IN_PLANES = len(_FORMATS)  # added to the number of a format
_ZEROS = 1 / 4  # of the coordinates, from which on coding their rests is worth its time
_LARGEST_EXPONENT = 126  # of a factor: 2^-126 is float32's smallest normal number
_TOP = 14  # power of two of the largest float16 after scaling, with room for rounding up
_PART = 1 << 17  # coordinates: what stays in a cache from one operation to the next
_BELOW_TOP = 0x77FF  # the largest float16 below 2^(_TOP + 1)


class HalfCast(InPlace):
    """A cast to one floating-point format, of _FORMATS; scale: power (of float16 alone) or none."""

    def __init__(self, settings: BF16 | FP8, dtype: torch.dtype, scale: str) -> None:
        super().__init__(settings)
        self.dtype = dtype
        self.scaled = scale == "power"
        self.coder = getattr(settings, "coding", "packed")
        self.exact_bytes = self.coder == "packed"

    def encode(self, vector: Tensor, key: Key) -> Message:
        """Encode a gradient; NonFiniteError where it is not finite."""
        n = vector.numel()
        largest = float(operators.bucket_scales(vector.contiguous(), max(n, 1), "linf").amax()) if n else 0.0
        vector = vector.to(torch.float32).contiguous()
        exponent = min(_TOP + 1 - math.frexp(largest)[1], _LARGEST_EXPONENT) if self.scaled and largest else 0
        message = Message.room_for(TAG, n, _HEAD.size + self.dtype.itemsize * n, vector.device)
        message.body[: _HEAD.size] = raw(_HEAD.pack(_FORMATS.index(self.dtype), -exponent))
        codes = message.body[_HEAD.size :].view(torch.uint8 if self.dtype.itemsize == 1 else torch.int16)
        most = _BELOW_TOP if largest >= 2.0**127 else casts.MOST_FP16
        key, among = key.together(self.correlated)
        words = key.words()
        if self.stochastic and self.dtype == torch.bfloat16:
            casts.to_bfloat16_(vector, codes, words, among=among)
        elif self.stochastic and self.dtype.itemsize == 1:
            casts.to_float8_(vector, codes, words, self.dtype, among=among)
        elif self.stochastic:
            limit = most if self.scaled else casts.MOST_FP16
            casts.to_float16_(vector, codes, words, 2.0**exponent, limit, among=among)
        else:
            self._round(vector, codes, largest, exponent)
        return message if self.coder == "packed" else self._in_planes(message, exponent)

    def _round(self, vector: Tensor, codes: Tensor, largest: float, exponent: int) -> None:
        """Round every coordinate to the nearest number of the format."""
        limit = 2.0 ** (_TOP + 1) - 16 if self.scaled and largest >= 2.0**127 else torch.finfo(self.dtype).max
        beyond = largest * 2.0**exponent > limit
        rounded = codes.view(self.dtype)
        if not exponent and not beyond:
            rounded.copy_(vector)
            return
        for start in range(0, vector.numel(), _PART):
            part = slice(start, start + _PART)
            scaled = vector[part] * 2.0**exponent
            rounded[part] = scaled.clamp_(-limit, limit) if beyond else scaled

    def _in_planes(self, message: Message, exponent: int) -> Message:
        """The message with its numbers in planes, or itself where that is no longer."""
        n, codes = message.num_coordinates, message.body[_HEAD.size :]
        (tops, gaps, rests), num_zeros = planes.split(codes.view(torch.int16))
        tops, gaps = (entropy_coded(plane, 256, self.coder) for plane in (tops, gaps))
        if num_zeros >= _ZEROS * n and (coded := entropy_coded(rests, 256, self.coder)).numel() < n:
            rests = coded
        head = _HEAD.pack(_FORMATS.index(self.dtype) + _IN_PLANES, -exponent) + _SIZES.pack(tops.numel(), gaps.numel())
        shorter = Message.of(TAG, n, head, tops.to(codes.device), gaps, rests)
        return shorter if shorter.num_bytes < message.num_bytes else message

    def _opened(self, message: Message) -> Write:
        body, n = message.body, message.num_coordinates
        message.check_tag(TAG, _HEAD.size, "of shorter numbers")
        number, exponent = unpacked(_HEAD, body)
        in_planes, number = divmod(number, _IN_PLANES)
        dtype = _FORMATS[number]
        if in_planes > (dtype.itemsize == 2) or abs(exponent) > (_LARGEST_EXPONENT if dtype == torch.float16 else 0):
            raise MessageError(f"format {int(body[0])}, exponent {exponent}: damaged")
        if in_planes:
            numbers = _joined(Reader(body, _HEAD.size), n)
        elif body.numel() == _HEAD.size + dtype.itemsize * n:
            numbers = body[_HEAD.size :]
        else:
            expected = _HEAD.size + dtype.itemsize * n
            raise MessageError(f"{body.numel()} bytes where {n} such coordinates take {expected}: damaged")
        return partial(floats.read_, numbers, dtype, factor=2.0**exponent)

    def message_bytes(self, num_coordinates: int) -> int:
        """The length of a message; with ``coding=rans``, its largest length."""
        return HEADER_BYTES + _HEAD.size + self.dtype.itemsize * num_coordinates


def _joined(reader: Reader, n: int) -> Tensor:
    """The n numbers that are left in planes: uint8[2 n]; MessageError where they are damaged."""
    tops, gaps = (reader.take(size) for size in reader.numbers(_SIZES))
    rests = reader.rest()
    if rests.numel() > n:
        raise MessageError(f"{rests.numel()} bytes where {n} signs and mantissas take {n}: damaged")
    if rests.numel() < n:
        rests = entropy_decoded(rests, n, 256, "rans")
    tops = entropy_decoded(tops, planes.num_blocks(n), 256, "rans")
    gaps = entropy_decoded(gaps, n, 256, "rans")
    return planes.join(Planes(tops, gaps, rests)).view(torch.uint8)


def bf16(settings: BF16) -> HalfCast:
    """The bf16 method: bfloat16, which has float32's range and 8 bits of precision."""
    return HalfCast(settings, torch.bfloat16, "none")


def fp16(settings: FP16) -> HalfCast:
    """The fp16 method: float16, which has 11 bits of precision over a range of 2^40."""
    return HalfCast(settings, torch.float16, settings.scale)
