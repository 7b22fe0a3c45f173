"""FSDP2: compressed messages give every rank its shard of the mean gradient.

``fully_shard`` reduces gradients by a reduce-scatter, the first half of a two-stage all-reduce: each rank encodes the
shard of every other rank and sends it there, and the owner decodes and adds them up.  Nothing is encoded a second time.
With ``feedback="average"`` a rank remembers what its messages leave out, as in LoCo (``nuq.compressors.feedback``).

Before every pass it gathers parameters, each rank its shard from every other; ``compress_fsdp_weights`` has the ranks
send compressed differences instead (``nuq.fsdp_gather``).

Where machines hold replicas of the shards, their mean travels in bits of its own (``nuq.fsdp_between``).
"""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Unpack

import torch
import torch.distributed as dist
from torch import Tensor, nn

from nuq.errors import NonFiniteError
from nuq.exchange.agreement import check_settings
from nuq.exchange.compressor_map import CompressorMap, sorted_settings
from nuq.exchange.driver import Driver
from nuq.exchange.flat_layout import FlatLayout, Segment
from nuq.exchange.payload import told_plainly
from nuq.exchange.summary import of_exchanges
from nuq.exchange.transport import Transport
from nuq.fsdp_between import MeanBetween
from nuq.fsdp_gather import CompressedGather, num_shards, own_parameters, pieces_of
from nuq.fsdp_memory import Parts, reduced_now, remembering, size_of
from nuq.fsdp_overlap import AtTheEnd, check_views, filled_later, inside_backward, on_this_stream
from nuq.kernels.spec import Key
from nuq.parameters import check_model
from nuq.settings.exchange import Exchange
from nuq.settings.fsdp import Fsdp, seed_and_timeout
from nuq.settings.typed import OfFsdp, OfFsdpWeights

ROOT = "the root module"


def compress_fsdp(
    model: nn.Module,
    method: str = "alq",
    *,
    between: dist.ProcessGroup | None = None,
    bits_between: float = 4,
    overlap: bool = True,
    seed: int = 0,
    timeout_s: float | None = None,
    **settings: Unpack[OfFsdp],
) -> list[CompressedReduceScatter]:
    """Compress the reduce-scatter of every FSDP module in ``model``; returns what was installed, one per module.

    Modules that one call ``fully_shard([one, other])`` was given count as one, by the first one's name.

    settings: those of the method (``bits=4``) and of ``nuq.settings.fsdp`` the ``Fsdp`` (``feedback="average"``, with
    ``beta=0.2`` and ``reset_every=1024``, whose memory takes the bytes of the module's whole gradient in float32; that
    of a parameter without a gradient stays as it is).

    between: for machines that hold replicas, each sharded over its own ranks alone: the group of the ranks that own the
    same shards, one on each machine.  Gradients are averaged over it, too, in ``bits_between`` bits, the same bits on
    all machines, which start from the same parameters.

    overlap: without ``between``, a module's messages travel while the backward pass goes on, and its gradients are
    there when that has ended, unless FSDP itself or a hook of these parameters reads them before; give False where
    other hooks do.

    ValueError for a setting that does not exist, is out of range or has no effect, where there is no FSDP2 module, and
    where this torch has no custom reduce-scatter; with ``between`` for a method without bits, a group of one rank, and
    parameters that lie on one rank or that FSDP averages between replicas itself.  UserWarning, once, where each shard
    group has one rank, so that nothing is compressed.
    """
    modules = _fsdp_modules(model, "set_custom_reduce_scatter")
    how = {"seed": seed, "timeout_s": timeout_s, **settings}
    if between is not None:
        for name, module in modules.items():
            _check_sharded_inside(name, own_parameters(module))
        how |= {"between": between, "bits_between": bits_between}
    elif bits_between != 4:
        raise ValueError(f"bits_between={bits_between!r}: has no effect without between, the group to average over")
    installed: list[Any] = [CompressedReduceScatter(method, name, **how) for name in modules]
    at_the_end = AtTheEnd()
    for module, reduce_scatter in zip(modules.values(), installed, strict=True):
        reduce_scatter.at_the_end = at_the_end
        reduce_scatter.overlapped = module if overlap and between is None else None
        module.set_custom_reduce_scatter(reduce_scatter)
    _warn_of_one_rank(
        "compress_fsdp: the gradients of {modules} are not compressed, as each shard group has one rank, and replicas "
        "FSDP averages itself; shard over the ranks of a machine, and for replicas give "
        'between=mesh.get_group("machines"), or train under DDP with nuq.compress_hook',
        modules,
    )
    return installed


