"""Sign methods: one bit per coordinate, and one or two float32 values per bucket.

They are biased, and contractions, so they want error feedback.

- ``sign``: the compressor of EF-signSGD (Karimireddy et al., ICML 2019, arXiv 1901.09847), ``(|x|_1 / d) sign(x)``.
  Its error is ``|x|_2^2 - |x|_1^2 / d``, the least that any scale gives: .3634 of ``|x|_2^2`` on N(0, 1).
  ``scale=rms`` is ``|x|_2 / sqrt(d)``, as in 1-bit Adam (Tang et al., ICML 2021) and DeepSpeed: .4042, and more than
  ``|x|_2^2`` where few coordinates hold most of it.
- ``onebit``: 1-bit SGD (Seide et al., Interspeech 2014): the coordinates below zero become their mean, the others
  theirs.

With error feedback the larger scale is the better one.  Every coordinate moves by the scale, so a larger one does not
leave as fast as it comes in: its residual grows until the scale, which grows with the residuals, has reached it.  The
mean over t steps errs by the last residual over t.  Two workers, 2^18 normal coordinates each, the same at every step;
squared error of the mean at t = 1, 8, 16, 32, 64, relative to the true mean's square::

    mean                       .364    .0759   .0391   .0205   .0107
    rms                        .405    .0475   .0170   .0060   .0020
    mean, both stages 1 bit    .680    .125    .060    .030    .015
    rms, both stages 1 bit     .869    .077    .029    .0097   .0032

With ``mean``, residuals grow as the root of t, and the error falls as 1/t.  Both stages in 1 bit, which is not here,
encode the mean of the messages as signs again, with a memory of its own; with ``rms`` that is DeepSpeed's.

For half a million coordinates of two gradients of a ResNet-18 it is .0433 and .0058 at t = 64.  So that no message
makes a memory grow, ``nuq.compressors.feedback`` shortens those of ``rms`` that would.

A bit cannot hold a zero: zeros go with the positive coordinates and decode to their value, which error feedback takes
back at the next step; an all-zero bucket decodes to zeros.  Both contract with zeros too, but for ``rms``:
``|x - C(x)|^2 <= |x|^2 - |x|_1^2 / d``.

Differences from the papers: buckets, where EF-signSGD has one scale for each layer and 1-bit SGD two values for each
column of a weight matrix.  The memories that both papers have are not here: they go around any method.  1-bit SGD sends
the mean back in one bit, too; here collectives that encode means send those of both methods by ``qsgdinf``, in
``second_bits`` each.

Body of a message::

    bucket size uint32, values per bucket uint8, 3 zero bytes
    values float32         sign: the scale; onebit: of coordinates below zero, of the others
    bits                   1: not below zero

For n coordinates and buckets of d that makes ``28 + 8 + 4 k ceil(n/d) + ceil(n/8)`` bytes, header included, k = 1 or 2.
"""

from __future__ import annotations

import struct
from functools import partial

import torch
from torch import Tensor

from nuq.compressors.compressor import InPlace, Write
from nuq.compressors.message import HEADER_BYTES, Message, finite, from_bytes, raw, unpacked
from nuq.errors import MessageError
from nuq.kernels import bit_packing, operators, reference, signs, spec
from nuq.kernels.spec import Key
from nuq.settings.baselines import Sign, Signs

TAG = b"SIGN"
_HEAD = struct.Struct("<IB3x")


class Sides(InPlace):
    """A compressor by signs; values_per_bucket: 1: plus or minus the scale; 2: the mean of either side."""

    def __init__(self, settings: Signs, values_per_bucket: int) -> None:
        super().__init__(settings)
        self.bucket_size = settings.bucket_size
        self.values_per_bucket = values_per_bucket
        # the least error, for less of it over steps
        self.overshoots = isinstance(settings, Sign) and settings.scale == "rms"

    def _bits_at(self, num_coordinates: int) -> int:
        return _bits_at(num_coordinates, self.bucket_size, self.values_per_bucket)

    def encode(self, vector: Tensor, key: Key) -> Message:
        """Encode a gradient; NonFiniteError where it is not finite."""
        del key
        vector = vector.to(torch.float32).contiguous()
        n, bits_at = vector.numel(), self._bits_at(vector.numel())
        message = Message.room_for(TAG, n, bits_at + bit_packing.packed_bytes(n, 1), vector.device)
        body = message.body
        body[: _HEAD.size] = raw(_HEAD.pack(self.bucket_size, self.values_per_bucket))
        body[_HEAD.size : bits_at] = self._values(vector).contiguous().view(torch.uint8).reshape(-1)
        signs.pack_(vector, body[bits_at:])
        return message

    def _values(self, vector: Tensor) -> Tensor:
        """The values of every bucket: float32[buckets] or float32[buckets, 2]."""
        lengths = reference.bucket_lengths(vector.numel(), self.bucket_size, vector.device)
        if self.overshoots:
            return (operators.bucket_scales(vector, self.bucket_size, "l2") / lengths.sqrt()).to(torch.float32)
        sums, counts = signs.side_sums(vector, self.bucket_size)
        if self.values_per_bucket == 1:
            return (sums.sum(dim=1) / lengths).to(torch.float32)
        others = counts.to(torch.float64)
        below, above = -sums[:, 1] / (lengths - others).clamp_min(1.0), sums[:, 0] / others.clamp_min(1.0)
        return torch.stack([below, above], dim=1).to(torch.float32)

    def _opened(self, message: Message) -> Write:
        body, n = message.body, message.num_coordinates
        message.check_tag(TAG, _HEAD.size, "of signs")
        bucket_size, per_bucket = unpacked(_HEAD, body)
        if bucket_size < 1 or per_bucket not in (1, 2):
            raise MessageError(f"bucket size {bucket_size}, {per_bucket} values per bucket: damaged")
        bits_at = _bits_at(n, bucket_size, per_bucket)
        whole = bits_at + bit_packing.packed_bytes(n, 1)
        if body.numel() != whole:
            raise MessageError(f"{body.numel()} bytes where {n} such coordinates take {whole}")
        values = finite(from_bytes(body[_HEAD.size : bits_at], torch.float32), "value")
        pairs = torch.stack([-values, values], dim=1) if per_bucket == 1 else values.view(-1, 2)
        return partial(signs.write_, body[bits_at:], pairs, bucket_size=bucket_size)

    def message_bytes(self, num_coordinates: int) -> int:
        return HEADER_BYTES + self._bits_at(num_coordinates) + bit_packing.packed_bytes(num_coordinates, 1)


def _bits_at(num_coordinates: int, bucket_size: int, values_per_bucket: int) -> int:
    return _HEAD.size + 4 * values_per_bucket * spec.num_buckets(num_coordinates, bucket_size)


def sign(settings: Sign) -> Sides:
    """The sign method: signs times the mean of ``|x|`` (EF-signSGD) or the root mean square (1-bit Adam)."""
    return Sides(settings, 1)


def onebit(settings: Signs) -> Sides:
    """The onebit method (1-bit SGD): the mean of either side of zero."""
    return Sides(settings, 2)
