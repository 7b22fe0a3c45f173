"""The workers that this process hosts, and their exchange with all others.

M workers are dealt to the processes in contiguous blocks: all of them to one process (the paper's simulation), one to
each (``torchrun --nproc-per-node=M``), or anything between.  Every worker's gradient becomes a payload of messages, all
payloads are gathered, and every process decodes them in worker order, adds them in float32 and multiplies once by
``float32(1/M)``: the same arithmetic in every split, so the same bits on CPU.

A worker that meets a non-finite gradient, and a process that was asked to stop, say so in the small control message of
the same exchange, so that all processes leave together.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from nuq.compressors import Compressor
from nuq.compressors.quantized import AdaptiveQuantizer, Quantizer
from nuq.message import MessageError, split_payload
from nuq.ops import Key, NonFiniteError
from nuq.registry import method
from nuq.statistics import Statistics

Gradient = Sequence[Tensor]  # one tensor per parameter, in the model's order

_ABSENT, _NON_FINITE = -1, -2  # sizes that are no sizes; from _NON_FINITE downwards: the parameter's number


@dataclass(frozen=True)
class Exchange:
    """What one exchange gave: the mean gradient as one flat float32 vector, and what it took."""

    mean: Tensor
    losses: list[float]
    bytes_per_worker: int
    stop: bool

    @property
    def bits_per_coordinate(self) -> float:
        return 8 * self.bytes_per_worker / max(self.mean.numel(), 1)


class Workers:
    """parameters: name -> shape of every parameter, in order; group: None for one process that hosts all workers."""

    def __init__(
        self,
        name: str,
        settings: Any,
        num_workers: int,
        parameters: dict[str, torch.Size],
        seed: int,
        device: torch.device,
        group: dist.ProcessGroup | None = None,
    ) -> None:
        entry = method(name)
        self.num_workers = 1 if entry.single_worker else num_workers
        self.settings = settings
        self.compressor: Compressor = entry.load()(settings)
        self.parameters = parameters
        self.seed = seed
        self.device = device
        self.group = group
        self.rank, self.world = (dist.get_rank(group), dist.get_world_size(group)) if group is not None else (0, 1)
        if self.world > num_workers:
            raise ValueError(f"{self.world} processes for workers={num_workers}: every process needs at least one worker")
        bounds = [self.num_workers * rank // self.world for rank in range(self.world + 1)]
        if bounds[1] == 0:  # the single worker lives in the first process
            bounds = [0] + [self.num_workers] * self.world
        self._hosted_by = [range(bounds[rank], bounds[rank + 1]) for rank in range(self.world)]
        self.hosted = self._hosted_by[self.rank]
        self._slots = max(len(share) for share in self._hosted_by)
        self._statistics = {worker: self._no_statistics() for worker in self.hosted}

    # --- vectors ---

    @property
    def num_coordinates(self) -> int:
        return sum(shape.numel() for shape in self.parameters.values())

    def vectors(self, gradient: Gradient) -> dict[str, Tensor]:
        """The vectors that are cut into buckets: the whole gradient under the name ``model``, or one per parameter."""
        if getattr(self.settings, "scope", "model") == "model":
            return {"model": joined(gradient)}
        return dict(zip(self.parameters, (part.reshape(-1) for part in gradient), strict=True))

    def encode(self, gradient: Gradient, key: Key) -> Tensor:
        """One worker's payload: uint8[bytes]."""
        messages = [self.compressor.encode(vector, key.of(name)).to_bytes() for name, vector in self.vectors(gradient).items()]
        return messages[0] if len(messages) == 1 else torch.cat(messages)

    def add(self, payload: Tensor, total: Tensor) -> None:
        """Decode a payload and add it to ``total``, one flat float32 vector."""
        start = 0
        for message in split_payload(payload):
            part = total[start : start + message.num_coordinates]
            start += message.num_coordinates
            if start > total.numel():
                break
            if isinstance(self.compressor, Quantizer):
                self.compressor.add(message, part)
            else:
                part += self.compressor.decode(message)
        if start != self.num_coordinates:
            raise MessageError(f"a payload of {start} coordinates or more where the model has {self.num_coordinates}")

    def average(self, payloads: Sequence[Tensor]) -> Tensor:
        """Decoded payloads, added in worker order and multiplied once by float32(1/M)."""
        total = torch.zeros(self.num_coordinates, dtype=torch.float32, device=self.device)
        for payload in payloads:
            self.add(payload, total)
        total *= torch.tensor(1.0 / len(payloads), dtype=torch.float32)
        return total

    # --- one step ---

    def exchange(self, gradients: Mapping[int, Gradient], losses: Mapping[int, float], step: int, *, stop: bool = False) -> Exchange:
        """Encode the hosted workers' gradients, gather all payloads, average.

        gradients, losses: one for every hosted worker.  NonFiniteError, on all processes alike, names the step, the
        worker and the parameter (or the loss).
        """
        payloads, problems = [], []
        for worker in self.hosted:
            bad = non_finite_parameter(gradients[worker])
            try:
                payloads.append(self.encode(gradients[worker], Key(self.seed, step, worker)) if bad is None else torch.empty(0))
            except NonFiniteError:  # finite coordinates whose norm overflows
                bad = _largest_parameter(gradients[worker])
            problems.append(0 if bad is None else _NON_FINITE - bad)
        sizes = [problem or payload.numel() for problem, payload in zip(problems, payloads, strict=True)]
        sizes, every_loss, stop = self._agree(sizes, [losses[worker] for worker in self.hosted], stop)
        for worker, (size, loss) in enumerate(zip(sizes, every_loss, strict=True)):
            if size <= _NON_FINITE:
                name = list(self.parameters)[_NON_FINITE - size]
                raise NonFiniteError(f"step {step}: the gradient of {name!r} on worker {worker} is not finite or overflows float32")
            if not math.isfinite(loss):
                raise NonFiniteError(f"step {step}: the loss on worker {worker} is {loss}")
        return Exchange(self.average(self._gather(payloads, sizes)), every_loss, max(sizes), stop)

    def _agree(self, sizes: list[int], losses: list[float], stop: bool) -> tuple[list[int], list[float], bool]:
        """All workers' payload sizes (or problems) and losses in worker order, and whether any process was asked to stop."""
        if self.group is None:
            return sizes, losses, stop
        empty = [_ABSENT] * (self._slots - len(sizes))
        mine = torch.tensor([[*sizes, *empty, int(stop)], [*losses, *empty, 0]], dtype=torch.float64, device=self.device)
        rows = [torch.empty_like(mine) for _ in range(self.world)]
        dist.all_gather(rows, mine, group=self.group)
        table = torch.stack(rows).cpu()
        present = table[:, 0, :-1] != _ABSENT
        return table[:, 0, :-1][present].to(torch.int64).tolist(), table[:, 1, :-1][present].tolist(), bool(table[:, 0, -1].any())

    def _gather(self, payloads: list[Tensor], sizes: list[int]) -> list[Tensor]:
        """All workers' payloads in worker order."""
        if self.group is None:
            return payloads
        per_rank = [[sizes[worker] for worker in share] for share in self._hosted_by]
        longest = max(sum(row) for row in per_rank)
        mine = torch.zeros(longest, dtype=torch.uint8, device=self.device)
        if payloads:
            joined = torch.cat(payloads)
            mine[: joined.numel()] = joined
        received = [torch.empty_like(mine) for _ in range(self.world)]
        dist.all_gather(received, mine, group=self.group)
        return [part for row, data in zip(per_rank, received, strict=True) for part in data[: sum(row)].split(row)]

    def gather_tensors(self, mine: dict[int, Tensor]) -> list[Tensor]:
        """Equally shaped tensors of all workers, in worker order; ``mine`` holds the hosted ones."""
        if self.group is None:
            return [mine[worker] for worker in self.hosted]
        sample = self._shape_of(mine)
        rows = torch.zeros(self._slots, *sample[0], dtype=sample[1], device=self.device)
        for slot, worker in enumerate(self.hosted):
            rows[slot] = mine[worker]
        received = [torch.empty_like(rows) for _ in range(self.world)]
        dist.all_gather(received, rows, group=self.group)
        return [block[slot] for share, block in zip(self._hosted_by, received, strict=True) for slot in range(len(share))]

    def _shape_of(self, mine: dict[int, Tensor]) -> tuple[torch.Size, torch.dtype]:
        """Shape and dtype of the gathered tensors, also where this process hosts no worker: told by the first process."""
        told: list[Any] = [None]
        if self.rank == 0:
            first = mine[self.hosted[0]]
            told = [(first.shape, first.dtype)]
        dist.broadcast_object_list(told, src=0, group=self.group, device=self.device)
        return told[0]

    # --- levels ---

    @property
    def adaptive(self) -> bool:
        return isinstance(self.compressor, AdaptiveQuantizer)

    def _no_statistics(self) -> Statistics:
        return Statistics.empty(getattr(self.settings, "num_components", 1))

    def next_update(self, step: int) -> int | None:
        """The first update at or after ``step``; None where there is none."""
        if not self.adaptive:
            return None
        listed = [at for at in self.settings.update_at if at >= step]
        period = self.settings.update_every
        if period:
            listed.append(max(-(-step // period), 1) * period)
        return min(listed, default=None)

    def collects(self, step: int) -> bool:
        """Whether the training gradients of this step are among those behind the next update."""
        due = self.next_update(step)
        return due is not None and self.settings.statistics == "running" and step > due - self.settings.num_samples

    def observe(self, gradients: Mapping[int, Gradient], step: int) -> None:
        """Take the hosted workers' gradients of a step into the statistics behind the next update.

        One that is not finite makes them useless: ``update_levels`` says so, on all processes together.
        """
        compressor = self.compressor
        assert isinstance(compressor, AdaptiveQuantizer)
        for worker in self.hosted:
            statistics, gradient = self._statistics[worker], gradients[worker]
            if math.isnan(statistics.totals[0]):
                continue
            key = Key(self.seed, step, worker, "statistics")
            try:
                for name, vector in self.vectors(gradient).items():
                    compressor.observe(vector, key.of(name), statistics)
            except NonFiniteError:
                bad = non_finite_parameter(gradient)
                statistics.totals[:] = math.nan, _largest_parameter(gradient) if bad is None else bad, 0.0

    def update_levels(self) -> str | None:
        """Merge all workers' statistics in worker order, on every process alike, and update the levels from them.

        Where a gradient behind the statistics was not finite the levels stay, and its parameter and worker are returned.
        """
        compressor = self.compressor
        assert isinstance(compressor, AdaptiveQuantizer)
        rows = self._gathered_statistics()
        self._statistics = {worker: self._no_statistics() for worker in self.hosted}
        merged = self._no_statistics()
        for worker, row in enumerate(rows):
            statistics = Statistics.from_array(row.cpu().numpy(), merged.num_components)
            if math.isnan(statistics.totals[0]):
                return f"{list(self.parameters)[int(statistics.totals[1])]!r} on worker {worker}"
            merged.merge(statistics)
        compressor.update(merged)
        return None

    def _gathered_statistics(self) -> list[Tensor]:
        return self.gather_tensors({w: torch.from_numpy(s.to_array()).to(self.device) for w, s in self._statistics.items()})

    # --- checkpoints ---

    def state_dict(self) -> dict[str, Any]:
        """The same in every split; every process must call it, since it gathers."""
        statistics = [row.cpu() for row in self._gathered_statistics()] if self.adaptive else []
        return {"compressor": self.compressor.state_dict(), "statistics": statistics}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.compressor.load_state_dict(state["compressor"])
        for worker in self.hosted if self.adaptive else ():
            self._statistics[worker] = Statistics.from_array(state["statistics"][worker].numpy(), self._no_statistics().num_components)


def joined(gradient: Gradient) -> Tensor:
    """All parts as one vector; without a copy where they already lie one after another in memory."""
    first, end = gradient[0], gradient[0].storage_offset()
    for part in gradient:
        same = part.untyped_storage().data_ptr() == first.untyped_storage().data_ptr() and part.dtype == first.dtype
        if not (same and part.is_contiguous() and part.storage_offset() == end):
            return torch.cat([part.reshape(-1) for part in gradient])
        end += part.numel()
    return first.as_strided((end - first.storage_offset(),), (1,))


def non_finite_parameter(gradient: Gradient) -> int | None:
    """The number of the first parameter whose gradient is not finite."""
    return next((number for number, part in enumerate(gradient) if not bool(torch.isfinite(part).all())), None)


def _largest_parameter(gradient: Gradient) -> int:
    return max(range(len(gradient)), key=lambda number: float(gradient[number].abs().amax()) if gradient[number].numel() else 0.0)
