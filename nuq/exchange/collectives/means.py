"""The second encoding: a mean of messages, encoded again for everyone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from copy import copy

import torch
from torch import Tensor

from nuq.compressors.compressor import Compressor
from nuq.compressors.feedback import ErrorFeedback
from nuq.compressors.quantized import AdaptiveQuantizer
from nuq.errors import NonFiniteError
from nuq.exchange.collectives.collective import PROBE
from nuq.exchange.flat_layout import FlatLayout, Segment
from nuq.exchange.payload import PayloadCodec
from nuq.kernels.spec import Key


def encoded_mean(mean_codec: PayloadCodec, mean: Tensor, layout: FlatLayout, key: Key) -> Tensor:
    """Encode a mean as the payload that goes to everyone.

    Until their first update the levels of an adaptive encoder are those of a normal distribution.  Single gradients
    bear that, since their errors average out; a mean's does not, and trainings diverged: so until then they are fitted
    to each mean (they travel with it).
    """
    if key.parameter != PROBE and any(map(_unfitted, mean_codec.compressors)):
        every = [
            _fitted(around, mean, [own for own in layout.segments if own.encoder == number], key)
            for number, around in enumerate(mean_codec.compressors)
        ]
        mean_codec = PayloadCodec(*every)
    return mean_codec.encode_or_mark(mean, layout, key.of("mean"))


def _unfitted(around: Compressor) -> bool:
    compressor = around.method
    return isinstance(compressor, AdaptiveQuantizer) and not compressor.fitted


def _fitted(around: Compressor, mean: Tensor, segments: Sequence[Segment], key: Key) -> Compressor:
    """The encoder, or a copy of it whose levels are fitted to this mean."""
    if not _unfitted(around):
        return around
    compressor = copy(around.method)
    assert isinstance(compressor, AdaptiveQuantizer)
    key = key.of("mean/statistics")
    with suppress(NonFiniteError):  # encoding it says so, to all ranks
        pieces = [(mean[own.place], key.of(own.key_name)) for own in segments if not own.exact]
        compressor.update(compressor.observed(pieces))
    if not isinstance(around, ErrorFeedback):
        return compressor
    around = copy(around)  # of the same memory
    around.surround(compressor)
    return around


def recover_overflow(
    codec: PayloadCodec, payloads: Sequence[Tensor], layout: FlatLayout, mean: Tensor, factor: float
) -> None:
    """Compute the coordinates again at which the sum of finite messages overflowed float32, though the mean does not.

    mean: float32[n], the sum of the payloads times ``factor``; all other coordinates keep their bits.
    """
    if math.isfinite(float(mean.sum(dtype=torch.float32))):  # a finite sum has finite terms: one pass
        return
    overflowed = ~mean.isfinite()
    if not bool(overflowed.any()):
        return
    total, decoded = torch.zeros_like(mean, dtype=torch.float64), torch.empty_like(mean)
    for payload in payloads:
        codec.add(payload, layout, decoded.zero_())
        total += decoded
    mean.copy_(torch.where(overflowed, (total * factor).to(torch.float32), mean))


def scale(total: Tensor, num_workers: int) -> None:
    """Turn a sum into a mean: total *= float32(1/M), the one rounding that all splits share."""
    total *= torch.tensor(1.0 / num_workers, dtype=torch.float32, device="cpu")
