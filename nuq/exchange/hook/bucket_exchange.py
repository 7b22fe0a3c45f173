"""The exchange of DDP's buckets for one model on its ranks: what a process has of a hook, and a file has not.

What lasts is keyed by parameter name: DDP rebuilds its buckets after the first step.
"""

from __future__ import annotations

import functools
import math
import warnings
import zlib
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from nuq.errors import NonFiniteError
from nuq.exchange import agreement, saved_ranks, summary
from nuq.exchange.collectives.collective import nothing_left
from nuq.exchange.driver import Driver, Memory
from nuq.exchange.hook import saved_state, speed_gate
from nuq.exchange.hook.buckets import Bucket, Plan, emptied, made
from nuq.exchange.hook.settings import HookSettings
from nuq.exchange.hook.used_parameters import UsedParameters
from nuq.exchange.payload import check_mean
from nuq.exchange.transport import Transport, apart, backend_of, group_of
from nuq.kernels.spec import Key
from nuq.parameters import is_sharded, refuse_sparse_gradients, trained


def ranks_of(model: nn.Module | None, group: dist.ProcessGroup | None) -> dist.ProcessGroup | None:
    """The group that was given, or the model's own, or that of all ranks; None where there is none."""
    return group_of(getattr(model, "process_group", None) if group is None else group)


