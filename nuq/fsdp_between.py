"""The mean of FSDP2's shards between machines, by compressed messages in bits of their own.

Where parameters are sharded over the ranks of one machine, and machines train in parallel, a reduce-scatter inside each
machine gives a rank its shard of that machine's mean gradient.  The ranks that own the same shard, one on each machine,
then average it between them: messages in more bits over the fast links inside a machine, in fewer between machines.
Two machines send each other their messages; with more it goes in two stages (``nuq.exchange.collectives``).

Source: Jia et al., "SDP4Bit: Toward 4-bit Communication Quantization in Sharded Data Parallelism for LLM Training",
NeurIPS 2024, arXiv 2410.15526 (two-level gradient quantization: 8 bits inside a node, 4 between).  Differences: theirs
shards over all ranks, so that nothing is sent back, here machines hold replicas; any method with bits takes part.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from nuq.errors import NonFiniteError
from nuq.exchange.agreement import check_settings
from nuq.exchange.compressor_map import CompressorMap, sorted_settings
from nuq.exchange.driver import Driver
from nuq.exchange.flat_layout import FlatLayout, Segment
from nuq.exchange.transport import Transport
from nuq.fsdp_memory import Parts, remembering
from nuq.kernels.spec import Key
from nuq.settings import declared
from nuq.settings.exchange import Exchange
from nuq.settings.fsdp import Fsdp


class MeanBetween:
    """The mean of one module's shards over the machines of ``group``, which has one rank of each.

    bits: of the messages.  settings: the others of the method, and ``nuq.settings.fsdp.Fsdp``; with
    ``feedback="average"`` a rank also remembers what these messages leave out.

    ValueError for a method without bits and for what is no such group; in the first call, on all its ranks, for a group
    of ranks that own different shards.
    """

    def __init__(
        self,
        method: str,
        name: str,
        group: dist.ProcessGroup,
        *,
        bits: float,
        seed: int,
        timeout_s: float | None,
        settings: dict[str, Any],
    ) -> None:
        own, self._chosen = sorted_settings(method, (Fsdp,), settings, {})
        if "bits" not in declared(type(own)):
            raise ValueError(f"between: method={method!r} has no bits to choose between machines; leave it out")
        try:
            own, _ = sorted_settings(method, (Fsdp,), {**settings, "bits": bits}, {})
        except ValueError as error:  # of these bits, as the other settings passed above
            raise ValueError(str(error).replace("bits=", "bits_between=", 1)) from None
        if not isinstance(group, dist.ProcessGroup):
            raise ValueError(f'between={group!r}: must be a ProcessGroup, as mesh.get_group("machines") gives one')
        self.num_machines = dist.get_world_size(group)
        if self.num_machines < 2:
            raise ValueError(
                f"between: a group of {self.num_machines} ranks; it takes one with the same rank of every machine, as "
                'init_device_mesh(..., mesh_dim_names=("machines", "ranks")).get_group("machines")'
            )
        collective = "gather" if self.num_machines == 2 else "two_stage"
        self._exchange = Exchange(collective, second_bits=max(math.ceil(bits), Exchange.second_bits))
        self._compressors = CompressorMap(method, own, self._exchange.second_bits)
        self._memories = remembering(self._compressors, self._chosen)
        self._name, self._group, self._seed, self._timeout_s = name, group, seed, timeout_s
        self._meeting: Transport | None = None
        self._driver: Driver | None = None
        self._layout = FlatLayout(())

    def meet(self, inside: Transport, device: torch.device) -> None:
        """Prepare to exchange between machines; a rank that is lost there, or inside this machine, ends both."""
        self._meeting = Transport(self._group, timeout_s=self._timeout_s, device=device)
        self._meeting.siblings, inside.siblings = [inside], [self._meeting]

    @property
    def transport(self) -> Transport | None:
        """What carries the messages and counts their bytes; None before the first call."""
        return self._driver.transport if self._driver else None

    @property
    def bytes_sent(self) -> int:
        """Bytes that this rank has handed to the network for it."""
        return self._driver.bytes_sent if self._driver else 0

    def mean(
        self, shard: Tensor, owner: int, step: int, failure: NonFiniteError | None, parts: Parts | None = None
    ) -> NonFiniteError | None:
        """Turn this rank's shard, float32[n], into its mean over all machines, the same bits on all of them.

        owner: the number of the rank inside its machine.  failure: what this machine's gradient came to.  Every rank of
        all machines calls it, and is given the failure of any of them.  A shard that is not finite without a failure
        has overflowed float32: it becomes NaN, as it is infinite under FSDP alone.  parts: the parameters in the shard.
        """
        if failure is not None:
            shard.fill_(math.nan)
        driver = self._prepared(shard, owner, step, parts)
        machine = driver.transport.rank
        key = Key(self._seed, step, machine, piece_of=2)
        driver.fit_levels(shard, self._layout.segments, key)
        try:
            driver.mean({machine: shard}, self._layout, key, shard)
        except NonFiniteError:  # alike on all machines, but of this shard alone: what of the others?
            told = driver.transport.numbers([failure is not None], "control")
            failed = [number for number, (bad,) in enumerate(told) if bad]
            shard.fill_(math.nan)
            self.settle(undo=True)
            if failed and failure is None:
                what = f"the gradient of {self._name!r} on machine {failed[0]}"
                failure = NonFiniteError(f"{what} is not finite or overflows float32")
        return failure

    def _prepared(self, shard: Tensor, owner: int, step: int, parts: Parts | None) -> Driver:
        """The driver, with the memory of these parameters in place."""
        driver = self._driver = self._driver or self._made(shard, owner)
        name, size = f"{self._name}, shard {owner}", shard.numel()
        if self._layout.num_coordinates != size:
            self._layout = FlatLayout((Segment(name, 0, size),))
        for memory in self._memories:
            memory.turn(name, driver.transport.rank, 1, size, parts, step)
        return driver

    def _made(self, shard: Tensor, owner: int) -> Driver:
        transport = self._meeting or Transport(self._group, timeout_s=self._timeout_s, device=shard.device)
        owners = [number for (number,) in transport.numbers([owner], "control")]
        if any(number != owner for number in owners):  # on all ranks
            raise ValueError(
                f"between: its ranks own the shards {owners} of {self._name}: must be ranks that own the same shard, "
                "one on each machine"
            )
        told = {"method": self._compressors.name, **vars(self._compressors.settings), **vars(self._chosen)}
        check_settings(transport, {**told, "module": self._name, "seed": self._seed, "coordinates": shard.numel()})
        nothing_remembered = FlatLayout(())
        machines = self.num_machines
        with transport.telling():
            return Driver(self._compressors, nothing_remembered, self._exchange, transport, machines, self._seed)

    def settle(self, *, undo: bool) -> None:
        """Settle the last messages: they have counted, or (undo) were thrown away on all ranks."""
        for memory in self._compressors.memories:
            memory.settle(undo=undo)

    def forget(self) -> None:
        """Remember nothing of earlier messages."""
        for memory in self._memories:
            memory.forget()

    def with_memory(self, row: Tensor, owner: int, step: int, parts: Parts) -> Tensor:
        """The mean over machines of ``row`` float32[n] and what their messages between them left out.

        A collective call of the ranks that own a shard.
        """
        driver = self._prepared(row, owner, step, parts)
        (memory,) = self._compressors.memories
        for of_worker in memory.memories.values():
            row = row + of_worker["residuals"][self._layout.segments[0].name]
        return torch.stack(driver.transport.all_gather(row, "state")).mean(dim=0).to(row.device)
