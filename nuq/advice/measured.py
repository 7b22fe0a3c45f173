"""What is measured of one way of exchange on the gradients of a script: rates, lengths, and the error of the mean."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from nuq.advice import codec_rates
from nuq.advice.script import Observed
from nuq.exchange.collective_factory import fewest_bytes
from nuq.exchange.compressor_map import CompressorMap
from nuq.exchange.driver import Driver, Memory
from nuq.exchange.hook.settings import HookSettings
from nuq.exchange.mean_error import second_settings
from nuq.exchange.transport import Transport
from nuq.kernels.spec import Key
from nuq.prediction.message_size import FACTORED, Format, MeasuredFormat
from nuq.prediction.rates import CodecRates
from nuq.prediction.steps import POWER, Variant
from nuq.registry import METHODS, claimed
from nuq.settings.feedback import memory_kinds

LIMIT_S = 1.0  # of each of the six things that are timed of a method
COLLECTIVES = ("auto", "gather", "two_stage", "server")  # that can be advised on
_MOST_BITS = 8  # of means, but for those that travel in 16 or 32, whose error is nothing beside the messages'


@dataclass(frozen=True)
class Measured:
    """A way of exchange: its rates by kind of message, its formats, and the error of the mean of some gradients.

    collective: as ``collective="auto"`` chooses it for so many ranks, or auto: the quicker of ring and tree.  whole:
    the parameters that travel in full precision.  joined: all others are one vector, sent at the end.  error:
    |error|^2 / |mean|^2 of one step without a memory; remembers: what it leaves out is sent later.  biased: the method
    claims no less, with its settings (the rounding of an all-reduce to bfloat16, of 2^-9, counts as none).
    """

    codecs: Mapping[str, CodecRates]
    variant: Variant
    collective: str = "auto"
    whole: frozenset[str] = field(default_factory=frozenset)
    joined: bool = False
    error: float = 0.0
    remembers: bool = False
    biased: bool = False


def of_all_reduce(name: str, bits: int, codecs: Mapping[str, CodecRates], gradients: Sequence[Tensor]) -> Measured:
    """The backend's own all-reduce of float32 or, with 16 bits, bfloat16 numbers."""
    exact, error = torch.stack(list(gradients)).mean(dim=0), 0.0
    if bits == 16:
        sent = torch.stack([gradient.bfloat16().float() for gradient in gradients]).mean(dim=0).bfloat16().float()
        error = relative(sent, exact)
    return Measured(codecs, Variant(Format(name, bits), Format(name, bits)), error=error)


def of_method(of: HookSettings, seen: Observed, num_ranks: int) -> Measured:
    """Messages of a method with the hook's settings, for a training on so many ranks."""
    compressors = of.compressors()
    compressors.assign(seen.shapes)
    compressors.check_momentum(seen.shapes, of.feedback.settings(), of.passes_by, skip_1d=of.hook.skip_1d)
    collective = of.exchange.collective
    if METHODS[of.method].collective == POWER:
        collective = POWER
    elif collective == "auto":
        collective = fewest_bytes(compressors, Transport(None), num_ranks)
    second_bits = compressors.second_bits[0]
    joined = compressors.every[0].scope == "model"
    (is_whole, _), dense_1d = of.small(compressors, seen.shapes), getattr(of.of_method, "dense_1d", False)
    whole = frozenset(
        name for name, shape in seen.shapes.items() if is_whole(name, joined) or (dense_1d and len(shape) < 2)
    )
    driver, mean = _mean(of, seen, collective, min(second_bits, _MOST_BITS))
    exact = torch.stack(seen.gradients).mean(dim=0)
    if collective == POWER:
        form = MeasuredFormat(FACTORED, _bytes_a_coordinate(driver, seen, whole))
        matrices = {name: shape for name, shape in seen.shapes.items() if name not in whole}
        size = max(sum(shape.numel() for shape in matrices.values()), 1)  # a rate of nothing is any
        encode_s, decode_s = codec_rates.factor_s(of, matrices, exact.device, LIMIT_S) if matrices else (1.0, 1.0)
        codecs, second = {FACTORED: CodecRates(4e-9 * size / encode_s, 4e-9 * size / decode_s)}, form
    else:
        rates, form = codec_rates.measured(of, _enough(seen.gradients[0]), LIMIT_S)
        codecs, second = {form.kind: rates}, form
        if collective != "gather":
            name, settings = second_settings(of.method, of.of_method, second_bits)
            rates, second = codec_rates.measured(HookSettings.of(name, (), vars(settings)), _enough(exact), LIMIT_S)
            second = dataclasses.replace(second, kind="means", sparse=form.sparse)
            codecs["means"] = rates
    remembers = memory_kinds(of.feedback.feedback, [of.method]) != ["none"]
    biased = not claimed(of.method, vars(of.of_method)).unbiased
    return Measured(codecs, Variant(form, second), collective, whole, joined, relative(mean, exact), remembers, biased)


def relative(mean: Tensor, exact: Tensor) -> float:
    """The squared error of a mean, over the squared length of the exact one."""
    return float((mean - exact).double().square().sum() / exact.double().square().sum())


def _mean(of: HookSettings, seen: Observed, collective: str, second_bits: int) -> tuple[Driver, Tensor]:
    """The mean of the gradients as messages of so many workers in this process."""
    gradients, sizes = seen.gradients, [shape.numel() for shape in seen.shapes.values()]
    compressors: CompressorMap = of.compressors()
    compressors.assign(seen.shapes)
    layout = compressors.arrange(seen.shapes, *of.small(compressors, seen.shapes))
    exchange = dataclasses.replace(of.exchange, collective="auto" if collective == POWER else collective)
    if collective not in (POWER, "gather"):
        exchange = dataclasses.replace(exchange, second_bits=second_bits)
    memory = Memory(of.feedback.settings(), of.feedback.momentum, of.feedback.nesterov)
    driver = Driver(compressors, layout, exchange, Transport(None), len(gradients), of.hook.seed, memory=memory)
    vectors = {worker: layout.from_model(gradient, sizes) for worker, gradient in enumerate(gradients)}
    if driver.levels.every:
        driver.levels.observe(vectors, layout.segments, 0)
        driver.levels.update()
    mean = torch.empty_like(vectors[0])
    driver.mean(vectors, layout, Key(of.hook.seed, 0, 0), mean)
    return driver, layout.restored(mean, sizes)


def _bytes_a_coordinate(driver: Driver, seen: Observed, whole: frozenset[str]) -> float:
    """The bytes of a worker's messages for each coordinate that does not travel whole."""
    sizes = {name: shape.numel() for name, shape in seen.shapes.items() if name not in whole}
    if not sizes:
        return 0.0
    bits = driver.bits_by_vector()
    return sum(bits.get(name, 0.0) * size for name, size in sizes.items()) / sum(sizes.values()) / 8


def _enough(vector: Tensor) -> Tensor:
    """The vector, or its numbers again and again where a model is small: rates are timed on long ones."""
    least = codec_rates.SHORT * codec_rates.MANY * 4
    return vector.repeat(-(-least // vector.numel())) if vector.numel() < least else vector
