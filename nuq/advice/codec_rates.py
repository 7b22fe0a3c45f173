"""Rates and message lengths of methods, measured on given numbers with the threads that PyTorch has."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from nuq.compressors.quantized import AdaptiveQuantizer
from nuq.exchange.driver import Memory
from nuq.exchange.flat_layout import FlatLayout, Segment
from nuq.exchange.hook.settings import HookSettings
from nuq.exchange.payload import PayloadCodec
from nuq.kernels.spec import Key
from nuq.prediction.message_size import SPARSE_MEANS, MeasuredFormat
from nuq.prediction.rates import CodecRates
from nuq.registry import METHODS
from nuq.simulation import Workers

SHORT, MANY = 1 << 10, 64  # coordinates of a short message; short messages of one frame
LONG = 1 << 22  # coordinates of a long message, at most
_COLD_COPIES = 8  # of a long vector, in turns: memory is then as cold as a step leaves it
_COLUMNS = 32  # of the matrices that the messages are of
_SIDE = 1 << 11  # of a long square matrix
_KEY = Key(0, 0, 0)


def seconds(call: Callable[[], object], device: torch.device) -> float:
    """The time of one call, with what it started on a GPU."""
    _settle(device)
    started = time.perf_counter()
    call()
    _settle(device)
    return time.perf_counter() - started


def _settle(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def least_s(call: Callable[[], object], repeats: int, device: torch.device, limit_s: float = 60.0) -> float:
    """The least time of several calls after a first one, as whatever else runs only adds to it.

    After ``limit_s`` seconds no more calls begin.
    """
    call()
    least, ends = seconds(call, device), time.perf_counter() + limit_s
    for _ in range(repeats - 1):
        if time.perf_counter() > ends:
            break
        least = min(least, seconds(call, device))
    return least


def measured(of: HookSettings, vector: Tensor, limit_s: float = 60.0) -> tuple[CodecRates, MeasuredFormat]:
    """The rates of a method's codec and the lengths of its messages.

    Encoding is of a frame that can be sent, with the memory that the method has; decoding checks it, decodes it and
    adds it to a total.  vector: float32[n], from whose beginning short and long messages are made, n at least SHORT *
    MANY.  limit_s: of each of the six things that are timed.
    """
    long = min(LONG, vector.numel() // SHORT * SHORT)
    encodes, decodes, lengths = [], [], []
    for size, messages, copies, repeats in ((SHORT, 1, 1, 200), (SHORT, MANY, 1, 50), (long, 1, _COLD_COPIES, 24)):
        shape = (size // _COLUMNS, _COLUMNS)  # some methods send vectors as they are
        layout = FlatLayout(tuple(Segment(f"tensor {at}", at * size, size, shape=shape) for at in range(messages)))
        codec = _codec(of, layout, vector[:long])
        vectors = itertools.cycle([vector[: size * messages].clone() for _ in range(copies)])
        totals = itertools.cycle([torch.zeros_like(vector[: size * messages]) for _ in range(copies)])
        made = [codec.encode(next(vectors), layout, _KEY).clone() for _ in range(copies)]
        payloads = itertools.cycle(made)

        def encode(codec: PayloadCodec = codec, vectors: Iterator[Tensor] = vectors, of: FlatLayout = layout) -> None:
            codec.encode(next(vectors), of, _KEY)

        def decode(
            codec: PayloadCodec = codec,
            payloads: Iterator[Tensor] = payloads,
            totals: Iterator[Tensor] = totals,
            of: FlatLayout = layout,
        ) -> None:
            codec.add(next(payloads), of, next(totals))

        encodes.append(least_s(encode, repeats, vector.device, limit_s))
        decodes.append(least_s(decode, repeats, vector.device, limit_s))
        lengths.append(float(made[0].numel()))
    bytes_each = fitted(long, *lengths)
    sparse = METHODS[of.method].mean_compressor == SPARSE_MEANS
    return _rates(long, encodes, decodes), MeasuredFormat(of.method, *bytes_each, sparse=sparse)


def fitted(long_size: int, one: float, many: float, long: float) -> tuple[float, float, float]:
    """The price of a coordinate, a message and a frame behind three prices.

    They are those of a frame of one short message, of MANY, and of one message of ``long_size`` coordinates.
    """
    coordinate = (long - one) / (long_size - SHORT)
    message = max((many - one) / (MANY - 1) - SHORT * coordinate, 0.0)
    return coordinate, message, max(one - message - SHORT * coordinate, 0.0)


def _rates(long: int, encodes: list[float], decodes: list[float]) -> CodecRates:
    (encode, *encode_fixed), (decode, *decode_fixed) = fitted(long, *encodes), fitted(long, *decodes)
    return CodecRates(4e-9 / encode, 4e-9 / decode, encode_fixed[0], decode_fixed[0], encode_fixed[1], decode_fixed[1])


def _codec(of: HookSettings, layout: FlatLayout, long: Tensor) -> PayloadCodec:
    """The codec of one worker, whose levels are fitted to a long vector as they are in training."""
    compressors = of.compressors()
    compressors.assign({segment.name: segment.shape or () for segment in layout.segments})
    compressors.remember(of.feedback.settings(), layout, 1, of.feedback.momentum, of.feedback.nesterov)
    for compressor in compressors.adaptive:
        assert isinstance(compressor, AdaptiveQuantizer)
        compressor.update(compressor.observed([(long, _KEY)]))
    return compressors.codec


def factor_rates(of: HookSettings, device: torch.device, limit_s: float = 60.0) -> CodecRates:
    """The rates of PowerSGD's arithmetic on square matrices, without what travels between its parts."""
    memory = Memory(of.feedback.settings(), of.feedback.momentum, of.feedback.nesterov)
    encodes, decodes = [], []
    for rows, matrices, repeats in ((_COLUMNS, 1, 100), (_COLUMNS, MANY, 20), (_SIDE, 1, 12)):
        shapes = {f"tensor {at}": torch.Size((rows, rows)) for at in range(matrices)}
        one = Workers(of.method, of.of_method, 1, shapes, 0, device, memory=memory)
        vector = torch.randn(one.num_coordinates, generator=torch.Generator().manual_seed(1)).to(device)
        times: list[Counter[str]] = []
        ends = time.perf_counter() + limit_s
        for step in range(repeats):
            before = Counter(one.driver.stats.seconds)
            one.exchange({0: vector}, {0: 0.0}, step)
            times.append(Counter(one.driver.stats.seconds) - before)
            if time.perf_counter() > ends:
                break
        encodes.append(min(spent["encode"] for spent in times))
        decodes.append(min(spent["decode"] for spent in times))
    return _rates(_SIDE * _SIDE, encodes, decodes)
