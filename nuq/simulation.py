"""The simulation of workers: those that this process hosts, and their exchange with all others.

M workers are dealt to the processes in contiguous blocks: all of them to one process (the paper's simulation), one to
each (``torchrun --nproc-per-node=M``), or anything between.  Every worker's gradient becomes a payload of messages; a
collective (``nuq.exchange.collectives``) decodes them in worker order, adds them in float32 and multiplies
once by ``float32(1/M)``: the same arithmetic in every split, so the same bits on CPU.

A worker that meets a non-finite gradient, and a process that was asked to stop, say so in the small control message of
the same exchange, so that all processes leave together.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from nuq.compressors.feedback import ErrorFeedback
from nuq.errors import NonFiniteError
from nuq.exchange.collective_factory import build
from nuq.exchange.collectives.collective import ExchangeStats, WorkerPlacement
from nuq.exchange.collectives.means import scale
from nuq.exchange.compressor_map import CompressorMap, by_encoder
from nuq.exchange.finite import first_not_finite, largest, surely_finite
from nuq.exchange.flat_layout import of_parameters
from nuq.exchange.level_updates import LevelUpdater, level_updaters
from nuq.exchange.payload import RemoteNonFinite
from nuq.exchange.transport import Transport
from nuq.kernels.spec import Key
from nuq.settings import layers as layer_list
from nuq.settings.exchange import Exchange
from nuq.settings.feedback import Feedback


@dataclass(frozen=True)
class Exchanged:
    """The result of one exchange: the mean gradient as one flat float32 vector, and what the exchange took.

    bytes_per_worker: of the messages, and of the means in a second encoding, that the first worker encoded, however
    often they travelled: the same in every split.  means_bytes: the means' share of them.
    """

    mean: Tensor
    losses: list[float]
    bytes_per_worker: int
    stop: bool
    means_bytes: int = 0

    @property
    def bits_per_coordinate(self) -> float:
        return 8 * self.bytes_per_worker / max(self.mean.numel(), 1)

    @property
    def means_bits_per_coordinate(self) -> float:
        """The share of the means in ``bits_per_coordinate``."""
        return 8 * self.means_bytes / max(self.mean.numel(), 1)


class BadGradientError(NonFiniteError):
    """The error for a worker's gradient or loss that is not finite.

    All processes know before anything is encoded, so no memory has changed.

    losses: of all workers; stop: whether any process was asked to stop.
    """

    def __init__(self, why: str, losses: list[float], stop: bool) -> None:
        super().__init__(why)
        self.losses, self.stop = losses, stop


@dataclass(frozen=True)
class Memory:
    """The memory of the workers.

    momentum, nesterov: the optimizer's, where it acts in the workers.
    """

    feedback: Feedback
    momentum: float = 0.0
    nesterov: bool = False


class Workers:
    """The workers that this process hosts, and their exchange with those of other processes.

    parameters: name -> shape of every parameter, in order; group: None for one process that hosts all workers.

    layers: lines of ``nuq.settings.layers`` for parameters with a method of their own; the others take ``name`` and
    ``settings``.  exchange: the collective and what it reads; gather, unless told otherwise.  timeout_s: after which a
    silent rank counts as lost (RankLost, from everything that exchanges).  memory: of what messages leave out;
    ``encode`` and ``average``, which only measure, have none.
    """

    def __init__(
        self,
        name: str,
        settings: Any,
        num_workers: int,
        parameters: dict[str, torch.Size],
        seed: int,
        device: torch.device,
        group: dist.ProcessGroup | None = None,
        exchange: Exchange | None = None,
        timeout_s: float = 300.0,
        memory: Memory | None = None,
        layers: Sequence[str] = (),
    ) -> None:
        exchange = exchange or Exchange()
        self.compressors = CompressorMap(name, settings, exchange.second_bits, layer_list.parsed(layers, beside=name))
        self.num_workers = 1 if self.compressors.single_worker else num_workers
        self.settings = settings
        self.parameters = parameters
        self.compressors.assign(parameters)
        self.layout = self.compressors.arrange(parameters)
        self.model_layout = of_parameters(parameters)  # of a gradient as it is given
        self.seed = seed
        self.device = device
        self.group = group
        self.transport = Transport(group, timeout_s=timeout_s, device=device)
        if self.transport.world > num_workers:
            raise ValueError(
                f"{self.transport.world} processes for workers={num_workers}: every process needs at least one worker"
            )
        self.placement = WorkerPlacement.of(self.num_workers, self.transport.world)
        self.hosted = self.placement.shares[self.transport.rank]
        self.stats = ExchangeStats()
        if memory is not None:
            self.compressors.remember(
                memory.feedback, self.layout, self.num_workers, momentum=memory.momentum, nesterov=memory.nesterov
            )
        self.collective_name, self.collective = build(
            self.compressors, exchange, self.transport, self.placement, self.stats
        )
        self.level_updaters = level_updaters(self.compressors, self.hosted)

    # --- vectors ---

    @property
    def compressor(self) -> Any:
        """The compressor of the parameters without a method of their own."""
        return self.compressors.compressor

    @property
    def num_coordinates(self) -> int:
        return self.model_layout.num_coordinates

    def encode(self, gradient: Tensor, key: Key) -> Tensor:
        """The payload of one worker: uint8[bytes]."""
        return self.compressors.bare.encode(self._vector(gradient), self.layout, key)

    def _vector(self, gradient: Tensor) -> Tensor:
        return self.layout.from_model(gradient, self._sizes)

    def _restored(self, vector: Tensor) -> Tensor:
        """A vector in the model's order."""
        return self.layout.restored(vector, self._sizes)

    @property
    def _sizes(self) -> list[int]:
        return [segment.size for segment in self.model_layout.segments]

    def average(self, payloads: Sequence[Tensor]) -> Tensor:
        """The mean of payloads: decoded, added in worker order and multiplied once by float32(1/M)."""
        total = torch.zeros(self.num_coordinates, dtype=torch.float32, device=self.device)
        for payload in payloads:
            self.compressors.bare.add(payload, self.layout, total)
        scale(total, len(payloads))
        return self._restored(total)

    def vectors(self, gradient: Tensor, encoder: int = 0) -> dict[str, Tensor]:
        """The vectors that one encoder is given, by name.

        There is one named ``model`` (``Layer.vector_name``), or one per parameter.
        """
        flat = self._vector(gradient)
        return {own.name: flat[own.place] for own in self.layout.segments if own.encoder == encoder}

    # --- one step ---

    def exchange(
        self, gradients: Mapping[int, Tensor], losses: Mapping[int, float], step: int, *, stop: bool = False
    ) -> Exchanged:
        """The mean of the hosted workers' and all others' gradients, by the collective of the settings.

        gradients: flat vectors float32[n] in the model's order, one for every hosted worker, as are losses.
        NonFiniteError, on all processes alike, names the step, the worker and the parameter (or the loss);
        BadGradientError where that is known before anything is encoded.
        """
        vectors = {worker: self._vector(gradients[worker]) for worker in self.hosted}
        finite = surely_finite(list(vectors.values()))
        views = self.model_layout.views
        bad = [None if finite else first_not_finite(views(gradients[worker])) for worker in self.hosted]
        bad, every_loss, stop = self._agree(bad, [losses[worker] for worker in self.hosted], stop)
        for worker, (number, loss) in enumerate(zip(bad, every_loss, strict=True)):
            if number is not None:
                raise BadGradientError(self._not_finite(step, worker, number), every_loss, stop)
            if not math.isfinite(loss):
                raise BadGradientError(f"step {step}: the loss on worker {worker} is {loss}", every_loss, stop)
        before = self.stats.encoded.copy()
        mean = torch.empty(self.num_coordinates, dtype=torch.float32, device=self.device)
        try:
            self.collective.mean(vectors, self.layout, Key(self.seed, step, 0), mean)
        except RemoteNonFinite as marked:  # finite coordinates whose norm overflows
            suspects = {worker: torch.tensor(largest(views(gradients[worker]))) for worker in self.hosted}
            number = int(self.gather_tensors(suspects)[marked.worker])
            raise NonFiniteError(self._not_finite(step, marked.worker, number)) from marked
        except NonFiniteError as error:
            raise NonFiniteError(f"step {step}: {error}") from error
        encoded = self.stats.encoded - before
        return Exchanged(self._restored(mean), every_loss, encoded.total(), stop, encoded["means"])

    def _not_finite(self, step: int, worker: int, number: int) -> str:
        return (
            f"step {step}: the gradient of {list(self.parameters)[number]!r} on worker {worker} is not finite or "
            f"overflows float32"
        )

    def _agree(
        self, bad: list[int | None], losses: list[float], stop: bool
    ) -> tuple[list[int | None], list[float], bool]:
        """Every worker's first non-finite parameter and loss, in worker order, and whether any process should stop."""
        if self.group is None:
            return bad, losses, stop
        empty = [0] * (self.placement.most - len(bad))
        numbers = [-1 if number is None else number for number in bad]
        mine = torch.tensor(
            [[*numbers, *empty, int(stop)], [*losses, *empty, 0]], dtype=torch.float64, device=self.device
        )
        rows = self.transport.all_gather(mine, "control")
        table = [row.cpu()[:, : len(share)] for row, share in zip(rows, self.placement.shares, strict=True)]
        found = [int(number) for row in table for number in row[0]]
        told = [number if number >= 0 else None for number in found]
        return told, [float(loss) for row in table for loss in row[1]], any(bool(row[0, -1]) for row in rows)

    def gather_tensors(self, mine: dict[int, Tensor], purpose: str = "tensors") -> list[Tensor]:
        """Equally shaped tensors of all workers, in worker order; ``mine`` holds the hosted ones."""
        if self.group is None:
            return [mine[worker] for worker in self.hosted]
        sample = self._shape_of(mine)
        rows = torch.zeros(self.placement.most, *sample[0], dtype=sample[1], device=self.device)
        for slot, worker in enumerate(self.hosted):
            rows[slot] = mine[worker]
        received = self.transport.all_gather(rows, purpose)
        return [
            block[slot]
            for share, block in zip(self.placement.shares, received, strict=True)
            for slot in range(len(share))
        ]

    def _shape_of(self, mine: dict[int, Tensor]) -> tuple[list[int], torch.dtype]:
        """The shape and the dtype of the gathered tensors, which the first process tells.

        They are known also where this process hosts no worker.
        """
        sample = mine[self.hosted[0]] if self.hosted else torch.empty(0)
        shape, dtype = json.loads(
            self.transport.texts(json.dumps([list(sample.shape), str(sample.dtype)]), "control")[0]
        )
        return shape, getattr(torch, dtype.removeprefix("torch."))

    def settle(self) -> None:
        """Read what a server left unread.  Every process calls it after the same exchange, before the ranks part."""
        self.collective.settle()

    @property
    def network_bytes(self) -> int:
        """The bytes that this process has handed to the network for exchanges and levels, beside what carries them."""
        every = [self.transport, *self.collective.inner_transports]
        return sum(transport.bytes_sent.total() for transport in every)

    # --- levels ---

    @property
    def adaptive(self) -> bool:
        """Whether any method is adaptive: ``level_updaters`` has one entry for each that is."""
        return bool(self.level_updaters)

    def next_update(self, step: int) -> int | None:
        """The first update of any method at or after ``step``; None where there is none."""
        return min(
            (at for level_updater in self.level_updaters if (at := level_updater.next_update(step)) is not None),
            default=None,
        )

    def collects(self, step: int) -> bool:
        """Whether the training gradients of this step are among those behind a next update."""
        return any(level_updater.collects(step) for level_updater in self.level_updaters)

    def observe(
        self, gradients: Mapping[int, Tensor], step: int, level_updaters: Sequence[LevelUpdater] | None = None
    ) -> None:
        """Add the hosted workers' gradients of a step to the statistics of these methods, or of all.

        The statistics are those behind the next update.  A gradient that is left out adds nothing.  One that is not
        finite makes them useless: ``update_levels`` says so, on all processes together.
        """
        for level_updater in self.level_updaters if level_updaters is None else level_updaters:
            for worker, statistics in level_updater.statistics.items():
                gradient = gradients.get(worker)
                if gradient is None or math.isnan(statistics.totals[0]):
                    continue
                try:
                    level_updater.observe(self._vector(gradient), self.layout.segments, Key(self.seed, step, worker))
                except NonFiniteError:
                    parts = self.model_layout.views(gradient)
                    bad = first_not_finite(parts)
                    statistics.totals[:] = math.nan, largest(parts) if bad is None else bad, 0.0

    def update_levels(self, level_updaters: Sequence[LevelUpdater] | None = None) -> str | None:
        """Merge all workers' statistics on every process alike, and update the levels of these methods, or of all.

        They are merged in worker order.

        Where a gradient behind the statistics was not finite the levels stay, and its parameter and worker are
        returned.
        """
        found: list[str] = []
        for level_updater in self.level_updaters if level_updaters is None else level_updaters:
            everyone = [level_updater.read(row) for row in self._gathered_statistics(level_updater)]
            level_updater.forget()
            bad = next((worker for worker, statistics in enumerate(everyone) if math.isnan(statistics.totals[0])), None)
            if bad is None:
                level_updater.update(everyone)
            else:
                found.append(f"{list(self.parameters)[int(everyone[bad].totals[1])]!r} on worker {bad}")
        return found[0] if found else None

    def _gathered_statistics(self, level_updater: LevelUpdater) -> list[Tensor]:
        return self.gather_tensors(level_updater.rows(self.device), "levels")

    # --- checkpoints ---

    def state_dict(self) -> dict[str, Any]:
        """The state, the same in every split; every process must call it, since it gathers."""
        state = self.compressors.state_dict()
        for method_state, own in zip(self.compressors.every, by_encoder(state), strict=True):
            own["statistics"] = []
            if "by_worker" in own["compressor"]:
                own["compressor"]["by_worker"] = self._of_every_worker(own["compressor"]["by_worker"])
            if method_state.memories:
                own["memories"] = [self._gathered_memory(around) for around in method_state.memories]
        for level_updater in self.level_updaters:
            by_encoder(state)[level_updater.encoder]["statistics"] = [
                row.cpu() for row in self._gathered_statistics(level_updater)
            ]
        return state

    def _gathered_memory(self, around: ErrorFeedback) -> dict[str, Any]:
        """The memory of every worker, on every process alike; zeros where a worker has none yet."""
        found: dict[int, dict[str, dict[str, Tensor]]] = {
            w: {kind: {} for kind in around.kinds} for w in range(self.num_workers)
        }
        for kind in around.kinds:
            for name, size in around.sizes.items():
                nothing = torch.zeros(size, dtype=torch.float32, device=self.device)
                mine = {
                    worker: around.memories.get(worker, {}).get(kind, {}).get(name, nothing) for worker in self.hosted
                }
                for worker, row in enumerate(self.gather_tensors(mine)):
                    found[worker][kind][name] = row.cpu()
        return {"kinds": list(around.kinds), "workers": found}

    def _of_every_worker(self, kept: dict[int, Any]) -> dict[int, Any]:
        """The states that methods keep for the hosted workers and for all others, on every process alike."""
        told = self.transport.texts(
            json.dumps({worker: kept[worker] for worker in self.hosted if worker in kept}), "control"
        )
        return {int(worker): own for text in told for worker, own in json.loads(text).items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        here = [self._hosted_here(own) for own in by_encoder(state)]
        older = {"second": self.compressors.mean_compressor.compressor.state_dict()}  # before there was one
        self.compressors.load_state_dict({**older, **here[0], "layers": here[1:]}, self.device)
        for level_updater in self.level_updaters:
            saved = by_encoder(state)[level_updater.encoder]["statistics"]
            level_updater.statistics = {worker: level_updater.read(saved[worker]) for worker in level_updater.workers}

    def _hosted_here(self, state: dict[str, Any]) -> dict[str, Any]:
        """An encoder's state with the memories of the workers hosted here alone."""
        return {
            **state,
            "memories": [
                {**m, "workers": {w: m["workers"][w] for w in self.hosted}} for m in state.get("memories", ())
            ],
        }
