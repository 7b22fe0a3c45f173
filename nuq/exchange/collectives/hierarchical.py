"""Hierarchical exchange: full precision inside a machine of several ranks, messages between machines.

The ranks of a machine add their gradients densely (links inside a machine are fast), its first rank takes part in a
collective of the machines, and the mean goes back to all ranks of the machine as it is: one message per machine and
step instead of one per rank.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import Tensor

from nuq.errors import MessageError, NonFiniteError, RankFailed, RankLost
from nuq.exchange.collectives.collective import Collective, ExchangeStats, Vectors, WorkerPlacement
from nuq.exchange.flat_layout import FlatLayout
from nuq.exchange.payload import RemoteNonFinite
from nuq.exchange.transport import Transport
from nuq.kernels.spec import Key

_TOLD: tuple[type[Exception], ...] = (RankLost, RankFailed, MessageError, NonFiniteError)


@dataclass
class Machines:
    """The ranks of this rank's machine and, on the first rank of each machine, those first ranks."""

    local: Transport
    # the same ranks, for what follows the exchange between the machines: the others wait longer than the first ranks
    told: Transport
    leaders: Transport | None
    number: int
    count: int

    @classmethod
    def of(cls, every: Transport, per_machine: int) -> Machines:
        """The machines as contiguous blocks of ``per_machine`` ranks.  A collective call: every rank makes it.

        every: the transport between all ranks, whose end is theirs.
        """
        group = every.group
        assert group is not None
        world, rank = dist.get_world_size(group), dist.get_rank(group)
        if world < dist.get_world_size():  # the others would have to take part in making the groups
            all_ranks = f"all {dist.get_world_size()} ranks"
            raise ValueError(f"collective='hierarchical' takes {all_ranks}: this group has {world}; choose two_stage")
        if per_machine < 1 or world % per_machine:
            legal = ", ".join(str(size) for size in range(1, world + 1) if world % size == 0)
            raise ValueError(f"per_machine={per_machine}: must divide the {world} ranks (legal: {legal})")
        everyone = [dist.get_global_rank(group, number) for number in range(world)]
        blocks = [everyone[start : start + per_machine] for start in range(0, world, per_machine)]
        groups = [dist.new_group(block, timeout=every.timeout) for block in blocks]
        leaders = dist.new_group(everyone[::per_machine], timeout=every.timeout)
        machine = rank // per_machine
        first = rank % per_machine == 0

        def between(some: object, patience: int) -> Transport:
            assert isinstance(some, dist.ProcessGroup)  # of the groups that this rank belongs to
            return Transport(some, timeout_s=every.timeout_s, device=every.device, patience=patience)

        local, told = between(groups[machine], 1), between(groups[machine], 3)
        made = cls(local, told, between(leaders, 2) if first else None, machine, len(blocks))
        together = [every, *made.every]
        for transport in together:
            transport.siblings = [other for other in together if other is not transport]
        return made

    @property
    def every(self) -> list[Transport]:
        """The transports of this rank: inside its machine, and (on first ranks) between machines."""
        return [transport for transport in (self.local, self.told, self.leaders) if transport is not None]


@dataclass
class Hierarchical(Collective):
    """A collective between machines, between a dense sum and a dense broadcast inside each machine.

    between: makes the collective of the machines, of which each counts as one worker.
    """

    machines: Machines
    transport: Transport
    placement: WorkerPlacement
    between: Callable[[Transport, WorkerPlacement, ExchangeStats], Collective]
    stats: ExchangeStats = field(default_factory=ExchangeStats)

    def __post_init__(self) -> None:
        leaders, count = self.machines.leaders, self.machines.count
        self._outer = (
            self.between(leaders, WorkerPlacement.of(count, count), self.stats) if leaders is not None else None
        )

    @property
    def inner_transports(self) -> Sequence[Transport]:
        return self.machines.every

    def remembering(self, hosted: Sequence[int]) -> Sequence[int]:
        """The number of this rank's machine, where it is the machine's first."""
        return hosted[:0] if self.machines.leaders is None else [self.machines.number]

    def num_remembering(self, workers: int) -> int:
        del workers
        return self.machines.count

    def mean(self, vectors: Vectors, layout: FlatLayout, key: Key, out: Tensor) -> None:
        hosted = [vectors[worker].to(torch.float32) for worker in self.placement.shares[self.transport.rank]]
        total = torch.stack(hosted).sum(dim=0) if len(hosted) > 1 else hosted[0].clone()
        share = self.machines.count / self.placement.num_workers  # so that the machines' mean is the workers'
        with self.stats.time("local"):
            self.machines.local.dense_sum(total, "local")
            overflowed = ~total.isfinite()
            total *= share
            if bool(overflowed.any()):  # on all ranks of the machine, which have the same sum
                wide = torch.stack(hosted).sum(dim=0, dtype=torch.float64)
                self.machines.local.dense_sum(wide, "local")
                total.copy_(torch.where(overflowed, (wide * share).to(torch.float32), total))
        failure: Exception | None = None
        leaders = self.machines.leaders
        if self._outer is not None and leaders is not None:
            try:
                with leaders.telling():
                    self._outer.mean({self.machines.number: total}, layout, key, total)
            except RemoteNonFinite as marked:  # whose worker is a machine
                first = marked.worker * self.machines.local.world
                where = f"machine {marked.worker} (ranks {first} to {first + self.machines.local.world - 1})"
                what = f"the gradient of {marked.name!r} on {where}"
                failure = NonFiniteError(f"{what} is not finite or overflows float32")
            except (RuntimeError, ValueError, ArithmeticError) as error:  # the rest of the machine has to hear of it
                if error is leaders.failure:  # and does so from the store
                    raise
                failure = error
        with self.stats.time("local"):
            self._told(failure)
            self.machines.told.broadcast(total, "local")
        out.copy_(total)

    def _told(self, failure: Exception | None) -> None:
        """Raise on all ranks of the machine an error of its first, which alone takes part between machines."""
        kind = type(failure).__name__
        told = self.machines.told.texts("" if failure is None else f"{kind}: {failure}", "control")[0].strip()
        if failure is not None:
            raise failure
        if told:
            kind, _, text = told.partition(": ")
            raise {kind.__name__: kind for kind in _TOLD}.get(kind, RuntimeError)(text)