class BucketExchange:
    """The exchange of the gradients of ``model``, bucket by bucket, between the ranks of ``group``.

    names: of the parameters by their identity, which DDP's buckets tell.  Building it is a collective call.
    ValueError, as ``nuq.CompressionState`` says.
    """

    def __init__(self, chosen: HookSettings, model: nn.Module, group: dist.ProcessGroup | None) -> None:
        if not dist.is_available() or not dist.is_initialized():
            raise ValueError(
                "a CompressionState exchanges between processes: call torch.distributed.init_process_group first"
            )
        self.chosen, self.hook = chosen, chosen.hook
        self.parameters = trained(model)
        if sharded := [name for name, p in self.parameters.items() if is_sharded(p)]:
            why = "of which each rank has a part, and DDP's hook is given whole gradients"
            raise ValueError(
                f"parameter {sharded[0]!r} is a DTensor, {why}; for FSDP2 call nuq.compress_fsdp(model, ...)"
            )
        refuse_sparse_gradients(self.parameters)
        self._model = model  # keeps the parameters alive, whose identities are the keys
        self.names = {id(p): name for name, p in self.parameters.items()}
        self.device = next(iter(self.parameters.values())).device if self.parameters else torch.device("cpu")
        self.sizes = {name: p.numel() for name, p in self.parameters.items()}
        self.shapes = {name: tuple(p.shape) for name, p in self.parameters.items()}
        shared = ranks_of(model, group)
        assert shared is not None
        # a transport apart from the buckets' messages
        self._told = Transport(shared, timeout_s=self.hook.timeout_s, device=self.device)
        same = {"method": chosen.method, **chosen.plain, "layers": chosen.layers}
        same |= {f"parameter {name}": list(shape) for name, shape in self.shapes.items()}
        agreement.check_settings(self._told, same)
        self._compressors = chosen.compressors()
        self._compressors.assign(self.shapes)
        feedback = chosen.feedback
        self._compressors.check_momentum(self.shapes, feedback.settings(), chosen.passes_by, skip_1d=self.hook.skip_1d)
        # all else that gloo sends is matched by tag
        if group is None and (chosen.passes_by or backend_of(shared, self.device.type) == "nccl"):
            group = apart(shared)
        self.group = group or shared
        self._owner = saved_ranks.Owner.within(self.group)  # now: a state may be saved after the group has ended
        self.transport = Transport(self.group, timeout_s=self.hook.timeout_s, device=self.device)
        self._small = chosen.small(self._compressors, self.shapes)
        whole = self._compressors.arrange(self.shapes, *self._small)
        self.vectors = {segment.name: segment.size for segment in whole.segments if not segment.exact}
        self.driver = Driver(
            self._compressors,
            whole,
            chosen.exchange,
            self.transport,
            self.transport.world,
            self.hook.seed,
            memory=Memory(feedback.settings(), feedback.momentum, feedback.nesterov),
            per_machine=self.hook.per_machine,
        )
        if not self.driver.is_dense and self._compressors.compresses_nothing(whole):
            warnings.warn(f"CompressionState: {chosen.nothing_compressed()}", stacklevel=4)
        for memory in self._compressors.memories:
            memory.may_undo = self.hook.on_non_finite == "propagate"
        of_model = any(each.scope == "model" for each in self._compressors.every)
        self._joins = chosen.exchange.collective != "dense" and of_model
        every, names = self._compressors.every, [name for name in whole.arranged(list(self.sizes)) if self.sizes[name]]
        lying = zip(names, whole.within({name: self.sizes[name] for name in names}, names), strict=True)
        kept = [name for name, (own, _) in lying if not own.exact and every[own.encoder].remembers]
        self._used = UsedParameters(model, {name: self.parameters[name] for name in kept}) if kept else None
        self._shaped = any(encoder.shaped for encoder in self._compressors.codec.compressors)
        self.plans: dict[tuple[str, ...], Plan] = {}
        self.step = self._begun = 0  # the latter: of the training at which this process began
        self.gate_s: dict[str, float] = {}  # what the gate measured: seconds by collective
        self._agreed = False
        # the next bucket is the first of its step; a bucket of this step was not finite
        self._first, self._skipped = True, False

    @property
    def begins(self) -> bool:
        """Whether levels are fitted to this step's gradient, which must be whole before any of it is sent."""
        return not self.driver.is_dense and bool(self.driver.levels.beginning)

    @property
    def waits(self) -> bool:
        """Whether a step's buckets are exchanged together, when the last one is there."""
        return self._joins or self.begins

    def used_of(self, names: Collection[str]) -> frozenset[str]:
        """Of a bucket's parameters those that this rank used; asked once, when DDP hands it over."""
        return self._used.taken(names) if self._used is not None and self._used.looks else frozenset()

    # --- what is saved ---

    def state_dict(self) -> dict[str, Any]:
        """This rank's state as plain numbers and tensors, under the rank's name (``nuq.exchange.saved_ranks``)."""
        return self._owner.entry(self._state())

    def _state(self) -> dict[str, Any]:
        levels, rank = self.driver.levels, self.transport.rank
        rows = {one.encoder: one.rows(torch.device("cpu"))[rank] for one in levels.every}
        return {
            "method": self.chosen.method,
            "step": self.step,
            "rank": rank,
            "ranks": self.transport.world,
            "memories": self.driver.num_remembering,
            "collective": self.driver.collective_name,
            "coders": self._compressors.state_dict(),
            "layers": self.chosen.layers,
            "statistics": rows,
        }

    def load_state_dict(self, states: dict[int | None, Any]) -> None:
        """Continue from states by rank whose heads are checked; ValueError, with nothing changed, for a misfit."""
        states = saved_ranks.of_group(states, self._owner.group)
        rank, world, levels = self.transport.rank, self.transport.world, self.driver.levels.every
        second, present = self.chosen.exchange.collective not in ("auto", "hierarchical"), self._state()
        coders = {at: saved_state.checked(one, present, self.vectors, second=second) for at, one in states.items()}
        which = saved_ranks.own_or_all(states, rank, world, self.driver.num_remembering)
        if isinstance(which, Sequence):
            saved_state.check_alike({at: states[at] for at in which})
            compressors = saved_ranks.combined([coders[at] for at in which], self._compressors, self.driver.remembering)
            state, seen = states[which[0]], [states[at] for at in which[rank::world]]
        else:
            compressors, state = coders[which], states[which]
            whole = state.get("rank", rank) == rank and state.get("ranks", world) == world
            seen = [state] if whole else []  # another rank's
        statistics = saved_state.statistics(seen, levels)
        self.step, self._begun, self._agreed = state["step"], state["step"], False
        self._compressors.load_state_dict(compressors, self.device)
        for level_updater, found in zip(self.driver.levels.every, statistics, strict=True):
            level_updater.statistics = {rank: found}
        if self.hook.gate and state["collective"] == "dense":  # its word still holds
            self.driver.turn_dense()

    def summary(self) -> str:
        """A table of what the exchanges since the beginning took and saved here."""
        size, steps, name = sum(self.sizes.values()), self.step - self._begun, self.driver.collective_name
        gate, title = summary.of_gate(self.hook.gate, self.gate_s, name), f"{self.chosen.method} by {name}"
        return summary.of_exchanges(title, self.driver, f"{steps:,}", steps, size, gate=gate)

    # --- one step ---

    def begin(self, buckets: list[Bucket]) -> Callable[[], None]:
        """Begin to exchange buckets, as one vector where a method's is; what is returned writes the mean into them."""
        with self.transport.telling():
            if self._first:
                self._before_step()
                self._skipped = False
            unused = frozenset[str]()
            if self._used is not None and self._used.looks and not self.driver.is_dense:
                unused = self._used.by_none(buckets, self.transport)
            put_back = emptied(buckets, self.sizes, unused)
            several = [buckets] if self._joins else [[bucket] for bucket in buckets]
            if self.begins:
                self._fit_first(several)
            ends = [self._begin_one(some, unused) for some in several]

        def end() -> None:
            with self.transport.telling():
                for each in ends:
                    each()
                put_back()  # DDP may have given a parameter's own gradient, which then stays as it was

        return end

    def _begin_one(self, buckets: list[Bucket], unused: Collection[str]) -> Callable[[], None]:
        """Begin the exchange of one vector; its end writes the mean into the memory of the vector's buckets."""
        self._first = last = buckets[-1].last
        plan, driver = self._plan(buckets), self.driver
        layout, vector = plan.layout, plan.vector(buckets)
        mine = {self.transport.rank: vector}
        idle = layout.within(plan.sizes, unused) if unused else ()
        mean = vector if vector.dtype == torch.float32 else torch.empty_like(vector, dtype=torch.float32)
        if not driver.is_dense:
            which = [one for one in driver.levels.every if one.collects(self.step + 1) and not one.begins]
            driver.levels.observe(mine, layout.segments, self.step, which)
        arrived = nothing_left
        with self._finite_or_skipped(mean):
            arrived = driver.begin(mine, layout, Key(self.hook.seed, self.step, self.transport.rank), mean, idle)

        def end() -> None:
            with self._finite_or_skipped(mean):
                arrived()
                # an all-reduce checks nothing, the other collectives check float32
                if driver.is_dense or vector.dtype != torch.float32:
                    check_mean(mean, layout, vector.dtype)
            for memory in self._compressors.memories if last else ():
                memory.settle(undo=self._skipped)
            plan.spread(mean, buckets)
            for one in buckets if self.hook.debug else ():
                names = ", ".join(one.names)
                agreement.check_same(self.transport, f"step {self.step}: the means of {names}", one.buffer)
            self.step += last

        if not self.hook.debug:
            return end
        end()  # which sends: nothing else may be sent meanwhile
        return nothing_left

    @contextmanager
    def _finite_or_skipped(self, mean: Tensor) -> Iterator[None]:
        """Let a NonFiniteError pass, or fill the mean with what a gradient scaler looks for, to skip the step."""
        try:
            yield
        except NonFiniteError:
            if self.hook.on_non_finite == "raise":
                raise
            mean.fill_(math.nan)
            self._skipped = True

    def _plan(self, buckets: list[Bucket]) -> Plan:
        """The plan for a bucket, with small neighbours together, or for all buckets, in the model's order."""
        names = tuple(name for bucket in buckets for name in bucket.names)
        if names not in self.plans:
            exact, cast = self._small
            arrange = functools.partial(self._compressors.arrange, exact=exact, cast=cast)
            self.plans[names] = made(names, self.parameters, arrange, waits=self._joins, shaped=self._shaped)
        return self.plans[names]

    # --- before a step ---

    def _before_step(self) -> None:
        driver, step = self.driver, self.step
        if not self._agreed:
            fitted = [(one.fitted, one.levels.values.tolist()) for one in self._compressors.adaptive]
            same = {"collective": driver.collective_name, "checksum of the levels": zlib.crc32(repr(fitted).encode())}
            if self._used is not None and self._used.looks:
                same |= {"find_unused_parameters or static_graph": True}
            agreement.check_settings(self._told, {"step": step, **same})
            self._agreed = True
        if self.hook.gate and step == speed_gate.STEP and not driver.is_dense:
            pair = [driver.collective, driver.dense]
            with self.transport.telling():
                spent = speed_gate.seconds(pair, self.transport, sum(self.sizes.values()), self.device)
            self.gate_s = dict(zip((driver.collective_name, "dense"), spent, strict=True))
            if spent[0] >= spent[1]:
                driver.turn_dense()
        if not driver.is_dense and step > 0:  # the first levels are fitted to the step's own gradient
            driver.levels.update([one for one in driver.levels.every if one.next_update(step) == step])
        if self.hook.debug:
            for compressor in self._compressors.adaptive:
                levels = torch.tensor(compressor.levels.values, dtype=torch.float64, device="cpu")
                agreement.check_same(self.transport, f"step {step}: the levels", levels)

    def _fit_first(self, several: list[list[Bucket]]) -> None:
        """Fit the first levels to this step's gradient in the model's order, but for ranks where it is not finite."""
        plans = [(buckets, self._plan(buckets)) for buckets in several]
        found = {
            segment.name: (vector, segment)
            for buckets, plan in plans
            for vector in [plan.vector(buckets)]
            for segment in plan.layout.segments
        }
        pieces = [found[name] for name in self.vectors if name in found]
        rank, levels = self.transport.rank, self.driver.levels
        for one in levels.beginning:
            one.forget()
            if not all(levels.observe({rank: vector}, [segment], self.step, [one]) for vector, segment in pieces):
                one.forget()
            levels.update([one])