def compress_fsdp_weights(
    model: nn.Module,
    method: str = "qsgdinf",
    *,
    seed: int = 0,
    timeout_s: float | None = None,
    **settings: Unpack[OfFsdpWeights],
) -> list[CompressedGather]:
    """Gather the parameters of every FSDP module in ``model`` from compressed differences of weights (SDP4Bit).

    Returns what was installed, one per module.  The shards, with the optimizer's state, stay as they are; every rank
    also keeps a replica of all parameters in float32, so that their memory is no longer sharded.  Forward and backward
    passes see the replica, which is the same bits on all ranks (``nuq.fsdp_gather`` says how far it is from the
    shards).  Every forward pass sends, also one of an evaluation or a micro-batch, as under plain FSDP, and moves the
    replica a little nearer to the shards; backward passes use that of the last forward pass and send nothing.

    settings: those of the method (``bits=4``) and of ``nuq.settings.fsdp`` the ``FsdpWeights`` (``full_every=1000``).

    ValueError as ``compress_fsdp``; on all ranks, in the forward pass for modules that gather several types, and in the
    backward pass for those that gather from another group of ranks there (a number for ``reshard_after_forward``).
    NonFiniteError, on all ranks, where one's shard is not finite; RankLost.
    """
    how = {"seed": seed, "timeout_s": timeout_s, **settings}
    modules = _fsdp_modules(model, "set_custom_all_gather")
    installed: list[Any] = [CompressedGather(method, name, **how) for name in modules]
    for module, gather in zip(modules.values(), installed, strict=True):
        module.set_custom_all_gather(gather)
    _warn_of_one_rank(
        "compress_fsdp_weights: the parameters of {modules} are not compressed, as each shard group has one rank, "
        "which gathers nothing; leave it out, or shard over several ranks",
        modules,
    )
    return installed


def _fsdp_modules(model: nn.Module, setter: str) -> dict[str, Any]:
    """The FSDP2 modules by name, the first of those that one call of ``fully_shard`` was given.

    ValueError where there are none, or where they lack the method that is needed.
    """
    try:
        from torch.distributed.fsdp import FSDPModule
    except ImportError as error:
        raise ValueError(
            f"torch {torch.__version__} has no FSDP2: torch 2.11 and later have it, with custom collectives"
        ) from error
    check_model(model)
    first_of: dict[Any, tuple[str, Any]] = {}
    for name, module in model.named_modules():
        if isinstance(module, FSDPModule):
            first_of.setdefault(module._get_fsdp_state(), (name or ROOT, module))
    modules = dict(first_of.values())
    if not modules:
        raise ValueError("no module of the model is an FSDP2 module: call torch.distributed.fsdp.fully_shard first")
    if not hasattr(FSDPModule, setter):
        raise ValueError(f"torch {torch.__version__}: it has no FSDPModule.{setter}, torch 2.11 and later do")
    return modules


def _warn_of_one_rank(sentence: str, modules: Mapping[str, Any]) -> None:
    """Warn once of modules whose shards lie on one rank, so that FSDP neither scatters nor gathers anything."""
    alone = [name for name, module in modules.items() if own_parameters(module) and num_shards(module) == 1]
    if alone and dist.get_world_size() > 1:
        some = "all modules" if len(alone) == len(modules) else ", ".join(map(repr, alone))
        warnings.warn(sentence.format(modules=some), stacklevel=3)


def _check_sharded_inside(name: str, parameters: Sequence[Any]) -> None:
    """ValueError for parameters that do not lie sharded over several ranks of one machine, and nothing else."""
    for parameter in parameters[:1]:
        mesh, remedy = parameter.device_mesh, 'shard over the ranks of a machine: fully_shard(..., mesh=mesh["ranks"])'
        if mesh.ndim > 1:
            why = f"its mesh has {mesh.ndim} dimensions, and FSDP averages between replicas itself"
            raise ValueError(f"between: parameters of {name} lie as {parameter.placements}: {why}; {remedy}")
        if mesh.size() < 2:
            raise ValueError(f"between: parameters of {name} lie on one rank: nothing is scattered there; {remedy}")


def _factor(op: Any, world: int) -> float:
    """The factor by which FSDP wants the sum of the ranks multiplied."""
    if op == dist.ReduceOp.AVG:
        return 1.0 / world
    if op == dist.ReduceOp.SUM:
        return 1.0
    if op == dist.ReduceOp.PREMUL_SUM:  # ``set_gradient_divide_factor``
        return float(op.__getstate__()[1])
    raise ValueError(f"a reduce-scatter by {op}: compressed messages are added; legal here: SUM, AVG, PREMUL_SUM")


