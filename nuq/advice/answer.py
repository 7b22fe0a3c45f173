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
from nuq.advice.measured import Measured, of_all_reduce, of_method
from nuq.advice.network_rates import NetworkRates, dense_codecs
from nuq.advice.script import Observed
from nuq.exchange.hook.settings import HookSettings
from nuq.prediction import steps
from nuq.prediction.rates import CodecRates, Model, Profile
from nuq.prediction.steps import Network

# One of every kind that may pay.  Not: what sends everything, what takes seconds for a million coordinates.
CANDIDATES = (
    *("qsgdinf", "trn", "alq", "eden", "drive", "ecdq", "natural", "fp8", "sign", "onebit"),
    *("topk", "dgc", "powersgd"),
)
MARKS = {
    "*": "what a step leaves out is remembered and sent later, so that its error does not add up.",
    "!": "biased, without a memory: its errors add up, so that it is never taken; feedback=error mends this.",
    "=": "every parameter travels in full precision, as it is smaller than min_size or a vector, which the method or "
    "skip_1d sends as it is: it compresses nothing, and is never taken.",
}
NEVER = ("!", "=")  # marks of what is not recommended
BITS = {"fp32": 32, "bf16": 16}  # of the all-reduces beside them
GAIN = 1.05  # below it a script is best left as it is
_FREE_GB_S = 1e6


@dataclass(frozen=True)
class Row:
    """A way of exchange: a method with the settings that were asked for, or an all-reduce of fp32 or bf16.

    pays_from_bit_s, break_even_bit_s: the bandwidths above and below which it is quicker than bf16, as of
    ``steps.gains``; the second is 0 for never, and None for the all-reduces.  bytes_sent: by one rank (the busiest) in
    a step.  error, remembers, biased: as of ``Measured``.  encode_s, decode_s: of one worker's messages of a step.
    whole: every parameter travels in full precision, so that nothing is compressed.
    """

    method: str
    asked: Mapping[str, Any]
    collective: str
    step_s: float
    break_even_bit_s: float | None
    bytes_sent: int
    error: float
    remembers: bool
    encode_s: float
    decode_s: float
    biased: bool = False
    whole: bool = False
    pays_from_bit_s: float = 0.0

    @property
    def name(self) -> str:
        """The method with its settings, as a command line has them."""
        given = (f"{key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in self.asked.items())
        return " ".join([self.method, *given])

    @property
    def mark(self) -> str:
        """What a table says beside its error, a key of MARKS, or nothing."""
        return "=" if self.whole else "*" if self.remembers else "!" if self.biased else ""


@dataclass(frozen=True)
class Advice:
    """All rows, quickest first.

    noise: of the mean of several steps' gradients, |error|^2 / |mean|^2, estimated.  plain: the row of what DDP does
    by itself.
    """

    rows: list[Row]
    noise: float
    plain: str = "fp32"

    @property
    def quickest(self) -> Row:
        """The quickest that compresses, or an all-reduce."""
        return next(row for row in self.rows if not row.whole)

    @property
    def recommended(self) -> Row:
        """The quickest whose mean errs less than the gradients of a step do by themselves, if it gains something.

        None whose errors add up, and none that compresses nothing.
        """
        as_it_is = next(row for row in self.rows if row.method == self.plain)
        best = next(row for row in self.rows if row is as_it_is or (row.error <= self.noise and row.mark not in NEVER))
        return best if GAIN * best.step_s < as_it_is.step_s else as_it_is


def advice(
    seen: Observed,
    network: NetworkRates,
    methods: Sequence[tuple[str, Mapping[str, Any]]],
    of_link: Network,
    tell: Callable[[str], None] = lambda line: None,
) -> Advice:
    """Measure these methods, each with its settings, on what was seen of a script; predict their steps on a link."""
    case = _Case.of(seen, network, of_link)
    codecs = dense_codecs(network)
    all_reduces = {name: of_all_reduce(name, bits, codecs, seen.gradients) for name, bits in BITS.items()}
    rows = [case.row(name, {}, way) for name, way in all_reduces.items() if BITS[name] <= BITS[seen.plain]]
    for number, (name, asked) in enumerate(methods, 1):
        tell(f"measuring {name} ({number}/{len(methods)})")
        way = of_method(HookSettings.of(name, (), asked), seen, of_link.workers)
        rows.append(case.row(name, asked, way, all_reduces["bf16"]))
    return Advice(sorted(rows, key=lambda row: row.step_s), _noise(seen.gradients), seen.plain)


@dataclass(frozen=True)
class _Case:
    """A script's steps on a link; profile: of this machine, without the rates of codecs."""

    seen: Observed
    link: Network
    profile: Profile

    @classmethod
    def of(cls, seen: Observed, network: NetworkRates, link: Network) -> _Case:
        on_cpu = seen.gradients[0].device.type == "cpu"  # else the network's code takes nothing of the computation
        codecs: dict[str, CodecRates] = {}
        profile = Profile(
            "this machine",
            shared_core=on_cpu,
            cores=1,
            latency_s=network.latency_s,
            busy_latency_s=network.busy_latency_s,
            message_s=network.message_s if on_cpu else 0.0,
            host_gb_s=network.host_gb_s if on_cpu else _FREE_GB_S,
            mean_gb_s=codec_rates.mean_gb_s(seen.gradients[0].device),
            compute_s=seen.compute_s,
            codecs=codecs,
        )
        return cls(seen, link, profile)

    def _model(self, way: Measured) -> Model:
        return self.seen.model(way.whole, joined=way.joined)

    def step(self, way: Measured, bandwidth: float) -> steps.Prediction:
        """The predicted step with links of this bandwidth in bit/s."""
        profile = dataclasses.replace(self.profile, codecs=way.codecs)
        link = dataclasses.replace(self.link, bandwidth=bandwidth)
        return steps.predict(way.variant, self._model(way), self.seen.compute_s, link, profile, way.collective)

    def row(self, method: str, asked: Mapping[str, Any], way: Measured, beside: Measured | None = None) -> Row:
        """The row of a way; its break-even is with the way ``beside``."""
        found = self.step(way, self.link.bandwidth)
        rates = way.codecs[way.variant.first.kind]
        buckets = self._model(way).buckets
        coordinates, messages = (
            sum(bucket.coordinates for bucket in buckets),
            sum(bucket.tensors for bucket in buckets),
        )
        low, even = 0.0, None
        if beside is not None:
            of_both = (lambda at: self.step(way, at).step_s), (lambda at: self.step(beside, at).step_s)
            low, even = steps.gains(*of_both, self.link.bandwidth)
        return Row(
            method,
            asked,
            found.collective,
            found.step_s,
            even,
            found.bytes_sent,
            way.error,
            way.remembers,
            rates.encode_s(coordinates, messages, len(buckets)),
            rates.decode_s(coordinates, messages, len(buckets)),
            way.biased,
            len(way.whole) == len(self.seen.shapes),
            low,
        )


def _noise(gradients: Sequence[Tensor]) -> float:
    """The squared error of the mean gradient of so many batches, relative to it, from how they differ."""
    rows = torch.stack(list(gradients))
    mean = rows.mean(dim=0)
    spread = (rows - mean).double().square().sum() / (len(rows) * (len(rows) - 1))
    return float(spread / mean.double().square().sum())
