"""The measured rates from which the cost model predicts, of codecs, of a model's steps and of a machine's network."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from nuq.prediction.message_size import MeasuredFormat


@dataclass(frozen=True)
class CodecRates:
    """The rates of a codec in GB/s of float32 input (4 bytes a coordinate), and the costs of a message and of a frame.

    For the dense formats encoding is the cast (fp32 has none), decoding the addition of what was received and the cast
    back.
    """

    encode_gb_s: float
    decode_gb_s: float
    encode_message_s: float = 0.0
    decode_message_s: float = 0.0
    encode_frame_s: float = 0.0
    decode_frame_s: float = 0.0

    def encode_s(self, num_coordinates: float, messages: float, frames: float) -> float:
        fixed = messages * self.encode_message_s + frames * self.encode_frame_s
        return 4e-9 * num_coordinates / self.encode_gb_s + fixed

    def decode_s(self, num_coordinates: float, messages: float, frames: float) -> float:
        fixed = messages * self.decode_message_s + frames * self.decode_frame_s
        return 4e-9 * num_coordinates / self.decode_gb_s + fixed


@dataclass(frozen=True)
class Bucket:
    """A bucket of DDP: ready after this share of the backward pass, every tensor in it a message of its own.

    whole: further coordinates that travel as float32, as small tensors do; not among ``coordinates``.
    """

    coordinates: int
    ready: float
    tensors: int = 1
    whole: int = 0


@dataclass(frozen=True)
class Model:
    """The work of DDP with one model: its buckets in the order they become ready, and how a step divides.

    forward, tail: shares of the computation before the backward pass and after the exchange (the optimizer).
    """

    buckets: tuple[Bucket, ...]
    forward: float = 1 / 3
    tail: float = 0.0

    @property
    def parameters(self) -> int:
        return sum(bucket.coordinates + bucket.whole for bucket in self.buckets)


@dataclass(frozen=True)
class Profile:
    """Everything measured about one kind of worker.

    latency_s: from the sending of a small message to its arrival; busy_latency_s: what two ranks wait for it whose
    cores compute meanwhile, which counts with a shared core alone.  message_s: processor time that one more
    message takes; host_gb_s: bytes that a rank can send, and receive as many, in a second of processor time.
    mean_gb_s: float32 of a mean that is set to zero, divided and checked around the messages' decoding.  shared_core:
    encoding and the network's work run on the core that computes.  cores: of the machine the rates were measured on,
    where several ranks shared them. formats: of the methods that have no formula. validation: what ``--validate
    --keep`` found, or nothing.
    """

    about: str
    shared_core: bool
    cores: int
    latency_s: float
    busy_latency_s: float
    message_s: float
    host_gb_s: float
    mean_gb_s: float
    compute_s: float
    codecs: Mapping[str, CodecRates]
    models: Mapping[str, Model] = field(default_factory=dict)
    formats: Mapping[str, MeasuredFormat] = field(default_factory=dict)
    validation: Mapping[str, Any] = field(default_factory=dict)
