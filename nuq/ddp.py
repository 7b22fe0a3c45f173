"""The DDP communication hook: compressed gradients in an ordinary DistributedDataParallel training.

::

    state = nuq.CompressionState(ddp, method="alq", bits=3)
    ddp.register_comm_hook(state, nuq.compress_hook)

DDP hands over bucket after bucket while the backward pass goes on.  Two threads of the state exchange them one after
another, so encoding, sending and decoding overlap with the backward pass and, where lengths are known, with each other
(and no collective is issued from a future's callback, where gloo deadlocks); DDP waits for the buckets' futures.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._C._distributed_c10d import GradBucket

from nuq.compressors.feedback import keep_fitting
from nuq.compressors.quantizer import Quantizer
from nuq.exchange import saved_ranks
from nuq.exchange.compressor_map import by_encoder
from nuq.exchange.hook import saved_state
from nuq.exchange.hook.bucket_exchange import BucketExchange, ranks_of
from nuq.exchange.hook.bucket_threads import BucketThreads
from nuq.exchange.hook.settings import HookSettings
from nuq.exchange.transport import RefusalsTold, Transport
from nuq.settings.feedback import HookFeedback
from nuq.settings.typed import OfHook

_MOMENTUM = ("momentum", HookFeedback.momentum)


class CompressionState:
    """The state of ``compress_hook`` between steps: settings, levels, residuals, and the threads that exchange.

    model: the DistributedDataParallel module (or what it wraps); it gives the parameters' names.  Building a state is a
    collective call: every rank makes it, with the same settings.  settings: those of the method (``bits=3``,
    ``update_every=1000``, ...), and of ``nuq.settings.exchange`` the ``Exchange`` (``collective="auto"``,
    ``second_bits=4``, ``num_aggregate=0``) and ``Hook`` (``min_size``, ``gate``, ...), and
    ``nuq.settings.feedback.HookFeedback`` (``feedback="error"``, ...).  layers: lines of ``nuq.settings.layers`` for
    parameters with a method of their own.  A vector of several parameters (scope="model") is exchanged when the last
    bucket is there, so nothing of that step overlaps with the backward pass; so is the first gradient, to which
    adaptive methods fit their levels (``update_at`` with 0).  group: of the ranks, for this state alone; unless told
    otherwise the module's own, or all ranks once more where that would be mixed up with DDP's own collectives.

    ValueError for a setting that does not exist or is out of range, for sparse gradients, and where ranks differ in
    settings, versions or parameters.  Errors of an exchange end the backward pass, and ``error`` keeps them:
    NonFiniteError names the worker and the parameter, RankLost the rank that died, MessageError a message that came
    damaged.  (In DDP's ``join``, as RuntimeError with their text.)
    """

    def __init__(
        self,
        model: nn.Module | None = None,
        *,
        method: str = "alq",
        group: dist.ProcessGroup | None = None,
        layers: Sequence[str] = (),
        **settings: Unpack[OfHook],
    ) -> None:
        with RefusalsTold(None if model is None else ranks_of(model, group)):
            self.settings = HookSettings.of(method, layers, settings)
        self._saved: dict[str, Any] | None = None
        self._attached: BucketExchange | None = None
        self._threads = BucketThreads(lambda some: self._here.begin(some), lambda: self._here.waits)
        if model is not None:
            self.attach(model, group)

    # --- what a process has and a file has not ---

    def attach(self, model: nn.Module, group: dist.ProcessGroup | None = None) -> None:
        """Bind the state to a model and its ranks.  A collective call.

        It is for a state that was built without a model or comes from a file, and again where parameters were added,
        frozen or unfrozen: what the state has learned then stays, but for the residuals of parameters that changed.
        """
        carried, before = self._saved, self._attached
        if before is not None:
            self.close()
            carried = self.state_dict()
        with RefusalsTold(ranks_of(model, group)):
            attached = BucketExchange(self.settings, model, group)
            if carried is not None:
                if before is not None:
                    for kept in saved_ranks.by_rank(carried).values():
                        keep_fitting(by_encoder(kept["coders"]), attached.vectors)
                    attached.gate_s = before.gate_s
                self._attached, self._saved = None, carried  # kept where it does not fit
                attached.load_state_dict(saved_ranks.by_rank(carried))
        self._attached, self._saved = attached, None

    @property
    def _here(self) -> BucketExchange:
        if self._attached is None:
            raise ValueError(
                "this CompressionState has no model: build it with CompressionState(ddp, ...), or call attach(ddp) on "
                "every rank"
            )
        return self._attached

    def __getstate__(self) -> dict[str, Any]:
        """The method, the layers, the settings and this rank's state: what a pickle keeps, without model and group."""
        kept = self.settings
        return {"method": kept.method, "layers": kept.layers, "settings": kept.plain, "state": self.state_dict()}

    def __setstate__(self, saved: dict[str, Any]) -> None:
        # all settings are there, and momentum may be named only where it is read
        given = {name: value for name, value in saved["settings"].items() if (name, value) != _MOMENTUM}
        CompressionState.__init__(self, method=saved["method"], layers=saved.get("layers", ()), **given)
        self._saved = saved["state"]

    def state_dict(self) -> dict[str, Any]:
        """This rank's state as plain numbers and tensors, ``{"rank1": (...,)}``: every rank saves its own.

        The name is the rank among all ranks, also where a group of some of them trains part of a model.  Residuals and
        samples differ from rank to rank.  ``torch.distributed.checkpoint.save({"compression": state}, ...)`` saves the
        entries of all ranks under their names.
        """
        return (self._saved or {}) if self._attached is None else self._attached.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from the entries of all ranks in one dictionary (``states |= one.state_dict()`` for each rank).

        As many ranks as there were go on bit by bit, each from its own entry, which may also be given alone.  Another
        number of ranks goes on from the mean of all memories, and from levels and step as they are
        (``nuq.exchange.saved_ranks``).  All entries are of the same step.  Among those of several groups it takes its
        own group's.  Residuals are in the units of gradients, or a gradient scaler's.  Where nothing is remembered any
        rank's entry will do: levels are alike, statistics begin anew.  ValueError, with nothing changed, for a state of
        another method or other settings, for one that lacks memories, for entries that ``state_dict`` cannot have
        given, and for those of several groups of which none is this rank's.
        """
        states = saved_ranks.by_rank(state)
        for one in states.values():
            saved_state.check_head(one, self.settings.method, self.settings.layers)
        if self._attached is None:
            self._saved = state
        else:
            self._attached.load_state_dict(states)

    # --- what it does and what it costs ---

    @property
    def error(self) -> BaseException | None:
        """The error that ended an exchange; None as long as all went well."""
        return self._threads.error

    @property
    def step(self) -> int:
        """The number of steps since the training began; 0 without a model."""
        return self._attached.step if self._attached else 0

    @property
    def collective(self) -> str:
        """The name of the collective in use, as ``auto`` and the gate chose it."""
        return self._here.driver.collective_name

    @property
    def transport(self) -> Transport:
        """The transport of the messages."""
        return self._here.transport

    @property
    def gate_s(self) -> dict[str, float]:
        """The seconds that the gate measured, by collective; empty before it did."""
        return self._attached.gate_s if self._attached else {}

    @property
    def levels(self) -> list[float]:
        """The method's levels in use, from -1 to 1; empty for methods without a level set."""
        compressor = self._attached.driver.compressors.compressor if self._attached else None
        return compressor.levels.values.tolist() if isinstance(compressor, Quantizer) else []

    @property
    def bytes_sent(self) -> int:
        """Bytes that this rank has handed to the network; by purpose in ``transport.bytes_sent``."""
        return self._attached.driver.bytes_sent if self._attached else 0

    @property
    def bits_by_layer(self) -> dict[str, float]:
        """Bits a coordinate of this rank's messages so far, headers included, by parameter (or vector of several)."""
        return self._attached.driver.bits_by_vector() if self._attached else {}

    @property
    def seconds(self) -> dict[str, float]:
        """The seconds that the exchanging threads spent on encode, wire, decode and levels."""
        return dict(self._attached.driver.stats.seconds) if self._attached else {}

    def summary(self) -> str:
        """A table of what the exchanges since ``attach`` took and saved here: collective, bytes, bits, gate, time."""
        nothing = f"{self.settings.method}: without a model, nothing has been exchanged."
        return self._attached.summary() if self._attached else nothing

    def close(self) -> None:
        """End the threads, after they have exchanged what they were given."""
        self._threads.close()
        if self._attached is not None and self.error is None:
            self._attached.driver.settle()

    # --- in the backward pass ---

    def submit(self, bucket: GradBucket) -> torch.futures.Future[Tensor]:
        """Hand a bucket to the threads; returns the future of its mean, in the bucket's own memory."""
        here = self._here
        if self.error is not None:
            raise RuntimeError(f"an earlier exchange failed: {self.error}") from self.error
        with here.transport.telling():
            parameters = bucket.parameters()
            if any(id(parameter) not in here.names for parameter in parameters):
                raise ValueError(
                    "DDP hands over a parameter that is not of this state's model as it was: attach(ddp) it again, on "
                    "every rank"
                )
            names = tuple(here.names[id(parameter)] for parameter in parameters)
            return self._threads.submit(bucket.buffer(), names, bucket.is_last(), here.used_of(names))


def compress_hook(state: CompressionState, bucket: GradBucket) -> torch.futures.Future[Tensor]:
    """The hook for ``DistributedDataParallel.register_comm_hook``: the ranks' mean gradient by compressed messages."""
    return state.submit(bucket)


# DDP compares a hook's annotations with these objects, and deferred ones are strings
compress_hook.__annotations__.update({"bucket": GradBucket, "return": torch.futures.Future[Tensor]})
