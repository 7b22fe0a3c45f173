"""Rates and message lengths of methods, measured on given numbers with the threads that PyTorch has."""

from __future__ import annotations

import functools
import math
import time
from collections import Counter
from collections.abc import Callable

import torch
from torch import Tensor

from nuq.compressors.quantized import AdaptiveQuantizer
from nuq.exchange.collectives.means import scale
from nuq.exchange.driver import Driver, Memory
from nuq.exchange.flat_layout import FlatLayout, Segment
from nuq.exchange.hook.settings import HookSettings
from nuq.exchange.payload import PayloadCodec, check_mean
from nuq.exchange.transport import Transport
from nuq.kernels.spec import Key
from nuq.prediction.message_size import SPARSE_MEANS, MeasuredFormat
from nuq.prediction.rates import CodecRates
from nuq.prediction.steps import BUCKET_BYTES
from nuq.registry import METHODS

SHORT, MANY = 1 << 10, 64  # coordinates of a short message; short messages of one frame
LONG = BUCKET_BYTES // 4  # coordinates of a long message, at most: of one of DDP's buckets
_VECTORS = 16  # as long as the exchanged one, that a step goes through: weights, gradients, activations, moments
_BETWEEN = 1 << 26  # float32 numbers, at most, that are written between long ones: more than caches hold
_COLUMNS = 32  # of the matrices that the messages are of
_FACTORED = 12  # times that long ones are
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


def least_s(
    call: Callable[[], object],
    repeats: int,
    device: torch.device,
    limit_s: float = 60.0,
    between: Callable[[], object] = lambda: None,
) -> float:
    """The least time of several calls after a first one, as whatever else runs only adds to it.

    After ``limit_s`` seconds no more calls begin.  between: is called before each, and not timed.
    """
    call()
    least, ends = math.inf, time.perf_counter() + limit_s
    for _ in range(repeats):
        between()
        least = min(least, seconds(call, device))
        if time.perf_counter() > ends:
            break
    return least


def _cooled(num_coordinates: int, device: torch.device) -> Callable[[], object]:
    """What goes through as much memory as a step does between two exchanges of so many coordinates."""
    memory = torch.zeros(min(_VECTORS * num_coordinates, _BETWEEN), dtype=torch.float32, device=device)
    return lambda: memory.add_(1.0)


def measured(of: HookSettings, vector: Tensor, limit_s: float = 60.0) -> tuple[CodecRates, MeasuredFormat]:
    """The rates of a method's codec and the lengths of its messages.

    Encoding is of a frame that can be sent, with the memory that the method has; decoding checks it, decodes it and
    adds it to a total.  vector: float32[n], from whose beginning short and long messages are made, n at least SHORT *
    MANY.  limit_s: of each of the six things that are timed.
    """
    long = min(LONG, vector.numel() // SHORT * SHORT)
    encodes, decodes, lengths = [], [], []
    cooled = _cooled(long, vector.device)
    for size, messages, repeats in ((SHORT, 1, 200), (SHORT, MANY, 50), (long, 1, 8)):
        shape = (size // _COLUMNS, _COLUMNS)  # some methods send vectors as they are
        layout = FlatLayout(tuple(Segment(f"tensor {at}", at * size, size, shape=shape) for at in range(messages)))
        codec = _codec(of, layout, vector[:long])
        sent = vector[: size * messages].clone()
        total = torch.zeros_like(sent, dtype=torch.float32)
        payload = codec.encode(sent, layout, _KEY).clone()
        encode = functools.partial(codec.encode, sent, layout, _KEY)
        decode = functools.partial(codec.add, payload, layout, total)
        between = cooled if size == long else (lambda: None)
        encodes.append(least_s(encode, repeats, vector.device, limit_s, between))
        decodes.append(least_s(decode, repeats, vector.device, limit_s, between))
        lengths.append(float(payload.numel()))
    bytes_each = fitted(long, *lengths)
    sparse = METHODS[of.method].mean_compressor == SPARSE_MEANS
    return rates(long, encodes, decodes), MeasuredFormat(of.method, *bytes_each, sparse=sparse)


def fitted(long_size: int, one: float, many: float, long: float) -> tuple[float, float, float]:
    """The price of a coordinate, a message and a frame behind three prices.

    They are those of a frame of one short message, of MANY, and of one message of ``long_size`` coordinates.
    """
    coordinate = (long - one) / (long_size - SHORT)
    message = max((many - one) / (MANY - 1) - SHORT * coordinate, 0.0)
    return coordinate, message, max(one - message - SHORT * coordinate, 0.0)


def rates(long: int, encodes: list[float], decodes: list[float]) -> CodecRates:
    """The rates behind the seconds of the three frames of ``fitted``."""
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


def factor_s(
    of: HookSettings, shapes: dict[str, torch.Size], device: torch.device, limit_s: float = 60.0
) -> tuple[float, float]:
    """The seconds of PowerSGD's arithmetic on matrices, before and behind what travels; its parts between count."""
    memory = Memory(of.feedback.settings(), of.feedback.momentum, of.feedback.nesterov)
    compressors = of.compressors()
    compressors.assign(shapes)
    layout = compressors.arrange(shapes)
    driver = Driver(compressors, layout, of.exchange, Transport(None), 1, 0, memory=memory)
    generator = torch.Generator().manual_seed(1)
    vector = torch.randn(layout.num_coordinates, generator=generator, dtype=torch.float32, device="cpu").to(device)
    mean = torch.zeros_like(vector)
    cooled, times = _cooled(vector.numel(), device), list[Counter[str]]()
    ends = time.perf_counter() + limit_s
    for step in range(_FACTORED):
        cooled()
        before = Counter(driver.stats.seconds)
        driver.mean({0: vector}, layout, Key(0, step, 0), mean)
        times.append(Counter(driver.stats.seconds) - before)
        if time.perf_counter() > ends:
            break
    return min(spent["encode"] for spent in times), min(spent["decode"] for spent in times)


def mean_gb_s(device: torch.device) -> float:
    """The rate of what is done to a mean around the decoding of messages, as ``Profile.mean_gb_s``."""
    total, layout = torch.zeros(LONG, dtype=torch.float32, device=device), FlatLayout((Segment("all", 0, LONG),))

    def around() -> None:
        total.zero_()
        scale(total, 2)
        check_mean(total, layout)

    return 4e-9 * LONG / least_s(around, _FACTORED, device)
