"""The DDP communication hook: compressed gradients in an ordinary DistributedDataParallel training.

::

    state = nuq.CompressionState(ddp, method="alq", bits=3)
    ddp.register_comm_hook(state, nuq.compress_hook)

DDP hands over bucket after bucket while the backward pass goes on.  A thread of the state exchanges them one after
another, so encoding, sending and decoding overlap with the backward pass (and no collective is issued from a future's
callback, where gloo deadlocks); DDP waits for the buckets' futures.  What lasts is keyed by parameter name: DDP
rebuilds its buckets after the first step.
"""

from __future__ import annotations

import functools
import math
import zlib
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._C._distributed_c10d import GradBucket

from nuq.compressors import frame, message
from nuq.compressors.feedback import keep_fitting
from nuq.errors import NonFiniteError
from nuq.exchange import agreement, gate, saved_state, summary
from nuq.exchange.bucket_thread import BucketThread
from nuq.exchange.collective_factory import Dense, build
from nuq.exchange.collectives.collective import ExchangeStats, WorkerPlacement
from nuq.exchange.compressor_map import CompressorMap, by_encoder, sorted_settings
from nuq.exchange.ddp_buckets import Bucket, Plan, made
from nuq.exchange.level_updates import RankLevels
from nuq.exchange.payload import check_mean
from nuq.exchange.transport import Transport, apart, backend_of
from nuq.kernels.spec import Key
from nuq.parameters import met_dense, trained
from nuq.settings import layers as layer_list
from nuq.settings.exchange import Hook, HookExchange
from nuq.settings.feedback import HookFeedback

_OTHER_DEFAULTS: dict[str, Any] = {"scope": "tensor", "update_at": [0, 10, 100, 2000]}  # one vector per parameter


