"""The gradients behind an adaptive method's next levels: statistics of the workers hosted here, and when they become levels."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from nuq import schedule
from nuq.choice import Coder, Coders
from nuq.compressors.quantized import AdaptiveQuantizer
from nuq.payload import Part
from nuq.statistics import Statistics


class Learner:
    """One adaptive method's: of all parameters, or of the layers that have it (``nuq.layers``); encoder: its number among the encoders."""

    def __init__(self, coder: Coder, encoder: int, workers: Iterable[int]) -> None:
        self.coder, self.settings, self.encoder = coder, coder.settings, encoder
        self.workers = list(workers)
        self.forget()

    def empty(self) -> Statistics:
        return Statistics.empty(self.settings.num_components)

    def forget(self) -> None:
        """Begin anew, as after every update."""
        self.statistics = {worker: self.empty() for worker in self.workers}

    def has(self, part: Part) -> bool:
        """Whether a part is cut into buckets by this method."""
        return part.encoder == self.encoder and not part.exact

    @property
    def compressor(self) -> Any:
        return self.coder.compressor

    def next_update(self, step: int) -> int | None:
        """The first update at or after ``step``; None where there is none."""
        return schedule.next_update(self.settings, step)

    def collects(self, step: int) -> bool:
        """Whether the training gradients of this step are among those behind the next update."""
        return schedule.collects(self.settings, step)

    def rows(self, device: torch.device) -> dict[int, Tensor]:
        """Every hosted worker's statistics as numbers: float64[length]."""
        return {worker: torch.from_numpy(statistics.to_array()).to(device) for worker, statistics in self.statistics.items()}

    def read(self, row: Tensor) -> Statistics:
        """One of ``rows``.  ValueError where it is none: no law has weights below zero."""
        found = Statistics.from_array(row.cpu().clone().view(torch.float64).numpy(), self.empty().num_components)
        if (found.histogram[0] < 0).any():
            raise ValueError("a worker's statistics have a weight below zero")
        return found

    def update(self, everyone: Sequence[Statistics]) -> None:
        """Better levels from all workers' statistics, in worker order."""
        merged = self.empty()
        for statistics in everyone:
            merged.merge(statistics)
        for compressor in self.coder.adaptive:
            compressor.update(merged)


def learners(coders: Coders, workers: Iterable[int]) -> list[Learner]:
    """One for every method of the encoders that is adaptive."""
    hosted, adaptive = list(workers), [isinstance(coder.compressor, AdaptiveQuantizer) for coder in coders.every]
    return [Learner(coders.every[number], number, hosted) for number, yes in enumerate(adaptive) if yes]