class CompressedReduceScatter:
    """The compressed reduce-scatter that ``FSDPModule.set_custom_reduce_scatter`` takes.

    name: keys the random roundings, one per module; settings: of the method, and ``nuq.settings.fsdp.Fsdp``.

    between: the group of the ranks that own the same shard, one on each machine, if their mean is wanted, too.

    Adaptive methods fit their levels to each gradient as it is sent.  Where other parameters have gradients than in the
    last call, what is remembered of each stays with it (``nuq.fsdp_memory``).  A shard whose mean overflows float32 is
    infinite, as it is under FSDP alone: an error on the rank that owns it would leave the others waiting.
    """

    kind = "gradients"

    def __init__(
        self,
        method: str,
        name: str,
        *,
        between: dist.ProcessGroup | None = None,
        bits_between: float = 4,
        seed: int = 0,
        timeout_s: float | None = None,
        **settings: Any,
    ) -> None:
        self._seed, self.timeout_s = seed_and_timeout(seed, timeout_s)
        # a reduce-scatter leaves no choice of collective, and encodes nothing twice
        own, self._chosen = sorted_settings(method, (Fsdp,), settings, {})
        self._chosen.check(method)
        self._compressors = CompressorMap(method, own, Exchange.second_bits)
        if self._compressors.single_worker:
            raise ValueError(
                f"method={method!r}: sends one worker's gradient alone, not all ranks'; legal here: all other methods"
            )
        self._memories = remembering(self._compressors, self._chosen)
        self.between: MeanBetween | None = None
        if between is not None:
            how = {"bits": bits_between, "seed": self._seed, "timeout_s": self.timeout_s, "settings": settings}
            self.between = MeanBetween(method, name, between, **how)
        self.name = name
        self.step = self._begun = 0  # the latter: where this process began
        self.at_the_end = AtTheEnd()
        self.overlapped: nn.Module | None = None  # the module, where its gradients may come at the end
        self._end: Callable[[], None] | None = None  # of the last call
        self._drivers: dict[dist.ProcessGroup, Driver] = {}
        self._driver: Driver | None = None  # of the last call
        self._rounds: list[tuple[FlatLayout, ...]] = []  # the pieces of all owners' shards that are sent together

    @property
    def transport(self) -> Transport | None:
        """What carries the messages and counts their bytes; None before the first call."""
        return self._driver.transport if self._driver else None

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> Tensor:
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(
        self, output_tensor: Tensor, input_tensor: Tensor, group: dist.ProcessGroup, op: Any, async_op: bool = False
    ) -> dist.Work | None:
        """Compute output = this rank's shard of the ranks' mean (or sum, as ``op`` says), averaged between machines."""
        del async_op  # what is done when the call returns needs no waiting for
        self._come_amid()
        flat, size = input_tensor.reshape(-1), output_tensor.numel()
        if self._driver is not None and self._driver.transport.group is not group:
            self._forget()  # what is remembered is of the other group's shards
        if group not in self._drivers:
            self._drivers[group] = self._made(group, input_tensor.device)
        driver = self._driver = self._drivers[group]
        rank, world = driver.transport.rank, driver.transport.world
        with driver.transport.telling():
            if not self._rounds or sum(pieces[0].num_coordinates for pieces in self._rounds) != size:
                self._arrange(world, size)
            parts = reduced_now(size) if self._memories else None
            for memory in self._memories:
                memory.turn(self.name, rank, world, size, parts, self.step)
        key = Key(self._seed, self.step, rank, piece_of=2)
        self.step += 1
        driver.fit_levels(flat, [piece.segments[0] for pieces in self._rounds for piece in pieces], key)
        out, factor = output_tensor.view(-1), _factor(op, world)
        if self.between is not None:
            out = torch.empty(size, dtype=torch.float32, device=output_tensor.device)
        arrived = driver.begin_reduce_scatter(flat, self._rounds, key, factor, out)
        finish = functools.partial(self._finish, arrived, key, output_tensor, out, parts)
        # a sum may have to be divided, and that at once
        may_wait = self.overlapped is not None and op != dist.ReduceOp.SUM
        parameters = filled_later(self.overlapped, output_tensor) if may_wait else []

        def end() -> None:
            finish()
            check_views(self.name, parameters, output_tensor)

        self._end = on_this_stream(end, output_tensor.device)
        if parameters:
            self.at_the_end.add(self._come)
        else:
            self._come_amid()
        return None

    def _come_amid(self) -> None:
        """End the last call amid FSDP's own work, which no error may interrupt: it comes at the end."""
        try:
            self._come()
        except NonFiniteError as error:
            if not inside_backward():
                raise
            self.at_the_end.fail(error)

    def _come(self) -> None:
        """End the last call, if that waits for it."""
        end, self._end = self._end, None
        if end is not None:
            end()

    def _finish(
        self, arrived: Callable[[], None], key: Key, output_tensor: Tensor, out: Tensor, parts: Parts | None
    ) -> None:
        """Fill the output: ``arrived`` fills ``out``, which is its memory unless machines are averaged, too."""
        failure, transport = None, self.transport
        assert transport is not None
        with transport.telling():
            try:
                with told_plainly():
                    arrived()
            except NonFiniteError as error:  # on all ranks of this group
                failure = error
            if self.between is not None:
                # the worker: a rank of this machine
                failure = self.between.mean(out, key.worker, key.step, failure, parts)
                output_tensor.view(-1).copy_(out)
            self._settle(undo=failure is not None)
        if failure is not None:  # on all ranks: none of these messages has counted
            output_tensor.fill_(math.nan)  # as FSDP alone has it, and not what the memory held
            raise failure

    def _arrange(self, world: int, size: int) -> None:
        """Expect vectors of so many shards of so many coordinates from now on."""
        shards = [FlatLayout((Segment(self.name, at, size, first=at),)) for at in range(0, world * size, size)]
        self._rounds = list(zip(*(shard.shards(pieces_of(size)) for shard in shards), strict=True))

    def _forget(self) -> None:
        self._rounds = []
        for memory in (*self._memories, *([self.between] if self.between else [])):
            memory.forget()

    def _settle(self, *, undo: bool) -> None:
        for each in (*self._compressors.memories, *([self.between] if self.between else [])):
            each.settle(undo=undo)

    def _made(self, group: dist.ProcessGroup, device: torch.device) -> Driver:
        """The driver of this module's group, on whose settings all ranks agree."""
        transport = Transport(group, timeout_s=self.timeout_s, device=device)
        if self.between is not None:
            self.between.meet(transport, device)
        told = {"method": self._compressors.name, **vars(self._compressors.settings), **vars(self._chosen)}
        check_settings(transport, {**told, "module": self.name, "seed": self._seed})
        nothing_remembered = FlatLayout(())
        with transport.telling():
            return Driver(self._compressors, nothing_remembered, Exchange(), transport, transport.world, self._seed)

    def summary(self) -> str:
        """A table of what this module's gradients took and saved on this rank since it began here."""
        title = f"{self._compressors.name} for gradients of {self.name}"
        driver, steps = self._driver, self.step - self._begun
        if driver is None:
            return f"{title}: nothing has been exchanged"
        size = driver.transport.world * sum(pieces[0].num_coordinates for pieces in self._rounds)
        more = self.between.bytes_sent if self.between else 0
        how = {"plain": "reduce-scatters", "passes": 1, "also_sent": more}
        return of_exchanges(title, driver, f"{steps:,}", steps, size, **how)

    # --- what is saved (``nuq.fsdp_state``) ---

    @property
    def has_state(self) -> bool:
        """Whether there is anything to save beside the number of steps."""
        return bool(self._compressors.memories)

    def covers(self, parameter: nn.Parameter) -> bool:
        """Whether a parameter of the module is part of the vector."""
        return parameter.requires_grad

    def saved_row(self, transport: Transport, parts: Parts) -> Tensor | None:
        """This rank's shard of the mean of all ranks' memories, float32[n]; None before the first.  A collective call.

        The mean is what the gradients' mean lacks, and is as long as the gradient, whatever the number of ranks.  It
        includes what messages between machines left out, so that it is the mean over machines then.
        """
        (memory,) = self._memories
        memory.turn(self.name, transport.rank, transport.world, sum(map(size_of, parts)), parts, self.step)
        if not memory.around.memories:
            return None
        kept = memory.around.memories[transport.rank]["residuals"][self.name].view(transport.world, -1)
        outgoing = {rank: kept[rank].view(torch.uint8) for rank in transport.others}
        received = transport.swap(outgoing, dict.fromkeys(outgoing, 4 * kept.shape[1]), "state")
        rows = (
            received[rank].view(torch.float32).to(kept.device) if rank in received else kept[rank]
            for rank in range(transport.world)
        )
        mean = torch.stack(list(rows)).mean(dim=0)
        return mean if self.between is None else self.between.with_memory(mean, transport.rank, self.step, parts)

    def resume(self, step: int, rows: Tensor | None, rank: int, parts: Parts) -> None:
        """Go on from a number of steps and from all ranks' saved rows, float32[ranks, n]; None: from no memory."""
        self.step = self._begun = step
        self._forget()
        if rows is not None:
            (memory,) = self._memories
            memory.turn(self.name, rank, len(rows), rows.shape[1], parts, step)
            memory.take(self.name, rank, rows)
