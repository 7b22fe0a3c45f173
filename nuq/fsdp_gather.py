"""The gather of FSDP2's parameters from compressed differences of weights.

Every rank keeps a replica r of all ranks' shards, the same bits everywhere.  Where a shard is x now, its owner sends
the difference between the two, and all ranks add what they decode::

    q = beta decoded(encoded(x - r)),    r becomes r + q

The difference is to the replica, not to the last shard, so what a message leaves out is in the next one: errors do not
add up.  After every gather |x - r| is the error of that one message, and as beta is the factor that makes it least
(``nuq.compressors.feedback``), no method's replica runs away.  For a method that leaves out at most a share c < 1 of a
vector, and shards that move by at most s from one gather to the next, with everything that changes them,
|x - r| <= c s / (1 - c).  A full refresh sends the shards as they are: then r = x, bit for bit.

Source: Jia et al., "SDP4Bit: Toward 4-bit Communication Quantization in Sharded Data Parallelism for LLM Training",
NeurIPS 2024, arXiv 2410.15526 (quantization on weight differences).  Differences: any method takes part, not 4 bits by
groups alone; beta; the refresh; and a gather inside a backward pass, which gives the replica again and sends nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from nuq.compressors.feedback import Scaled
from nuq.errors import NonFiniteError
from nuq.exchange.agreement import check_settings
from nuq.exchange.collectives.collective import WorkerPlacement, sizes_by_rank, to_everyone
from nuq.exchange.compressor_map import CompressorMap, sorted_settings
from nuq.exchange.flat_layout import FlatLayout, Segment
from nuq.exchange.level_updates import fit_levels
from nuq.exchange.payload import RemoteNonFinite
from nuq.exchange.summary import table
from nuq.exchange.transport import Transport
from nuq.fsdp_overlap import inside_backward
from nuq.kernels.spec import DTYPES, Key
from nuq.settings.exchange import Exchange
from nuq.settings.fsdp import FsdpWeights, seed_and_timeout

PIECE = 1 << 20  # coordinates, at least, that are encoded and sent while those before them are on their way


class CompressedGather:
    """The compressed gather that ``FSDPModule.set_custom_all_gather`` takes.

    name: keys the random roundings, one per module.  settings: of the method, and ``nuq.settings.fsdp.FsdpWeights``.

    A gather for a forward pass always sends, as under plain FSDP: nobody can know whether another rank's shard has
    changed.  One inside a backward pass, also for a forward pass that activation checkpointing repeats there, gives the
    replica of the last forward pass.
    """

    kind = "weights"
    has_state = True  # to save, beside the number of gathers

    def __init__(
        self,
        method: str,
        name: str,
        *,
        seed: int = 0,
        timeout_s: float | None = None,
        **settings: Any,
    ) -> None:
        own, self._chosen = sorted_settings(method, (FsdpWeights,), settings, {})
        self._compressors = CompressorMap(method, own, Exchange.second_bits)
        if self._compressors.single_worker:
            raise ValueError(f"method={method!r}: sends one worker's vector alone; legal here: all other methods")
        self._compressors.surround(lambda encoder: Scaled(encoder, {}))
        self.name = name
        self._seed, self.timeout_s = seed_and_timeout(seed, timeout_s)
        self.step = self._begun = 0  # gathers that sent something; the latter: where this process began
        self.transport: Transport | None = None  # carries the messages and counts their bytes, from the first call on
        self._replica: Tensor | None = None  # float32[ranks, size], but for this rank's row
        self._mine: Tensor | None = None  # this rank's row of it, as FSDP may write over the other
        # the replica in the type that is gathered; itself where that is float32.  FSDP writes over this rank's row
        self._given: Tensor | None = None
        self._layout = FlatLayout(())  # of a shard
        self._done: torch.Event | None = None  # the last call's work, on a GPU

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> Tensor:
        """The memory for all ranks' shards: on the CPU that of the last call, from which FSDP copies the parameters."""
        given = self._given
        if given is not None and device.type == "cpu" and (given.numel(), given.dtype) == (math.prod(size), dtype):
            return given.view(*size)
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(
        self, output_tensor: Tensor, input_tensor: Tensor, group: dist.ProcessGroup, async_op: bool = False
    ) -> dist.Work | None:
        """Write all ranks' shards, as the replica has them, into ``output_tensor``; input: this rank's."""
        del async_op  # what is done when the call returns needs no waiting for
        transport = self.transport = self.transport or self._made(group, input_tensor)
        if group is not transport.group:
            raise ValueError(
                f"{self.name} is gathered from two groups of ranks, as with a number for reshard_after_forward: "
                "differences are of one replica; legal here: True, False"
            )
        on_cuda = input_tensor.is_cuda
        if on_cuda and self._done is not None:  # FSDP calls from several streams
            torch.cuda.current_stream(input_tensor.device).wait_event(self._done)
        if self._replica is None or not inside_backward():
            # the replica outlives an evaluation
            with torch.inference_mode(mode=False), torch.no_grad(), transport.telling():
                self._replica = self._gather(transport, input_tensor.reshape(-1))
                self._given = self._in_type(output_tensor.dtype, transport)
        given = self._given
        assert given is not None and self._mine is not None
        given[transport.rank] = self._mine
        if output_tensor.data_ptr() != given.data_ptr():
            output_tensor.copy_(given.view(output_tensor.shape))
        if on_cuda:
            self._done = torch.cuda.current_stream(input_tensor.device).record_event()
        return None

    def _in_type(self, dtype: torch.dtype, transport: Transport) -> Tensor:
        """The replica in a type, but for this rank's row, in the memory that held it before, if any."""
        replica, given = self._replica, self._given
        assert replica is not None
        if replica.dtype == dtype:
            return replica
        if given is None or (given.shape, given.dtype) != (replica.shape, dtype):
            given = torch.empty_like(replica, dtype=dtype)
        for rank in transport.others:
            given[rank] = replica[rank]
        return given

    def _made(self, group: dist.ProcessGroup, shard: Tensor) -> Transport:
        """The transport of this module's group, on whose settings all ranks agree."""
        if shard.dtype not in DTYPES:
            raise ValueError(
                f"{self.name} gathers {shard.dtype}, as of parameters of several types: there is no difference of "
                f"that; legal here: {', '.join(map(str, DTYPES))}"
            )
        transport = Transport(group, timeout_s=self.timeout_s, device=shard.device)
        told = {"method": self._compressors.name, **vars(self._compressors.settings), **vars(self._chosen)}
        check_settings(transport, {**told, "module": self.name, "seed": self._seed})
        return transport

    def _gather(self, transport: Transport, shard: Tensor) -> Tensor:
        """The replica after an exchange.  Whatever goes wrong, the next gather is a refresh, on all ranks alike."""
        replica, self._replica = self._replica, None
        if replica is None or self.step % self._chosen.full_every == 0:
            rows = transport.all_gather(shard, "refresh")
            replica = torch.stack([row.to(shard.device, torch.float32) for row in rows])
            finite = torch.stack([row.isfinite().all() for row in replica]).tolist()
            if not all(finite):  # alike on all ranks, which have the same rows
                raise NonFiniteError(f"the weights of {self.name!r} on rank {finite.index(False)} are not finite")
            self._mine = replica[transport.rank].clone()
        else:
            self._add_differences(transport, shard, replica)
        self.step += 1
        return replica

    def _add_differences(self, transport: Transport, shard: Tensor, replica: Tensor) -> None:
        """Send the difference between this rank's shard and the replica, and add all ranks' to the replica."""
        rank, world, codec = transport.rank, transport.world, self._compressors.codec
        if self._layout.num_coordinates != shard.numel():
            self._layout = FlatLayout((Segment(f"weights of {self.name}", 0, shard.numel(), first=0),))
        pieces, key = self._layout.shards(pieces_of(shard.numel())), Key(self._seed, self.step, rank, piece_of=2)
        assert self._mine is not None
        if self._compressors.adaptive:
            fit_levels(self._compressors, shard - self._mine, [piece.segments[0] for piece in pieces], key)
        placement = WorkerPlacement.of(world, world)
        begun: list[Callable[[], list[Tensor]]] = []
        for piece in pieces:  # one is encoded while the others are on their way
            difference = shard[piece.place] - self._mine[piece.place]
            mine = [codec.encode_or_mark(difference, piece.packed, key)]
            sizes = sizes_by_rank(transport, placement, mine, codec, [piece] * world)
            begun.append(to_everyone(transport, placement, mine, sizes, "messages"))
        rows, rest = [*replica], iter(begun)
        rows[rank] = self._mine
        try:
            for piece, arrived in zip(pieces, rest, strict=True):
                for row, payload in zip(rows, arrived(), strict=True):
                    codec.add(payload, piece, row)
        except RemoteNonFinite as marked:  # alike on all ranks: what they have begun they bring to its end
            for arrived in rest:
                arrived()
            what = f"the weights of {self.name!r} on rank {marked.worker}"
            raise NonFiniteError(f"{what} are not finite, or their change overflows float32") from None

    def summary(self) -> str:
        """A table of what this module's gathers took and saved on this rank since they began here."""
        title = f"{self._compressors.name} for weights of {self.name}"
        transport, steps = self.transport, self.step - self._begun
        if transport is None or self._mine is None:
            return f"{title}: nothing has been exchanged"
        done, size = f"{steps:,}, 1 in {self._chosen.full_every:,} in full", transport.world * self._mine.numel()
        bits, sent = self._compressors.codec.bits_by_vector(), transport.bytes_sent.total()
        return table(title, done, steps, (size, transport.world), sent, bits, {}, plain="gathers", passes=1)

    # --- what is saved (``nuq.fsdp_state``) ---

    def covers(self, parameter: nn.Parameter) -> bool:
        """Whether a parameter of the module is part of the vector: all are."""
        del parameter
        return True

    def saved_row(self, transport: Transport, parts: Sequence[Any]) -> Tensor | None:
        """This rank's shard as the replica has it, float32[n]; None before the first gather."""
        del transport, parts
        return None if self._replica is None else self._mine

    def resume(self, step: int, rows: Tensor | None, rank: int, parts: Sequence[Any]) -> None:
        """Go on from a number of gathers and a replica, float32[ranks, n]; None: the next gather is a full one."""
        del parts
        self.step = self._begun = step
        self._replica, self._given = rows, None
        self._mine = None if rows is None else rows[rank].clone()


