"""Local steps with an outer optimizer: ranks train by themselves, and exchange what they moved by once a round.

::

    loop = nuq.OuterLoop(model, optimizer, method="topk", ratio=0.02, every=64)
    ...
    loop.step()                                          # in place of optimizer.step()

Every rank trains a model of its own (not under DDP).  After H local steps it sends how far it moved, compressed, and an
outer optimizer takes the mean of all ranks' moves as its gradient: DiLoCo (Douillard et al., 2023, arXiv 2311.08105,
Algorithm 1), with any inner optimizer, so MuLoCo (Therien et al., 2025) with Muon, and AdamW for what is no matrix.  In
fragments, which travel one after another while training goes on, it is Streaming DiLoCo (Douillard et al., 2025, arXiv
2501.18512, Algorithm 2); its fragments are made of layers far apart, these of neighboring tensors of about as many
coordinates together.  With the largest 64 of 4096 coordinates in two bits, a residual that decays, and no outer
momentum it is SparseLoCo (Sarfi et al., 2025, arXiv 2508.15706)::

    sparse = {"method": "topk", "bucket_size": 4096, "ratio": 64 / 4096, "values": "2bit", "decay": 0.95}
    loop = nuq.OuterLoop(model, optimizer, outer_lr=1.0, outer_momentum=0.0, nesterov=False, **sparse)

Its two bits are a sign and one of two magnitudes here (``nuq.settings.sparse.TopK``).
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Unpack

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim import Optimizer

from nuq.errors import NonFiniteError
from nuq.exchange import agreement, saved_ranks
from nuq.exchange.collective_factory import Dense
from nuq.exchange.compressor_map import CompressorMap, sorted_settings
from nuq.exchange.driver import Driver, Memory
from nuq.exchange.finite import first_not_finite
from nuq.exchange.payload import RemoteNonFinite
from nuq.exchange.summary import of_exchanges
from nuq.exchange.transport import RefusalsTold, Transport, apart, backend_of, group_of
from nuq.fragments import Arrived, Fragment, checked, fragments_of, load, own_or_mean, saved
from nuq.inner_optimizers import several, trained_by
from nuq.kernels.spec import Key
from nuq.parameters import places_of, reshard, shard
from nuq.registry import method as entry_of
from nuq.settings.outer import Outer, OuterExchange
from nuq.settings.typed import OfOuter

OTHER_DEFAULTS: dict[str, Any] = {"scope": "tensor"}  # one vector per parameter


class OuterLoop:
    """Local steps of this rank's model, and every so many an exchange of what all ranks moved by.

    model: this rank's own, not under DDP, trained by ``inner_optimizer``, or by several in a list, each of which has
    some of the parameters.  Building a loop is a collective call: every rank makes it, with the same settings; all then
    have the first rank's parameters, frozen ones too, and buffers.  settings: those of the method (``bits=4``), of
    ``nuq.settings.outer`` the ``Outer`` (``every=64``, ``outer_lr=0.7``, ``fragments=4``, ...) and of the exchange
    (``collective="two_stage"``).  Adaptive methods fit their levels to each message, and these travel with it.  The
    outer parameters are kept in float32, whatever the model's type; buffers stay each rank's own.

    Under FSDP2 inside each machine the loop exchanges local shards: ``group`` then has the ranks that own the same
    shards, one on each machine, as ``mesh.get_group("machines")``.

    ``finish`` ends a training: it takes over what is left, and all ranks have one model, to be saved and evaluated.

    ValueError for a setting that does not exist or is out of range, for optimizers that do not fit the model, and where
    ranks differ; RuntimeError after ``close``.  In ``step``, on all ranks: NonFiniteError names the rank and the
    parameter that are not finite; RankLost the rank that died.  The others may then destroy the process group, make a
    new one with a new rank in it, and all call ``attach``.
    """

    def __init__(
        self,
        model: nn.Module,
        inner_optimizer: Optimizer | Sequence[Optimizer],
        *,
        method: str = "alq",
        group: dist.ProcessGroup | None = None,
        **settings: Unpack[OfOuter],
    ) -> None:
        with RefusalsTold(group_of(group)):
            schemas = (OuterExchange, Outer)
            self._own, self._exchange, self._chosen = sorted_settings(method, schemas, settings, OTHER_DEFAULTS)
            self._feedback = self._chosen.memory(method)
            self._casts = entry_of(method).casts and self._feedback.kind == "none"  # small parameters, too
            self.method, self.model = method, model
            self.inner_optimizer: Any = inner_optimizer  # one or several, as they were given
            self._optimizers = several(inner_optimizer)
            reshard(model)
            self._parameters = trained_by(self._optimizers, model)
        self._closed = False
        self.count = 0  # local steps so far
        self.taken = 0  # exchanges whose mean has been taken over
        self._begun = False  # whether this rank has the outer parameters of all
        self._fragments: list[Fragment] = []
        self._thread = ThreadPoolExecutor(1, "nuq exchanges")
        self.attach(group)

    # --- the ranks ---

    def attach(self, group: dist.ProcessGroup | None = None) -> None:
        """Bind the loop to the ranks of a group, also of a new one after a rank was lost.  A collective call.

        A rank that is new, or has taken over fewer exchanges than others, goes on from the first of those with the
        most that is not new: with its outer parameters, momentum, frozen parameters, buffers and count of local steps.
        A new one remembers nothing of its own messages, and one behind by an exchange that failed on it alone what that
        message left out, as its move is in the others' mean.  Means that were on their way are dropped.
        """
        self._check_open()
        group = group_of(group)
        if group is None:
            raise ValueError("an OuterLoop exchanges between ranks: call torch.distributed.init_process_group first")
        with RefusalsTold(group):
            reshard(self.model)
            device = next(iter(self._parameters.values())).device if self._parameters else torch.device("cpu")
            shapes = {name: shard(p).shape for name, p in self._parameters.items()}
            told = Transport(group, timeout_s=self._chosen.timeout_s, device=device)
            agreement.check_shards(told, places_of(self._parameters))
            same = {"method": self.method, **vars(self._own), **vars(self._exchange), **vars(self._chosen)}
            same |= {f"parameter {name}": list(shape) for name, shape in shapes.items()}
            same["shapes of frozen parameters and buffers"] = [list(tensor.shape) for tensor in self._untrained()]
            agreement.check_settings(told, same)
            if self._chosen.overlap and backend_of(group, device.type) == "nccl":
                group = apart(group)  # the training's own collectives may run meanwhile
            self._drop()
            compressors = CompressorMap(self.method, self._own, self._exchange.second_bits)
            compressors.assign(shapes)
            transport = Transport(group, timeout_s=self._chosen.timeout_s, device=device)
            small = {"exact": self._is_whole, "cast": self._is_cast}
            whole = compressors.arrange(shapes, **small)
            settings = (self._exchange, transport, transport.world, self._chosen.seed)
            driver = Driver(compressors, whole, *settings, memory=Memory(self._feedback), per_machine=1)
            if not self._fragments:
                arrange = functools.partial(compressors.arrange, **small)
                self._fragments = fragments_of(self._parameters, self._chosen.fragments, self._chosen.every, arrange)
                if compressors.compresses_nothing(whole):
                    why = f"every parameter (of FSDP2: every shard) is below min_size={self._chosen.min_size}"
                    remedy = "and travels in full precision; min_size=0 compresses them"
                    warnings.warn(f"OuterLoop: nothing is compressed: {why}, {remedy}", stacklevel=3)
            else:
                compressors.load_state_dict(self._compressors.state_dict(), device)
                for around in compressors.memories:  # whatever this rank's number was
                    around.memories = (
                        dict.fromkeys([transport.rank], *around.memories.values()) if around.memories else {}
                    )
            self._compressors, self._driver, self._owner = compressors, driver, saved_ranks.Owner.within(group)
            self._catch_up(told)
            self._attached_at = self.count

    def _drop(self) -> None:
        """Drop the means on their way, which moves no parameter, and remember what was before their messages."""
        for fragment in self._fragments:
            if fragment.coming is not None and fragment.coming.exception() is None:
                self._undo(fragment, fragment.coming.result().before)
            fragment.coming = None

    def _undo(self, fragment: Fragment, before: list[Tensor]) -> None:
        for kept, was in zip(self._kept(fragment), before, strict=True):
            kept.copy_(was)

    def _kept(self, fragment: Fragment) -> list[Tensor]:
        key = Key(self._chosen.seed, 0, self._driver.transport.rank)
        return fragment.kept(self._compressors.memories, key)

    def _is_small(self, name: str, joined: bool) -> bool:
        return not joined and shard(self._parameters[name]).numel() < self._chosen.min_size

    def _is_whole(self, name: str, joined: bool) -> bool:
        """Whether a parameter travels in full precision."""
        return self._is_small(name, joined) and not self._casts

    def _is_cast(self, name: str, joined: bool) -> bool:
        """Whether a parameter is cast with its neighbors."""
        return self._is_small(name, joined) and self._casts

    def _catch_up(self, transport: Transport) -> None:
        """Bring ranks that are new or behind to the state of the first of those that are not."""
        mine = [self.taken, int(self._begun), self.count, *(fragment.taken for fragment in self._fragments)]
        rows = transport.numbers(mine, "control")
        standings = [row[:2] for row in rows]
        furthest = max(standings)
        ahead, begins = standings.index(furthest), not furthest[1]  # begins: all are new
        if begins or any(each != furthest for each in standings):
            self._take_over(transport, ahead, takes=begins or standings[transport.rank] != furthest)
        self.taken, self._begun, self.count = rows[ahead][0], True, rows[ahead][2]
        for fragment, taken in zip(self._fragments, rows[ahead][3:], strict=True):
            fragment.taken, fragment.left = taken, []

    def _take_over(self, transport: Transport, source: int, *, takes: bool) -> None:
        """Send a rank's state to all; takes: whether this rank goes on from it."""
        common = [vector for fragment in self._fragments for vector in (fragment.outer, fragment.momentum)]
        for tensor in (*common, *self._untrained()):
            theirs = tensor.clone()
            transport.broadcast(theirs, "parameters", source)
            if takes:  # of an expanded tensor each element once
                own = tuple(slice(0, 1) if stride == 0 else slice(None) for stride in tensor.stride())
                tensor[own].copy_(theirs[own])
        if takes:
            for fragment in self._fragments:
                fragment.write(fragment.outer)
            taken = [fragment for fragment in self._fragments if fragment.left and self._begun]
            for fragment in taken:  # the others have the mean of an exchange that failed here alone
                self._undo(fragment, fragment.left)
            for memory in self._compressors.memories if not taken else ():
                memory.memories.clear()

    def _untrained(self) -> list[Tensor]:
        frozen = (p for p in self.model.parameters() if not p.requires_grad)
        return [shard(tensor) for tensor in (*frozen, *self.model.buffers())]

    # --- training ---

    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Take the inner optimizer's step, and what of the outer loop is due after it; returns the closure's loss.

        Of several inner optimizers the first one calls the closure, and the others step along the same gradients.
        """
        self._check_open()
        first, *others = self._optimizers
        loss = first.step(closure) if closure is not None else first.step()
        for optimizer in others:
            optimizer.step()
        self.advance()
        return loss

    def advance(self) -> None:
        """Count a local step that was taken otherwise (as by a gradient scaler, also one that it skipped).

        A collective call where a round ends: every rank takes as many local steps.
        """
        self._check_open()
        self.count += 1
        for fragment in self._fragments:
            if fragment.coming is not None and self.count >= fragment.sent + self._chosen.overlap:
                self._take(fragment, self._mixing)
            if self.count % self._chosen.every == fragment.at:
                self._send(fragment)
                if not self._chosen.overlap:
                    self._take(fragment)

    def finish(self) -> None:
        """End a training: all ranks have one model then, the outer parameters, which is the one to save and evaluate.

        A collective call, after the last local step; ValueError, on all ranks, where they have taken unequal numbers of
        them.  Means on their way are taken over.  What was moved since it was last sent is sent now, in float32: the
        ranks end with the mean of their models.  A message would leave out what no later one brings, and the outer
        optimizer's momentum is for whole rounds.  A second call, or one where a round has just ended, only compares the
        numbers of steps.  Buffers stay each rank's own.

        A state to go on from is saved before it: a training that goes on as if it had not ended needs the ranks' own
        models.  One that goes on afterwards, which is legal, begins with the outer parameters.
        """
        self._check_open()
        pending = [fragment for fragment in self._fragments if fragment.coming is not None]
        for fragment in sorted(pending, key=lambda fragment: fragment.sent):
            self._take(fragment, self._mixing if self.count > fragment.sent else 0.0)
        agreement.check_steps(self._driver.transport, self.count)  # meets the exchange of a rank that trains on
        moved = [fragment for fragment in self._fragments if self.count > fragment.taken]
        means = [self._thread.submit(self._whole_mean, fragment).result() for fragment in moved]
        for fragment, mean in zip(moved, means, strict=True):
            fragment.end(mean, self.count)
            self.taken += 1

    @property
    def _mixing(self) -> float:
        """The share of a rank's own parameters that stays when a mean arrives amid a training."""
        return self._chosen.mixing if self._chosen.overlap else 0.0

    def _send(self, fragment: Fragment) -> None:
        with self._driver.transport.telling(), torch.no_grad():
            moved = fragment.outer - fragment.local()
        fragment.coming = self._thread.submit(self._mean, fragment, moved, self.count)
        fragment.sent = self.count

    def _whole_mean(self, fragment: Fragment) -> Tensor:
        """The mean of all ranks' moves in float32; NonFiniteError, on all ranks, where one is not finite."""
        transport = self._driver.transport
        with transport.telling(), torch.no_grad():
            moved = fragment.outer - fragment.local()
            mean = torch.empty_like(moved)
            Dense(transport, torch.float32).mean({transport.rank: moved}, fragment.layout, Key(0, 0, 0), mean)
        if first_not_finite([mean]) is not None:
            name = fragment.at_fault(mean)
            raise NonFiniteError(f"the mean of what the ranks moved {name!r} is not finite or overflows float32")
        return mean

    def _mean(self, fragment: Fragment, moved: Tensor, count: int) -> Arrived:
        """The mean of all ranks' vectors; called in the thread that exchanges.

        A move whose exchange fails is sent again with the next one, so that nothing may have left the memory for it.
        """
        driver, layout = self._driver, fragment.layout
        key, out = Key(self._chosen.seed, count, driver.transport.rank), torch.empty_like(moved)
        before = [kept.clone() for kept in self._kept(fragment)]
        fragment.left = []
        agreement.check_steps(driver.transport, count)
        try:
            with driver.transport.telling(), torch.no_grad():
                driver.fit_levels(moved, driver.sent(layout), key)
                driver.mean({driver.transport.rank: moved}, layout, key, out)
        except RemoteNonFinite as marked:  # alike on all ranks; the parameter only that rank knows
            self._undo(fragment, before)
            name = driver.transport.texts(fragment.at_fault(moved), "control")[marked.worker]
            what = f"the move of {name!r} on rank {marked.worker}"
            raise NonFiniteError(f"{what} is not finite or overflows float32") from None
        except BaseException:
            fragment.left = [kept.clone() for kept in self._kept(fragment)]
            self._undo(fragment, before)
            raise
        return Arrived(out, before)

    def _take(self, fragment: Fragment, mixing: float = 0.0) -> None:
        fragment.take(self._chosen, mixing)
        self.taken += 1

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError("this OuterLoop is closed: it takes no more steps; build a new one")

    def close(self) -> None:
        """End the thread that exchanges, after what is on its way, and let a server read what is left."""
        self._closed = True
        self._thread.shutdown()
        self._driver.settle()

    # --- what it costs ---

    @property
    def bytes_sent(self) -> int:
        """Bytes that this rank has handed to the network, since the last ``attach``."""
        return self._driver.bytes_sent

    @property
    def bits_by_layer(self) -> dict[str, float]:
        """Bits a coordinate of this rank's messages so far, headers included, by parameter (or vector of several)."""
        return self._driver.bits_by_vector()

    @property
    def seconds(self) -> dict[str, float]:
        """The seconds of encode, wire, decode and levels."""
        return dict(self._driver.stats.seconds)

    @property
    def collective(self) -> str:
        """The name of the collective in use, as ``auto`` chose it."""
        return self._driver.collective_name

    def summary(self) -> str:
        """A table of what the exchanges since ``attach`` took here, beside an all-reduce at every local step."""
        size, steps = sum(each.layout.num_coordinates for each in self._fragments), self.count - self._attached_at
        done = f"{steps:,} local, {self._chosen.every} in a round"
        return of_exchanges(f"{self.method} by {self.collective}", self._driver, done, steps, size)

    # --- what is saved ---

    @property
    def outer_parameters(self) -> dict[str, Tensor]:
        """Copies of the outer parameters, float32, by name: the model to evaluate amid a training."""
        return {name: t.clone() for each in self._fragments for name, t in each.split(each.outer).items()}

    def state_dict(self) -> dict[str, Any]:
        """This rank's state as plain numbers and tensors, ``{"rank1": (...,)}``, without model and inner optimizer.

        Every rank saves its own, as what messages left out differs.  It waits for what is on its way.
        """
        vectors = saved(self._fragments, self._chosen.overlap)  # first, as it waits
        transport, head = self._driver.transport, {"method": self.method, "settings": self._settings()}
        head |= {"rank": transport.rank, "ranks": transport.world, "collective": self.collective}
        head |= {"count": self.count, "taken": self.taken, "shards": places_of(self._parameters)}
        return self._owner.entry({**head, **vectors, "coders": self._compressors.state_dict()})

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from the entries of all ranks in one dictionary, of the same local step, or from this rank's alone.

        As ``nuq.CompressionState.load_state_dict``: as many ranks as there were go on bit by bit, others from the mean
        of all memories (under FSDP2 of the ranks with the same shards).  Model and inner optimizer are loaded apart.
        ValueError, with nothing changed, for a state of another method, settings, model or rhythm, or without memories.
        """
        transport, settings, here = self._driver.transport, self._settings(), places_of(self._parameters)
        entries, group = saved_ranks.by_rank(state), self._owner.group
        states = saved_ranks.of_group(entries, group, lambda one: one.get("shards", here) == here)
        fixed = ("every", "fragments", "overlap", "feedback", *vars(self._own))
        own = {"method": self.method, "collective": self.collective, **{key: settings[key] for key in fixed}}
        how = (own, transport.world, self._fragments, self._compressors)
        second = self._exchange.collective != "auto"
        state = own_or_mean({at: checked(one, *how, second=second) for at, one in states.items()}, self._driver)
        self._drop()
        device = self._fragments[0].outer.device if self._fragments else torch.device("cpu")
        self._compressors.load_state_dict(state["coders"], device)
        load(self._fragments, state, self._chosen.every, self._chosen.overlap)
        self.count, self.taken = state["count"], state["taken"]
        self._attached_at = self.count

    def _settings(self) -> dict[str, Any]:
        return {**vars(self._own), **vars(self._chosen), "feedback": self._feedback.kind}
