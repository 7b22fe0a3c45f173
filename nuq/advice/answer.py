"""The answer to "does compression pay here?": every method's step on a link, its error, and what to add to a script."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from nuq.advice import codec_rates
from nuq.advice.network_rates import NetworkRates, dense_codecs
from nuq.advice.script import Observed
from nuq.exchange.collective_factory import fewest_bytes
from nuq.exchange.hook.settings import HookSettings
from nuq.exchange.mean_error import second_settings
from nuq.exchange.transport import Transport
from nuq.prediction import steps
from nuq.prediction.message_size import FACTORED, Format, MeasuredFormat
from nuq.prediction.rates import CodecRates, Profile
from nuq.prediction.steps import Network, Variant
from nuq.registry import METHODS
from nuq.settings.feedback import memory_kinds

# One of every kind that may pay.  Not: what sends everything, what takes seconds for a million coordinates.
CANDIDATES = (
    *("qsgdinf", "trn", "alq", "eden", "drive", "ecdq", "natural", "fp8", "sign", "onebit"),
    *("topk", "dgc", "powersgd"),
)
LIMIT_S = 1.0  # of each of the six things that are timed of a method
_MOST_BITS = 8  # of means, but for those that travel in 16 or 32, whose error is nothing beside the messages'
DENSE = {"fp32": 32, "bf16": 16}


@dataclass(frozen=True)
class Row:
    """A way of exchange.

    error: |mean of what was decoded - mean|^2 / |mean|^2 of one step without a memory.  remembers: what a step leaves
    out is sent later.  break_even_bit_s: the bandwidth below which it is quicker than bf16; None for the dense ones.
    encode_s, decode_s: of one worker's messages of a step.  bytes_sent: by one rank (the busiest) in a step.
    """

    name: str
    settings: dict[str, Any]
    collective: str
    step_s: float
    break_even_bit_s: float | None
    bytes_sent: int
    error: float
    remembers: bool
    encode_s: float
    decode_s: float


@dataclass(frozen=True)
class Advice:
    """All rows, quickest first.  noise: of the mean of several steps' gradients, |error|^2 / |mean|^2, estimated."""

    rows: list[Row]
    noise: float

    @property
    def quickest(self) -> Row:
        return self.rows[0]

    @property
    def recommended(self) -> Row:
        """The quickest whose mean errs less than the gradients of a step do by themselves, if it gains something."""
        as_it_is = next(row for row in self.rows if row.name == "fp32")
        best = next(row for row in self.rows if row.error <= self.noise or row is as_it_is)
        return best if _GAIN * best.step_s < as_it_is.step_s else as_it_is


_GAIN = 1.05  # below it a script is best left as it is
_NO_COST_GB_S = 1e6


def advice(
    seen: Observed,
    network: NetworkRates,
    methods: Sequence[tuple[str, dict[str, Any]]],
    of_link: Network,
    tell: Callable[[str], None] = lambda line: None,
) -> Advice:
    """Measure these methods, each with its settings, on what was seen of a script; predict their steps on a link."""
    case = _Case.of(seen, network, of_link)
    dense = {
        name: _Measured(case.dense, Variant(Format(name, bits), Format(name, bits))) for name, bits in DENSE.items()
    }
    dense["bf16"] = dataclasses.replace(dense["bf16"], error=_bf16_error(seen.gradients))
    rows = [case.row(name, {}, part) for name, part in dense.items()]
    for number, (name, settings) in enumerate(methods, 1):
        tell(f"measuring {named(name, settings)} ({number}/{len(methods)})")
        of = HookSettings.of(name, (), settings)
        rows.append(
            case.row(named(name, settings), vars(of.of_method), _measured(of, seen, of_link.workers), dense["bf16"])
        )
    return Advice(sorted(rows, key=lambda row: row.step_s), _noise(seen.gradients))


@dataclass(frozen=True)
class _Measured:
    """What was measured of a way of exchange.

    collective: as ``collective="auto"`` chooses it for so many ranks, or auto: the quicker of ring and tree.
    """

    codecs: Mapping[str, CodecRates]
    variant: Variant
    collective: str = "auto"
    error: float = 0.0
    remembers: bool = False