def pieces_of(size: int) -> int:
    """The number of pieces in which so many coordinates are encoded and sent."""
    return max(size // PIECE, 1)


def own_parameters(module: Any) -> list[Any]:
    """The parameters that an FSDP module gathers, in its order: without those of FSDP modules inside it.

    They are DTensors, of all modules that one call of ``fully_shard`` was given.  The module is resharded first, as an
    evaluation may have left it with whole parameters.
    """
    from torch.distributed.fsdp import FSDPModule
    from torch.distributed.tensor import DTensor

    def walk(one: nn.Module) -> Iterator[nn.Parameter]:
        for child in one.children():
            if not isinstance(child, FSDPModule):
                yield from walk(child)
        yield from one.parameters(recurse=False)

    module.reshard()
    walked = dict.fromkeys(p for together in module._get_fsdp_state()._modules for p in walk(together))
    return [p for p in walked if isinstance(p, DTensor)]  # others are ignored ones


def _groups(module: Any) -> list[Any]:
    state = module._get_fsdp_state()
    return getattr(state, "_fsdp_param_groups", None) or [state._fsdp_param_group]  # the latter until torch 2.12


def records_of(module: Any, parameters: Sequence[Any]) -> list[Any]:
    """FSDP's own records (``FSDPParam``) of some of a module's ``own_parameters``, in the same order."""
    every = {id(own.sharded_param): own for group in _groups(module) for own in group.fsdp_params}
    return [every[id(p)] for p in parameters]


def num_shards(module: Any) -> int:
    """The most ranks over which FSDP shards parameters of a module."""
    infos = [group.mesh_info for group in _groups(module)]
    return max(1 if info.shard_mesh_dim is None else info.mesh.size(info.shard_mesh_dim) for info in infos)
