"""Updates of adaptive methods' levels: their schedule, and statistics of the gradients of the workers hosted here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from nuq.compressors.quantized import AdaptiveQuantizer
from nuq.errors import NonFiniteError
from nuq.exchange.collectives.collective import ExchangeStats
from nuq.exchange.compressor_map import CompressorMap, MethodState
from nuq.exchange.flat_layout import Segment
from nuq.exchange.transport import Transport
from nuq.kernels.spec import Key
from nuq.kernels.statistics import Statistics
from nuq.levels import update_times


class LevelUpdater:
    """The level updates of one adaptive method, for all parameters or for the layers that have it.

    The layers are those of ``nuq.settings.layers``.  encoder: its number among the encoders.
    """

    def __init__(self, method_state: MethodState, encoder: int, workers: Iterable[int]) -> None:
        self.method_state, self.settings, self.encoder = method_state, method_state.settings, encoder
        self.workers = list(workers)
        self.forget()

    def empty(self) -> Statistics:
        return Statistics.empty(self.settings.num_components)

    def forget(self) -> None:
        """Empty the statistics, as after every update."""
        self.statistics = {worker: self.empty() for worker in self.workers}

    def has(self, segment: Segment) -> bool:
        """Whether a segment is cut into buckets by this method."""
        return segment.encoder == self.encoder and not segment.exact

    @property
    def compressor(self) -> Any:
        return self.method_state.compressor

    def next_update(self, step: int) -> int | None:
        """The first update at or after ``step``; None where there is none."""
        return update_times.next_update(self.settings, step)

    @property
    def begins(self) -> bool:
        """Whether the levels are to be fitted to the present gradients, before these are sent.

        They are fitted as soon as there are gradients to fit them to: at step 0 of a schedule that lists it, and after
        it as long as gradients are zero or not finite.
        """
        return 0 in self.settings.update_at and not self.compressor.fitted

    def due(self, step: int) -> bool:
        """Whether the levels are updated at this step."""
        return self.begins or self.next_update(step) == step

    def collects(self, step: int) -> bool:
        """Whether the training gradients of this step are among those behind the next update."""
        due = step if self.begins else self.next_update(step)
        return due is not None and self.settings.statistics == "running" and step > due - self.settings.num_samples

    def observe(self, vector: Tensor, segments: Iterable[Segment], key: Key) -> None:
        """Add one worker's gradient float[n], in segments, to its statistics.

        key: of seed, step and worker.

        NonFiniteError for one that is not finite.
        """
        key = replace(key, parameter="statistics")
        for segment in segments:
            if self.has(segment):
                self.compressor.observe(vector[segment.place], key.of(segment.name), self.statistics[key.worker])

    def rows(self, device: torch.device) -> dict[int, Tensor]:
        """The statistics of every hosted worker as numbers: float64[length]."""
        return {
            worker: torch.from_numpy(statistics.to_array()).to(device) for worker, statistics in self.statistics.items()
        }

    def read(self, row: Tensor) -> Statistics:
        """The statistics in one of ``rows``.

        ValueError where it holds none: no distribution has weights below zero.
        """
        found = Statistics.from_array(row.cpu().clone().view(torch.float64).numpy(), self.empty().num_components)
        if (found.histogram[0] < 0).any():
            raise ValueError("a worker's statistics have a weight below zero")
        return found

    def update(self, everyone: Sequence[Statistics]) -> None:
        """Update the levels from all workers' statistics, in worker order."""
        merged = self.empty()
        for statistics in everyone:
            merged.merge(statistics)
        for compressor in self.method_state.adaptive:
            compressor.update(merged)


def level_updaters(compressors: CompressorMap, workers: Iterable[int]) -> list[LevelUpdater]:
    """The level updaters, one for every adaptive method of the encoders."""
    hosted = list(workers)
    adaptive = [isinstance(method_state.compressor, AdaptiveQuantizer) for method_state in compressors.every]
    return [LevelUpdater(compressors.every[number], number, hosted) for number, yes in enumerate(adaptive) if yes]


class RankLevels:
    """The levels of one rank's methods, where several vectors make up a step's gradient, each seen once (``nuq.ddp``).

    An update comes before a step, from the gradients of steps before it; only the first levels are fitted to the step's
    own.
    """

    def __init__(self, compressors: CompressorMap, transport: Transport, seed: int, stats: ExchangeStats) -> None:
        self.level_updaters = level_updaters(compressors, [transport.rank])
        self.transport, self.seed, self.stats = transport, seed, stats

    @property
    def begins(self) -> bool:
        """Whether ``begin`` is due: with all of a step's gradient, before any of it is sent."""
        return any(level_updater.begins for level_updater in self.level_updaters)

    def begin(self, pieces: Sequence[tuple[Tensor, Segment]], step: int) -> None:
        """Fit the first levels to the gradients of this step, without the ranks where they are not finite.

        It is a collective call, as ``update``.
        """
        for level_updater in (level_updater for level_updater in self.level_updaters if level_updater.begins):
            level_updater.forget()
            try:
                for vector, part in pieces:
                    self._observe(level_updater, vector, [part], step)
            except NonFiniteError:
                level_updater.forget()
            self._update(level_updater)

    def observe(self, vector: Tensor, segments: Sequence[Segment], step: int) -> None:
        """Add this rank's gradient to the statistics behind the updates before the next steps."""
        for level_updater in self.level_updaters:
            if level_updater.collects(step + 1) and not level_updater.begins:
                with suppress(NonFiniteError):  # encoding it says so, to all ranks
                    self._observe(level_updater, vector, segments, step)

    def update(self, step: int) -> None:
        """Make the updates that are due before this step.  A collective call: every rank makes it."""
        for level_updater in self.level_updaters if step > 0 else ():
            if level_updater.next_update(step) == step:
                self._update(level_updater)

    def _observe(self, level_updater: LevelUpdater, vector: Tensor, segments: Sequence[Segment], step: int) -> None:
        with self.stats.time("levels"):
            level_updater.observe(vector, segments, Key(self.seed, step, self.transport.rank))

    def _update(self, level_updater: LevelUpdater) -> None:
        """Update the levels from every rank's statistics, merged in rank order: the same levels on all ranks.

        Each rank sends its statistics in one small message.
        """
        with self.stats.time("levels"):
            data = level_updater.rows(self.transport.device)[self.transport.rank].view(torch.uint8)
            level_updater.forget()
            level_updater.update(
                [
                    level_updater.read(row)
                    for row in self.transport.to_all(data, [data.numel()] * self.transport.world, "levels")
                ]
            )

    def rows(self, device: torch.device) -> dict[int, Tensor]:
        """The statistics of this rank by the number of the encoder, to be saved."""
        return {
            level_updater.encoder: level_updater.rows(device)[self.transport.rank]
            for level_updater in self.level_updaters
        }

    def go_on(self, statistics: Sequence[Statistics]) -> None:
        """Continue from the statistics that each of ``level_updaters`` has seen."""
        for level_updater, found in zip(self.level_updaters, statistics, strict=True):
            level_updater.statistics = {self.transport.rank: found}