@dataclass(frozen=True)
class _Case:
    """A script's steps on a link; profile: without the rates of codecs; dense: those of all-reduces."""

    seen: Observed
    link: Network
    profile: Profile
    dense: Mapping[str, CodecRates]

    @classmethod
    def of(cls, seen: Observed, network: NetworkRates, link: Network) -> _Case:
        on_cpu = seen.gradients[0].device.type == "cpu"  # else the network's code takes nothing of the computation
        profile = Profile(
            "this machine",
            shared_core=on_cpu,
            cores=1,
            latency_s=network.latency_s,
            message_s=network.message_s if on_cpu else 0.0,
            host_gb_s=network.host_gb_s if on_cpu else _NO_COST_GB_S,
            compute_s=seen.compute_s,
            codecs={},
        )
        return cls(seen, link, profile, dense_codecs(network))

    def step(self, part: _Measured, bandwidth: float) -> steps.Prediction:
        """The predicted step with links of this bandwidth in bit/s."""
        profile = dataclasses.replace(self.profile, codecs=part.codecs)
        link = dataclasses.replace(self.link, bandwidth=bandwidth)
        return steps.predict(part.variant, self.seen.model, self.seen.compute_s, link, profile, part.collective)

    def row(self, name: str, settings: dict[str, Any], part: _Measured, beside: _Measured | None = None) -> Row:
        """The row of a way; its break-even is with the way ``beside``."""
        found, rates, model = (
            self.step(part, self.link.bandwidth),
            part.codecs[part.variant.first.kind],
            self.seen.model,
        )
        work = model.parameters, sum(bucket.tensors for bucket in model.buckets), len(model.buckets)
        return Row(
            name,
            settings,
            found.collective,
            found.step_s,
            beside and steps.break_even(lambda at: self.step(part, at).step_s, lambda at: self.step(beside, at).step_s),
            found.bytes_sent,
            part.error,
            part.remembers,
            rates.encode_s(*work),
            rates.decode_s(*work),
        )


def named(method: str, settings: dict[str, Any]) -> str:
    """A method with its settings as the command line has them."""
    return method + "".join(f" {key}={_plain(value)}" for key, value in settings.items())


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _measured(of: HookSettings, seen: Observed, num_workers: int) -> _Measured:
    gradients, device = seen.gradients, seen.gradients[0].device
    compressors = of.compressors()
    compressors.assign(seen.shapes)
    if METHODS[of.method].collective == "power":
        collective = "power"
    elif of.exchange.collective == "auto":
        collective = fewest_bytes(compressors, Transport(None), num_workers)
    else:
        collective = of.exchange.collective
    exchange = dataclasses.replace(of.exchange, collective="auto" if collective == "power" else collective)
    if collective == "two_stage":
        exchange = dataclasses.replace(exchange, second_bits=min(compressors.second_bits[0], _MOST_BITS))
    told = dataclasses.replace(of, exchange=exchange)
    workers = codec_rates.simulated(told, len(gradients), seen.shapes, device)
    found = codec_rates.exchanged(workers, gradients)
    mean = torch.stack(gradients).mean(dim=0)
    error = float((found.mean - mean).square().sum() / mean.square().sum())
    if collective == "power":
        rates = codec_rates.factor_rates(of, device, LIMIT_S)
        format_ = MeasuredFormat(FACTORED, (found.bytes_per_worker - found.means_bytes) / mean.numel())
        variant, codecs = Variant(format_, format_), {FACTORED: rates}
    else:
        rates, format_ = codec_rates.measured(of, _enough(gradients[0]), LIMIT_S)
        codecs, second = {format_.kind: rates}, format_
        if collective == "two_stage":
            name, settings = second_settings(of.method, of.of_method, compressors.second_bits[0])
            means = HookSettings.of(name, (), vars(settings))
            second_rates, second = codec_rates.measured(means, _enough(mean), LIMIT_S)
            second = dataclasses.replace(second, kind="means", sparse=format_.sparse)
            codecs[second.kind] = second_rates
        variant = Variant(format_, second)
    remembers = memory_kinds(of.feedback.feedback, [of.method]) != ["none"]
    return _Measured(codecs, variant, collective, error, remembers)


def _enough(vector: Tensor) -> Tensor:
    """The vector, or its numbers again and again where a model is small: rates are timed on long ones."""
    least = codec_rates.SHORT * codec_rates.MANY * 4
    return vector.repeat(-(-least // vector.numel())) if vector.numel() < least else vector


def _bf16_error(gradients: Sequence[Tensor]) -> float:
    exact = torch.stack(list(gradients)).mean(dim=0)
    sent = torch.stack([gradient.bfloat16().float() for gradient in gradients]).mean(dim=0).bfloat16().float()
    return float((sent - exact).square().sum() / exact.square().sum())


def _noise(gradients: Sequence[Tensor]) -> float:
    """The squared error of the mean gradient of so many batches, relative to it, from how they differ."""
    rows = torch.stack(list(gradients))
    mean = rows.mean(dim=0)
    return float((rows - mean).square().sum() / (len(rows) * (len(rows) - 1)) / mean.square().sum())
