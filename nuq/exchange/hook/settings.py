"""The settings of the DDP hook, sorted and checked: of its method, its exchange, its memory and itself."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nuq.exchange.compressor_map import CompressorMap, sorted_settings
from nuq.settings import layers as layer_list
from nuq.settings.exchange import Hook, HookExchange
from nuq.settings.feedback import HookFeedback
from nuq.settings.layers import Layer

OTHER_DEFAULTS: dict[str, Any] = {"scope": "tensor", "update_at": [0, 10, 100, 2000]}  # one vector per parameter


@dataclass(frozen=True)
class HookSettings:
    """The settings of one hook; layers: the lines as they were given; lines: as methods with their settings."""

    method: str
    of_method: Any
    exchange: HookExchange
    hook: Hook
    feedback: HookFeedback
    layers: list[str]
    lines: Sequence[Layer]

    @classmethod
    def of(cls, method: str, layers: Sequence[str], given: Mapping[str, Any]) -> HookSettings:
        """The settings from keywords; ValueError for one that does not exist or is out of range."""
        of_method, exchange, hook, feedback = sorted_settings(
            method, (HookExchange, Hook, HookFeedback), given, OTHER_DEFAULTS
        )
        listed = layer_list.listed(layers)
        lines = layer_list.parsed(listed, OTHER_DEFAULTS, beside=method)
        feedback.check([method, *(line.method for line in lines)], exchange.collective, given)
        for own in (of_method, *(line.settings for line in lines)):
            if getattr(own, "statistics", "running") != "running":
                why = "the hook sees the training's own gradients alone"
                raise ValueError(f"statistics={own.statistics!r}: {why}; legal here: running")
        return cls(method, of_method, exchange, hook, feedback, listed, lines)

    @property
    def plain(self) -> dict[str, Any]:
        """All settings but the layers, by name."""
        return vars(self.of_method) | vars(self.exchange) | vars(self.hook) | vars(self.feedback)

    @property
    def passes_by(self) -> str:
        """The setting that lets gradients pass by the method, by the backend's all-reduce; empty where none does."""
        if self.hook.gate:
            return "gate=True"
        return "collective='dense'" if self.exchange.collective == "dense" else ""

    def small(
        self, compressors: CompressorMap, shapes: Mapping[str, Sequence[int]]
    ) -> tuple[Callable[[str, bool], bool], Callable[[str, bool], bool]]:
        """Whether a parameter travels in full precision, and whether it is cast with its neighbors.

        Both as ``CompressorMap.arrange`` asks them.  The second argument: whether it would be part of one vector with
        others, whatever its size.
        """
        feedback = self.feedback.settings()

        def is_small(name: str, joined: bool) -> bool:
            return not joined and math.prod(shapes[name]) < self.hook.min_size

        def whole(name: str, joined: bool) -> bool:
            if compressors.corrects_momentum(name, feedback):
                return False
            skipped = self.hook.skip_1d and len(shapes[name]) < 2
            return skipped or (is_small(name, joined) and not compressors.casts(name, feedback))

        def cast(name: str, joined: bool) -> bool:
            return is_small(name, joined) and not whole(name, joined) and compressors.casts(name, feedback)

        return whole, cast

    def nothing_compressed(self) -> str:
        """The sentence for a model of which nothing is compressed."""
        rule, remedy = f"is below min_size={self.hook.min_size}", "min_size=0 compresses them"
        if self.hook.skip_1d:
            rule, remedy = f"{rule} or a vector (skip_1d=True)", f"{remedy}, but for vectors"
        return f"nothing is compressed: every parameter {rule}, and travels in full precision; {remedy}"

    def compressors(self) -> CompressorMap:
        """The compressors of these settings."""
        return CompressorMap(self.method, self.of_method, self.exchange.second_bits, self.lines)
