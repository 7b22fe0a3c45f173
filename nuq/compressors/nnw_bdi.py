"""NNW-BDI: blocks of 64 fixed-point words, stored as deltas from zero or from one base in as few bits as needed.

After Bersatti et al. (MEMSYS 2020), who quantize a network's weights and adjust base-delta-immediate compression
(Pekhimenko et al., 2012) to them.  Theirs are the quantization, the blocks and the two bases, one of which is zero
("immediate"); what follows is ours, in the simplest form that keeps a tensor's bytes exact (``nuq.coding.base_delta``
specifies it):

- Words are in units of a power of two of their block's own, so that the block's largest takes all bits.
- A block is one of three kinds: all deltas from zero; all from its first word; or a bit per word tells which, the base
  being the first word that does not fit.  The kind of the fewest bytes is taken: zeros take no deltas, a repeated word
  is one base, and incompressible blocks are words.
- Their random choice of the base and their downscaling of the network are left out; constant tensors are exact.

Words are rounded to the nearest (a contraction, the same bytes under every key) or at random (unbiased below 2^127).

Body of a message::

    bits uint8, constant uint8, 2 zero bytes, the constant float32           a constant tensor ends here
    kinds uint8, exponents uint8         of each block
    blocks                               base, bit per word, deltas (``nuq.coding.base_delta``, step 5)
"""

from __future__ import annotations

import math
import struct
from functools import partial

import torch
from torch import Tensor

from nuq.coding import base_delta
from nuq.coding.base_delta import BLOCK
from nuq.coding.base_delta_reference import BIAS
from nuq.compressors.compressor import InPlace, Write, careful, write_constant
from nuq.compressors.message import HEADER_BYTES, Message, Reader, flat, raw
from nuq.errors import MessageError, NonFiniteError
from nuq.kernels.spec import Key, num_buckets
from nuq.settings.formats import NNWBDI as Settings

TAG = b"NBDI"
_HEAD = struct.Struct("<BBxxf")


class NNWBDI(InPlace):
    """Blocks of fixed-point words, deltas from zero or one base; ValueError out of the ranges of ``nuq.settings``."""

    exact_bytes = False

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.bits = settings.bits

    def encode(self, vector: Tensor, key: Key) -> Message:
        """Encode a tensor; NonFiniteError where it is not finite."""
        x = flat(vector)
        n = x.numel()
        lowest, highest = (float(end) for end in x.aminmax()) if n else (0.0, 0.0)
        if not math.isfinite(lowest) or not math.isfinite(highest):
            raise NonFiniteError("the tensor is not finite")
        constant = lowest == highest
        head = raw(_HEAD.pack(self.bits, constant, lowest if constant else 0.0)).to(x.device)
        key, among = key.together(self.correlated)
        words = key.words() if self.stochastic else None
        parts = () if constant else base_delta.encode(x, self.bits, words, among)
        return Message(TAG, n, torch.cat([head, *parts]))

    def _opened(self, message: Message) -> Write:
        if message.tag != TAG:
            raise MessageError(f"a message tagged {message.tag!r} is not of base-delta blocks ({TAG!r})")
        reader, n = Reader(message.body), message.num_coordinates
        bits, constant, value = reader.numbers(_HEAD)
        if not 3 <= bits <= 8 or constant > 1 or not math.isfinite(value):
            raise MessageError(f"{bits} bits, constant {constant} of {value}: damaged")
        if constant:
            reader.end()
            return partial(write_constant, value)
        if not n:
            raise MessageError("blocks of no coordinates: damaged")
        kinds, exponents = reader.take(num_buckets(n, BLOCK)), reader.take(num_buckets(n, BLOCK))
        data = reader.rest()

        def write(total: Tensor, *, accumulate: bool) -> None:
            if not base_delta.decode(kinds, exponents, data, bits, total, accumulate=accumulate):
                raise MessageError(f"{message.body.numel()} bytes are not the blocks of {n} coordinates: damaged")

        # A word of -128, which no encoder writes, is infinite from this exponent on.
        return write if int(exponents.max()) < 120 + bits + BIAS else careful(write)

    def message_bytes(self, num_coordinates: int) -> int:
        """The largest length of a message: every block stores words instead of deltas."""
        return HEADER_BYTES + _HEAD.size + num_buckets(num_coordinates, BLOCK) * (2 + BLOCK // 8 * self.bits)
