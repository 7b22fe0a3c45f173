"""Updates of adaptive methods' levels: their schedule, and the statistics of the gradients behind them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext, suppress
from typing import Any

import torch
from torch import Tensor

from nuq.compressors.quantized import AdaptiveQuantizer
from nuq.errors import NonFiniteError
from nuq.exchange.collectives.collective import ExchangeStats, Vectors, WorkerPlacement, to_everyone
from nuq.exchange.compressor_map import CompressorMap, MethodState
from nuq.exchange.flat_layout import FlatLayout, Segment
from nuq.exchange.transport import Transport
from nuq.kernels.spec import Key
from nuq.kernels.statistics import Statistics
from nuq.settings.quantizers import Adaptive

_MANY_BUCKETS = 8  # in a part: that one of them is shorter then matters little


def next_update(settings: Adaptive, step: int) -> int | None:
    """The first update of the levels at or after ``step``; None where there is none."""
    listed = [at for at in settings.update_at if at >= step]
    period = settings.update_every
    if period:
        listed.append(max(-(-step // period), 1) * period)
    return min(listed, default=None)


class LevelUpdater:
    """The level updates of one adaptive method, by its encoder's number, for the parameters that have it.

    idle: no vector is encoded by it, so that nothing is ever due.
    """

    def __init__(self, method_state: MethodState, encoder: int, workers: Iterable[int], *, idle: bool = False) -> None:
        self.method_state, self.settings, self.encoder = method_state, method_state.settings, encoder
        self.idle = idle
        self.workers = list(workers)
        self.forget()

    def empty(self) -> Statistics:
        return Statistics.empty(self.settings.num_components, sketched=self.settings.objective == "mean")

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
        return None if self.idle else next_update(self.settings, step)

    @property
    def begins(self) -> bool:
        """Whether the levels are to be fitted to the present gradients, before these are sent.

        That is at step 0 of a schedule that lists it, and after it as long as gradients are zero or not finite.
        """
        return 0 in self.settings.update_at and not self.compressor.fitted and not self.idle

    def due(self, step: int) -> bool:
        """Whether the levels are updated at this step."""
        return self.begins or self.next_update(step) == step

    def collects(self, step: int) -> bool:
        """Whether the training gradients of this step are among those behind the next update."""
        due = step if self.begins else self.next_update(step)
        return due is not None and self.settings.statistics == "running" and step > due - self.settings.num_samples

    def observe(self, vector: Tensor, segments: Iterable[Segment], key: Key) -> None:
        """Add the gradient float[n] of the key's worker to its statistics; NonFiniteError where it is not finite."""
        for segment in segments:
            if self.has(segment):
                own = key.of("statistics").of(segment.key_name)
                self.compressor.observe(vector[segment.place], own, self.statistics[key.worker])

    def rows(self, device: torch.device) -> dict[int, Tensor]:
        """The statistics of every hosted worker as numbers: float64[length]."""
        return {worker: torch.from_numpy(own.to_array()).to(device) for worker, own in self.statistics.items()}

    def read(self, row: Tensor) -> Statistics:
        """The statistics in one of ``rows``; ValueError for weights below zero, which no distribution has."""
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
        self.compressor.solve()  # the levels of means may never be read


Spoil = Callable[[Statistics, Tensor], None]  # marks the statistics behind a gradient that is not finite