class CompressionState:
    """The state of ``compress_hook`` between steps: settings, levels, residuals, and the thread that exchanges.

    model: the DistributedDataParallel module (or what it wraps); it gives the parameters' names.  Building a state is a
    collective call: every rank makes it, with the same settings.  settings: those of the method (``bits=3``,
    ``update_every=1000``, ...), and of ``nuq.settings.exchange`` the ``Exchange`` (``collective="auto"``,
    ``second_bits=4``, ``num_aggregate=0``) and ``Hook`` (``min_size``, ``gate``, ...), and
    ``nuq.settings.feedback.HookFeedback`` (``feedback="error"``, ...).  layers: lines of ``nuq.settings.layers`` for
    parameters with a method of their own.  A vector of several parameters (scope="model") is exchanged when the last
    bucket is there, so nothing of that step overlaps with the backward pass; so is the first gradient, to which
    adaptive methods fit their levels (``update_at`` with 0).  group: of the ranks, for this state alone; unless told
    otherwise the module's own, or all ranks once more where that would be mixed up with DDP's own collectives
    (``nuq.exchange.transport.apart``).

    ValueError for a setting that does not exist or is out of range, for sparse gradients, and where ranks differ in
    settings, versions or parameters.  Errors of an exchange end the backward pass, and ``error`` keeps them:
    NonFiniteError names the worker and the parameter, RankLost the rank that died, MessageError a message that came
    damaged.  (In DDP's ``join``, as RuntimeError with their text.)
    """

    exchange: HookExchange
    hook: Hook
    feedback: HookFeedback

    def __init__(
        self,
        model: nn.Module | None = None,
        *,
        method: str = "alq",
        group: dist.ProcessGroup | None = None,
        layers: Sequence[str] = (),
        **settings: Any,
    ) -> None:
        every = sorted_settings(method, (HookExchange, Hook, HookFeedback), settings, _OTHER_DEFAULTS)
        self.method_settings, self.exchange, self.hook, self.feedback = every
        self.method, self.layers = method, layer_list.listed(layers)
        self._lines = layer_list.parsed(self.layers, _OTHER_DEFAULTS, beside=method)
        self.feedback.check([method, *(line.method for line in self._lines)], self.exchange.collective)
        for own in (self.method_settings, *(line.settings for line in self._lines)):
            if getattr(own, "statistics", "running") != "running":
                raise ValueError(
                    f"statistics={own.statistics!r}: the hook sees the training's own gradients alone; legal here: "
                    f"running"
                )
        self.step = self._begun = 0  # the latter: of the training at which this process began
        self.gate_s: dict[str, float] = {}  # what the gate measured: seconds by collective
        self._saved: dict[str, Any] | None = None
        self._names: dict[int, str] = {}  # of the parameters by identity; empty: not attached
        self._thread = BucketThread(self._exchange_all, lambda: self._waits or self._begins)
        if model is not None:
            self.attach(model, group)

    # --- what a process has and a file has not ---

    def attach(self, model: nn.Module, group: dist.ProcessGroup | None = None) -> None:
        """Bind the state to a model and its ranks.  A collective call.

        It is for a state that was built without a model or comes from a file, and again where parameters were added,
        frozen or unfrozen: what the state has learned then stays, but for the residuals of parameters that changed.
        """
        carried = self._saved
        if self._names:
            self.close()
            carried = self.state_dict()
        if not dist.is_available() or not dist.is_initialized():
            raise ValueError(
                "a CompressionState exchanges between processes: call torch.distributed.init_process_group first"
            )
        parameters = self._parameters = met_dense(trained(model))
        self._model = model  # keeps the parameters alive, whose identities are the keys
        device = self._device = next(iter(parameters.values())).device if parameters else torch.device("cpu")
        self._sizes = {name: p.numel() for name, p in parameters.items()}
        self._shapes = {name: tuple(p.shape) for name, p in parameters.items()}
        shared = getattr(model, "process_group", None) or dist.group.WORLD
        assert isinstance(shared, dist.ProcessGroup)
        versions = {"message version": message.VERSION, "frame version": frame.VERSION, "torch": torch.__version__}
        chosen = {"method": self.method, **self._settings}
        # a transport apart from the buckets' messages
        self._told = Transport(group or shared, timeout_s=self.hook.timeout_s, device=device)
        chosen |= {"layers": self.layers, **{f"parameter {name}": list(shape) for name, shape in self._shapes.items()}}
        agreement.check_settings(self._told, versions | chosen)
        dense = self.exchange.collective == "dense" or self.hook.gate  # all else that gloo sends is matched by tag
        self._compressors = CompressorMap(self.method, self.method_settings, self.exchange.second_bits, self._lines)
        self._compressors.assign(self._shapes)
        of_dense = "gate=True" if self.hook.gate else "collective='dense'" if dense else ""
        self._compressors.check_momentum(self._shapes, self.feedback.settings(), of_dense, skip_1d=self.hook.skip_1d)
        if group is None and (dense or backend_of(shared, device.type) == "nccl"):
            group = apart(shared)
        self.group = group or shared
        self.transport = Transport(self.group, timeout_s=self.hook.timeout_s, device=device)
        self.stats = ExchangeStats()
        whole = self._compressors.arrange(self._shapes, self._exact)
        self._vectors = {segment.name: segment.size for segment in whole.segments if not segment.exact}
        momentum = {"momentum": self.feedback.momentum, "nesterov": self.feedback.nesterov}
        self._compressors.remember(self.feedback.settings(), whole, self.transport.world, **momentum)
        for memory in self._compressors.memories:
            memory.may_undo = self.hook.on_non_finite == "propagate"
        self._dense = Dense(self.transport, stats=self.stats)
        self.collective, self._collective = "dense", self._dense
        if self.exchange.collective != "dense":
            workers = 1 if self._compressors.single_worker else self.transport.world
            placement = WorkerPlacement.of(workers, self.transport.world)
            machines = {"per_machine": self.hook.per_machine}
            found = build(self._compressors, self.exchange, self.transport, placement, self.stats, **machines)
            self.collective, self._collective = found
        self._compressing = self._collective  # also where the gate turns to the dense one
        self._agreed = False
        self._levels = RankLevels(self._compressors, self.transport, self.hook.seed, self.stats)
        of_model = any(each.scope == "model" for each in self._compressors.every)
        self._waits = self.exchange.collective != "dense" and of_model
        self._shaped = any(codec.compressor.shaped for codec in self._compressors.codec.every)
        self._plans: dict[tuple[str, ...], Plan] = {}
        # the next bucket is the first of its step; a bucket of this step was not finite
        self._first, self._skipped = True, False
        self._names = {id(p): name for name, p in parameters.items()}
        if carried is not None:
            if carried is not self._saved:
                keep_fitting(by_encoder(carried["coders"]), self._vectors)
            try:
                self.load_state_dict(carried)
            except ValueError:
                self._names = {}
                raise
        self._saved = None

    @property
    def _settings(self) -> dict[str, Any]:
        return vars(self.method_settings) | vars(self.exchange) | vars(self.hook) | vars(self.feedback)

    def __getstate__(self) -> dict[str, Any]:
        """The method, the layers, the settings and this rank's state: what a pickle keeps, without model and group."""
        return {"method": self.method, "layers": self.layers, "settings": self._settings, "state": self.state_dict()}

    def __setstate__(self, saved: dict[str, Any]) -> None:
        CompressionState.__init__(self, method=saved["method"], layers=saved.get("layers", ()), **saved["settings"])
        self._saved = saved["state"]

    def state_dict(self) -> dict[str, Any]:
        """This rank's state as plain numbers and tensors; every rank saves its own, as residuals and samples differ."""
        if not self._names:
            return self._saved or {}
        return {
            "method": self.method,
            "step": self.step,
            "rank": self.transport.rank,
            "collective": self.collective,
            "coders": self._compressors.state_dict(),
            "layers": self.layers,
            "statistics": self._levels.rows(torch.device("cpu")),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a ``state_dict`` of this rank; all ranks' states are of the same step.

        Residuals are in the units of gradients, or a gradient scaler's.  Where nothing is remembered another rank's
        state will do: levels are alike, statistics begin anew.  ValueError, with nothing changed, for one of another
        method, other settings or another rank, and for entries that ``state_dict`` cannot have given.
        """
        saved_state.check_head(state, self.method, self.layers)
        if not self._names:
            self._saved = state
            return
        rank, second = self.transport.rank, self.exchange.collective not in ("auto", "hierarchical")
        compressors = saved_state.checked(state, self.state_dict(), self._vectors, rank, second=second)
        statistics = saved_state.statistics(state, self._levels.level_updaters, rank)
        self.step, self._begun, self._agreed = state["step"], state["step"], False
        self._compressors.load_state_dict(compressors, self._device)
        self._levels.go_on(statistics)
        if self.hook.gate and state["collective"] == "dense":  # its word still holds
            self.collective, self._collective = "dense", self._dense

    # --- what it does and what it costs ---

    @property
    def error(self) -> BaseException | None:
        """The error that ended an exchange; None as long as all went well."""
        return self._thread.error

    @property
    def levels(self) -> list[float]:
        """The method's levels in use, from -1 to 1; empty for methods without a level set."""
        levels = getattr(self._compressors.compressor, "levels", None) if self._names else None
        return [] if levels is None else levels.values.tolist()

    @property
    def bytes_sent(self) -> int:
        """Bytes that this rank has handed to the network; by purpose in ``transport.bytes_sent``."""
        every = [self.transport, *self._compressing.inner_transports] if self._names else []
        return sum(transport.bytes_sent.total() for transport in every)

    @property
    def seconds(self) -> dict[str, float]:
        """The seconds that the exchanging thread spent on encode, wire, decode and levels."""
        return dict(self.stats.seconds) if self._names else {}

    def summary(self) -> str:
        """Sentences on what the exchanges since ``attach`` took and saved here: collective, gate, bytes, time."""
        if not self._names:
            return f"{self.method}: without a model, nothing has been exchanged."
        size, steps = sum(self._sizes.values()), self.step - self._begun
        world = self.transport.world
        first = f"{self.method} by {self.collective}: {steps} steps of {size:,} coordinates on {world} ranks."
        of_gate = summary.of_gate(self.hook.gate, self.gate_s, size, self.collective, self.step - gate.STEP)
        return (
            f"{first} {summary.of_bytes(self.bytes_sent, size, self.transport.world, steps)} {of_gate} "
            f"{summary.of_seconds(self.seconds)}"
        )

    def close(self) -> None:
        """End the thread, after it has exchanged what it was given."""
        self._thread.close()
        if self._names and self.error is None:
            self._compressing.settle()

    # --- in the backward pass ---

    def submit(self, bucket: GradBucket) -> torch.futures.Future[Tensor]:
        """Hand a bucket to the thread; returns the future of its mean, in the bucket's own memory."""
        if not self._names:
            raise ValueError(
                "this CompressionState has no model: build it with CompressionState(ddp, ...), or call attach(ddp) on "
                "every rank"
            )
        if self.error is not None:
            raise RuntimeError(f"an earlier exchange failed: {self.error}") from self.error
        buffer = bucket.buffer()
        if any(id(parameter) not in self._names for parameter in bucket.parameters()):
            raise ValueError(
                "DDP hands over a parameter that is not of this state's model as it was: attach(ddp) it again, on "
                "every rank"
            )
        names = tuple(self._names[id(parameter)] for parameter in bucket.parameters())
        cuda = buffer.device.type == "cuda"
        ready = torch.cuda.current_stream(buffer.device).record_event() if cuda else None
        done: torch.futures.Future[None] = torch.futures.Future(devices=[buffer.device] if cuda else [])
        inside = torch._C._current_graph_task_id() != -1  # of a backward pass, unlike in DDP's join
        job = Bucket(buffer, names, bucket.is_last(), done, ready)
        self._thread.put(job)
        # an error that a future carries becomes a RuntimeError in DDP, one of the backward pass stays what it is
        if inside and job.last:
            after = torch.autograd.Variable._execution_engine.queue_callback
            # behind DDP's own callback, which is not there yet and waits for all futures
            after(lambda: after(self._raise))
        return done.then(lambda _: self._result(job, told=inside))

    def _result(self, job: Bucket, *, told: bool) -> Tensor:
        if not told:
            self._raise()
        return job.buffer

    def _raise(self) -> None:
        if self.error is not None:
            raise self.error

    @property
    def _begins(self) -> bool:
        """Whether levels are fitted to this step's gradient, which must be whole before any of it is sent."""
        return self.collective != "dense" and self._levels.begins

    def _exchange_all(self, jobs: list[Bucket]) -> None:
        """Exchange the buckets at hand: as one vector where a method's is one, else bucket by bucket."""
        if self._first:
            self._before_step(jobs[0].buffer.device)
            self._skipped = False
        several = [jobs] if self._waits else [[job] for job in jobs]
        if self._begins:
            self._begin(several)
        for some in several:
            self._exchange(some)

    def _exchange(self, jobs: list[Bucket]) -> None:
        """Write the mean of one vector over all ranks into the memory of its buckets."""
        self._first = last = jobs[-1].last
        plan = self._plan(tuple(name for job in jobs for name in job.names))
        layout, vector = plan.layout, plan.vector(jobs)
        key = Key(self.hook.seed, self.step, self.transport.rank)
        mean = vector if vector.dtype == torch.float32 else torch.empty_like(vector, dtype=torch.float32)
        if self.collective != "dense":
            self._levels.observe(vector, layout.segments, self.step)
        try:
            self._collective.mean({self.transport.rank: vector}, layout, key, mean)
            # an all-reduce checks nothing, the other collectives check float32
            if self.collective == "dense" or vector.dtype != torch.float32:
                check_mean(mean, layout, vector.dtype)
        except NonFiniteError:
            if self.hook.on_non_finite == "raise":
                raise
            mean.fill_(math.nan)  # what a gradient scaler looks for, to skip the step
            self._skipped = True
        for memory in self._compressors.memories if last else ():
            memory.settle(undo=self._skipped)
        plan.spread(mean, jobs)
        for job in jobs if self.hook.debug else ():
            agreement.check_same(self.transport, f"step {self.step}: the means of {', '.join(job.names)}", job.buffer)
        self.step += last

    def _exact(self, name: str, whole: bool) -> bool:
        """Whether a parameter travels in full precision; whole: else in one vector with others, whatever its size."""
        shape = self._shapes[name]
        if self._compressors.corrects_momentum(name, self.feedback.settings()):
            return False
        return (not whole and self._sizes[name] < self.hook.min_size) or (self.hook.skip_1d and len(shape) < 2)

    def _plan(self, names: tuple[str, ...]) -> Plan:
        """The plan for a bucket, with small neighbours together, or for all buckets, in the model's order."""
        if names not in self._plans:
            arrange = functools.partial(self._compressors.arrange, exact=self._exact)
            self._plans[names] = made(names, self._parameters, arrange, waits=self._waits, shaped=self._shaped)
        return self._plans[names]

    # --- before a step ---

    def _before_step(self, device: torch.device) -> None:
        if not self._agreed:
            levels = zlib.crc32(
                repr([(one.fitted, one.levels.values.tolist()) for one in self._compressors.adaptive]).encode()
            )
            agreement.check_settings(
                self._told, {"step": self.step, "collective": self.collective, "checksum of the levels": levels}
            )
            self._agreed = True
        if self.hook.gate and self.step == gate.STEP and self.collective != "dense":
            pair = [self._collective, self._dense]
            spent = gate.seconds(pair, self.transport, sum(self._sizes.values()), device)
            self.gate_s = dict(zip((self.collective, "dense"), spent, strict=True))
            if spent[0] >= spent[1]:
                self.collective, self._collective = "dense", self._dense
        if self.collective != "dense":
            self._levels.update(self.step)
        if self.hook.debug:
            for compressor in self._compressors.adaptive:
                levels = torch.tensor(compressor.levels.values, dtype=torch.float64)
                agreement.check_same(self.transport, f"step {self.step}: the levels", levels)

    def _begin(self, several: list[list[Bucket]]) -> None:
        """Fit levels to this step's gradient in the model's order, whatever order DDP has."""
        plans = [(jobs, self._plan(tuple(name for job in jobs for name in job.names))) for jobs in several]
        found = {
            segment.name: (vector, segment)
            for jobs, plan in plans
            for vector in [plan.vector(jobs)]
            for segment in plan.layout.segments
        }
        self._levels.begin([found[name] for name in self._vectors if name in found], self.step)


def compress_hook(state: CompressionState, bucket: GradBucket) -> torch.futures.Future[Tensor]:
    """The hook for ``DistributedDataParallel.register_comm_hook``: the ranks' mean gradient by compressed messages."""
    return state.submit(bucket)


# DDP compares a hook's annotations with these objects, and deferred ones are strings
compress_hook.__annotations__.update({"bucket": GradBucket, "return": torch.futures.Future[Tensor]})
