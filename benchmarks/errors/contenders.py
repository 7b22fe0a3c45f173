"""Contenders: methods with settings, written as ``"alq bits=3"``, and the errors of their messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import yaml
from torch import Tensor

from benchmarks.errors.gradients import Gradients
from nuq.compressors.message import parse
from nuq.compressors.quantized import AdaptiveQuantizer
from nuq.exchange.compressor_map import sorted_settings
from nuq.kernels.spec import Key
from nuq.kernels.statistics import Statistics
from nuq.registry import METHODS, method


def named(text: str) -> tuple[str, dict[str, Any]]:
    """The method and the settings that a text such as ``"topk ratio=0.001"`` gives.

    Raises ValueError if a word is not of the form name=value.
    """
    name, *options = text.split()
    if wrong := [option for option in options if "=" not in option]:
        raise ValueError(f"{wrong[0]!r} in {text!r}: must be of the form name=value")
    return name, {key: yaml.safe_load(value) for key, _, value in (option.partition("=") for option in options)}


def settings_of(text: str) -> tuple[str, Any]:
    """The method and its checked settings; ValueError for a name or value that is not legal."""
    name, given = named(text)
    return name, sorted_settings(name, [], given, {})[0]


def built(text: str, learn: Sequence[Tensor] = ()) -> Any:
    """The compressor; levels that adapt are fitted to ``learn``, one vector of each worker."""
    name, settings = settings_of(text)
    made = METHODS[name].load()(settings)
    if isinstance(made, AdaptiveQuantizer) and learn:
        fit(made, learn)
    return made


def fit(made: AdaptiveQuantizer, gradients: Sequence[Tensor]) -> Statistics:
    """Fit the levels to the gradients of several workers, as at an update; returns the statistics behind it."""
    together = Statistics.empty(made.settings.num_components, sketched=True)
    for worker, gradient in enumerate(gradients):
        own = Statistics.empty(made.settings.num_components, sketched=True)
        made.observe(gradient, Key(2, 0, worker, "model"), own)
        together.merge(own)
    made.update(together)
    return together


def square(vector: Tensor) -> float:
    """``|vector|^2`` in float64."""
    return float(vector.double().square().sum())


def relative_error(decoded: Tensor, x: Tensor) -> float:
    """The relative error ``|decoded - x|^2 / |x|^2``."""
    return square(decoded - x) / square(x)


class Contender:
    """One method with its settings, as a sender of whole gradients."""

    def __init__(self, text: str, gradients: Gradients) -> None:
        self.name, self.settings = settings_of(text)
        self.entry = method(self.name)
        self.compressor = self.entry.load()(self.settings)
        self.by_tensor = getattr(self.settings, "scope", "model") == "tensor"
        self.gradients = gradients
        if isinstance(self.compressor, AdaptiveQuantizer):
            learned = [(vector, Key(7, number, 0, "learn")) for number, vector in enumerate(gradients.learn)]
            self.compressor.update(self.compressor.observed(learned))

    def parts(self, vector: Tensor) -> dict[str, Tensor]:
        """The vectors that are encoded as one message each, as the method wants it."""
        if not self.by_tensor:
            return {"model": vector}
        pieces = self.gradients.parts(vector)
        return pieces if self.compressor.shaped else {name: piece.reshape(-1) for name, piece in pieces.items()}

    def encode(self, parts: dict[str, Tensor], step: int) -> list[Tensor]:
        return [self.compressor.encode(part, Key(1, step, 0, name)).to_bytes() for name, part in parts.items()]

    def decode(self, messages: Sequence[Tensor], by: Any = None) -> list[Tensor]:
        return [(by or self.compressor).decode(parse(message)) for message in messages]

    def accuracy(self) -> tuple[list[float], float]:
        """The relative errors of the gradients, as a fresh instance decodes them, and bits per coordinate.

        Each gradient is under a key of its own.
        """
        errors, num_bytes = [], 0
        for step, vector in enumerate(self.gradients.measure):
            messages = self.encode(self.parts(vector), step)
            num_bytes += sum(message.numel() for message in messages)
            decoded = self.decode(messages, self.entry.load()(self.settings))
            errors.append(relative_error(torch.cat(decoded), vector))
        return errors, 8 * num_bytes / (self.gradients.num_coordinates * len(errors))