class LevelUpdates:
    """The level updates of all adaptive methods of an exchange, from the gradients of all its workers.

    every: a ``LevelUpdater`` for each method.  layout: of the vectors that are encoded.  Statistics are merged in
    worker order, so that all ranks have the same levels.  spoil: called for a gradient that is not finite, whose
    statistics no update uses then; without it such a gradient is passed over: encoding it says so, to all ranks.
    """

    def __init__(
        self,
        compressors: CompressorMap,
        transport: Transport,
        placement: WorkerPlacement,
        seed: int,
        stats: ExchangeStats,
        layout: FlatLayout,
    ) -> None:
        self.transport, self.placement, self.seed, self.stats = transport, placement, seed, stats
        self.spoil: Spoil | None = None
        hosted = placement.shares[transport.rank]
        self.every = [
            LevelUpdater(method_state, number, hosted, idle=not layout.encoded_by(number))
            for number, method_state in enumerate(compressors.every)
            if isinstance(method_state.compressor, AdaptiveQuantizer)
        ]

    @property
    def beginning(self) -> list[LevelUpdater]:
        """Those whose first levels are to be fitted to all of a step's gradient, before any of it is sent."""
        return [level_updater for level_updater in self.every if level_updater.begins]

    def observe(
        self, vectors: Vectors, segments: Sequence[Segment], step: int, which: Iterable[LevelUpdater] | None = None
    ) -> bool:
        """Add hosted workers' gradients to these methods' statistics, or to all; returns whether all were finite."""
        chosen, finite = list(self.every if which is None else which), True
        with self.transport.telling(), self.stats.time("levels") if chosen else nullcontext():
            for level_updater in chosen:
                for worker, vector in vectors.items():
                    statistics = level_updater.statistics[worker]
                    if _is_spoilt(statistics):
                        continue
                    try:
                        level_updater.observe(vector, segments, Key(self.seed, step, worker))
                    except NonFiniteError:
                        finite = False
                        if self.spoil is not None:
                            self.spoil(statistics, vector)
        return finite

    def update(self, which: Iterable[LevelUpdater] | None = None) -> tuple[int, Statistics] | None:
        """Update the levels of these methods, or of all, from every worker's statistics.

        Where a worker's are spoilt the levels stay; the first such worker and its statistics are returned.  A
        collective call: every rank makes it.
        """
        chosen, spoilt = list(self.every if which is None else which), None
        with self.transport.telling(), self.stats.time("levels") if chosen else nullcontext():
            for level_updater in chosen:
                everyone = [level_updater.read(row) for row in self.gathered(level_updater)]
                level_updater.forget()
                bad = next((pair for pair in enumerate(everyone) if _is_spoilt(pair[1])), None)
                if bad is None:
                    level_updater.update(everyone)
                spoilt = spoilt or bad
        return spoilt

    def gathered(self, level_updater: LevelUpdater) -> list[Tensor]:
        """The statistics of all workers as numbers float64[length], in worker order.  A collective call."""
        rows = level_updater.rows(self.transport.device)
        mine = [rows[worker].view(torch.uint8) for worker in level_updater.workers]
        length = 8 * len(level_updater.empty().to_array())
        sizes = {rank: [length] * len(share) for rank, share in enumerate(self.placement.shares)}
        received = to_everyone(self.transport, self.placement, mine, sizes, "levels")()
        return [row.clone().view(torch.float64) for row in received]


def _is_spoilt(statistics: Statistics) -> bool:
    return math.isnan(statistics.totals[0])


def fit_levels(compressors: CompressorMap, vector: Tensor, segments: Sequence[Segment], key: Key) -> None:
    """Fit adaptive methods' levels to the one vector that is about to be sent; levels travel with the message.

    A vector that is not finite, or whose norm is not, is left to the encoder, which names it.  segments: as they are
    encoded, since the coordinates of shorter buckets have another distribution.  ValueError for ``objective='mean'``,
    which takes all workers' statistics.
    """
    if not compressors.adaptive:
        return
    if compressors.adaptive[0].settings.objective == "mean":
        why = "nuq.all_reduce and FSDP fit levels on each rank to its own gradient alone"
        remedy = "leave it out, or use the DDP hook or main.py, which gather all workers' statistics"
        raise ValueError(f"objective='mean': {why}; {remedy}")
    if all(segment.exact for segment in segments) or not bool(torch.isfinite(vector).all()):
        return
    # the vector is sampled once, not once a segment
    if min((segment.size for segment in segments), default=0) >= _MANY_BUCKETS * compressors.settings.bucket_size:
        segments = [Segment("all", 0, vector.numel())]
    key = key.of("statistics")
    with suppress(NonFiniteError):  # of a norm that overflows
        statistics = compressors.compressor.observed((vector[own.place], key.of(own.key_name)) for own in segments)
        for compressor in compressors.adaptive:
            compressor.update(statistics)
        compressors.compressor.solve()
