"""What a training over a link is made of, as its ranks are told."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Spec:
    """A training; weights, minibatches and learning rates are the same whatever the variant.

    variant: a name of ``baselines``; ``"hook method=alq .."``, with settings of ``nuq.CompressionState``; ``"outer
    every=24 .."``, with those of ``nuq.OuterLoop``; or ``"fsdp compute=bf16 .."``, with those of compressed messages.
    batch: of a rank.  data: a data set with its settings, such as ``"text num_test=128"``; "" for random inputs, the
    same in each step.  warm_up: steps in which the learning rate rises; falls_over: steps in which it falls along a
    cosine to a tenth, 0 for never.
    """

    model: str
    variant: str
    batch: int
    optimizer: str = "sgd lr=0.0001"
    data: str = ""
    seed: int = 1
    warm_up: int = 1
    falls_over: int = 0
    clip_norm: float | None = None

    def rate(self, step: int) -> float:
        """The share of the learning rate that a step has."""
        falls = 1.0
        if self.falls_over:
            falls = 0.55 + 0.45 * math.cos(math.pi * min(step / self.falls_over, 1.0))
        return min((step + 1) / self.warm_up, 1.0) * falls
