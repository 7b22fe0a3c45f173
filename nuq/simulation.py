"""The simulation of workers: those that this process hosts, and their exchange with all others.

M workers are dealt to the processes in contiguous blocks: all of them to one process (the paper's simulation), one to
each (``torchrun --nproc-per-node=M``), or anything between.  Every worker's gradient becomes a payload of messages; a
collective (``nuq.exchange.collectives``) decodes them in worker order, adds them in float32 and multiplies
once by ``float32(1/M)``: the same arithmetic in every split, so the same bits on CPU.

A worker that meets a non-finite gradient, and a process that was asked to stop, say so in the small control message of
the same exchange, so that all processes leave together.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from nuq.errors import NonFiniteError
from nuq.exchange import gathered_state
from nuq.exchange.agreement import gathered_verdicts
from nuq.exchange.collectives.collective import nothing_left
from nuq.exchange.collectives.means import scale
from nuq.exchange.compressor_map import CompressorMap
from nuq.exchange.driver import Driver, Memory
from nuq.exchange.exchanged import BadGradientError, Exchanged
from nuq.exchange.finite import first_not_finite, largest, surely_finite
from nuq.exchange.flat_layout import of_parameters
from nuq.exchange.level_updates import LevelUpdater
from nuq.exchange.parts import Part, parts_of
from nuq.exchange.payload import RemoteNonFinite
from nuq.exchange.transport import Transport
from nuq.kernels.spec import Key
from nuq.kernels.statistics import Statistics
from nuq.settings import layers as layer_list
from nuq.settings.exchange import Exchange


@dataclass
class Begun:
    """A mean on its way, float32[n], which is there once ``end`` was called; encoded: bytes as ``ExchangeStats``."""

    mean: Tensor
    encoded: Counter[str]
    end: Callable[[], None]


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
        timeout_s: float | None = None,
        memory: Memory | None = None,
        layers: Sequence[str] = (),
    ) -> None:
        exchange = exchange or Exchange()
        self.settings, self.parameters, self.seed, self.device = settings, parameters, seed, device
        self.compressors = CompressorMap(name, settings, exchange.second_bits, layer_list.parsed(layers, beside=name))
        self.compressors.assign(parameters)
        self.layout = self.compressors.arrange(parameters)
        self.model_layout = of_parameters(parameters)  # of a gradient as it is given
        self.transport = Transport(group, timeout_s=timeout_s, device=device)
        if self.transport.world > num_workers:
            raise ValueError(
                f"{self.transport.world} processes for workers={num_workers}: every process needs at least one worker"
            )
        with self.transport.telling():
            how = (exchange, self.transport, num_workers, seed)
            self.driver = Driver(self.compressors, self.layout, *how, memory=memory)
        self.num_workers, self.hosted = self.driver.num_workers, self.driver.hosted
        self.levels = self.driver.levels
        self._whole = Part(tuple(self.layout.arranged(list(parameters))), self.layout, 0)

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

    def parts(self, count: int, every: int) -> list[Part]:
        """The parts of the model in a round of ``every`` local steps (``parts_of``)."""
        return parts_of(self.parameters, count, every, self.compressors.arrange)

    def _named(self, vector: Tensor, part: Part) -> dict[str, Tensor]:
        """The parameters of a part's vector, flat, in the model's order."""
        sizes = [self.parameters[name].numel() for name in part.names]
        pieces = dict(zip(part.names, vector.split(sizes), strict=True))
        return {name: pieces[name] for name in self.parameters if name in pieces}

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
        """The vectors that one encoder is given: one named ``model`` (``Layer.vector_name``), or one per parameter."""
        flat = self._vector(gradient)
        return {own.name: flat[own.place] for own in self.layout.segments if own.encoder == encoder}

    # --- one step ---

    def agree(
        self, bad: Mapping[int, int | None], losses: Mapping[int, float], step: int, *, stop: bool
    ) -> tuple[list[float], bool]:
        """The losses of all workers, in order, and whether any process was asked to stop, on all processes alike.

        bad: of every hosted worker the number of the parameter whose gradient is not finite, or None, as
        ``first_bad`` finds it.  BadGradientError, on all processes alike, names the step, the worker and the parameter
        (or the loss).
        """
        return self._agreed(bad, losses, step, stop=stop, unused=False)[:2]

    def _agreed(
        self, bad: Mapping[int, int | None], losses: Mapping[int, float], step: int, *, stop: bool, unused: bool
    ) -> tuple[list[float], bool, bool]:
        """As ``agree``, and whether any worker did not use all parameters."""
        numbers, mine = [bad[worker] for worker in self.hosted], [losses[worker] for worker in self.hosted]
        words = {"stop": stop, "unused": unused}
        numbers, every_loss, stop, unused = gathered_verdicts(
            self.transport, self.driver.placement, numbers, mine, **words
        )
        for worker, (number, loss) in enumerate(zip(numbers, every_loss, strict=True)):
            if number is not None:
                raise BadGradientError(self._not_finite(step, worker, number), every_loss, stop)
            if not math.isfinite(loss):
                raise BadGradientError(f"step {step}: the loss on worker {worker} is {loss}", every_loss, stop)
        return every_loss, stop, unused

    def first_bad(self, gradients: Mapping[int, Tensor]) -> dict[int, int | None]:
        """The number of each vector's first parameter that is not finite, or None; in the model's order."""
        finite, views = surely_finite(list(gradients.values())), self.model_layout.views
        return {of: None if finite else first_not_finite(views(vector)) for of, vector in gradients.items()}

    def exchange(
        self,
        gradients: Mapping[int, Tensor],
        losses: Mapping[int, float],
        step: int,
        *,
        stop: bool = False,
        unused: Mapping[int, Collection[str]] | None = None,
    ) -> Exchanged:
        """The mean of the hosted workers' and all others' gradients, by the collective of the settings.

        gradients: flat vectors float32[n] in the model's order, one for every hosted worker, as are losses.  unused:
        by worker, the parameters that it did not use, whose gradients are zero.  What is remembered of one that no
        worker used stays as it is, as under DDP.
        NonFiniteError, on all processes alike, names the step, the worker and the parameter (or the loss);
        BadGradientError where that is known before anything is encoded.
        """
        with self.transport.telling():
            gradients = {worker: gradients[worker] for worker in self.hosted}
            mine = {worker: frozenset((unused or {}).get(worker, ())) for worker in self.hosted}
            bad, some = self.first_bad(gradients), any(mine.values())
            every_loss, stop, some = self._agreed(bad, losses, step, stop=stop, unused=some)
            by_none = self._used_by_none(mine) if some else frozenset()
            vectors = {of: self._vector(one) for of, one in gradients.items()}
            begun = self._begin(vectors, self._whole, step, step, "gradient", by_none)
            begun.end()
        mean, encoded = self._restored(begun.mean), begun.encoded
        for name, piece in zip(self.parameters, mean.split(self._sizes), strict=True) if by_none else ():
            if name in by_none:
                piece.zero_()
        return Exchanged(mean, every_loss, encoded.total(), stop, encoded["means"], by_none)

    def _used_by_none(self, unused: Mapping[int, Collection[str]]) -> frozenset[str]:
        """The parameters that no worker used, from those that each one hosted here did not."""
        rows = {of: [name in names for name in self.parameters] for of, names in unused.items()}
        mine = {of: torch.tensor(row, dtype=torch.uint8, device=self.device) for of, row in rows.items()}
        none = torch.stack(self.driver.gather(mine, "control")).amin(dim=0).tolist()
        return frozenset(name for name, by_none in zip(self.parameters, none, strict=True) if by_none)

    def begin(self, moves: Mapping[int, Tensor], part: Part, step: int, number: int) -> Begun:
        """Begin the mean of what the hosted workers moved a part by, and all others.

        moves: its vectors float32[n], one for every hosted worker.  number: of the round, by which methods draw and
        follow their schedules.  Means end in the order in which they began, before levels change, on all processes
        after the same step.  NonFiniteError as that of ``exchange``, from here or from the end.
        """
        return self._begin(moves, part, step, number, "move")

    def _begin(
        self,
        vectors: Mapping[int, Tensor],
        part: Part,
        step: int,
        number: int,
        what: str,
        unused: Collection[str] = (),
    ) -> Begun:
        before, named = self.driver.stats.encoded.copy(), functools.partial(self._at_fault, vectors, part, step, what)
        mean = torch.empty(part.layout.num_coordinates, dtype=torch.float32, device=self.device)
        sizes = {name: self.parameters[name].numel() for name in part.names if unused}
        idle = part.layout.within(sizes, unused)
        with named():
            arrived = self.driver.begin(vectors, part.layout, Key(self.seed, number, 0), mean, idle)
        encoded = self.driver.stats.encoded - before

        def end() -> None:
            with named():
                arrived()

        if self.transport.world == 1:  # nothing is on its way, and no vector is kept for it
            end()
        return Begun(mean, encoded, end if self.transport.world > 1 else nothing_left)

    @contextmanager
    def _at_fault(self, vectors: Mapping[int, Tensor], part: Part, step: int, what: str) -> Iterator[None]:
        """Name the step, the worker and the parameter where an exchange meets what is not finite."""
        try:
            yield
        except RemoteNonFinite as marked:  # such coordinates, or finite ones whose norm overflows
            numbers = torch.tensor(
                [self._suspect(vectors[worker], part) for worker in self.hosted], dtype=torch.int64, device="cpu"
            )
            suspects = dict(zip(self.hosted, numbers, strict=True))
            number = int(self.driver.gather(suspects)[marked.worker])
            raise NonFiniteError(self._not_finite(step, marked.worker, number, what)) from marked
        except NonFiniteError as error:
            raise NonFiniteError(f"step {step}: {error}") from error

    def _suspect(self, vector: Tensor, part: Part) -> int:
        """The number in the model of a part's first parameter that is not finite, or else of the largest one."""
        views = self._named(vector, part)
        bad = first_not_finite(views.values())
        return list(self.parameters).index(list(views)[largest(list(views.values())) if bad is None else bad])

    def _not_finite(self, step: int, worker: int, number: int, what: str = "gradient") -> str:
        name = list(self.parameters)[number]
        return f"step {step}: the {what} of {name!r} on worker {worker} is not finite or overflows float32"

    # --- levels ---

    def observe(
        self,
        gradients: Mapping[int, Tensor],
        step: int,
        which: Sequence[LevelUpdater] | None = None,
        part: Part | None = None,
    ) -> None:
        """Add the hosted workers' gradients of a step to the statistics of these methods, or of all.

        part: whose vectors are given in place of gradients.  A gradient that is left out adds nothing.  One that is not
        finite makes the statistics useless: ``update_levels`` says so, on all processes together.
        """
        vectors = {worker: gradients[worker] for worker in self.hosted if worker in gradients}
        if part is None:
            part, vectors = self._whole, {worker: self._vector(one) for worker, one in vectors.items()}
        self.levels.spoil = functools.partial(self._spoil, part)
        self.levels.observe(vectors, part.layout.segments, step, which)

    def update_levels(self, which: Sequence[LevelUpdater] | None = None) -> str | None:
        """Update these methods' levels, or all, on every process alike.

        Where a gradient behind the statistics was not finite levels stay; its parameter and worker are returned.
        """
        spoilt = self.levels.update(which)
        return spoilt and f"{list(self.parameters)[int(spoilt[1].totals[1])]!r} on worker {spoilt[0]}"

    def _spoil(self, part: Part, statistics: Statistics, vector: Tensor) -> None:
        """Mark the statistics behind a vector that is not finite, with the number of the parameter."""
        statistics.totals[:] = math.nan, self._suspect(vector, part), 0.0

    # --- checkpoints ---

    def state_dict(self) -> dict[str, Any]:
        """The state, the same in every split; every process must call it, since it gathers."""
        return gathered_state.state_dict(self.driver)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        gathered_state.load_state_dict(self.driver, state, self.device)
